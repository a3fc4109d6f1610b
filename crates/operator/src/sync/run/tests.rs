//! Tests of `run`: the waits between passes, what begins one, and what a standby reports.

use super::super::Stopped;
use super::*;
use futures::FutureExt as _;
use kube::client::Body;
use std::sync::atomic::AtomicUsize;

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
    let joining = PassResult { joining_failed: true, ..PassResult::default() };
    assert_eq!(rest(Some(&joining), 0, 0), Rest::UntilChange(WAITING), "a machine waits");
    let race = PassResult { conflict: true, ..PassResult::default() };
    assert_eq!(rest(Some(&race), 0, 0), Rest::None);
    assert!(matches!(rest(Some(&race), 0, CONFLICTS), Rest::All(_)));
}

/// An API server that answers the first lists with this code, and watches without any event. Also returns how often it was asked.
fn refusing(lists: usize, code: u16) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let serve = tower::service_fn(move |request: http::Request<Body>| {
        let refused = count.fetch_add(1, Ordering::SeqCst) < lists;
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            let list = r#"{"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "5"}, "items": []}"#;
            let (code, body) = if refused { (code, "") } else { (200, list) };
            let body = Body::from(body.as_bytes().to_vec());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    (Client::new(serve, "default"), asked)
}

#[tokio::test(start_paused = true)]
async fn lists_that_are_refused_begin_no_pass_and_are_asked_for_less_and_less() {
    for code in [403, 500] {
        let (client, asked) = refusing(usize::MAX, code);
        let mut changes = of(Api::<PartialObjectMeta<Secret>>::all(client), watcher::Config::default());
        let change = tokio::time::timeout(Duration::from_mins(2), changes.next()).await;
        assert!(change.is_err(), "{code}: nothing has changed");
        let asked = asked.load(Ordering::SeqCst);
        assert!((10..=40).contains(&asked), "{code}: {asked} lists in two minutes");
    }
    let (client, asked) = refusing(3, 500);
    let mut changes = of(Api::<PartialObjectMeta<Secret>>::all(client), watcher::Config::default());
    let change = tokio::time::timeout(WATCH.last, changes.next()).await;
    assert_eq!(change.ok(), Some(Some(())), "what has changed meanwhile is looked at");
    assert_eq!((asked.load(Ordering::SeqCst), changes.next().now_or_never()), (4, None));
}
