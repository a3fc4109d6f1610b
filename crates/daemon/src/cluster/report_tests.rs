//! Tests of what each milestone of an update reports, and of several milestones in one write.

use super::*;
use crate::protocol::Cost;
use api::names::node_condition as c;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn an_update_walks_through_its_conditions_and_starts_them_anew() {
    let node = NodeFacts { desired: "rendered-worker-2".into(), ..NodeFacts::default() };
    let steps = [
        (Milestone::Wanted, c::UPDATED, "False"),
        (Milestone::Prepared(Cost::default()), c::UPDATE_PREPARED, "True"),
        (Milestone::Applying, c::APPLIED_FILES_AND_OS, "Unknown"),
        (Milestone::Applied { reboots: true, services: vec![] }, c::APPLIED_FILES_AND_OS, "True"),
        (Milestone::Rebooting, c::REBOOTED_NODE, "Unknown"),
        (Milestone::Rebooted, c::REBOOTED_NODE, "True"),
        (Milestone::Updated, c::UPDATED, "True"),
        (Milestone::Troubled, c::UPDATED, "True"),
        (Milestone::Troubled, c::NODE_DEGRADED, "True"),
        (Milestone::Updated, c::NODE_DEGRADED, "False"),
        (Milestone::Wanted, c::UPDATE_PREPARED, "False"),
    ];
    let mut status = None;
    for (milestone, type_, want) in steps {
        let view = node_view("n", &node);
        let said = |second| milestone.says("n", &node).into_iter().map(move |p| (at(second), p)).collect();
        let (first, again): (Vec<Said>, Vec<Said>) = (said(1), said(2));
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
fn every_step_says_what_the_reference_says_of_it() {
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
    let cost = |drain| Milestone::Prepared(Cost { drain, reboot: true });
    // Condition, status, reason.
    type Row = (Milestone, &'static [(&'static str, &'static str, &'static str)]);
    let rows: [Row; 18] = [
        (Milestone::Wanted, &[("Updated", "False", "Updated")]),
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
        let said: Vec<Said> = milestone.says("n", &node).into_iter().map(|p| (at(1), p)).collect();
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
    let said = applied(false, &["reloaded crio"]).says("n", &node);
    assert_eq!(said[1].parent.message, "reloaded crio");
}

#[test]
fn steps_in_one_write_keep_each_its_own_time_and_say_what_they_would_have_said_alone() {
    let node = NodeFacts { desired: "rendered-worker-2".into(), ..NodeFacts::default() };
    let view = node_view("n", &node);
    let steps = [
        Milestone::Wanted,
        Milestone::Prepared(Cost { drain: true, reboot: true }),
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
        let said: Vec<Said> = (1..)
            .zip(&steps[..upto])
            .flat_map(|(second, m)| m.says("n", &node).into_iter().map(move |p| (at(second), p)))
            .collect();
        let alone = said.iter().fold(None, |old: Option<MachineConfigNodeStatus>, one| {
            after(old.as_ref(), std::slice::from_ref(one), &view, 1).or(old)
        });
        assert_eq!(after(None, &said, &view, 1), alone, "{upto} steps");
    }
    let said: Vec<Said> = (1..)
        .zip(&steps[..8])
        .flat_map(|(second, m)| m.says("n", &node).into_iter().map(move |p| (at(second), p)))
        .collect();
    let list = after(None, &said, &view, 1).and_then(|s| s.conditions).unwrap();
    let times: Vec<i64> = [c::CORDONED, c::DRAINED, c::APPLIED_FILES_AND_OS, c::REBOOTED_NODE]
        .iter()
        .map(|t| list.iter().find(|c| c.type_ == *t).unwrap().last_transition_time.0.as_second())
        .collect();
    assert_eq!(times, [3, 4, 6, 8]);
}
