//! Tables of views with the actions that they lead to, and whole updates simulated on a node of plain values.

use super::{
    Action, Cordon, Cost, DiskFacts, EMPTY_CONFIG, Failure, FailureKind, Job, NodeFacts, Pair, Phase,
    RebootFact, View, Waiting, backoff, cut_reason, disturbing_backoff, outage_backoff, step,
};
use crate::protocol::clock::Moment;
use api::events::AgentEvent;
use api::names::annotation as a;
use jiff::SignedDuration;

const FREE: Cost = Cost { drain: false, reboot: false };
const REBOOT: Cost = Cost { drain: true, reboot: true };

fn at(second: i64) -> Moment {
    Moment::START + SignedDuration::from_secs(second)
}

/// A node with the config `disk` on its disk, `current` on its Node, and `desired` as the desired config.
fn mk_view(disk: &str, current: &str, desired: &str, state: &str) -> View {
    let node = NodeFacts {
        seen: true,
        current: current.into(),
        desired: desired.into(),
        state: state.into(),
        desired_drain: format!("uncordon-{current}"),
        last_applied_drain: format!("uncordon-{current}"),
        ready: true,
        ..NodeFacts::default()
    };
    let current = Some(disk.to_owned()).filter(|d| !d.is_empty());
    let disk = DiskFacts { current, ..DiskFacts::default() };
    View { now: at(1000), node, disk, checked: true, phase: Phase::Idle, trouble: None, silent_since: None }
}

fn pair(from: &str, to: &str) -> Pair {
    Pair { from: from.into(), to: to.into() }
}

fn owed(config: &str) -> RebootFact {
    RebootFact::Owed { config: config.into(), tries: 0, cleared: true }
}

fn with_prepared(mut view: View, from: &str, to: &str, cost: Cost) -> View {
    view.phase = Phase::Prepared { pair: pair(from, to), cost, to_fetch: false, asked: Some(view.now) };
    view
}

fn with_failure(mut view: View, job: Job, kind: FailureKind, retry_at: i64) -> View {
    let failure = Failure { job, kind, reason: "broken".into(), tries: 1, retry_at: at(retry_at) };
    view.phase = Phase::Failed(failure);
    view
}

/// Changes the view as `agent` and the API server would.
fn write(view: &mut View) -> Vec<AgentEvent> {
    let Action::Write { changes, notes, cordon, conditional } = step(view) else {
        panic!("{:?}", step(view))
    };
    assert!(cordon.is_none() || conditional, "a person may cordon it at the same time");
    if let Some(cordon) = cordon {
        let begins = cordon == Cordon::Begin;
        assert_ne!((view.node.own_cordon, view.node.unschedulable), (begins, begins), "it is so already");
        (view.node.own_cordon, view.node.unschedulable) = (begins, begins);
    }
    for (key, value) in changes {
        let n = &mut view.node;
        let field = match key {
            a::CURRENT_CONFIG => &mut n.current,
            a::DESIRED_CONFIG => &mut n.desired,
            a::STATE => &mut n.state,
            a::REASON => &mut n.reason,
            a::POST_CONFIG_ACTION => &mut n.post_action,
            a::DESIRED_DRAIN => &mut n.desired_drain,
            a::LAST_APPLIED_DRAIN => &mut n.last_applied_drain,
            other => panic!("{other} is not ours to write"),
        };
        assert_ne!(*field, value, "{key}: written although it says so already");
        *field = value;
    }
    notes.into_iter().map(|n| n.kind).collect()
}

