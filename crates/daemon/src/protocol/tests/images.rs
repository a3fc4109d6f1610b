//! Updates with an image of the operating system: downloads before the drain and ahead of it, images that cannot be used, a pool
//! that goes to an image and back.

use super::*;

#[test]
fn downloads_of_an_update_precede_its_drain() {
    let mut view = mk_view("a", "a", "b", "Done");
    view.phase = Phase::Prepared { pair: pair("a", "b"), cost: REBOOT, to_fetch: true, asked: None };
    assert_eq!(write(&mut view), [], "the pool counts it as working");
    assert_eq!((view.node.state.as_str(), view.node.unschedulable), ("Working", false));
    assert_eq!(step(&view), Action::Fetch(pair("a", "b")));
    // The desired config changes meanwhile.
    let mut other = view.clone();
    other.node.desired = "c".into();
    assert_eq!(step(&other), Action::Prepare(pair("a", "c")));
    view.phase = Phase::Prepared { pair: pair("a", "b"), cost: REBOOT, to_fetch: false, asked: None };
    assert_eq!(write(&mut view), [AgentEvent::Cordon, AgentEvent::Drain]);
    assert!(view.node.unschedulable);
}

#[test]
fn an_image_is_fetched_ahead_by_a_node_that_has_nothing_else_to_do_once_for_each_request() {
    let mut view = mk_view("a", "a", "a", "Done");
    view.node.prefetch = "1 b q.io/os@sha256:c".into();
    let fetches = Action::Prefetch(pair("a", "b+q.io/os@sha256:c"));
    assert_eq!(step(&view), fetches);
    for answer in ["1 b q.io/os@sha256:c", "1 b q.io/os@sha256:c; no route"] {
        view.node.prefetched = answer.into();
        assert_eq!(step(&view), Action::Idle, "{answer}");
    }
    for about_another in ["1 b", "2 b q.io/os@sha256:c; no route", "1 b q.io/os@sha256:d", "damaged"] {
        view.node.prefetched = about_another.into();
        assert_eq!(step(&view), fetches, "{about_another}");
    }
    // After a failure, the next try waits; one for something else does not.
    view.prefetch_failed = Some(("b+q.io/os@sha256:c".into(), at(1001)));
    assert_eq!(step(&view), Action::Idle);
    view.now = at(1001);
    assert_eq!(step(&view), fetches);
    view.now = at(1000);
    view.node.prefetch = "1 c".into();
    assert_eq!(step(&view), Action::Prefetch(pair("a", "c")));
    // What else is to be done comes first.
    view.node.desired = "d".into();
    assert_eq!(step(&view), Action::Prepare(pair("a", "d")));
    view.node.desired = "a".into();
    view.checked = false;
    assert!(matches!(step(&view), Action::Check { .. }));
    view.checked = true;
    for nothing in ["", "b", "x b", "1 b c d"] {
        view.node.prefetch = nothing.into();
        assert_eq!(step(&view), Action::Idle, "{nothing:?}");
    }
}

#[test]
fn an_unsupported_image_is_refused_until_it_is_no_longer_desired() {
    for (current, desired, words) in [
        ("", "img", "the image img on this node"),
        ("old", "new", "the image new"),
        ("old", "", "change from the image old"),
    ] {
        let disk = desired::with_image("a", current);
        let mut view = mk_view(&disk, "a", "b", "Done");
        (view.node.current_image, view.node.desired_image) = (current.into(), desired.into());
        assert_eq!(write(&mut view), [AgentEvent::FailedToReconcile], "{words}");
        assert_eq!((view.node.state.as_str(), view.node.current.as_str()), ("Unreconcilable", "a"));
        assert!(view.node.reason.contains(words) && view.node.reason.contains("; "), "{}", view.node.reason);
        assert_eq!(step(&view), Action::Wait { why: Waiting::Image, until: None }, "it is reported once");
        // A host that supports images plans the change.
        let able = View { disk: DiskFacts { takes_images: true, ..view.disk.clone() }, ..view.clone() };
        assert_eq!(step(&able), Action::Prepare(pair(&disk, &desired::with_image("b", desired))));
        // A problem of the disk is still reported.
        let unchecked = View { checked: false, ..view.clone() };
        assert_eq!(step(&unchecked), Action::Check { config: disk.clone(), record: false });
        view.node.desired_image = view.node.current_image.clone();
        assert_eq!(step(&view), Action::Prepare(pair(&disk, &desired::with_image("b", current))));
        view.node.desired = "a".into();
        write(&mut view);
        assert_eq!((view.node.state.as_str(), view.node.reason.as_str()), ("Done", ""));
        assert_eq!(step(&view), Action::Idle);
    }
}

