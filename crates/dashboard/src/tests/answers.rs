//! What the answers say, and what they must not say: secrets, what may not be read, and what was confirmed.

use crate::fake_cluster::{READS, SECRET, SECRET_BASE64, object, seeded, status};
use crate::serving::routes::tests::{Browser, text};
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn no_answer_has_a_secret_that_stands_in_configs_reasons_conditions_and_events() {
    let browser = Browser::of(seeded(false)).sign_in().await;
    for (path, shows) in READS {
        let answer = browser.get(path).await;
        assert_eq!(answer.status(), 200, "{path}");
        let text = text(answer).await;
        assert!(text.contains(shows), "{path}: {text}");
        assert!(!text.contains("hunter2") && !text.contains(SECRET_BASE64), "{path}: {text}");
    }
    let manifest = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-x", "labels": {"a": "b"}}, "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": "/etc/new.conf", "mode": 420, "contents": {"source": format!("data:,password%3D{SECRET}%0A")}}]}}}});
    let broken = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "50-x", "labels": {"a": "b"}}, "spec": {"fips": SECRET}});
    for (what, body, shows) in [
        ("/api/check", manifest.to_string(), "/etc/new.conf"),
        ("/api/check", broken.to_string(), "expected a boolean"),
        ("/api/check", format!("a: [password={SECRET}"), "not YAML"),
        (
            "/api/actions",
            json!({"action": "undo", "pool": "worker"}).to_string(),
            "would be pinned to rendered-worker-1",
        ),
        (
            "/api/actions",
            json!({"action": "retry", "node": "n1"}).to_string(),
            "would retry now; it is Degraded",
        ),
        ("/api/actions", json!({"action": SECRET}).to_string(), "does not know this action"),
    ] {
        let text = text(browser.post(what, body).await).await;
        assert!(text.contains(shows), "{what}: {text}");
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
}

/// What is another in a cluster that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Changed {
    /// The config of a pool.
    #[default]
    Config,
    /// What the MachineConfigs of a pinned pool give.
    Sources,
    /// The wave that waits for an approval.
    Wave,
    /// The size of that wave.
    Policy,
    /// The config of a paused pool, while the lists are read that a resume begins with.
    ConfigDuringLists,
    /// The pin of such a pool.
    PinDuringLists,
}

impl Changed {
    fn has_waves(self) -> bool {
        matches!(self, Self::Wave | Self::Policy)
    }

    fn is_during_lists(self) -> bool {
        matches!(self, Self::ConfigDuringLists | Self::PinDuringLists)
    }
}

/// A cluster that is another one once `changed`, and counts what is written into it.
#[derive(Clone, Default)]
struct Changing {
    what: Changed,
    /// It changes with the next list of pools.
    soon: Arc<AtomicBool>,
    changed: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
    /// So many writes meet a pool that has just got another status.
    conflicts: Arc<AtomicUsize>,
}

