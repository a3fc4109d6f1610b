//! A change on trial: when it is confirmed, when it is undone, and when a config that was undone may be tried again.

use super::{at, mk_view, owed, pair, write};
use crate::protocol::phase::Phase;
use crate::protocol::{
    Action, RebootFact, StateBefore, TrialFacts, TrialObservation, TriedFacts, View, Waiting, step,
};
use host::{Check, UnitRun, UnitState};
use jiff::{SignedDuration, Timestamp};

const KUBELET: &str = "kubelet.service";

fn active(invocation: &str) -> UnitState {
    UnitState { active: "active".to_owned(), invocation: invocation.to_owned() }
}

fn activating(invocation: &str) -> UnitState {
    UnitState { active: "activating".to_owned(), ..active(invocation) }
}

/// A node whose change to `new` is on trial, with this much of the ten minutes left.
fn mk_trial(left: i64) -> View {
    let mut view = mk_view("new", "old", "new", "Working");
    view.node.heard = Timestamp::from_second(100).ok();
    view.disk.trial = Some(TrialFacts {
        config: "new".to_owned(),
        begun: true,
        reboots: false,
        within: SignedDuration::from_mins(10),
        left: SignedDuration::from_secs(left),
        units: vec![UnitRun { unit: KUBELET.to_owned(), invocation: "a".to_owned() }],
        before: StateBefore {
            ready: true,
            heard: Timestamp::from_second(100).ok(),
            person: false,
            api_server: None,
        },
    });
    view
}

fn look(units: &[UnitState]) -> TrialObservation {
    let units = units.iter().map(|state| (KUBELET.to_owned(), state.clone())).collect();
    TrialObservation { at: at(1000), api: Ok(()), units, logins: None }
}

fn looked(mut view: View, earlier: Option<TrialObservation>, last: TrialObservation) -> View {
    view.phase = Phase::OnTrial { last, earlier };
    view
}

#[test]
fn a_node_that_is_made_again_still_refuses_what_was_tried_and_undone() {
    let mut view = mk_view("a", "", "", "");
    let config = "b".to_owned();
    view.disk.tried = Some(TriedFacts { config, check: Check::Node, retry: false, in_doubt: false });
    write(&mut view);
    assert_eq!((view.node.current.as_str(), view.node.desired.as_str()), ("a", "b"));
    assert_eq!(step(&view), Action::Prepare(pair("a", "b")), "which refuses it");
}

#[test]
fn a_change_is_confirmed_when_all_that_was_well_before_is_well_on_two_looks() {
    let steady = looked(mk_trial(500), Some(look(&[active("a")])), look(&[active("a")]));
    assert_eq!(step(&steady), Action::ConfirmTrial);
    assert_eq!(step(&mk_trial(500)), Action::ObserveTrial, "nothing was looked at yet");
    let no_units = looked(mk_trial(500), None, look(&[]));
    assert_eq!(step(&no_units), Action::ConfirmTrial, "nothing can have been started again in between");

    // One that has only just started may be about to end.
    let starting = looked(mk_trial(500), Some(look(&[activating("a")])), look(&[active("a")]));
    assert!(matches!(step(&starting), Action::Wait { why: Waiting::Confirmation, .. }));

    // What was broken before is not asked for.
    let mut broken = steady.clone();
    broken.node.ready = false;
    broken.disk.trial.as_mut().unwrap().before.ready = false;
    assert_eq!(step(&broken), Action::ConfirmTrial);

    // A kubelet that was started again has to have reported since.
    let mut again = looked(mk_trial(500), Some(look(&[active("b")])), look(&[active("b")]));
    assert!(matches!(step(&again), Action::Wait { why: Waiting::Confirmation, .. }));
    again.node.heard = Timestamp::from_second(130).ok();
    assert_eq!(step(&again), Action::ConfirmTrial);

    // So does the kubelet of a machine that has rebooted.
    let mut rebooted = steady;
    rebooted.node.boot_id = "one".to_owned();
    rebooted.disk.reboot =
        RebootFact::Rebooted { config: "new".to_owned(), boot_id: "one".to_owned(), began: None };
    assert!(matches!(step(&rebooted), Action::Wait { why: Waiting::Confirmation, .. }));
    rebooted.node.boot_id = "two".to_owned();
    assert_eq!(step(&rebooted), Action::ConfirmTrial);
}