#[test]
fn a_node_goes_to_its_pools_image_and_back_and_says_where_it_is() {
    const A: &str = "q.io/os@sha256:a";
    const B: &str = "q.io/os@sha256:b";
    let mut view = mk_view("one", "one", "one", "Done");
    view.disk.takes_images = true;
    for (config, image, previous) in [
        ("one", A, ""),
        ("one", B, A),
        ("two", B, A),
        ("two", "", B),
        ("three", A, ""),
        ("one", "", A),
        // Nothing falls back to an image of a pool any more.
        ("two", "", ""),
    ] {
        let from = view.config_on_disk();
        (view.node.desired, view.node.desired_image) = (config.into(), image.into());
        let state = desired::with_image(config, image);
        assert_eq!(step(&view), Action::Prepare(pair(&from, &state)));
        view = with_prepared(view, &from, &state, REBOOT);
        write(&mut view);
        // A drain is asked for by the config alone.
        assert_eq!(view.node.desired_drain, format!("drain-{config}"));
        view.node.last_applied_drain = view.node.desired_drain.clone();
        assert_eq!(step(&view), Action::Apply(pair(&from, &state)));
        view.disk.current = Some(state.clone());
        view.disk.reboot = owed(&state);
        view.phase = Phase::Applied { config: state.clone(), asked: None };
        write(&mut view);
        assert_eq!(step(&view), Action::Reboot { config: state.clone(), announced: true });
        // Another image of the same config supersedes it, for a machine whose reboots have no effect.
        let stuck = RebootFact::Owed { config: state.clone(), tries: 3, cleared: true };
        let mut stuck = View { disk: DiskFacts { reboot: stuck, ..view.disk.clone() }, ..view.clone() };
        stuck.node.desired_image = "q.io/os@sha256:c".into();
        let other = pair(&state, &desired::with_image(config, "q.io/os@sha256:c"));
        assert_eq!(step(&stuck), Action::Prepare(other));
        (view.disk.reboot, view.phase) = (RebootFact::None, Phase::Idle);
        assert_eq!(write(&mut view), [AgentEvent::Uncordon, AgentEvent::NodeDone]);
        let node = &view.node;
        assert_eq!((node.current.as_str(), node.current_image.as_str()), (config, image));
        assert_eq!(node.previous_image, previous, "{config} {image}");
        assert_eq!((node.state.as_str(), node.desired_drain.clone()), ("Done", format!("uncordon-{config}")));
        assert_eq!(step(&view), Action::Idle);
    }
    // A Node object that was created again gets both back from the disk.
    let mut again = mk_view(&desired::with_image("one", A), "", "", "");
    write(&mut again);
    assert_eq!(
        (again.node.desired_state(), again.node.current_state()),
        (format!("one+{A}"), format!("one+{A}"))
    );
}

#[test]
fn an_image_that_was_tried_and_left_is_not_tried_again_but_another_one_is() {
    let mut view = mk_view("one+a", "one", "one", "Done");
    (view.node.current_image, view.node.desired_image) = ("a".into(), "b".into());
    view.disk.takes_images = true;
    let config = "one+b".to_owned();
    view.disk.tried = Some(TriedFacts { config, check: host::Check::Node, retry: false, in_doubt: false });
    assert_eq!(step(&view), Action::Prepare(pair("one+a", "one+b")), "which refuses it");
    view.node.desired_image = "c".into();
    assert_eq!(step(&view), Action::ForgetTried);
}