#[test]
fn the_disk_and_the_node_decide_what_is_done() {
    let rows = [
        ("in step and done", mk_view("test1", "test1", "test1", "Done"), "idle"),
        ("a new config", mk_view("test1", "test1", "test2", "Done"), "test1>test2"),
        ("the disk wins over the annotation", mk_view("test3", "test1", "test2", "Done"), "test3>test2"),
        ("no record on the disk", mk_view("", "test1", "test2", "Done"), "test1>test2"),
        ("in step but never said so", mk_view("test1", "test1", "test1", ""), "write"),
        ("in step again after a failure", mk_view("test1", "test1", "test1", "Degraded"), "write"),
        ("applied, not said yet", mk_view("test2", "test1", "test2", "Working"), "write"),
        ("no wish yet", mk_view("test1", "test1", "", "Done"), "wait"),
        ("a Node made anew", mk_view("test1", "", "", ""), "write"),
        ("wanted before it was ever seen", mk_view("", "", "test1", ""), "mco-empty-mc>test1"),
        ("nothing anywhere", mk_view("", "", "", ""), "join"),
        ("left to the roll-out", mk_view("", EMPTY_CONFIG, EMPTY_CONFIG, "Done"), "idle"),
        (
            "rolled out to for the first time",
            mk_view("", EMPTY_CONFIG, "test1", "Done"),
            "mco-empty-mc>test1",
        ),
    ];
    for (about, view, want) in rows {
        let got = match step(&view) {
            Action::Idle => "idle".to_owned(),
            Action::Prepare(Pair { from, to }) => format!("{from}>{to}"),
            Action::Write { .. } => "write".to_owned(),
            Action::Wait { why: Waiting::Desired, .. } => "wait".to_owned(),
            Action::Join => "join".to_owned(),
            other => panic!("{about}: {other:?}"),
        };
        assert_eq!(got, want, "{about}");
    }
}

#[test]
fn the_disk_is_compared_before_anything_is_built_on_it() {
    for desired in ["a", "b"] {
        let mut view = mk_view("a", "a", desired, "Done");
        view.checked = false;
        assert_eq!(step(&view), Action::Check { config: "a".into(), record: false });
        view.disk.current = None;
        assert_eq!(step(&view), Action::Check { config: "a".into(), record: true });
    }
}

#[test]
fn the_first_boots_annotations_go_first() {
    let mut view = mk_view("", "", "", "");
    view.disk.annotations_file = true;
    assert_eq!(step(&view), Action::AdoptFile);
}

#[test]
fn an_update_that_costs_nothing_takes_two_writes() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Done"), "a", "b", FREE);
    assert!(write(&mut view).is_empty());
    assert_eq!(view.node.state, "Working");
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    view.disk.current = Some("b".into());
    assert_eq!(write(&mut view), [AgentEvent::NodeDone]);
    assert_eq!((view.node.current.as_str(), view.node.state.as_str()), ("b", "Done"));
    assert_eq!(view.node.desired_drain, "uncordon-b");
    assert_eq!(step(&view), Action::Idle);
}

