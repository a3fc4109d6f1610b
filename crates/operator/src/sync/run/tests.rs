//! Tests of `run`: the waits between passes, and what a standby reports.

use super::super::Stopped;
use super::super::pass::tests::pod_with;
use super::*;
use serde_json::json;

#[test]
fn who_stands_by_says_nothing_of_steps_that_failed_under_it() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let text = || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    metrics.leader.set(1);
    report::unread(&metrics);
    for line in ["step_failed{step=\"Read\"} 1", "passes_total{result=\"failed\"} 1", "leader 1"] {
        assert!(text().contains(&format!("mco_operator_{line}\n")), "{}", text());
    }
    stands_by(&metrics);
    assert!(!text().contains("step_failed{") && text().contains("mco_operator_leader 0\n"), "{}", text());
}

#[test]
fn a_failure_waits_longer_each_time_and_never_the_same_while_a_change_ends_any_other_wait() {
    let stopped =
        |stop| PassResult { stopped: Some(Stopped { step: Step::Rights, stop }), ..PassResult::default() };
    let failed = stopped(Stop::Failed(String::new()));
    let mut waits = vec![];
    for failures in 0..8 {
        let Rest::All(wait) = rest(Some(&failed), failures, 0) else {
            panic!("a change must not make a busy loop")
        };
        assert!(wait <= RETRY.last && wait >= RETRY.first / 2, "{wait:?}");
        waits.push(wait);
    }
    assert!(waits[7] > waits[0] * 8, "{waits:?}");
    let again: Vec<Rest> = (0..4).map(|_| rest(None, 7, 0)).collect();
    assert!(again.windows(2).any(|pair| pair[0] != pair[1]), "without jitter: {again:?}");
    assert_eq!(rest(Some(&PassResult::default()), 0, 0), Rest::UntilChange(AGAIN));
    assert_eq!(rest(Some(&stopped(Stop::Waiting(String::new()))), 0, 0), Rest::UntilChange(WAITING));
    let stored = PassResult { stored: vec!["s".to_owned()], ..PassResult::default() };
    assert_eq!(
        rest(Some(&stored), 0, 0),
        Rest::UntilChange(RETRY.last),
        "what is not rewritten is tried again"
    );
    let soon = Duration::from_secs(5);
    let settles = PassResult { settles: Some(soon), ..stored };
    assert_eq!(rest(Some(&settles), 0, 0), Rest::UntilChange(soon));
    let stop = Stop::Failed(String::new());
    let bare = PassResult { stopped: Some(Stopped { step: Step::Settings, stop }), ..PassResult::default() };
    assert_eq!(rest(Some(&bare), 7, 0), Rest::UntilChange(RETRY.last), "settings may come at any time");
    let stop = Stop::Failed(String::new());
    let blind = PassResult { stopped: Some(Stopped { step: Step::Watch, stop }), ..PassResult::default() };
    assert_eq!(rest(Some(&blind), 7, 0), Rest::UntilChange(AGAIN), "the other watches tell of changes");
    // Columns: what a pass leaves that says nothing else than that a watch does not work; the wait.
    for (left, wait) in [
        (PassResult { joining_failed: true, ..PassResult::default() }, WAITING),
        (PassResult { stored: vec!["s".to_owned()], ..PassResult::default() }, RETRY.last),
        (PassResult { stored: vec!["s".to_owned()], settles: Some(soon), ..PassResult::default() }, soon),
    ] {
        let stop = Stop::Failed(String::new());
        let blind = PassResult { stopped: Some(Stopped { step: Step::Watch, stop }), ..left };
        assert_eq!(rest(Some(&blind), 0, 0), Rest::UntilChange(wait), "{blind:?}");
    }
    let joining = PassResult { joining_failed: true, ..PassResult::default() };
    assert_eq!(rest(Some(&joining), 0, 0), Rest::UntilChange(WAITING), "a machine waits");
    let race = PassResult { conflict: true, ..PassResult::default() };
    assert_eq!(rest(Some(&race), 0, 0), Rest::None);
    assert!(matches!(rest(Some(&race), 0, CONFLICTS), Rest::All(_)));
}

#[test]
fn passes_without_a_watch_do_not_make_a_later_failure_wait_longer() {
    let of = |step| {
        let stop = Stop::Failed(String::new());
        PassResult { stopped: Some(Stopped { step, stop }), ..PassResult::default() }
    };
    let (blind, failed) = (of(Step::Watch), of(Step::Rights));
    // An hour with a watch that does not work.
    let failures = (0..60).fold(0, |failures, _| failures_in_a_row(Some(&blind), failures));
    let Rest::All(wait) = rest(None, failures, 0) else { panic!("a failure waits") };
    assert!(wait <= RETRY.first * 2, "{wait:?}");
    // Columns: the pass, the failures before, and those after it.
    for (passed, before, after) in [
        (None, 2, 3),
        (Some(&failed), 2, 3),
        (Some(&failed), u32::MAX, u32::MAX),
        (Some(&blind), 2, 0),
        (Some(&PassResult::default()), 2, 0),
    ] {
        assert_eq!(failures_in_a_row(passed, before), after, "{passed:?}");
    }
}

/// Each pass fails, and no change ends the wait after it. Whoever corrects the settings is told that it is seen late.
#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_work_is_named_while_the_settings_are_not_valid() {
    let answers = |method: &http::Method, path: &str| match path.rsplit_once('/').unwrap().1 {
        _ if method != http::Method::GET => None,
        "cluster" if path.contains("machineconfigoperators") => Some((
            200,
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
                "metadata": {"name": "cluster"}, "spec": {"image": "mco:1", "pools": ["Bad_Pool"]}}),
        )),
        "customresourcedefinitions" => Some((200, json!({"metadata": {}, "items": []}))),
        "machine-config-operator" => Some((200, json!({"metadata": {"name": "machine-config-operator"}}))),
        _ => None,
    };
    // Everything else is not there, so that no watch works.
    let (syncer, written) = pod_with(404, Box::new(answers));
    let ended = tokio::time::timeout(Duration::from_mins(4), term(syncer)).await;
    assert!(ended.is_err(), "a term does not end");
    let written = written.lock().unwrap();
    let statuses: Vec<&String> = written.iter().filter(|line| line.contains("/cluster/status ")).collect();
    let named = |line: &&&String| line.contains("SettingsFailed") && line.contains("; also: the watch of /");
    assert!(statuses.first().is_some_and(|first| !named(&first)), "{statuses:?}");
    assert!(statuses.last().is_some_and(|last| named(&last)), "{statuses:?}");
}
