//! Windows, freezes, waves, gates and approvals as a plan shows them, and a check that nothing changes without a
//! policy.

use super::*;
use crate::plan::{Facts, Hold, Inputs, PoolInput, PoolPlan, Step};
use crate::view::NodeView;
use crate::{Cluster, plan};
use api::k8s::{IntOrString, LabelSelector, Node};
use api::v1::MachineConfigPool;
use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde_json::json;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Central European Time as a rule, not read from a file.
fn berlin() -> TimeZone {
    TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
}

fn hours(n: i64) -> SignedDuration {
    SignedDuration::from_hours(n)
}

#[test]
fn a_window_opens_by_the_clock_of_its_zone_and_closes_when_its_time_is_over() {
    use crate::policy::calendar::Opening::{Open, Shut};
    let rows = [
        // Every night at ten, for four hours: 20:00 UTC in summer, 21:00 in winter.
        ("0 22 * * *", 4, "2026-07-01T19:59:59Z", Shut(Some(at("2026-07-01T20:00:00Z")))),
        ("0 22 * * *", 4, "2026-07-01T20:00:00Z", Open(at("2026-07-02T00:00:00Z"))),
        ("0 22 * * *", 4, "2026-07-01T23:59:59Z", Open(at("2026-07-02T00:00:00Z"))),
        ("0 22 * * *", 4, "2026-07-02T00:00:00Z", Shut(Some(at("2026-07-02T20:00:00Z")))),
        ("0 22 * * *", 4, "2026-12-01T20:30:00Z", Shut(Some(at("2026-12-01T21:00:00Z")))),
        // Saturdays.
        ("30 6 * * 6", 1, "2026-07-01T00:00:00Z", Shut(Some(at("2026-07-04T04:30:00Z")))),
        // On 29 March clocks go from two to three: a start at half past two is an hour later.
        ("30 2 * * *", 1, "2026-03-29T00:00:00Z", Shut(Some(at("2026-03-29T01:30:00Z")))),
        // On 25 October clocks go from three to two: the first half past two counts.
        ("30 2 * * *", 1, "2026-10-25T00:00:00Z", Shut(Some(at("2026-10-25T00:30:00Z")))),
        ("30 2 * * *", 1, "2026-10-25T01:30:00Z", Shut(Some(at("2026-10-26T01:30:00Z")))),
        // It lasts longer than the time between two starts, so it is always open.
        ("0 * * * *", 2, "2026-07-01T12:30:00Z", Open(at("2026-07-01T13:00:00Z"))),
        ("0 0 30 2 *", 1, "2026-07-01T12:30:00Z", Shut(None)),
        ("0 0 29 2 *", 1, "2026-07-01T12:30:00Z", Shut(Some(at("2028-02-28T23:00:00Z")))),
    ];
    for (cron, lasts, now, want) in rows {
        let window = Window::new(cron, berlin(), hours(lasts)).unwrap();
        assert_eq!(window.at(at(now)), want, "{cron} for {lasts} h at {now}");
    }
}

#[test]
fn a_window_that_cannot_be_says_why() {
    for (cron, lasts, want) in [
        ("0 22 * *", 1, "five fields"),
        ("0 22 * * * Europe/Berlin", 1, "five fields"),
        ("@daily", 1, "five fields"),
        ("0 25 * * *", 1, "0 25 * * *"),
        ("0 22 * * FUN", 1, "FUN"),
        ("0 22 * * *", 0, "longer"),
    ] {
        let error = Window::new(cron, TimeZone::UTC, hours(lasts)).unwrap_err().to_string();
        assert!(error.contains(want) && !error.contains('\n'), "{cron}: {error}");
    }
}

/// A node of pool `worker` in this config, in zone `zone`.
fn node(name: &str, zone: &str, current: &str, desired: &str) -> NodeView {
    let state = if current == desired { "Done" } else { "Working" };
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": "1",
            "labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": zone},
            "annotations": {
                "machineconfiguration.openshift.io/currentConfig": current,
                "machineconfiguration.openshift.io/desiredConfig": desired,
                "machineconfiguration.openshift.io/state": state,
            }},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    NodeView::interned(&node, &mut crate::view::Names::default())
}

fn pool(max: i32) -> MachineConfigPool {
    serde_json::from_value(json!({
        "metadata": {"name": "worker"},
        "spec": {
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "configuration": {"name": "new"}, "maxUnavailable": max,
        },
    }))
    .unwrap()
}