#[test]
fn an_update_with_a_drain_and_a_reboot_waits_for_the_controller_once_and_takes_three_writes() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Done"), "a", "b", REBOOT);
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    assert_eq!((view.node.state.as_str(), view.node.desired_drain.as_str()), ("Working", "drain-b"));
    assert!(view.node.unschedulable && view.node.own_cordon);
    assert!(matches!(step(&view), Action::Wait { why: Waiting::Drain, until: Some(_) }));
    view.node.last_applied_drain = "drain-b".into();
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    view.disk.reboot = owed("b");
    view.disk.current = Some("b".into());
    view.phase = Phase::Idle;
    assert_eq!(write(&mut view), [AgentEvent::Reboot]);
    assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
    // A restart of the daemon alone is not a reboot.
    view.checked = false;
    assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
    view.disk.reboot = RebootFact::Rebooted { config: "b".into(), boot_id: "one".into(), began: None };
    // The cluster has not noticed yet that the machine was away.
    (view.node.boot_id, view.node.ready) = ("one".into(), true);
    assert_eq!(step(&view), Action::Wait { why: Waiting::Kubelet, until: None });
    // A kubelet that does not come back is reported, and the agent keeps waiting for it.
    view.phase = Phase::AwaitingKubelet { since: view.now };
    let now = view.now;
    assert!(matches!(step(&view), Action::Wait { why: Waiting::Kubelet, until: Some(_) }));
    view.now = now + SignedDuration::from_mins(10);
    assert!(write(&mut view).is_empty());
    assert!(view.node.state == "Degraded" && view.node.reason.contains("kubelet"), "{}", view.node.reason);
    assert_eq!(step(&view), Action::Wait { why: Waiting::Kubelet, until: None });
    (view.now, view.phase) = (now, Phase::Idle);
    view.node.reason.clear();
    view.node.state = "Working".into();
    // Another config is not kept waiting by a kubelet that this one has broken.
    view.node.desired = "c".into();
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
    view.node.desired = "b".into();
    // What it reports under the new boot is for the controller to judge.
    (view.node.boot_id, view.node.ready) = ("two".into(), false);
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
    view.disk.reboot = RebootFact::None;
    assert_eq!(step(&view), Action::Check { config: "b".into(), record: false });
    view.checked = true;
    assert_eq!(write(&mut view), [AgentEvent::Uncordon, AgentEvent::NodeDone]);
    assert!(!view.node.unschedulable && !view.node.own_cordon);
    let NodeFacts { post_action, desired_drain, last_applied_drain, state, current, .. } = &view.node;
    assert_eq!([post_action, state, current], ["", "Done", "b"]);
    assert_eq!([desired_drain, last_applied_drain], ["uncordon-b", "uncordon-b"]);
    assert_eq!(step(&view), Action::Idle);
}

#[test]
fn a_node_that_was_cordoned_before_is_given_back_or_not_by_the_controller() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Done"), "a", "b", REBOOT);
    view.node.unschedulable = true;
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    assert!(!view.node.own_cordon);
    view.node.last_applied_drain = "drain-b".into();
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    (view.disk.current, view.phase) = (Some("b".into()), Phase::Idle);
    assert!(write(&mut view).is_empty());
    assert_eq!((view.node.post_action.as_str(), view.node.desired_drain.as_str()), ("", "uncordon-b"));
    view.phase = Phase::Applied { config: "b".into(), asked: Some(view.now) };
    assert!(matches!(step(&view), Action::Wait { why: Waiting::Uncordon, until: Some(_) }));
    assert_ne!(view.node.state, "Done");
    view.node.last_applied_drain = "uncordon-b".into();
    assert_eq!(write(&mut view), [AgentEvent::Uncordon, AgentEvent::NodeDone]);
    assert_eq!(step(&view), Action::Idle);
}

#[test]
fn a_drain_that_was_done_before_is_not_asked_for_again() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.desired_drain = "drain-b".into();
    view.node.last_applied_drain = "drain-b".into();
    view.node.unschedulable = true;
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    // One that was done for another config is asked for anew: pods may have come since.
    view.node.last_applied_drain = "drain-c".into();
    view.node.desired_drain = "drain-c".into();
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
}

#[test]
fn a_drained_node_that_a_person_uncordons_is_drained_again() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.desired_drain = "drain-b".into();
    view.node.last_applied_drain = "drain-b".into();
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    assert!(view.node.unschedulable && view.node.own_cordon, "{:?}", view.node);
    assert_ne!(view.node.desired_drain, view.node.last_applied_drain, "nobody is asked");
    assert!(matches!(step(&view), Action::Wait { why: Waiting::Drain, .. }));
    view.node.last_applied_drain = "drain-b".into();
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    // AppliedOnce more, with the change on the disk: pods may have come since.
    view.disk.current = Some("b".into());
    view.disk.reboot = owed("b");
    (view.phase, view.node.unschedulable) = (Phase::Idle, false);
    let record = |view: &mut View, cleared| {
        assert_eq!(step(view), Action::RecordCleared { config: "b".into(), cleared });
        view.disk.reboot = RebootFact::Owed { config: "b".into(), tries: 0, cleared };
    };
    record(&mut view, false);
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    // Nor is it rebooted under those pods when the API server goes, by this process or the next.
    for node in [NodeFacts::default(), view.node.clone()] {
        let away = View { silent_since: Some(at(0)), node, phase: Phase::Idle, ..view.clone() };
        assert!(matches!(step(&away), Action::Wait { until: None, .. }), "{:?}", step(&away));
    }
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: None });
    view.phase = Phase::Redraining { since: at(1000) };
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: Some(at(4600)) });
    // One that takes too long is told of once, and used all the same.
    view.now = at(4600);
    assert_eq!(write(&mut view), [AgentEvent::FailedToDrain]);
    assert_eq!(view.node.state, "Degraded");
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: None });
    view.node.last_applied_drain = "drain-b".into();
    record(&mut view, true);
    assert_eq!(write(&mut view), [AgentEvent::Reboot]);
    assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
}

