//! Tests of what each milestone of an update reports, of several milestones in one write, and of the patch between two
//! statuses.

use super::*;
use api::v1::NodeStepCondition;
use rollout::machine_config_nodes::advance;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn prepared(cost: Cost, not_live: &str) -> Milestone {
    Milestone::Prepared { cost, not_live: not_live.to_owned() }
}

#[test]
fn an_update_that_reboots_after_all_says_why() {
    let cost = Cost { drain: true, reboot: true };
    let said =
        prepared(cost, "spec.extensions: it could not be applied").progress("n", &NodeFacts::default());
    let text = &said[0].parent.message;
    assert!(text.ends_with("reboot: true; spec.extensions: it could not be applied"), "{text}");
    assert!(
        prepared(cost, "").progress("n", &NodeFacts::default())[0].parent.message.ends_with("reboot: true")
    );
}

#[test]
fn an_update_sets_its_conditions_in_order_and_the_next_one_resets_them() {
    let node = NodeFacts { desired: "rendered-worker-2".into(), ..NodeFacts::default() };
    let steps = [
        (Milestone::UpdateNeeded, c::UPDATED, "False"),
        (prepared(Cost::default(), ""), c::UPDATE_PREPARED, "True"),
        (Milestone::Pulling("1.0 GB of 2.0 GB".to_owned()), c::IMAGE_PULLED, "Unknown"),
        (Milestone::NotPulled("no such host".to_owned()), c::IMAGE_PULLED, "False"),
        (Milestone::Pulling("2.0 GB".to_owned()), c::IMAGE_PULLED, "Unknown"),
        (Milestone::Pulled, c::IMAGE_PULLED, "True"),
        (Milestone::Applying, c::APPLIED_FILES_AND_OS, "Unknown"),
        (Milestone::Applied { reboots: true, services: vec![] }, c::APPLIED_FILES_AND_OS, "True"),
        (Milestone::Rebooting, c::REBOOTED_NODE, "Unknown"),
        (Milestone::Rebooted, c::REBOOTED_NODE, "True"),
        (Milestone::Updated, c::UPDATED, "True"),
        (Milestone::Troubled, c::UPDATED, "True"),
        (Milestone::Troubled, c::NODE_DEGRADED, "True"),
        (Milestone::Updated, c::NODE_DEGRADED, "False"),
        (Milestone::UpdateNeeded, c::UPDATE_PREPARED, "False"),
    ];
    let mut status = None;
    for (milestone, type_, want) in steps {
        let view = node_view("n", &node);
        let said =
            |second| milestone.progress("n", &node).into_iter().map(move |p| (at(second), p)).collect();
        let (first, again): (Vec<TimedProgress>, Vec<TimedProgress>) = (said(1), said(2));
        status = after(status.as_ref(), &first, &view, 1).or(status);
        let list = status.as_ref().and_then(|s| s.conditions.clone()).unwrap();
        let got = list.iter().find(|c| c.type_ == type_).unwrap();
        assert_eq!(got.status, want, "{milestone:?}");
        // metav1.Condition: a reason is one word and not empty.
        assert!(list.iter().all(|c| !c.reason.is_empty() && !c.reason.contains(' ')), "{list:?}");
        // The same milestone again changes nothing.
        assert_eq!(after(status.as_ref(), &again, &view, 1), None, "{milestone:?}");
    }
}