/// Six nodes, `a` to `f`, of which the first `done` are in the new config and the next `moving` are on their way.
fn six(done: usize, moving: usize) -> Vec<NodeView> {
    let one = |(i, name): (usize, &str)| match i {
        i if i < done => node(name, "z", "new", "new"),
        i if i < done + moving => node(name, "z", "old", "new"),
        _ => node(name, "z", "old", "old"),
    };
    ["a", "b", "c", "d", "e", "f"].into_iter().enumerate().map(one).collect()
}

fn planned(nodes: &[NodeView], policy: &Policy, facts: &PolicyFacts, now: &str) -> PoolPlan {
    let pool = pool(3);
    let cluster = Facts { cluster: Cluster::Plain, ..Facts::default() };
    let inputs = Inputs {
        pools: vec![PoolInput { policy: Some(PolicyInput { policy, facts }), ..PoolInput::of(&pool) }],
        nodes: nodes.iter().collect(),
        facts: &cluster,
        now: Time(at(now)),
    };
    let mut plan = plan(&inputs);
    assert_eq!(plan.look_again, plan.pools[0].look_again);
    plan.pools.remove(0)
}

fn goes(plan: &PoolPlan) -> String {
    plan.nodes.iter().filter(|n| n.step == Step::Goes).map(|n| &*n.node).collect()
}

fn wave(name: &str, members: Members) -> Wave {
    Wave {
        name: name.into(),
        members,
        max_unavailable: None,
        soak: SignedDuration::ZERO,
        needs_approval: false,
        gates: vec![],
    }
}

const NOON: &str = "2026-07-01T12:00:00Z";

#[test]
fn without_a_policy_and_with_one_that_asks_for_nothing_plans_are_the_same() {
    let (pool, nodes) = (pool(3), six(1, 1));
    let cluster = Facts { cluster: Cluster::Plain, ..Facts::default() };
    let inputs = Inputs {
        pools: vec![PoolInput::of(&pool)],
        nodes: nodes.iter().collect(),
        facts: &cluster,
        now: Time(at(NOON)),
    };
    let without = plan(&inputs);
    assert_eq!(without.look_again, None);
    assert_eq!(without.pools[0], planned(&nodes, &Policy::default(), &PolicyFacts::default(), NOON));
    assert_eq!(goes(&without.pools[0]), "cd");
}

#[test]
fn outside_of_windows_and_within_freezes_nothing_begins_and_what_is_under_way_ends() {
    let window = Window::new("0 14 * * *", TimeZone::UTC, hours(2)).unwrap();
    let freeze = Freeze {
        from: at("2026-07-01T15:00:00Z"),
        until: Some(at("2026-07-03T00:00:00Z")),
        reason: "quarter's end".to_owned(),
    };
    let policy = Policy { windows: vec![window], freezes: vec![freeze], ..Policy::default() };
    let rows = [
        (
            NOON,
            "",
            "no maintenance window is open; the next one opens at 2026-07-01T14:00:00Z",
            "2026-07-01T14:00:00Z",
        ),
        // The freeze comes before the window's end.
        ("2026-07-01T14:00:00Z", "cd", "", "2026-07-01T15:00:00Z"),
        (
            "2026-07-01T15:00:00Z",
            "",
            "a freeze is in force until 2026-07-03T00:00:00Z: quarter's end",
            "2026-07-03T00:00:00Z",
        ),
        ("2026-07-03T15:59:59Z", "cd", "", "2026-07-03T16:00:00Z"),
        (
            "2026-07-03T16:00:00Z",
            "",
            "no maintenance window is open; the next one opens at 2026-07-04T14:00:00Z",
            "2026-07-04T14:00:00Z",
        ),
    ];
    for (now, want, hold, again) in rows {
        let plan = planned(&six(1, 1), &policy, &PolicyFacts::default(), now);
        let held = plan.hold.as_ref().map(Hold::to_string).unwrap_or_default();
        assert_eq!((&*goes(&plan), &*held), (want, hold), "{now}");
        assert_eq!(plan.look_again, Some(at(again)), "{now}");
        let updating = plan.status.as_ref().and_then(|s| s.conditions.as_deref());
        let updating = api::conditions::get(updating.unwrap(), "Updating").unwrap();
        assert!(updating.message.contains(hold), "{now}: {}", updating.message);
        // A node that has finished loses its taint meanwhile, and one on its way is not called back.
        assert!(plan.patches.iter().all(|p| p.desired_config.is_keep() || want.contains(&*p.node)), "{plan}");
    }
    let mut ended = six(1, 0);
    let taint = json!({"key": "UpdateInProgress", "effect": "PreferNoSchedule"});
    ended[0].taints = [serde_json::from_value(taint).unwrap()].into();
    let plan = planned(&ended, &policy, &PolicyFacts::default(), NOON);
    assert!(plan.hold.is_some() && plan.patches.iter().any(|p| &*p.node == "a"), "{plan}");
    // If no node has to go, there is nothing to wait for.
    let plan = planned(&six(6, 0), &policy, &PolicyFacts::default(), NOON);
    assert_eq!((plan.hold, plan.look_again), (None, None));
}