#[test]
fn a_change_that_is_half_made_is_recovered_before_anything_else() {
    let job = Job::Update(pair("a", "b"));
    let views = [
        mk_view("a", "a", "a", "Done"),
        mk_view("a", "a", "b", "Working"),
        mk_view("", "", "", ""),
        with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", FREE),
        with_failure(mk_view("a", "a", "a", "Working"), job, FailureKind::Degraded, 2000),
        View { node: NodeFacts { deleted: true, ..NodeFacts::default() }, ..mk_view("a", "", "", "") },
        View { node: NodeFacts::default(), ..mk_view("a", "", "", "") },
        View { disk: DiskFacts { reboot: owed("a"), ..DiskFacts::default() }, ..mk_view("a", "a", "a", "") },
    ];
    for mut view in views {
        view.disk.open = true;
        assert_eq!(step(&view), Action::Recover, "{view:?}");
        // It says what fails, and is tried again whether that could be said or not.
        let failed = with_failure(view, Job::Recover, FailureKind::Degraded, 1030);
        let Action::Write { changes, .. } = step(&failed) else { panic!("{:?}", step(&failed)) };
        assert_eq!((changes[a::STATE].as_str(), changes[a::REASON].as_str()), ("Degraded", "broken"));
        assert_eq!(step(&View { now: at(1030), ..failed }), Action::Recover);
    }
}

#[test]
fn a_node_that_was_not_seen_yet_is_waited_for() {
    for mut view in [mk_view("a", "", "", ""), mk_view("", "", "", "")] {
        view.node = NodeFacts::default();
        assert_eq!(step(&view), Action::Wait { why: Waiting::Node, until: None });
    }
}

type Bend = fn(&mut View);

#[test]
fn a_reboot_that_cannot_be_announced_is_made_after_a_limit_where_nobody_is_left_on_the_node() {
    let now = Action::Reboot { config: "b".into(), announced: false };
    let mk = || {
        let mut view = mk_view("b", "a", "b", "Working");
        view.disk.reboot = owed("b");
        view.node.desired_drain = "drain-b".into();
        view.node.last_applied_drain = "drain-b".into();
        (view.node.unschedulable, view.node.own_cordon) = (true, true);
        view.silent_since = Some(view.now);
        view
    };
    let nothing: Bend = |_| {};
    let unseen: Bend = |v| v.node = NodeFacts::default();
    let not_cleared: Bend = |v| {
        v.node = NodeFacts::default();
        v.disk.reboot = RebootFact::Owed { config: "b".into(), tries: 0, cleared: false };
    };
    let uncordoned: Bend = |v| v.node.unschedulable = false;
    let single: Bend = |v| {
        v.node = NodeFacts { topology: "SingleReplica".into(), ..v.node.clone() };
        (v.node.unschedulable, v.node.last_applied_drain) = (false, String::new());
    };
    let elsewhere: Bend = |v| v.disk.current = Some("c".into());
    let told: Bend = |v| v.silent_since = None;
    for (about, bend, goes) in [
        ("drained", nothing, true),
        ("by the record alone: another process applied it", unseen, true),
        ("its own control plane", single, true),
        ("nobody knows whether pods have left", not_cleared, false),
        ("a person uncordoned it", uncordoned, false),
        ("another config stands on the disk", elsewhere, false),
        ("the API server answers", told, false),
    ] {
        let mut view = mk();
        bend(&mut view);
        let early = step(&view);
        assert!(!matches!(early, Action::Reboot { .. }), "{about}: at once: {early:?}");
        if let (Action::Wait { why, until }, true) = (&early, goes) {
            assert_eq!((why, *until), (&Waiting::Node, Some(at(1300))), "{about}");
        }
        view.now = at(1299);
        assert_eq!(step(&view), early, "{about}: too soon");
        view.now = at(1300);
        assert_eq!(step(&view) == now, goes, "{about}: {:?}", step(&view));
    }
    // What was announced is not held up at all.
    let mut view = mk();
    view.node.post_action = "Rebooting".into();
    assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
    // After the boot the node says what it could not say before, once.
    let mut view = mk();
    view.disk.reboot = RebootFact::Rebooted { config: "b".into(), boot_id: "one".into(), began: None };
    view.node.boot_id = "two".into();
    assert_eq!(write(&mut view), [AgentEvent::Reboot]);
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
}