#[test]
fn every_step_has_the_references_reason_and_message() {
    let node = NodeFacts {
        desired: "rendered-worker-2".into(),
        current: "rendered-worker-1".into(),
        reason: "disk".into(),
        ..NodeFacts::default()
    };
    let no = |back| Milestone::NotCordoned { back, why: "denied".to_owned() };
    let applied = |reboots, services: &[&str]| Milestone::Applied {
        reboots,
        services: services.iter().map(|s| (*s).to_owned()).collect(),
    };
    let cost = |drain| prepared(Cost { drain, reboot: true }, "");
    // Condition, status, reason.
    type Row = (Milestone, &'static [(&'static str, &'static str, &'static str)]);
    let rows: [Row; 18] = [
        (Milestone::UpdateNeeded, &[("Updated", "False", "Updated")]),
        (Milestone::Refused("x".into()), &[("UpdatePrepared", "Unknown", "UpdatePrepared")]),
        (cost(true), &[("UpdatePrepared", "True", "UpdatePrepared")]),
        (
            cost(false),
            &[
                ("UpdatePrepared", "True", "UpdatePrepared"),
                ("UpdateExecuted", "Unknown", "Drained"),
                ("Drained", "False", "UpdateExecutedDrained"),
            ],
        ),
        (
            Milestone::Cordoned,
            &[
                ("UpdateExecuted", "Unknown", "Drained"),
                ("Cordoned", "True", "UpdateExecutedCordoned"),
                ("Drained", "Unknown", "UpdateExecutedDrained"),
            ],
        ),
        (
            no(false),
            &[("UpdateExecuted", "Unknown", "Cordoned"), ("Cordoned", "Unknown", "UpdateExecutedCordoned")],
        ),
        (
            Milestone::Drained,
            &[("UpdateExecuted", "Unknown", "Drained"), ("Drained", "True", "UpdateExecutedDrained")],
        ),
        (
            Milestone::Applying,
            &[
                ("UpdateExecuted", "Unknown", "AppliedFilesAndOS"),
                ("AppliedFilesAndOS", "Unknown", "UpdateExecutedAppliedFilesAndOS"),
            ],
        ),
        (
            applied(true, &["reloaded crio"]),
            &[
                ("UpdateExecuted", "True", "AppliedFilesAndOS"),
                ("AppliedFilesAndOS", "True", "UpdateExecutedAppliedFilesAndOS"),
            ],
        ),
        (applied(false, &[]), &[("UpdatePostActionComplete", "True", "None")]),
        (
            applied(false, &["reloaded crio"]),
            &[("UpdatePostActionComplete", "True", "UpdatePostActionComplete")],
        ),
        (Milestone::Rebooting, &[("RebootedNode", "Unknown", "RebootedNode")]),
        (Milestone::Rebooted, &[("RebootedNode", "True", "RebootedNode")]),
        (
            Milestone::Uncordoned,
            &[("UpdateComplete", "True", "Uncordoned"), ("Uncordoned", "True", "UpdateCompleteUncordoned")],
        ),
        (
            no(true),
            &[
                ("UpdateComplete", "Unknown", "Uncordoned"),
                ("Uncordoned", "Unknown", "UpdateCompleteUncordoned"),
            ],
        ),
        (Milestone::Updated, &[("Updated", "True", "Updated"), ("NodeDegraded", "False", "NodeDegraded")]),
        (Milestone::Troubled, &[("Updated", "True", "Updated")]),
        (Milestone::Degraded, &[("NodeDegraded", "True", "NodeDegraded")]),
    ];
    for (milestone, want) in rows {
        let said: Vec<TimedProgress> =
            milestone.progress("n", &node).into_iter().map(|p| (at(1), p)).collect();
        let status = after(None, &said, &node_view("n", &node), 1).unwrap();
        for (type_, value, reason) in want {
            let list = status.conditions.as_deref().unwrap();
            let got = list.iter().find(|c| c.type_ == *type_).unwrap();
            assert_eq!(
                (got.status.as_str(), got.reason.as_str()),
                (*value, *reason),
                "{milestone:?}: {type_}"
            );
        }
    }
    let said = applied(false, &["reloaded crio"]).progress("n", &node);
    assert_eq!(said[1].parent.message, "reloaded crio");
}

#[test]
fn steps_written_together_keep_their_own_times_and_messages() {
    let node = NodeFacts { desired: "rendered-worker-2".into(), ..NodeFacts::default() };
    let view = node_view("n", &node);
    let steps = [
        Milestone::UpdateNeeded,
        prepared(Cost { drain: true, reboot: true }, ""),
        Milestone::Cordoned,
        Milestone::Drained,
        Milestone::Applying,
        Milestone::Applied { reboots: true, services: vec![] },
        Milestone::Rebooting,
        Milestone::Rebooted,
        Milestone::Uncordoned,
        Milestone::Updated,
    ];
    for upto in 1..=steps.len() {
        let said: Vec<TimedProgress> = (1..)
            .zip(&steps[..upto])
            .flat_map(|(second, m)| m.progress("n", &node).into_iter().map(move |p| (at(second), p)))
            .collect();
        let alone = said.iter().fold(None, |old: Option<MachineConfigNodeStatus>, one| {
            after(old.as_ref(), std::slice::from_ref(one), &view, 1).or(old)
        });
        assert_eq!(after(None, &said, &view, 1), alone, "{upto} steps");
    }
    let said: Vec<TimedProgress> = (1..)
        .zip(&steps[..8])
        .flat_map(|(second, m)| m.progress("n", &node).into_iter().map(move |p| (at(second), p)))
        .collect();
    let list = after(None, &said, &view, 1).and_then(|s| s.conditions).unwrap();
    let times: Vec<i64> = [c::CORDONED, c::DRAINED, c::APPLIED_FILES_AND_OS, c::REBOOTED_NODE]
        .iter()
        .map(|t| list.iter().find(|c| c.type_ == *t).unwrap().last_transition_time.0.as_second())
        .collect();
    assert_eq!(times, [3, 4, 6, 8]);
}

