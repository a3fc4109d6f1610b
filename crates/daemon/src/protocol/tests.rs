//! Tables of views with the actions that they lead to, and whole updates simulated on a node of plain values. The drain, the
//! reboot and images have files of their own.

mod disruption;
mod images;
mod random_histories;
mod trial;

use super::{
    Action, ConfigPair, Cordon, Cost, DiskFacts, EMPTY_CONFIG, Failure, FailureKind, Job, NodeFacts, Phase,
    RebootFact, TriedFacts, View, Waiting, backoff, cut_reason, disturbing_backoff, outage_backoff, step,
};
use crate::protocol::clock::Moment;
use api::events::AgentEvent;
use api::names::annotation as a;
use jiff::SignedDuration;

const FREE: Cost = Cost { drain: false, reboot: false };
const REBOOT: Cost = Cost { drain: true, reboot: true };

/// Numerical Recipes' generator: enough for choosing, and the same on every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

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
    View {
        now: at(1000),
        node,
        disk,
        checked: true,
        phase: Phase::Idle,
        trouble: None,
        silent_since: None,
        leave_again: None,
        prefetch_failed: None,
    }
}

fn pair(from: &str, to: &str) -> ConfigPair {
    ConfigPair { from: from.into(), to: to.into() }
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
        assert_ne!(
            (view.node.own_cordon, view.node.unschedulable),
            (begins, begins),
            "the annotation has this value already"
        );
        (view.node.own_cordon, view.node.unschedulable) = (begins, begins);
    }
    for (key, value) in changes {
        let n = &mut view.node;
        let field = match key {
            a::CURRENT_CONFIG => &mut n.current,
            a::DESIRED_CONFIG => &mut n.desired,
            a::CURRENT_IMAGE => &mut n.current_image,
            a::DESIRED_IMAGE => &mut n.desired_image,
            api::names::own::PREVIOUS_IMAGE => &mut n.previous_image,
            a::STATE => &mut n.state,
            a::REASON => &mut n.reason,
            a::POST_CONFIG_ACTION => &mut n.post_action,
            a::DESIRED_DRAIN => &mut n.desired_drain,
            a::LAST_APPLIED_DRAIN => &mut n.last_applied_drain,
            other => panic!("the agent may not write {other}"),
        };
        assert_ne!(*field, value, "{key}: written although it has this value already");
        *field = value;
    }
    notes.into_iter().map(|n| n.kind).collect()
}

#[test]
fn the_next_action_follows_from_disk_and_node() {
    let rows = [
        ("in step and done", mk_view("test1", "test1", "test1", "Done"), "idle"),
        ("a new config", mk_view("test1", "test1", "test2", "Done"), "test1>test2"),
        ("the disk wins over the annotation", mk_view("test3", "test1", "test2", "Done"), "test3>test2"),
        ("no record on the disk", mk_view("", "test1", "test2", "Done"), "test1>test2"),
        ("in step but never said so", mk_view("test1", "test1", "test1", ""), "write"),
        ("in step again after a failure", mk_view("test1", "test1", "test1", "Degraded"), "write"),
        ("applied, not said yet", mk_view("test2", "test1", "test2", "Working"), "write"),
        ("no record and no wish", mk_view("", EMPTY_CONFIG, "", "Done"), "write"),
        ("a Node made anew", mk_view("test1", "", "", ""), "write"),
        ("a Node made anew that got a write for the old one", mk_view("test1", "test1", "", "Done"), "write"),
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
            Action::Prepare(ConfigPair { from, to }) => format!("{from}>{to}"),
            Action::Write { .. } => "write".to_owned(),
            Action::Join => "join".to_owned(),
            other => panic!("{about}: {other:?}"),
        };
        assert_eq!(got, want, "{about}");
    }
}

#[test]
fn the_disk_is_validated_before_an_update() {
    for desired in ["a", "b"] {
        let mut view = mk_view("a", "a", desired, "Done");
        view.checked = false;
        assert_eq!(step(&view), Action::Check { config: "a".into(), record: false });
        view.disk.current = None;
        assert_eq!(step(&view), Action::Check { config: "a".into(), record: true });
    }
}