#[test]
fn three_reboots_that_change_nothing_are_enough() {
    let mut view = mk_view("b", "a", "b", "Working");
    view.node.desired_drain = "drain-b".into();
    view.node.last_applied_drain = "drain-b".into();
    (view.node.unschedulable, view.node.own_cordon) = (true, true);
    view.node.post_action = "Rebooting".into();
    for tries in 0..3 {
        view.disk.reboot = RebootFact::Owed { config: "b".into(), tries, cleared: true };
        assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
    }
    view.disk.reboot = RebootFact::Owed { config: "b".into(), tries: 3, cleared: true };
    write(&mut view);
    assert_eq!(view.node.state, "Degraded");
    let words = ["3 times", "config b", "/run", "by hand", "/var/lib/machine-config-daemon/reboot.json"];
    assert!(words.iter().all(|w| view.node.reason.contains(w)), "{}", view.node.reason);
    assert!(!view.node.reason.contains("  "), "{}", view.node.reason);
    assert_eq!(step(&view), Action::Wait { why: Waiting::Boot, until: Some(at(1010)) });
    // Nor does an API server that is away bring a fourth one about.
    view.silent_since = Some(at(0));
    assert_eq!(step(&view), Action::Wait { why: Waiting::Boot, until: Some(at(1010)) });
    // Another config is accepted; it may be one that the node can reach.
    view.node.desired = "c".into();
    assert_eq!(step(&view), Action::Prepare(pair("b", "c")));
    // A reboot that is noticed after all ends it.
    view.node.desired = "b".into();
    view.disk.reboot = RebootFact::Rebooted { config: "b".into(), boot_id: "one".into(), began: None };
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
}

#[test]
fn a_container_is_back_when_its_kubelet_has_reported_since_the_boot_began() {
    let clock = |second| jiff::Timestamp::from_second(second).unwrap();
    let mut view = mk_view("b", "a", "b", "Working");
    (view.node.post_action, view.node.boot_id) = ("Rebooting".into(), "the computer's".into());
    view.disk.reboot = RebootFact::Rebooted {
        config: "b".into(),
        boot_id: "the computer's".into(),
        began: Some(clock(990)),
    };
    view.phase = Phase::AwaitingKubelet { since: at(995) };
    for heard in [None, Some(clock(900)), Some(clock(990))] {
        view.node.heard = heard;
        // Looked at now and then: nobody is woken by a heartbeat.
        assert_eq!(step(&view), Action::Wait { why: Waiting::Kubelet, until: Some(at(1010)) });
    }
    view.node.heard = Some(clock(991));
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
}

#[test]
fn a_single_replica_control_plane_is_not_drained() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.topology = "SingleReplica".into();
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
}