/// The status after one condition was set.
fn step(old: Option<&MachineConfigNodeStatus>, type_: &str, second: i64) -> MachineConfigNodeStatus {
    let node = NodeView { desired_config: Some("rendered-worker-2".into()), ..NodeView::default() };
    let at = Time(Timestamp::from_second(second).unwrap());
    advance(old, &Progress::of(type_, "True", "said"), &node, second, &at).unwrap()
}

#[test]
fn a_patch_turns_the_old_status_into_the_new_one() {
    let first = step(None, c::UPDATE_PREPARED, 1);
    for type_ in [c::UPDATED, c::REBOOTED_NODE, c::NODE_DEGRADED] {
        let next = step(Some(&first), type_, 2);
        let mut object = json!({"spec": {"moved": "on"}, "status": first});
        json_patch::patch(&mut object, &patch(&first, &next).unwrap()).unwrap();
        assert_eq!(object, json!({"spec": {"moved": "on"}, "status": next}));
    }
}

#[test]
fn a_condition_that_is_missing_is_added() {
    let mut short = step(None, c::UPDATE_PREPARED, 1);
    short.conditions.as_mut().unwrap().pop();
    let next = step(Some(&short), c::UPDATED, 2);
    let mut object = json!({"status": short});
    json_patch::patch(&mut object, &patch(&short, &next).unwrap()).unwrap();
    assert_eq!(object, json!({"status": next}));
}

#[test]
fn a_patch_conflicts_only_with_writes_to_the_same_conditions() {
    let first = step(None, c::UPDATE_PREPARED, 1);
    let next = step(Some(&first), c::REBOOTED_NODE, 2);
    let patch = patch(&first, &next).unwrap();
    let other = |type_: &str| {
        let mut status = first.clone();
        let list = status.conditions.as_mut().unwrap();
        let one: &mut NodeStepCondition = list.iter_mut().find(|c| c.type_ == type_).unwrap();
        one.message = "of somebody else".to_owned();
        json!({ "status": status })
    };
    let mut elsewhere = other("PinnedImageSetsDegraded");
    json_patch::patch(&mut elsewhere, &patch).unwrap();
    let texts = elsewhere.to_string();
    assert!(texts.contains("of somebody else") && texts.contains("said"), "{texts}");
    json_patch::patch(&mut other(c::REBOOTED_NODE), &patch).unwrap_err();
}

#[test]
fn a_status_is_written_whole_where_no_patch_can_be_guarded() {
    let new = step(None, c::UPDATED, 1);
    assert_eq!(patch(&MachineConfigNodeStatus::default(), &new), None);
    let mut turned = new.clone();
    turned.conditions.as_mut().unwrap().reverse();
    assert_eq!(patch(&turned, &new), None);
}

#[test]
fn an_update_that_ends_is_written_down_whether_its_steps_were_written_before_or_not() {
    let node = NodeFacts {
        desired: "rendered-worker-2".into(),
        current: "rendered-worker-2".into(),
        ..NodeFacts::default()
    };
    let view = node_view("n", &node);
    let steps = [
        (Milestone::UpdateNeeded, 0),
        (prepared(Cost { drain: true, reboot: true }, ""), 1),
        (Milestone::Cordoned, 2),
        (Milestone::Drained, 22),
        (Milestone::Applying, 23),
        (Milestone::Applied { reboots: true, services: vec![] }, 30),
        (Milestone::Rebooting, 31),
        (Milestone::Rebooted, 60),
        (Milestone::Uncordoned, 65),
        (Milestone::Updated, 66),
    ];
    let said: Vec<TimedProgress> = steps
        .iter()
        .flat_map(|(milestone, second)| {
            milestone.progress("n", &node).into_iter().map(move |p| (at(*second), p))
        })
        .collect();
    for written in 0..said.len() {
        let (before, left) = said.split_at(written);
        let status = after(None, before, &view, 1);
        let noted = finished_update(status.as_ref(), left, &view, 1);
        // Its last milestone says several things; the first of them withdraws nothing.
        let Some(noted) = noted else {
            assert!(left.iter().all(|(_, p)| p.parent.type_ != c::UPDATED), "{written}");
            continue;
        };
        assert_eq!((noted.config.as_str(), noted.began), ("rendered-worker-2", at(2)), "{written}");
        let parts = (noted.drained, noted.applied, noted.rebooted, noted.uncordoned, noted.done);
        assert_eq!(parts, (Some(20), Some(28), Some(58), Some(63), 64), "{written}");
    }
    // An agent that starts, or says so again, has made no update.
    let done = after(None, &said, &view, 1);
    let again: Vec<TimedProgress> =
        Milestone::Updated.progress("n", &node).into_iter().map(|p| (at(90), p)).collect();
    for status in [None, done.as_ref()] {
        assert_eq!(finished_update(status, &again, &view, 1), None);
    }
}