#[test]
fn a_wave_begins_when_the_one_before_it_is_done_and_has_soaked() {
    let canary = Wave { soak: hours(1), ..wave("canary", Members::Number(1)) };
    let half = Wave { max_unavailable: Some(IntOrString::Int(1)), ..wave("half", Members::Percent(50)) };
    let policy = Policy { waves: vec![canary, half], ..Policy::default() };
    let facts = |since: &str| PolicyFacts {
        done_since: ["a", "b", "c", "d"].map(|n| (Arc::from(n), at(since))).into(),
        ..PolicyFacts::default()
    };
    let rows = [
        // Moving and done nodes, since when, who goes, what the last node reports, and when to plan again.
        ((0, 0), NOON, "a", "waits: wave canary goes first", None),
        ((0, 1), NOON, "", "waits: wave canary goes first", None),
        ((1, 0), "2026-07-01T11:30:00Z", "", "waits: its pool is held", Some("2026-07-01T12:30:00Z")),
        ((1, 0), "2026-07-01T11:00:00Z", "b", "waits: wave half goes first", None),
        ((1, 1), "2026-07-01T11:00:00Z", "", "waits: wave half goes first", None),
        ((3, 1), "2026-07-01T11:00:00Z", "", "waits: wave half goes first", None),
        // All waves have proved themselves: the rest goes, as many as the pool allows.
        ((4, 0), "2026-07-01T11:00:00Z", "ef", "goes now", None),
    ];
    for ((done, moving), since, want, last, again) in rows {
        let plan = planned(&six(done, moving), &policy, &facts(since), NOON);
        let about = format!("{done} done, {moving} moving, since {since}: {plan}");
        assert_eq!(goes(&plan), want, "{about}");
        assert_eq!(plan.nodes[5].step.to_string(), last, "{about}");
        assert_eq!(plan.look_again, again.map(at), "{about}");
    }
    let soaking = planned(&six(1, 0), &policy, &facts("2026-07-01T11:30:00Z"), NOON);
    assert_eq!(soaking.hold.unwrap().to_string(), "wave canary is done and soaks until 2026-07-01T12:30:00Z");
    // Since when is not known, so it counts from now.
    let plan = planned(&six(1, 0), &policy, &PolicyFacts::default(), NOON);
    assert_eq!(plan.look_again, Some(at("2026-07-01T13:00:00Z")));
    // A canary that fails keeps the others where they are.
    let mut failing = six(0, 1);
    failing[0].state = crate::view::DaemonState::Degraded;
    assert_eq!(goes(&planned(&failing, &policy, &facts(NOON), NOON)), "");
}

#[test]
fn a_wave_takes_the_same_nodes_whatever_has_become_of_them_and_never_those_of_an_earlier_one() {
    let selector: LabelSelector =
        serde_json::from_value(json!({"matchLabels": {"topology.kubernetes.io/zone": "z2"}})).unwrap();
    let waves = vec![
        wave("z2", Members::Selected(selector)),
        wave("some", Members::Percent(34)),
        wave("none", Members::Number(0)),
    ];
    let policy = Policy { waves, ..Policy::default() };
    let zones = |moved: &[&str]| -> Vec<NodeView> {
        let one = |name: &str| {
            let zone = if ["c", "f"].contains(&name) { "z2" } else { "z1" };
            let config = if moved.contains(&name) { "new" } else { "old" };
            node(name, zone, config, config)
        };
        ["a", "b", "c", "d", "e", "f"].map(one).into()
    };
    for (moved, want) in [
        (&[][..], "cf"),
        (&["c"], "f"),
        (&["c", "f"], "abd"),
        (&["c", "f", "b"], "ad"),
        (&["c", "f", "a", "b", "d"], "e"),
    ] {
        assert_eq!(goes(&planned(&zones(moved), &policy, &PolicyFacts::default(), NOON)), want, "{moved:?}");
    }
}

