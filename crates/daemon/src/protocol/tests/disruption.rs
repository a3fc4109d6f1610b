//! The drain and the reboot of an update, decided step by step on plain values.

use super::*;
use api::k8s::Node;
use api::topology::ControlPlaneTopology;

#[test]
fn an_update_with_drain_and_reboot_waits_once_and_writes_three_times() {
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
    // The kubelet has not reported since the boot.
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
    // A kubelet that this config has broken does not delay another config.
    view.node.desired = "c".into();
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
    view.node.desired = "b".into();
    // Once the kubelet has reported, the controller decides from its conditions.
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
fn a_node_that_was_cordoned_before_is_uncordoned_only_by_the_controller() {
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
fn a_completed_drain_is_not_requested_again() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.desired_drain = "drain-b".into();
    view.node.last_applied_drain = "drain-b".into();
    view.node.unschedulable = true;
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
    // A drain that was done for another config is requested again: pods may have started since.
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
    // Requested once more after the change was applied: pods may have started since.
    view.disk.current = Some("b".into());
    view.disk.reboot = owed("b");
    (view.phase, view.node.unschedulable) = (Phase::Idle, false);
    let record = |view: &mut View, cleared| {
        assert_eq!(step(view), Action::RecordCleared { config: "b".into(), cleared });
        view.disk.reboot = RebootFact::Owed { config: "b".into(), tries: 0, cleared };
    };
    record(&mut view, false);
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    // Without the API server neither this process nor the next one reboots while those pods run.
    for node in [NodeFacts::default(), view.node.clone()] {
        let away = View { silent_since: Some(at(0)), node, phase: Phase::Idle, ..view.clone() };
        assert!(matches!(step(&away), Action::Wait { until: None, .. }), "{:?}", step(&away));
    }
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: None });
    view.phase = Phase::Redraining { since: at(1000) };
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: Some(at(4600)) });
    // An overdue drain is reported once, and used when it completes.
    view.now = at(4600);
    assert_eq!(write(&mut view), [AgentEvent::FailedToDrain]);
    assert_eq!(view.node.state, "Degraded");
    assert_eq!(step(&view), Action::Wait { why: Waiting::Drain, until: None });
    view.node.last_applied_drain = "drain-b".into();
    record(&mut view, true);
    assert_eq!(write(&mut view), [AgentEvent::Reboot]);
    assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
}

type Bend = fn(&mut View);

#[test]
fn a_drained_node_reboots_after_a_time_limit_when_the_reboot_cannot_be_announced() {
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
        v.node.topology = Some(ControlPlaneTopology::SingleReplica);
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
    // An announced reboot is not delayed.
    let mut view = mk();
    view.node.post_action = "Rebooting".into();
    assert_eq!(step(&view), Action::Reboot { config: "b".into(), announced: true });
    // After the boot the node reports once what it could not report before.
    let mut view = mk();
    view.disk.reboot = RebootFact::Rebooted { config: "b".into(), boot_id: "one".into(), began: None };
    view.node.boot_id = "two".into();
    assert_eq!(write(&mut view), [AgentEvent::Reboot]);
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
}

#[test]
fn three_reboots_that_change_nothing_degrade_the_node() {
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
    // An outage of the API server does not cause a fourth one either.
    view.silent_since = Some(at(0));
    assert_eq!(step(&view), Action::Wait { why: Waiting::Boot, until: Some(at(1010)) });
    // Another config is accepted; it may be one that the node can reach.
    view.node.desired = "c".into();
    assert_eq!(step(&view), Action::Prepare(pair("b", "c")));
    // Not where the machine comes up in the OS that it is to leave: nothing can be applied before that has ended.
    view.disk.returns = 3;
    assert_eq!(step(&view), Action::Wait { why: Waiting::Boot, until: Some(at(1010)) });
    view.disk.returns = 0;
    // A reboot that is recognised later ends the failure.
    view.node.desired = "b".into();
    view.disk.reboot = RebootFact::Rebooted { config: "b".into(), boot_id: "one".into(), began: None };
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
}

