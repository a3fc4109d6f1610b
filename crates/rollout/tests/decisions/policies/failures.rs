//! Configs and nodes that fail: what is rejected, what goes back, and in which order.

use super::*;
use rollout::Change;
use rollout::view::DaemonState;

#[test]
fn a_config_that_fails_is_rejected_and_the_newest_node_goes_back_first_within_the_bound() {
    let waves = vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)];
    let policy = Policy {
        name: "p".into(),
        waves,
        gates: vec![gate("ready", false, false, true)],
        rolls_back: true,
        ..Policy::default()
    };
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(1, 0), &policy, &mut facts, NOON);
    assert_eq!(facts.progress.wave.as_deref(), Some("rest"));
    facts.gates = [("ready".into(), GateState::Failed("Ready is not True on a".to_owned()))].into();
    // The reason is written down first; no node goes anywhere meanwhile.
    let plan = planned(&six(4, 1), &policy, &facts, NOON);
    let moves = plan.patches.iter().filter(|p| !p.desired_config.is_keep()).count();
    assert_eq!((&*goes(&plan), moves), ("", 0), "{plan}");
    facts.progress = plan.policy.unwrap().progress;
    let rejected: Vec<_> = facts.progress.rejected.iter().map(|r| (&*r.config, &*r.reason)).collect();
    assert_eq!(rejected, [("new", "gate ready fails: Ready is not True on a")]);
    // Four are done and one is on its way: that one turns round in the slot that it has, and two more go.
    let plan = settled(&six(4, 1), &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "cde", "{plan}");
    for patch in plan.patches.iter().filter(|p| !p.desired_config.is_keep()) {
        assert_eq!(patch.desired_config, rollout::Change::Set("old".into()));
    }
    let status = plan.status.unwrap();
    let conditions = status.conditions.unwrap();
    let degraded = api::conditions::get(&conditions, "Degraded").unwrap();
    assert!(
        degraded.status == "True" && degraded.message.contains("MachineConfig new is rejected"),
        "{degraded:?}"
    );
    assert!(degraded.message.contains("go back to old"), "{degraded:?}");
    assert_eq!((status.updated_machine_count, &*status.configuration.name), (4, ""));
    // All are back: it stays so, until the policy or the pool's config changes.
    let plan = settled(&six(0, 0), &policy, &mut facts, NOON);
    assert_eq!(goes(&plan), "");
    assert!(hold(&plan).starts_with("MachineConfig new is rejected: gate ready fails"), "{plan}");
    assert!(plan.hold.unwrap().needs_a_person());
    facts.progress.rejected.clear();
    facts.gates = [("ready".into(), GateState::Passed)].into();
    facts.baselines = [("ready".into(), vec![])].into();
    assert_eq!(goes(&settled(&six(0, 0), &policy, &mut facts, NOON)), "a");
    // Without a proved config, or with a gate that failed before anything moved, the pool only holds.
    for (proved, moved) in [(None, 1), (Some("old".to_owned()), 0)] {
        let mut facts = under_way(&policy, &six(0, 0));
        facts.progress.proved = proved;
        facts.gates = [("ready".into(), GateState::Failed("no".to_owned()))].into();
        let plan = settled(&six(moved, 0), &policy, &mut facts, NOON);
        assert_eq!((&*goes(&plan), &*hold(&plan)), ("", "gate ready fails: no"));
        assert_eq!(facts.progress.rejected, []);
    }
}