impl Changing {
    fn client(&self) -> Client {
        let me = self.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            let path = request.uri().path();
            let less = |n: usize| n.checked_sub(1);
            let (code, value) = if request.method() == Method::PATCH
                && me.conflicts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
            {
                (409, status(409, "the object has been modified"))
            } else {
                if request.method() == Method::PATCH {
                    me.writes.fetch_add(1, Ordering::Relaxed);
                }
                me.object(path).map_or_else(|| (404, status(404, "nothing")), |v| (200, v))
            };
            if path.ends_with("/machineconfigpools") && me.soon.swap(false, Ordering::Relaxed) {
                me.changed.store(true, Ordering::Relaxed);
            }
            let body = kube::client::Body::from(value.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body).unwrap();
            std::future::ready(Ok::<_, std::io::Error>(response))
        };
        Client::new(tower::service_fn(answer), "default")
    }

    fn object(&self, path: &str) -> Option<Value> {
        const OWN: &str = "machineconfig.dev/v1alpha1";
        let changed = self.changed.load(Ordering::Relaxed);
        let resource = path.split_once("/v1/").or_else(|| path.split_once("/v1alpha1/"))?.1;
        let list = |items: Vec<Value>| json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items});
        match resource {
            "machineconfigpools" | "machineconfigpools/worker" => {
                let mut pool = object("/v1/machineconfigpools/worker", false)?;
                // The config changes for an undo; for a release, what its MachineConfigs give.
                if changed && [Changed::Config, Changed::ConfigDuringLists].contains(&self.what) {
                    pool["spec"]["configuration"]["name"] = json!("rendered-worker-3");
                }
                if self.what == Changed::Sources || (changed && self.what == Changed::PinDuringLists) {
                    pool["metadata"]["annotations"] = json!({api::names::own::PINNED: "rendered-worker-2"});
                }
                pool["spec"]["paused"] = json!(self.what.is_during_lists());
                Some(if resource.ends_with("worker") { pool } else { list(vec![pool]) })
            }
            "machineconfigs" => {
                let first = object("/v1/machineconfigs/rendered-worker-1", false)?;
                let second = object("/v1/machineconfigs/rendered-worker-2", false)?;
                let third = second.to_string().replace("rendered-worker-2", "rendered-worker-3");
                let third = third.replace("00:00:02Z", "00:00:03Z").replace("two", "three");
                let path = if changed { "/etc/other" } else { "/etc/one" };
                let source = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                    "metadata": {"name": "50-a", "labels": {"a": "b"}},
                    "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
                        {"path": path, "mode": 420, "contents": {"source": "data:,a"}}]}}}});
                Some(list(vec![first, second, serde_json::from_str(&third).unwrap(), source]))
            }
            "rolloutpolicies" => {
                if !self.what.has_waves() {
                    return Some(list(vec![]));
                }
                let wave = if changed && self.what == Changed::Wave { "rest" } else { "canary" };
                let (size, generation) =
                    if changed && self.what == Changed::Policy { (json!("50%"), 2) } else { (json!(1), 1) };
                Some(list(vec![
                    json!({"apiVersion": OWN, "kind": "RolloutPolicy", "metadata": {"name": "p", "uid": "p", "generation": generation},
                    "spec": {"pools": {"names": ["worker"]}, "waves": [
                        {"name": "canary", "size": size, "approval": "Needed"}, {"name": "rest", "approval": "Needed"}]},
                    "status": {"pools": [{"name": "worker", "config": "rendered-worker-2", "wave": wave}]}}),
                ]))
            }
            "selfsubjectreviews" => {
                Some(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                "metadata": {}, "status": {"userInfo": {"username": "oidc:olga@example.com"}}}))
            }
            _ => object(path, false),
        }
    }
}

#[tokio::test]
async fn what_is_confirmed_is_what_was_shown_or_nothing_is_done() {
    for (action, what) in [
        ("undo", Changed::Config),
        ("release", Changed::Sources),
        ("approve", Changed::Wave),
        ("approve", Changed::Policy),
        ("resume", Changed::ConfigDuringLists),
        ("resume", Changed::PinDuringLists),
    ] {
        for changes in [false, true] {
            let cluster = Changing { what, ..Changing::default() };
            let browser = Browser::of(cluster.client()).sign_in().await;
            let mut wanted = json!({"action": action, "pool": "worker"});
            let shown = browser.post("/api/actions", wanted.to_string()).await;
            let (status, shown) = (shown.status(), text(shown).await);
            assert_eq!(status, 200, "{action}: {shown}");
            let shown: Value = serde_json::from_str(&shown).unwrap();
            let by = "approved for rendered-worker-2 by oidc:olga@example.com";
            assert!(action != "approve" || shown["text"].as_str().unwrap().contains(by), "{shown}");
            assert!(shown["possible"] == true && shown["done"] == false, "{action}: {shown}");
            let when = if what.is_during_lists() { &cluster.soon } else { &cluster.changed };
            wanted["confirm"] = json!(true);
            let blind = browser.post("/api/actions", wanted.to_string()).await;
            assert_eq!(blind.status(), 409, "{action}: without what was shown");
            assert_eq!(cluster.writes.load(Ordering::Relaxed), 0, "{action}");
            when.store(changes, Ordering::Relaxed);
            wanted["seen"] = shown["seen"].clone();
            let done = browser.post("/api/actions", wanted.to_string()).await;
            let (status, done) = (done.status(), text(done).await);
            assert_eq!(
                status,
                if changes { 409 } else { 200 },
                "{action} {what:?}, changes: {changes}: {done}"
            );
            assert_eq!(
                cluster.writes.load(Ordering::Relaxed),
                usize::from(!changes),
                "{action} {what:?}: {done}"
            );
            let says = match (changes, what) {
                (false, _) => "\"done\":true",
                (true, Changed::Wave) => "but wave rest does",
                (true, _) => "changed since this was shown",
            };
            assert!(done.contains(says), "{action} {what:?}: {done}");
        }
    }
}