#[test]
fn a_container_counts_as_rebooted_when_its_kubelet_has_reported_since_the_boot() {
    let clock = |second| jiff::Timestamp::from_second(second).unwrap();
    let mut view = mk_view("b", "a", "b", "Working");
    (view.node.post_action, view.node.boot_id) = ("Rebooting".into(), "the computer's".into());
    view.disk.reboot = RebootFact::Rebooted {
        config: "b".into(),
        boot_id: "the computer's".into(),
        began: Some(clock(990) + jiff::SignedDuration::from_millis(400)),
    };
    view.phase = Phase::AwaitingKubelet { since: at(995) };
    // Heartbeats have whole seconds: that of 990 may have been there before the reboot.
    for heard in [None, Some(clock(900)), Some(clock(989)), Some(clock(990))] {
        view.node.heard = heard;
        // Checked from time to time: a heartbeat does not wake the agent.
        assert_eq!(step(&view), Action::Wait { why: Waiting::Kubelet, until: Some(at(1010)) });
    }
    view.node.heard = Some(clock(991));
    assert_eq!(step(&view), Action::ForgetReboot { config: "b".into() });
}

#[test]
fn a_single_replica_control_plane_is_not_drained() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.topology = Some(ControlPlaneTopology::SingleReplica);
    assert_eq!(step(&view), Action::Apply(pair("a", "b")));
}

#[test]
fn a_node_says_by_its_annotations_whether_it_is_drained_and_whether_it_reboots() {
    let facts = |key: &str, value: &str| {
        let mut node = Node::default();
        node.metadata.annotations = Some([(key.to_owned(), value.to_owned())].into());
        NodeFacts::of(&node)
    };
    for (topology, drains) in [
        ("SingleReplica", false),
        ("HighlyAvailable", true),
        ("HighlyAvailableArbiter", true),
        ("DualReplica", true),
        ("External", true),
        ("of another version", true),
        ("", true),
    ] {
        assert_eq!(facts(a::CONTROL_PLANE_TOPOLOGY, topology).drains(), drains, "{topology}");
    }
    for (action, reboots) in [("Rebooting", true), ("of another version", false), ("", false)] {
        assert_eq!(facts(a::POST_CONFIG_ACTION, action).announces_reboot(), reboots, "{action}");
    }
    let nothing = NodeFacts::of(&Node::default());
    assert!(nothing.drains() && !nothing.announces_reboot());
}

#[test]
fn a_config_that_changes_during_a_drain_is_followed_at_once() {
    let mut view = with_prepared(mk_view("a", "a", "b", "Working"), "a", "b", REBOOT);
    view.node.desired_drain = "drain-b".into();
    view.node.desired = "c".into();
    assert_eq!(step(&view), Action::Prepare(pair("a", "c")));
    let mut onwards = with_prepared(view.clone(), "a", "c", FREE);
    assert_eq!(step(&onwards), Action::Apply(pair("a", "c")));
    // c needs no drain, but the node may be cordoned for b: it is uncordoned before Done.
    onwards.disk.current = Some("c".into());
    write(&mut onwards);
    assert_eq!(onwards.node.desired_drain, "uncordon-c");
    assert_eq!(onwards.node.state, "Working");
    // Back to the config that is on the disk: nothing is applied.
    view.node.desired = "a".into();
    write(&mut view);
    assert_eq!(view.node.desired_drain, "uncordon-a");
}

#[test]
fn an_overdue_drain_is_reported_once_and_goes_on() {
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
fn a_persons_cordon_is_kept() {
    let mut view = mk_view("b", "a", "b", "Working");
    view.node.unschedulable = true;
    write(&mut view);
    assert_eq!((view.node.state.as_str(), view.node.desired_drain.as_str()), ("Done", "uncordon-a"));
    assert_eq!(step(&view), Action::Idle);
}

#[test]
fn a_drained_node_that_is_then_sent_to_an_unsupported_image_is_uncordoned() {
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
        assert_eq!(view.node.unschedulable, !own_cordon, "the controller removes its own cordon");
        assert_eq!(step(&view), Action::Wait { why: Waiting::Image, until: None }, "it is reported once");
    }
}

#[test]
fn nodes_that_may_have_a_member_of_etcd_reboot_as_a_whole() {
    for (roles, want) in [
        (&[] as &[&str], false),
        (&["worker"], false),
        (&["etcd-backup"], false),
        (&["control-plane"], true),
        (&["master", "worker"], true),
        (&["etcd"], true),
    ] {
        let labels = roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), String::new()));
        let node = NodeFacts { labels: labels.collect(), ..NodeFacts::default() };
        assert_eq!(node.keeps_a_quorum(), want, "{roles:?}");
    }
}