#[test]
fn what_fails_is_named_when_the_time_is_up_and_not_before() {
    let failed = UnitState { active: "failed".to_owned(), invocation: "b".to_owned() };
    let silent = TrialObservation {
        api: Err("no new connection to 10.0.0.1:6443".to_owned()),
        ..look(&[active("a")])
    };
    let not_ready = |mut view: View| {
        view.node.ready = false;
        view
    };
    let steady = || (Some(look(&[active("a")])), look(&[active("a")]));
    for (about, view, check, word) in [
        ("kubelet", looked(mk_trial(0), None, look(&[failed])), Check::Unit, "kubelet.service ran before"),
        ("API server", looked(mk_trial(0), None, silent), Check::Api, "10.0.0.1:6443"),
        (
            "Node",
            {
                let (a, b) = steady();
                looked(not_ready(mk_trial(0)), a, b)
            },
            Check::Node,
            "Ready before",
        ),
        (
            "logins",
            {
                let (a, b) = steady();
                looked(
                    mk_trial(0),
                    a,
                    TrialObservation { logins: Some("no SSH server runs now".to_owned()), ..b },
                )
            },
            Check::Unit,
            "no SSH server",
        ),
        (
            "started again and again",
            looked(mk_trial(0), Some(look(&[active("a")])), look(&[active("b")])),
            Check::Unit,
            "kubelet.service is started again and again",
        ),
        (
            "active for a moment between two starts",
            looked(mk_trial(0), Some(look(&[activating("a")])), look(&[active("b")])),
            Check::Unit,
            "kubelet.service is started again and again",
        ),
        (
            "silent",
            looked(mk_trial(0), Some(look(&[active("b")])), look(&[active("b")])),
            Check::Node,
            "kubelet.service has not reported",
        ),
    ] {
        match step(&view) {
            Action::FailTrial { check: found, why } => {
                assert_eq!(found, check, "{about}: {why}");
                assert!(why.contains(word), "{about}: {why}");
            }
            other => panic!("{about}: {other:?}"),
        }
        let mut early = view;
        early.disk.trial.as_mut().unwrap().left = SignedDuration::from_secs(90);
        let until = match step(&early) {
            Action::Wait { why: Waiting::Confirmation, until } => until,
            other => panic!("{about}: {other:?}"),
        };
        assert_eq!(until, Some(at(1005)), "{about}");
        early.now = at(1005);
        assert_eq!(step(&early), Action::ObserveTrial, "{about}");
        // Another config is wanted: the rest of the time is not waited for, but a boot's time is.
        early.node.desired = "newer".to_owned();
        assert!(matches!(step(&early), Action::FailTrial { .. }), "{about}");
        early.disk.trial.as_mut().unwrap().left = SignedDuration::from_secs(590);
        assert_eq!(step(&early), Action::ObserveTrial, "{about}");
    }
}

#[test]
fn a_trial_begins_after_its_reboot_and_needs_neither_the_node_nor_the_api_server() {
    let mut view = mk_trial(600);
    view.disk.trial.as_mut().unwrap().begun = false;
    view.disk.reboot = owed("new");
    assert!(!matches!(step(&view), Action::ObserveTrial), "the reboot comes first");
    // An outage is no reason to reboot into such a change sooner than into any other. Out of one it is.
    view.node.unschedulable = true;
    view.node.last_applied_drain = "drain-new".to_owned();
    view.node.desired_drain = "drain-new".to_owned();
    for (silent, back, reboots) in
        [(61, false, false), (299, false, false), (300, false, true), (61, true, true)]
    {
        view.silent_since = Some(at(1000 - silent));
        view.disk.reboot_of_trial = back;
        let found = matches!(step(&view), Action::Reboot { announced: false, .. });
        assert_eq!(found, reboots, "{silent} s, back: {back}");
    }

    let mut unseen = mk_trial(600);
    unseen.node = Default::default();
    assert_eq!(step(&unseen), Action::ObserveTrial);
    unseen.disk.trial.as_mut().unwrap().before.person = true;
    assert!(matches!(step(&unseen), Action::Wait { why: Waiting::Confirmation, .. }), "a person confirms it");
}

