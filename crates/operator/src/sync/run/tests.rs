//! Tests of `run`: the waits between passes, what a standby reports, and where a pass by hand does not begin.

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
    let stop = Stop::Failed(String::new());
    let ends =
        PassResult { stopped: Some(Stopped { step: Step::CaLifetime, stop }), ..PassResult::default() };
    assert_eq!(rest(Some(&ends), 7, 0), Rest::UntilChange(AGAIN), "everything is done");
    // Columns: what a pass leaves that says nothing else than that a watch does not work; the wait.
    for (left, wait) in [
        (PassResult { joining_failed: true, ..PassResult::default() }, WAITING),
        (PassResult { joining_failed: true, stored: vec!["s".to_owned()], ..PassResult::default() }, WAITING),
        (PassResult { stored: vec!["s".to_owned()], ..PassResult::default() }, RETRY.last),
        (PassResult { stored: vec!["s".to_owned()], settles: Some(soon), ..PassResult::default() }, soon),
    ] {
        let stop = Stop::Failed(String::new());
        let blind = PassResult { stopped: Some(Stopped { step: Step::Watch, stop }), ..left };
        assert_eq!(rest(Some(&blind), 0, 0), Rest::UntilChange(wait), "{blind:?}");
    }
    for why in [None, Some(Stop::Failed(String::new()))] {
        let stopped = why.map(|stop| Stopped { step: Step::Joining, stop });
        let joining = PassResult { joining_failed: true, stopped, ..PassResult::default() };
        assert_eq!(rest(Some(&joining), 7, 0), Rest::UntilChange(WAITING), "a machine waits");
    }
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
        (Some(&of(Step::Joining)), 2, 0),
        (Some(&of(Step::CaLifetime)), 2, 0),
        (Some(&PassResult::default()), 2, 0),
    ] {
        assert_eq!(failures_in_a_row(passed, before), after, "{passed:?}");
    }
}

#[test]
fn a_pass_by_hand_fails_only_where_the_installation_is_not_as_it_is_to_be() {
    let of = |step, stop| PassResult {
        done: vec!["d".to_owned()],
        stopped: Some(Stopped { step, stop }),
        ..PassResult::default()
    };
    let no = || Stop::Failed("no".to_owned());
    for (passed, fails) in [
        (of(Step::Rights, no()), true),
        (of(Step::UserData, no()), true),
        (of(Step::Joining, no()), false),
        (of(Step::CaLifetime, no()), false),
        (of(Step::RequiredPools, Stop::Waiting(String::new())), false),
        (PassResult { stopped: None, ..of(Step::Rights, no()) }, false),
    ] {
        let about = format!("{:?}", passed.stopped);
        let ended = ended(passed);
        assert_eq!(ended.is_err(), fails, "{about}");
        assert!(ended.is_err() || ended.is_ok_and(|done| done == ["d"]), "{about}");
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

/// Settings with a status that names the version that is rolled out, and that of the operator that wrote it.
#[expect(clippy::needless_pass_by_value, reason = "reads better with json!")]
fn settings_of(rolled_out: &str, at_work: &str, spec: serde_json::Value) -> serde_json::Value {
    let versions = match rolled_out {
        "" => json!([]),
        version => {
            json!([{"name": "operator", "version": version}, {"name": "operator-image", "version": "mco:1"}])
        }
    };
    json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
        "spec": spec, "status": {"versions": versions, "observedBy": at_work}})
}

#[test]
fn a_pass_by_hand_is_of_the_version_that_keeps_the_installation() {
    let install = "or upgrade with `mco install --image`";
    // Columns: the version that is rolled out, that of the operator at work, where the image is from, what the remedy says.
    for (rolled_out, at_work, from, want) in [
        ("", "", "Settings", None),
        (VERSION_RAW, VERSION_RAW, "Settings", None),
        // An upgrade to this version, and one from it: the definitions say who may write them.
        ("v0.0.1", VERSION_RAW, "Settings", None),
        (VERSION_RAW, "v99.0.0", "Settings", None),
        ("v0.0.1", "v0.0.1", "Settings", Some(install)),
        ("v0.0.1", "v0.0.1", "ReleasePayload", Some("or upgrade with the payload of a release")),
        // The first installation is not done yet.
        ("", "v0.0.1", "Settings", Some(install)),
        ("v0.0.1", "", "Settings", Some(install)),
        ("v99.0.0", "v99.0.0", "Settings", Some("use `mco` of v99.0.0 or newer")),
    ] {
        let settings = settings_of(rolled_out, at_work, json!({"image": "mco:1", "imageFrom": from}));
        let found = kept_by_another_version(&serde_json::from_value(settings).unwrap());
        let about = format!("{rolled_out} {at_work} {from}: {found:?}");
        assert_eq!(found.is_some(), want.is_some(), "{about}");
        assert!(found.is_none_or(|why| why.contains(want.unwrap_or_default())), "{about}");
    }
}

/// The definitions and rights would be of this version, and the parts of the other one.
#[tokio::test]
async fn a_pass_by_hand_of_another_version_writes_nothing() {
    let answers = |_: &http::Method, path: &str| match path.rsplit_once('/').unwrap().1 {
        "cluster" if path.contains("machineconfigoperators") => {
            Some((200, settings_of("v0.0.1", "v0.0.1", json!({"image": "mco:1"}))))
        }
        "customresourcedefinitions" => Some((200, json!({"metadata": {}, "items": []}))),
        _ => None,
    };
    let (syncer, written) = pod_with(404, Box::new(answers));
    let error = run_once(syncer.client.clone(), Options::default()).await.unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("Settings: the operator of v0.0.1 keeps the installation"), "{said}");
    assert_eq!(*written.lock().unwrap(), Vec::<String>::new());
}