#[test]
fn a_gate_that_fails_or_cannot_be_read_stops_the_next_node_and_an_approval_is_of_one_config() {
    let canary =
        Wave { needs_approval: true, gates: vec!["canary-ok".into()], ..wave("canary", Members::Number(1)) };
    let policy = Policy { waves: vec![canary], gates: vec!["ready".into()], ..Policy::default() };
    let facts = |ready: Option<GateState>, canary: GateState, config: &str| PolicyFacts {
        gates: ready.map(|r| ("ready".into(), r)).into_iter().chain([("canary-ok".into(), canary)]).collect(),
        approved: [("canary".into(), config.into())].into(),
        ..PolicyFacts::default()
    };
    let passed = || Some(GateState::Passed);
    let failed = || GateState::Failed("3 of 5 replicas".to_owned());
    let unknown = || GateState::Unknown("Prometheus does not answer".to_owned());
    let rows = [
        (facts(passed(), GateState::Passed, "new"), 0, "a", ""),
        (facts(passed(), GateState::Passed, "other"), 0, "", "wave canary waits for an approval"),
        // Once the wave has begun, no further approval is needed.
        (facts(passed(), GateState::Passed, "other"), 1, "bcd", ""),
        (facts(Some(failed()), GateState::Passed, "new"), 0, "", "gate ready fails: 3 of 5 replicas"),
        (facts(passed(), failed(), "new"), 0, "", "gate canary-ok fails: 3 of 5 replicas"),
        // The canary's gate also holds the waves after it.
        (facts(passed(), failed(), "new"), 1, "", "gate canary-ok fails: 3 of 5 replicas"),
        (
            facts(Some(unknown()), GateState::Passed, "new"),
            1,
            "",
            "gate ready cannot be read, and no node goes without it: Prometheus does not answer",
        ),
        (
            facts(None, GateState::Passed, "new"),
            1,
            "",
            "gate ready cannot be read, and no node goes without it: it has not been checked yet",
        ),
    ];
    for (facts, done, want, hold) in rows {
        let plan = planned(&six(done, 0), &policy, &facts, NOON);
        let held = plan.hold.as_ref().map(Hold::to_string).unwrap_or_default();
        assert_eq!((&*goes(&plan), &*held), (want, hold), "{done} done, {facts:?}");
        assert_eq!(plan.hold.is_some_and(|h| h.needs_a_person()), hold.contains("approval"));
    }
}

#[test]
fn no_wave_sends_more_than_the_pool_allows_and_what_was_sent_before_goes_where_the_pool_goes_now() {
    let many = Wave {
        max_unavailable: Some(IntOrString::String("100%".to_owned())),
        ..wave("all", Members::Percent(100))
    };
    let policy = Policy { waves: vec![many], ..Policy::default() };
    assert_eq!(goes(&planned(&six(0, 1), &policy, &PolicyFacts::default(), NOON)), "bc");
    let wrong = Wave {
        max_unavailable: Some(IntOrString::String("many".to_owned())),
        ..wave("all", Members::Percent(100))
    };
    let plan = planned(
        &six(0, 0),
        &Policy { waves: vec![wrong], ..Policy::default() },
        &PolicyFacts::default(),
        NOON,
    );
    assert!(matches!(plan.hold, Some(Hold::MaxUnavailable(text)) if text == "many"));
    // Sent to a config that the pool has left again, and not begun yet: it is sent on at once, although its wave comes
    // later.
    let mut back = six(0, 0);
    back[5] = node("f", "z", "rendered-worker-1", "rendered-worker-2");
    back[5].state = crate::view::DaemonState::Done;
    let first = Policy { waves: vec![wave("first", Members::Number(1))], ..Policy::default() };
    let plan = planned(&back, &first, &PolicyFacts::default(), NOON);
    assert!(goes(&plan).starts_with('a'), "{plan}");
}