#[test]
fn a_config_that_was_undone_is_tried_again_for_another_wish_a_person_or_an_api_server_that_stays_away() {
    let tried = |check, silent: Option<i64>, desired: &str, retry| {
        let mut view = mk_view("old", "old", desired, "Working");
        view.disk.tried = Some(TriedFacts { config: "new".to_owned(), check, retry, in_doubt: true });
        view.silent_since = silent.map(at);
        matches!(step(&view), Action::ForgetTried)
    };
    assert!(!tried(Check::Unit, None, "new", false));
    assert!(tried(Check::Unit, None, "old", false), "another config is wanted");
    assert!(tried(Check::Unit, None, "new", true), "a person asks");
    assert!(!tried(Check::Unit, Some(0), "new", false), "what failed was not the API server");
    assert!(!tried(Check::Api, None, "new", false), "it answers in the old config: the change is to blame");
    assert!(!tried(Check::Api, Some(1000 - 119), "new", false), "it may still come up");
    assert!(tried(Check::Api, Some(1000 - 120), "new", false), "it is away in the old config too");
    assert!(
        tried(Check::Confirmation, Some(1000 - 120), "new", false),
        "no agent could confirm it without one"
    );
    let mut settled = mk_view("old", "old", "new", "Working");
    settled.silent_since = Some(at(0));
    let record =
        |in_doubt| Some(TriedFacts { config: "new".to_owned(), check: Check::Api, retry: false, in_doubt });
    settled.disk.tried = record(true);
    assert_eq!(step(&settled), Action::ForgetTried);
    settled.disk.tried = record(false);
    assert_ne!(
        step(&settled),
        Action::ForgetTried,
        "the node was well in the old config, or has to reboot first"
    );
    // A new process that has not seen its Node yet wakes up in time.
    let mut view = mk_view("old", "", "", "");
    view.node = Default::default();
    view.disk.tried =
        Some(TriedFacts { config: "new".to_owned(), check: Check::Api, retry: false, in_doubt: true });
    view.silent_since = Some(at(990));
    assert_eq!(step(&view), Action::Wait { why: Waiting::Node, until: Some(at(1110)) });
}

#[test]
fn after_an_undo_the_watch_waits_then_reboots_once_then_says_who_was_to_blame() {
    use crate::protocol::trial::{AfterUndo, StateAfterUndo, after_undo};
    let after = |check, api, units, same_boot, seconds| {
        after_undo(StateAfterUndo {
            check,
            api,
            units,
            same_boot,
            unwell: SignedDuration::from_secs(seconds),
        })
    };
    for check in [Check::Api, Check::Confirmation, Check::Unit, Check::Node, Check::Boot] {
        for same_boot in [true, false] {
            assert_eq!(after(check, true, true, same_boot, 0), AfterUndo::Settled);
            assert_eq!(
                after(check, false, true, same_boot, 119),
                AfterUndo::LookAgain,
                "it may still come up"
            );
            assert_eq!(after(check, true, false, same_boot, 119), AfterUndo::LookAgain);
        }
        assert_eq!(after(check, false, true, true, 120), AfterUndo::Reboot, "effects may have stayed");
        assert_eq!(after(check, true, false, true, 120), AfterUndo::Reboot);
        assert_eq!(after(check, true, false, false, 120), AfterUndo::Settled, "a reboot does not help");
        let forgiven = matches!(check, Check::Api | Check::Confirmation);
        let want = if forgiven { AfterUndo::NotToBlame } else { AfterUndo::Settled };
        assert_eq!(after(check, false, true, false, 120), want, "{check:?}");
    }
}

#[test]
fn a_host_is_left_once_when_nothing_is_on_trial_and_no_reboot_is_owed() {
    let mut asked = mk_view("old", "old", "old", "Done");
    asked.node.leave = "now".to_owned();
    let leaves = Action::Leave { asked: "now".to_owned() };
    assert_eq!(step(&asked), leaves);
    // One that failed, or waits for a drain, is left as it is.
    let mut degraded = asked.clone();
    (degraded.node.desired, degraded.node.state) = ("new".to_owned(), "Degraded".to_owned());
    assert_eq!(step(&degraded), leaves);
    let mut answered = asked.clone();
    answered.node.left = "now".to_owned();
    assert_eq!(step(&answered), Action::Idle, "it goes on as usual");
    answered.node.leave = "again".to_owned();
    assert_eq!(step(&answered), Action::Leave { asked: "again".to_owned() });

    // A host that could not be left does not keep its node from its work.
    let mut later = answered;
    later.leave_again = Some(at(1001));
    assert_eq!(step(&later), Action::Idle);
    later.now = at(1001);
    assert_eq!(step(&later), Action::Leave { asked: "again".to_owned() });
    // An update that is under way may bring a trial: it ends first.
    let mut waits = asked.clone();
    waits.phase = Phase::AwaitingKubelet { since: at(999) };
    assert_ne!(step(&waits), leaves);

    let mut on_trial = looked(mk_trial(500), Some(look(&[active("a")])), look(&[active("a")]));
    on_trial.node.leave = "now".to_owned();
    assert_eq!(step(&on_trial), Action::ConfirmTrial, "it proves itself first");
    let mut bad = looked(mk_trial(0), Some(look(&[active("a")])), look(&[activating("b")]));
    bad.node.leave = "now".to_owned();
    assert!(matches!(step(&bad), Action::FailTrial { .. }), "or is undone while somebody is there");
    let mut owes = asked.clone();
    owes.disk.reboot = owed("old");
    assert_ne!(step(&owes), leaves);
    let mut open = asked;
    open.disk.open = true;
    assert_eq!(step(&open), Action::Recover);
}