#[test]
fn a_config_that_changes_during_a_drain_is_taken_up_at_once() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.desired_drain = "drain-b".into();
    view.node.desired = "c".into();
    assert_eq!(step(&view), Action::Prepare(pair("a", "c")));
    let mut onwards = with_prepared(view.clone(), "a", "c", FREE);
    assert_eq!(step(&onwards), Action::Apply(pair("a", "c")));
    // Nothing is drained for c, but the node may be cordoned for b: it is given back before Done.
    onwards.disk.current = Some("c".into());
    write(&mut onwards);
    assert_eq!(onwards.node.desired_drain, "uncordon-c");
    assert_eq!(onwards.node.state, "Working");
    // Back to where it is: nothing is applied.
    view.node.desired = "a".into();
    write(&mut view);
    assert_eq!(view.node.desired_drain, "uncordon-a");
}

#[test]
fn a_failing_node_says_why_and_accepts_another_config() {
    for (kind, state) in
        [(FailureKind::Degraded, "Degraded"), (FailureKind::Unreconcilable, "Unreconcilable")]
    {
        let job = Job::Update(pair("a", "b"));
        let mut view = with_failure(mk_view("a", "a", "b", "Working"), job, kind, 1030);
        write(&mut view);
        assert_eq!((view.node.state.as_str(), view.node.reason.as_str()), (state, "broken"));
        let waits = Action::Wait { why: Waiting::Retry { reason: "broken".into() }, until: Some(at(1030)) };
        assert_eq!(step(&view), waits);
        let other = View { node: NodeFacts { desired: "c".into(), ..view.node.clone() }, ..view.clone() };
        assert_eq!(step(&other), Action::Prepare(pair("a", "c")));
        let mut back = View { node: NodeFacts { desired: "a".into(), ..view.node.clone() }, ..view.clone() };
        write(&mut back);
        assert_eq!((back.node.state.as_str(), back.node.reason.as_str()), ("Done", ""));
        view.now = at(1030);
        assert_eq!(step(&view), Action::Prepare(pair("a", "b")));
        // It keeps saying so while it tries again.
        assert_eq!(step(&with_prepared(view, "a", "b", FREE)), Action::Apply(pair("a", "b")));
    }
}

#[test]
fn an_api_server_that_is_away_degrades_nobody() {
    let job = Job::Update(pair("a", "b"));
    let view = with_failure(mk_view("a", "a", "b", "Done"), job, FailureKind::Transient, 1030);
    assert!(matches!(step(&view), Action::Wait { why: Waiting::Retry { .. }, until: Some(_) }));
}

#[test]
fn drift_degrades_a_node_that_is_in_step_and_its_repair_ends_that() {
    let job = Job::Check { config: "a".into() };
    let mut view = with_failure(mk_view("a", "a", "a", "Done"), job, FailureKind::Degraded, 1030);
    view.checked = false;
    write(&mut view);
    assert_eq!(view.node.state, "Degraded");
    view.now = at(1031);
    assert!(matches!(step(&view), Action::Check { .. }));
    (view.checked, view.phase) = (true, Phase::Idle);
    assert_eq!(write(&mut view), [AgentEvent::NodeDone]);
    assert_eq!(view.node.state, "Done");
}

#[test]
fn drift_does_not_keep_a_node_from_another_config() {
    let job = Job::Check { config: "a".into() };
    let mut view = with_failure(mk_view("a", "a", "b", "Degraded"), job, FailureKind::Degraded, 1030);
    view.checked = false;
    assert_eq!(step(&view), Action::Prepare(pair("a", "b")));
    // The update does not bring it right either: it waits, and is not compared in between.
    let mut refused = with_failure(view.clone(), Job::Update(pair("a", "b")), FailureKind::Degraded, 1040);
    write(&mut refused);
    assert!(matches!(step(&refused), Action::Wait { why: Waiting::Retry { .. }, .. }));
    // Without another config there is only the comparison.
    refused.node.desired = "a".into();
    assert!(matches!(step(&refused), Action::Check { .. }));
    // A process that has not looked yet looks first.
    view.phase = Phase::Idle;
    assert!(matches!(step(&view), Action::Check { .. }));
}