/// The same cluster with names of a pool and a node that are words of secrets.
fn with_odd_names() -> Client {
    let answer = |request: http::Request<kube::client::Body>| {
        let path =
            request.uri().path().replace("pools/auth", "pools/worker").replace("nodes/key-2", "nodes/n1");
        let value = Changing::default().object(&path);
        let (code, value) = value.map_or_else(|| (404, status(404, "nothing")), |v| (200, v));
        let text = value.to_string().replace("worker", "auth").replace("\"n1\"", "\"key-2\"");
        let text = text.replace("currentConfig\":\"rendered-auth-1", "currentConfig\":\"rendered-auth-2");
        let body = kube::client::Body::from(text.into_bytes());
        let response = http::Response::builder().status(code).body(body).unwrap();
        std::future::ready(Ok::<_, std::io::Error>(response))
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test]
async fn what_is_to_be_confirmed_can_be_read_whatever_a_pool_and_a_node_are_called() {
    let browser = Browser::of(with_odd_names()).sign_in().await;
    for (action, shows) in [
        (
            json!({"action": "undo", "pool": "auth"}),
            &["pool auth would be pinned to rendered-auth-3", "key-2"][..],
        ),
        (json!({"action": "retry", "node": "key-2"}), &["node key-2: would retry now; it is Degraded"][..]),
    ] {
        let answer = browser.post("/api/actions", action.to_string()).await;
        let shown: Value = serde_json::from_str(&text(answer).await).unwrap();
        let shown = shown["text"].as_str().unwrap();
        assert!(shows.iter().all(|s| shown.contains(s)) && !shown.contains("hunter2"), "{action}: {shown}");
    }
    let refused =
        browser.post("/api/actions", json!({"action": "release", "pool": "auth"}).to_string()).await;
    assert_eq!(refused.status(), 409);
    assert!(text(refused).await.contains("pool auth is not pinned"));
}

/// A cluster that gives every list in pages of one object.
fn in_pages() -> Client {
    let answer = |request: http::Request<kube::client::Body>| {
        let metadata =
            request.headers().get("accept").is_some_and(|a| a.to_str().unwrap().contains("PartialObject"));
        let mut value = object(request.uri().path(), metadata).unwrap_or_else(|| status(404, "nothing"));
        let query = request.uri().query().unwrap_or_default();
        let place =
            query.split('&').find_map(|q| q.strip_prefix("continue=p")).map_or(0, |p| p.parse().unwrap());
        let items = value["items"].as_array().cloned().unwrap_or_default();
        // Each object twice; the second has a longer name.
        let twice = items.iter().flat_map(|item| {
            let mut second = item.clone();
            second["metadata"]["name"] = json!(format!("{}-2nd", item["metadata"]["name"].as_str().unwrap()));
            [item.clone(), second]
        });
        let twice: Vec<Value> = twice.collect();
        if !items.is_empty() {
            let next = if place + 1 < twice.len() { format!("p{}", place + 1) } else { String::new() };
            value["metadata"] = json!({"continue": next});
            value["items"] = json!([twice[place]]);
        }
        let body = kube::client::Body::from(value.to_string().into_bytes());
        let response = http::Response::builder().status(200).body(body).unwrap();
        std::future::ready(Ok::<_, std::io::Error>(response))
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test]
async fn lists_are_read_to_their_ends() {
    let browser = Browser::of(in_pages()).sign_in().await;
    let images = text(browser.get("/api/images").await).await;
    assert!(images.contains("\"count\":2"), "{images}");
    let configs = text(browser.get("/api/configs").await).await;
    assert!(configs.contains("\"rendered-worker-2-2nd\""), "{configs}");
}

#[tokio::test]
async fn a_pool_whose_status_changes_meanwhile_is_resumed_all_the_same() {
    let cluster = Changing { what: Changed::ConfigDuringLists, ..Changing::default() };
    let browser = Browser::of(cluster.client()).sign_in().await;
    let mut wanted = json!({"action": "resume", "pool": "worker"});
    let shown = text(browser.post("/api/actions", wanted.to_string()).await).await;
    wanted["confirm"] = json!(true);
    wanted["seen"] = serde_json::from_str::<Value>(&shown).unwrap()["seen"].clone();
    cluster.conflicts.store(3, Ordering::Relaxed);
    let done = browser.post("/api/actions", wanted.to_string()).await;
    assert_eq!(done.status(), 200, "{}", text(done).await);
    assert_eq!(cluster.writes.load(Ordering::Relaxed), 1);
    // One that always does is not tried for ever.
    cluster.conflicts.store(1000, Ordering::Relaxed);
    let gives_up = browser.post("/api/actions", wanted.to_string()).await;
    assert_eq!(gives_up.status(), 409);
    assert!(text(gives_up).await.contains("keeps changing"));
}

#[tokio::test]
async fn what_a_person_may_not_read_says_so_and_the_rest_of_the_page_stands() {
    let browser = Browser::of(seeded(true)).sign_in().await;
    for (path, _) in READS.iter().filter(|(path, _)| !["/api/rollouts", "/api/snapshot"].contains(path)) {
        let answer = browser.get(path).await;
        let status = answer.status().as_u16();
        let text = text(answer).await;
        assert!([200, 403].contains(&status) && text.contains("403 Forbidden"), "{path}: {status} {text}");
        assert!(!text.contains("hunter2"), "{path}: {text}");
    }
    assert_eq!(browser.get("/").await.status(), 200);
    let action = json!({"action": "retry", "node": "n1", "confirm": true}).to_string();
    assert_eq!(browser.post("/api/actions", action).await.status(), 403);
}

#[tokio::test]
async fn a_name_that_means_something_in_an_address_reaches_no_api_server() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    let answer = move |request: http::Request<kube::client::Body>| {
        log.lock().unwrap().push(request.uri().to_string());
        let body = kube::client::Body::from(status(404, "nothing").to_string().into_bytes());
        std::future::ready(Ok::<_, std::io::Error>(http::Response::builder().status(404).body(body).unwrap()))
    };
    let browser = Browser::of(Client::new(tower::service_fn(answer), "default")).sign_in().await;
    // A change that says that it is done, and is not; a watch; another object.
    for odd in
        ["n1%3FdryRun=All", "n1%3Fwatch=yes", "n1%2Fproxy%2Fmetrics", "..%2Fpods", "N1", "n1%20", "%2E"]
    {
        for kind in ["nodes", "pools", "configs", "compare/a"] {
            let answer = browser.get(&format!("/api/{kind}/{odd}")).await;
            assert_eq!(answer.status(), 404, "{kind} {odd}");
        }
    }
    for odd in ["n1?dryRun=All", "n1/status", ""] {
        for action in [
            json!({"action": "retry", "node": odd, "confirm": true}),
            json!({"action": "pause", "pool": odd, "confirm": true}),
            json!({"action": "undo", "pool": "worker", "to": odd}),
        ] {
            let answer = browser.post("/api/actions", action.to_string()).await;
            assert_eq!(answer.status(), 404, "{action}");
        }
    }
    assert_eq!(*asked.lock().unwrap(), Vec::<String>::new());
    assert_eq!(browser.get("/api/nodes/node-1.example.com").await.status(), 404);
    assert_eq!(*asked.lock().unwrap(), ["/api/v1/nodes/node-1.example.com"]);
}