#[test]
fn a_node_past_its_deadline_has_failed_and_one_that_is_sick_for_its_own_reasons_takes_no_slot() {
    let policy = Policy {
        rolls_back: true,
        node_deadline: Some(hours(1)),
        unrelated_unavailable: Some(IntOrString::Int(1)),
        ..Policy::default()
    };
    let mut facts = under_way(&policy, &six(0, 0));
    facts.sent = [("a".into(), at("2026-07-01T11:30:00Z"))].into();
    let plan = settled(&six(0, 1), &policy, &mut facts, NOON);
    assert_eq!((plan.hold, plan.look_again), (None, Some(at("2026-07-01T12:30:00Z"))));
    // What the node says itself counts for every leader.
    let mut nodes = six(0, 1);
    nodes[0].sent = Some("new 2026-07-01T11:15:00Z".into());
    let plan = settled(&nodes, &policy, &mut facts, NOON);
    assert_eq!(plan.look_again, Some(at("2026-07-01T12:15:00Z")));
    nodes[0].sent = Some("older 2026-07-01T01:15:00Z".into());
    assert_eq!(settled(&nodes, &policy, &mut facts, NOON).look_again, Some(at("2026-07-01T12:30:00Z")));
    // One that has arrived and drifts there counts from when that was seen.
    let mut drifts = six(1, 0);
    (drifts[0].state, drifts[0].sent) = (DaemonState::Degraded, Some("new 2026-07-01T01:00:00Z".into()));
    let plan_of_drift = settled(&drifts, &policy, &mut facts.clone(), NOON);
    assert!(plan_of_drift.policy.unwrap().progress.rejected.is_empty());
    // Without a deadline an older time goes with the next config.
    let unlimited = Policy { node_deadline: None, ..policy.clone() };
    let mut old = six(0, 0);
    old[0].sent = Some("new 2026-07-01T01:00:00Z".into());
    let next = settled(&old, &unlimited, &mut under_way(&unlimited, &old), NOON);
    assert!(next.patches.iter().any(|p| p.sent == Change::Remove), "{next}");
    let sent = Change::Set("new 2026-07-01T12:00:00Z".into());
    assert!(plan.patches.iter().any(|p| p.sent == sent), "{plan}");
    settled(&six(0, 1), &policy, &mut facts, "2026-07-01T12:30:00Z");
    let reason = &facts.progress.rejected[0].reason;
    assert!(reason.starts_with("node a failed: it has not reached the config within"), "{reason}");
    let mut sick = six(0, 0);
    sick[5].not_ready = Some("Ready is False".into());
    let plan = settled(&sick, &policy, &mut under_way(&policy, &sick), NOON);
    assert_eq!(goes(&plan), "abc");
    let strict = Policy { unrelated_unavailable: None, ..policy };
    assert_eq!(goes(&settled(&sick, &strict, &mut under_way(&strict, &sick), NOON)), "ab");
}

#[test]
fn what_an_abandoned_change_left_behind_goes_first_whatever_gates_say() {
    let waves = vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)];
    let policy = Policy { waves, gates: vec![gate("ready", true, false, true)], ..Policy::default() };
    let mut facts = under_way(&policy, &six(0, 0));
    facts.gates = [("ready".into(), GateState::Failed("a is broken".to_owned()))].into();
    let plan = settled(&six(1, 0), &policy, &mut facts, NOON);
    assert_eq!(hold(&plan), "gate ready fails: a is broken");
    // The change is corrected. Node `a` is in the wrong config, and may be why the gate fails.
    let pool_config = "newer";
    for _ in 0..3 {
        facts.progress = planned_to(pool_config, &six(1, 0), &policy, &facts, NOON).policy.unwrap().progress;
    }
    let plan = planned_to(pool_config, &six(1, 0), &policy, &facts, NOON);
    assert_eq!((&*goes(&plan), &*hold(&plan)), ("a", ""), "{plan}");
    assert_eq!(plan.policy.unwrap().checks, [], "what it said before counts no longer");
}

#[test]
fn a_config_is_rejected_when_no_node_would_take_it_with_a_reboot_any_more() {
    let waves = vec![wave("canary", Members::Number(1)), wave("rest", Members::Rest)];
    let policy = Policy {
        waves,
        gates: vec![gate("ready", false, false, true)],
        rolls_back: true,
        ..Policy::default()
    };
    let mut facts = under_way(&policy, &six(0, 0));
    settled(&six(1, 0), &policy, &mut facts, NOON);
    facts.gates = [("ready".into(), GateState::Failed("no".to_owned()))].into();
    let mut nodes = six(1, 0);
    nodes[3].waiting = Some("new".into());
    let plan = planned(&nodes, &policy, &facts, NOON);
    assert!(plan.patches.iter().any(|p| &*p.node == "d" && p.waiting == Change::Remove), "{plan}");
    assert_eq!(plan.policy.unwrap().progress.rejected, []);
    nodes[3].waiting = None;
    let plan = planned(&nodes, &policy, &facts, NOON);
    assert_eq!(plan.policy.unwrap().progress.rejected.len(), 1);
}