#[test]
fn a_drain_that_takes_too_long_is_said_once_and_still_waited_for() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.desired_drain = "drain-b".into();
    view.now += SignedDuration::from_hours(1);
    assert_eq!(write(&mut view), [AgentEvent::FailedToDrain]);
    assert_eq!(view.node.state, "Degraded");
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: None });
    (view.node.last_applied_drain, view.node.unschedulable) = ("drain-b".into(), true);
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
}

#[test]
fn a_person_who_cordoned_the_node_is_not_overruled() {
    let mut view = mk_view("b", "a", "b", "Working");
    view.node.unschedulable = true;
    write(&mut view);
    assert_eq!((view.node.state.as_str(), view.node.desired_drain.as_str()), ("Done", "uncordon-a"));
    assert_eq!(step(&view), Action::Idle);
}

#[test]
fn waits_grow_to_a_minute_and_reasons_stay_within_the_limit() {
    let seconds: Vec<i64> = (1..9).map(|n| backoff(n, 1.0).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(backoff(u32::MAX, 0.0), SignedDuration::from_secs(30));
    assert_eq!(outage_backoff(u32::MAX, 1.0), SignedDuration::from_secs(8));
    let disturbing: Vec<i64> = (1..=6).map(|n| disturbing_backoff(n, 1.0).as_secs()).collect();
    assert_eq!(disturbing, [5, 20, 80, 320, 900, 900]);
    assert_eq!(disturbing_backoff(u32::MAX, 0.0), SignedDuration::from_secs(450));
    let cut = cut_reason(&"ü".repeat(240_000));
    assert_eq!(cut.chars().count(), 2000);
    assert!(cut.ends_with("ü… (cut: 240000 characters)"), "a reader must know that there is more");
    assert_eq!(cut_reason(&cut), cut, "or it would be written again and again");
}

#[test]
fn trouble_beside_the_config_makes_a_node_degraded_and_holds_no_update_up() {
    let mut view = mk_view("a", "a", "a", "Done");
    assert_eq!(step(&view), Action::Idle);
    let why = "Certificates could not be written: cannot write /etc/kubernetes/kubelet-ca.crt";
    view.trouble = Some(why.into());
    assert_eq!(write(&mut view), []);
    assert_eq!((view.node.state.as_str(), view.node.reason.as_str()), ("Degraded", why));
    assert_eq!(step(&view), Action::Idle);
    // Another config is applied all the same; the node is in it then, and still degraded.
    view.node.desired = "b".into();
    assert_eq!(step(&view), Action::Prepare(pair("a", "b")));
    view = with_prepared(view, "a", "b", FREE);
    while matches!(step(&view), Action::Write { .. }) {
        write(&mut view);
    }
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    view.disk.current = Some("b".into());
    view.phase = Phase::Applied { config: "b".into(), asked: None };
    while matches!(step(&view), Action::Write { .. }) {
        assert_eq!(write(&mut view), [], "it is not done");
    }
    let said = (view.node.current.as_str(), view.node.state.as_str(), view.node.reason.as_str());
    assert_eq!(said, ("b", "Degraded", why));
    view.trouble = None;
    assert_eq!(write(&mut view), [AgentEvent::NodeDone]);
    assert_eq!((view.node.state.as_str(), view.node.reason.as_str()), ("Done", ""));
    assert_eq!(step(&view), Action::Idle);
}

#[test]
fn what_an_update_needs_is_fetched_before_the_node_is_drained() {
    let mut view = mk_view("a", "a", "b", "Done");
    view.phase = Phase::Prepared { pair: pair("a", "b"), cost: REBOOT, to_fetch: true, asked: None };
    assert_eq!(write(&mut view), [], "the pool sees that it is at work");
    assert_eq!((view.node.state.as_str(), view.node.unschedulable), ("Working", false));
    assert_eq!(step(&view), Action::Fetch(pair("a", "b")));
    // Another config is wanted meanwhile.
    let mut other = view.clone();
    other.node.desired = "c".into();
    assert_eq!(step(&other), Action::Prepare(pair("a", "c")));
    view.phase = Phase::Prepared { pair: pair("a", "b"), cost: REBOOT, to_fetch: false, asked: None };
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    assert!(view.node.unschedulable);
}

#[test]
fn an_image_that_the_host_cannot_run_is_refused_before_any_config_and_the_end_of_the_wish_ends_that() {
    for (current, desired, words) in [
        ("", "img", "the image img on this node"),
        ("old", "new", "the image new"),
        ("old", "", "change from the image old"),
    ] {
        let mut view = mk_view("a", "a", "b", "Done");
        (view.node.current_image, view.node.desired_image) = (current.into(), desired.into());
        assert_eq!(write(&mut view), [AgentEvent::FailedToReconcile], "{words}");
        assert_eq!((view.node.state.as_str(), view.node.current.as_str()), ("Unreconcilable", "a"));
        assert!(view.node.reason.contains(words) && view.node.reason.contains("; "), "{}", view.node.reason);
        assert_eq!(step(&view), Action::Wait { why: Waiting::Image, until: None }, "it is said once");
        // A host that takes images plans with it.
        let able = View { disk: DiskFacts { takes_images: true, ..view.disk.clone() }, ..view.clone() };
        assert_eq!(step(&able), Action::Prepare(pair("a", "b")));
        // What is wrong with the disk is told all the same.
        let unchecked = View { checked: false, ..view.clone() };
        assert_eq!(step(&unchecked), Action::Check { config: "a".into(), record: false });
        view.node.desired_image = view.node.current_image.clone();
        assert_eq!(step(&view), Action::Prepare(pair("a", "b")));
        view.node.desired = "a".into();
        write(&mut view);
        assert_eq!((view.node.state.as_str(), view.node.reason.as_str()), ("Done", ""));
        assert_eq!(step(&view), Action::Idle);
    }
}

#[test]
fn a_node_that_was_drained_and_then_asked_for_an_image_is_given_back() {
    // By the agent's own cordon, and by the controller's.
    for own_cordon in [true, false] {
        let mut view = mk_view("a", "a", "b", "Degraded");
        view.node.desired_image = "img".into();
        (view.node.unschedulable, view.node.own_cordon) = (true, own_cordon);
        (view.node.desired_drain, view.node.last_applied_drain) = ("drain-b".into(), "drain-b".into());
        assert_eq!(write(&mut view), [AgentEvent::FailedToReconcile], "{own_cordon}");
        assert_eq!(
            (view.node.state.as_str(), view.node.desired_drain.as_str()),
            ("Unreconcilable", "uncordon-a")
        );
        assert_eq!(view.node.unschedulable, !own_cordon, "the controller takes its own cordon away");
        assert_eq!(step(&view), Action::Wait { why: Waiting::Image, until: None }, "it is said once");
    }
}

#[test]
fn another_try_is_asked_for_by_another_text_than_before() {
    let facts = |uid: &str, retry: &str| NodeFacts {
        uid: uid.to_owned(),
        retry: retry.to_owned(),
        ..NodeFacts::default()
    };
    for (before, now, want) in [
        (facts("u", ""), facts("u", "1"), true),
        (facts("u", "1"), facts("u", "2"), true),
        (facts("u", "1"), facts("u", "1"), false),
        (facts("u", "1"), facts("u", ""), false),
        // The agent has just begun, or another node has the name.
        (NodeFacts::default(), facts("u", "1"), false),
        (facts("u", "1"), facts("v", "2"), false),
    ] {
        assert_eq!(now.asks_again(&before), want, "{before:?} → {now:?}");
    }
}
