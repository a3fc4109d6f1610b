//! Tests of following until all is updated, with a fake API server and a clock that does not wait.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// How a fake API server lists MachineConfigs and ControllerConfigs.
#[derive(Default)]
struct Lists {
    /// It does not list ControllerConfigs.
    broken: AtomicBool,
    /// It takes this long, in seconds, to list MachineConfigs with their contents.
    slow: AtomicU64,
    /// How many lists of ControllerConfigs were requested.
    count: AtomicUsize,
    /// There is a MachineConfig that renders to another config than the pool's.
    unrendered: AtomicBool,
    /// What the watch of MachineConfigs says next.
    event: Mutex<Option<Value>>,
}

impl Lists {
    /// The next event of the watch of MachineConfigs.
    async fn event(&self) -> Value {
        loop {
            let event = self.event.lock().unwrap().take();
            match event {
                Some(event) => return event,
                None => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// A fake API server that serves nobody until then. It has one pool, which is updated and has no nodes.
fn client(away_until: Instant, lists: Arc<Lists>) -> Client {
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default());
        let (watches, lists) = (query.contains("watch="), lists.clone());
        let is_of_contents = query.contains("limit=20&") || query.ends_with("limit=20");
        async move {
            let failure = |code: u16| json!({"kind": "Status", "code": code, "message": "no", "reason": "R"});
            let list = |items: Vec<Value>| {
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}),
                )
            };
            if watches && !path.ends_with("/machineconfigs") {
                std::future::pending::<()>().await;
            }
            if watches {
                let body = Body::from(format!("{}\n", lists.event().await).into_bytes());
                return Ok(Response::new(body));
            }
            let is_unrendered = lists.unrendered.load(Relaxed);
            if path.ends_with("/controllerconfigs") {
                lists.count.fetch_add(1, Relaxed);
            }
            let (code, body) = match path.rsplit('/').next().unwrap_or_default() {
                "machineconfigs" if is_of_contents => {
                    tokio::time::sleep(seconds(lists.slow.load(Relaxed))).await;
                    list(if is_unrendered { vec![config()] } else { vec![] })
                }
                _ if Instant::now() < away_until => (503, failure(503)),
                "controllerconfigs" if lists.broken.load(Relaxed) => (500, failure(500)),
                "machineconfigpools" => list(vec![pool(is_unrendered)]),
                "controllerconfigs" if is_unrendered => list(vec![settings()]),
                "controllerconfigs" | "machineconfigs" | "nodes" | "pods" => list(vec![]),
                _ => (404, failure(404)),
            };
            let body = Body::from(body.to_string().into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(serve, "default")
}

/// A pool that selects all MachineConfigs, and is not rendered, or only those of its role.
fn pool(is_rendered: bool) -> Value {
    let configuration = json!({"name": "rendered-worker-1"});
    let updated = json!({"type": "Updated", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let selector = if is_rendered { json!({"matchLabels": role()}) } else { json!({}) };
    json!({"metadata": {"name": "worker", "resourceVersion": "1"},
        "spec": {"configuration": configuration, "machineConfigSelector": selector,
            "nodeSelector": {"matchLabels": {"no": "node"}}},
        "status": {"conditions": [updated], "configuration": configuration}})
}

fn role() -> Value {
    json!({"machineconfiguration.openshift.io/role": "worker"})
}

fn config() -> Value {
    json!({"metadata": {"name": "50-a", "resourceVersion": "1", "labels": role()}, "spec": {"kernelArguments": ["a"]}})
}

fn settings() -> Value {
    json!({"metadata": {"name": "machine-config-controller", "resourceVersion": "1"}, "spec": {}})
}

/// The watch says that a MachineConfig has changed, one of a pool or another one.
fn changed(of_pool: bool) -> Value {
    let owner = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker",
        "uid": "u", "controller": true});
    let (name, owners) = if of_pool { ("rendered-worker-2", vec![owner]) } else { ("50-a", vec![]) };
    let metadata = json!({"name": name, "resourceVersion": "2", "ownerReferences": owners});
    json!({"type": "ADDED", "object": {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}})
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_at_the_start_is_waited_for_if_all_is_to_be_updated_and_time_is_left() {
    // Columns: whether the end is waited for, how long the API server is away and the time that there is, in seconds; what happens.
    for (until_updated, away, time, want) in [
        (true, 20, None, "started"),
        (true, 20, Some(60), "started"),
        (true, 20, Some(10), "over"),
        (false, 20, None, "failed"),
        (false, 0, None, "started"),
    ] {
        let (now, mut told) = (Instant::now(), 0);
        let end = time.map(|time| now + seconds(time));
        let options = FollowOptions { until_updated, end, ..FollowOptions::default() };
        let client = client(now + seconds(away), Arc::default());
        let happens = match FollowedStatus::start(&client, options, |_| told += 1).await {
            Ok(Some(_)) => "started",
            Ok(None) => "over",
            Err(_) => "failed",
        };
        assert_eq!(happens, want, "{until_updated} {away} {time:?}");
        assert_eq!(told, u32::from(until_updated), "once, however often it is tried");
        assert!(now.elapsed() <= seconds(time.unwrap_or(away + 10)), "{:?}", now.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn updated_pools_are_the_end_when_it_is_known_that_nothing_is_left_to_render() {
    let lists = Arc::new(Lists::default());
    let broken = &lists.broken;
    let client = client(Instant::now(), lists.clone());
    let end = Some(Instant::now() + seconds(60));
    let options = FollowOptions { until_updated: true, end, ..FollowOptions::default() };
    let mut status = FollowedStatus::start(&client, options.clone(), |_| {}).await.unwrap().unwrap();
    assert_eq!(status.view().await.end, Some(FollowEnd::Updated));
    broken.store(true, Relaxed);
    let (mut told, mut waits) = (vec![], vec![]);
    for _ in 0..4 {
        let view = status.view().await;
        assert_eq!(view.end, None);
        told.extend(view.waiting);
        let before = Instant::now();
        assert_eq!(status.changed().await, None);
        waits.push(before.elapsed());
    }
    assert!(matches!(&told[..], [once] if once.starts_with("cannot tell whether")), "{told:?}");
    assert!(waits[0] < seconds(1) && waits[3] >= seconds(2), "each wait is longer: {waits:?}");
    broken.store(false, Relaxed);
    assert_eq!(status.view().await.end, Some(FollowEnd::Updated));
    // The time ends while it is not known.
    broken.store(true, Relaxed);
    let over = loop {
        assert_eq!(status.view().await.end, None);
        if let Some(why) = status.changed().await {
            break why;
        }
    };
    assert!(over.starts_with("cannot tell whether"), "{over}");
    // Without being asked to, it does not end.
    broken.store(false, Relaxed);
    let options = FollowOptions { until_updated: false, end: None, ..options };
    let mut status = FollowedStatus::start(&client, options, |_| {}).await.unwrap().unwrap();
    assert_eq!(status.view().await.end, None);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_not_asked_again_for_each_change_of_the_cluster() {
    let lists = Arc::new(Lists::default());
    let client = client(Instant::now(), lists.clone());
    let options = FollowOptions { until_updated: true, ..FollowOptions::default() };
    let mut status = FollowedStatus::start(&client, options, |_| {}).await.unwrap().unwrap();
    lists.broken.store(true, Relaxed);
    lists.count.store(0, Relaxed);
    let begin = Instant::now();
    while begin.elapsed() < seconds(60) {
        assert_eq!(status.view().await.end, None);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = lists.count.load(Relaxed);
    assert!((5..=16).contains(&count), "{count} lists in a minute");
    lists.broken.store(false, Relaxed);
    tokio::time::sleep(AGAIN.last).await;
    assert_eq!(status.view().await.end, Some(FollowEnd::Updated));
}

/// The status of a cluster with a MachineConfig that renders to another config than the pool's.
async fn unrendered_status(lists: &Arc<Lists>) -> FollowedStatus {
    lists.unrendered.store(true, Relaxed);
    let end = Some(Instant::now() + seconds(600));
    let options = FollowOptions { until_updated: true, end, ..FollowOptions::default() };
    let status = FollowedStatus::start(&client(Instant::now(), lists.clone()), options, |_| {}).await;
    lists.count.store(0, Relaxed);
    status.unwrap().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_has_not_rendered_is_no_reason_to_list_everything_at_each_change_of_the_cluster() {
    let lists = Arc::new(Lists::default());
    let mut status = unrendered_status(&lists).await;
    let (begin, mut told) = (Instant::now(), vec![]);
    while begin.elapsed() < seconds(60) {
        let view = status.view().await;
        assert_eq!(view.end, None);
        told.extend(view.waiting);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let count = lists.count.load(Relaxed);
    assert!((4..=16).contains(&count), "{count} lists in a minute");
    // It is not told again when lists take long.
    lists.slow.store(10, Relaxed);
    while begin.elapsed() < seconds(180) {
        told.extend(status.view().await.waiting);
        assert_eq!(status.changed().await, None);
    }
    assert!(lists.count.load(Relaxed) > count);
    assert!(matches!(&told[..], [once] if once.contains("has not created yet")), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_config_that_changes_ends_the_wait_and_a_rendered_one_does_not() {
    let lists = Arc::new(Lists::default());
    let mut status = unrendered_status(&lists).await;
    // Until the waits are long, and one has just begun.
    let begin = Instant::now();
    loop {
        let before = lists.count.load(Relaxed);
        assert_eq!(status.view().await.end, None);
        if begin.elapsed() > seconds(20) && lists.count.load(Relaxed) > before {
            break;
        }
        assert_eq!(status.changed().await, None);
    }
    let (begin, count) = (Instant::now(), lists.count.load(Relaxed));
    for of_pool in [true, false] {
        *lists.event.lock().unwrap() = Some(changed(of_pool));
        assert_eq!(status.changed().await, None);
        assert!(begin.elapsed() < seconds(2), "{of_pool}: {:?}", begin.elapsed());
        assert_eq!(status.view().await.end, None);
        tokio::time::sleep(seconds(1)).await;
        assert_eq!(status.view().await.end, None);
        assert_eq!(lists.count.load(Relaxed), count + usize::from(!of_pool), "{of_pool}");
    }
    // The next change is looked at when the first wait is over.
    lists.unrendered.store(false, Relaxed);
    *lists.event.lock().unwrap() = Some(changed(false));
    let begin = Instant::now();
    while status.view().await.end.is_none() {
        assert_eq!(status.changed().await, None);
    }
    assert!(begin.elapsed() < seconds(3), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_for_and_has_changed_since_is_asked_again_sooner() {
    let seen = |config: &str, source_changes| Seen {
        pools: vec![("worker".to_owned(), config.to_owned())],
        source_changes,
    };
    let now = Instant::now();
    // Columns: the pause if something changes and otherwise, what is seen one after the other, and when it ends, in seconds.
    for (pauses, all, ends) in [
        ((1, 9), vec![seen("a", 1)], 9),
        ((1, 9), vec![seen("b", 1)], 1),
        ((1, 9), vec![seen("a", 2)], 1),
        ((1, 9), vec![seen("b", 1), seen("a", 1)], 1),
        ((9, 9), vec![seen("b", 2)], 9),
        ((9, 1), vec![seen("b", 2)], 1),
    ] {
        let (if_changed, at_most) = (seconds(pauses.0), seconds(pauses.1));
        let mut pause = Pause::begin("why".to_owned(), seen("a", 1), if_changed, at_most);
        all.iter().for_each(|seen| pause.note(seen));
        assert_eq!(pause.end() - now, seconds(ends), "{pauses:?} {all:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_does_not_wait_for_a_list_that_takes_long() {
    let lists = Arc::new(Lists::default());
    let client = client(Instant::now(), lists.clone());
    let options = FollowOptions { until_updated: true, ..FollowOptions::default() };
    let mut status = FollowedStatus::start(&client, options, |_| {}).await.unwrap().unwrap();
    lists.slow.store(50, Relaxed);
    let begin = Instant::now();
    let view = status.view().await;
    assert!(begin.elapsed() <= PATIENCE, "{:?}", begin.elapsed());
    assert!(view.end.is_none() && view.snapshot.pools.len() == 1, "{view:?}");
    assert!(view.waiting.unwrap().ends_with("has not answered yet"));
    // Another change does not begin the list anew, and waits no more for it.
    let before = Instant::now();
    let view = status.view().await;
    assert!(view.end.is_none() && view.waiting.is_none() && before.elapsed() == Duration::ZERO);
    assert_eq!(status.changed().await, None);
    assert_eq!(begin.elapsed().as_secs(), 50, "when the list has come");
    assert_eq!(status.view().await.end, Some(FollowEnd::Updated));
}