#[test]
fn the_annotations_file_of_the_first_boot_is_adopted_first() {
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
fn an_interrupted_change_is_recovered_first() {
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
        // It reports the failure, and retries whether or not the report could be written.
        let failed = with_failure(view, Job::Recover, FailureKind::Degraded, 1030);
        let Action::Write { changes, .. } = step(&failed) else { panic!("{:?}", step(&failed)) };
        assert_eq!((changes[a::STATE].as_str(), changes[a::REASON].as_str()), ("Degraded", "broken"));
        assert_eq!(step(&View { now: at(1030), ..failed }), Action::Recover);
    }
}

#[test]
fn nothing_is_done_before_the_node_was_read() {
    for mut view in [mk_view("a", "", "", ""), mk_view("", "", "", "")] {
        view.node = NodeFacts::default();
        assert_eq!(step(&view), Action::Wait { why: Waiting::Node, until: None });
    }
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
        // It stays degraded while it retries.
        assert_eq!(step(&with_prepared(view, "a", "b", FREE)), Action::Apply(pair("a", "b")));
    }
}

#[test]
fn an_outage_of_the_api_server_does_not_degrade_a_node() {
    let job = Job::Update(pair("a", "b"));
    let view = with_failure(mk_view("a", "a", "b", "Done"), job, FailureKind::Transient, 1030);
    assert!(matches!(step(&view), Action::Wait { why: Waiting::Retry { .. }, until: Some(_) }));
}

#[test]
fn drift_degrades_an_updated_node_until_it_is_repaired() {
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
    // The update does not repair it either: the agent waits, and does not compare in between.
    let mut refused = with_failure(view.clone(), Job::Update(pair("a", "b")), FailureKind::Degraded, 1040);
    write(&mut refused);
    assert!(matches!(step(&refused), Action::Wait { why: Waiting::Retry { .. }, .. }));
    // Without another config the agent only compares.
    refused.node.desired = "a".into();
    assert!(matches!(step(&refused), Action::Check { .. }));
    // A process that has not compared yet compares first.
    view.phase = Phase::Idle;
    assert!(matches!(step(&view), Action::Check { .. }));
}

#[test]
fn retry_delays_grow_to_a_minute_and_reasons_stay_within_the_limit() {
    let seconds: Vec<i64> = (1..9).map(|n| backoff(n, 1.0).as_secs()).collect();
    assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(backoff(u32::MAX, 0.0), SignedDuration::from_secs(30));
    assert_eq!(outage_backoff(u32::MAX, 1.0), SignedDuration::from_secs(8));
    let disturbing: Vec<i64> = (1..=6).map(|n| disturbing_backoff(n, 1.0).as_secs()).collect();
    assert_eq!(disturbing, [5, 20, 80, 320, 900, 900]);
    assert_eq!(disturbing_backoff(u32::MAX, 0.0), SignedDuration::from_secs(450));
    let cut = cut_reason(&"ü".repeat(240_000));
    assert_eq!(cut.chars().count(), 2000);
    assert!(cut.ends_with("ü… (cut: 240000 characters)"), "the text must say that it was cut");
    assert_eq!(cut_reason(&cut), cut, "otherwise it would be written in a loop");
}

#[test]
fn a_problem_outside_the_config_degrades_the_node_and_blocks_no_update() {
    let mut view = mk_view("a", "a", "a", "Done");
    assert_eq!(step(&view), Action::Idle);
    let why = "Certificates could not be written: cannot write /etc/kubernetes/kubelet-ca.crt";
    view.trouble = Some(why.into());
    assert_eq!(write(&mut view), []);
    assert_eq!((view.node.state.as_str(), view.node.reason.as_str()), ("Degraded", why));
    assert_eq!(step(&view), Action::Idle);
    // Another config is still applied; the node is updated then, and still degraded.
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
fn a_changed_retry_annotation_triggers_a_retry() {
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
        // The agent has just started, or a node with another UID has the name.
        (NodeFacts::default(), facts("u", "1"), false),
        (facts("u", "1"), facts("v", "2"), false),
    ] {
        assert_eq!(now.asks_again(&before), want, "{before:?} → {now:?}");
    }
}
