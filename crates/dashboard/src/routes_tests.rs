//! The routes as a browser, and as an attacker, meets them.

use super::*;
use crate::feed::Feed;
use crate::fleet::tests::fleet;
use crate::gate::ACTION_HEADER;
use api::v1::ControllerConfig;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use insight::Phase;
use kube::Client;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

const HOST: &str = "127.0.0.1:8796";

struct Browser {
    app: Router,
    feed: Arc<Feed>,
    gate: Arc<Gate>,
    cookie: String,
}

/// A cluster that answers nothing: what is tested here asks it nothing.
pub(crate) fn no_cluster() -> Client {
    let refuse = |_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
    };
    Client::new(tower::service_fn(refuse), "default")
}

impl Browser {
    fn new() -> Self {
        Self::of(no_cluster())
    }

    fn of(client: Client) -> Self {
        let (gate, feed) = (Arc::new(Gate::new(8796).unwrap()), Arc::new(Feed::new("https://c")));
        let stop = CancellationToken::new();
        let controller_config = Arc::new(ControllerConfig::new("x", Default::default()));
        let (gate_of, feed_of) = (Arc::clone(&gate), Arc::clone(&feed));
        let (timeline, events) = (Arc::default(), Arc::default());
        let door = Door::Local(gate_of);
        let checks = Arc::new(Semaphore::new(page_actions::CHECKS));
        let shared =
            Shared { door, feed: feed_of, timeline, events, client, controller_config, checks, stop };
        Self { app: router(shared), feed, gate, cookie: String::new() }
    }

    async fn signed_in() -> Self {
        Self::new().sign_in().await
    }

    async fn sign_in(self) -> Self {
        let mut browser = self;
        let token = browser.gate.invite(Instant::now()).unwrap();
        let answer = browser.get(&format!("/?token={token}")).await;
        assert_eq!(answer.status(), 200);
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap();
        browser.cookie = cookie.to_owned();
        browser
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
        self.send_body(method, path, headers, Body::empty()).await
    }

    /// As the page's own scripts send it.
    async fn post(&self, path: &str, body: impl Into<Body>) -> Response {
        let own =
            [("origin", "http://127.0.0.1:8796"), (ACTION_HEADER, "1"), ("sec-fetch-site", "same-origin")];
        self.send_body("POST", path, &own, body.into()).await
    }

    async fn send_body(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Body) -> Response {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.gate.base()));
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", HOST);
        }
        if !self.cookie.is_empty() {
            request = request.header("cookie", &self.cookie);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.app.clone().oneshot(request.body(body).unwrap()).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[]).await
    }
}

pub(crate) async fn text(response: Response) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Whether an answer forbids what the page never needs.
pub(crate) fn is_hardened(headers: &HeaderMap) -> bool {
    let says = |name: &str, what: &str| headers.get(name).is_some_and(|v| v.to_str().unwrap().contains(what));
    says("content-security-policy", "default-src 'none'")
        && says("content-security-policy", "frame-ancestors 'none'")
        && says("content-security-policy", "require-trusted-types-for 'script'")
        && !says("content-security-policy", "unsafe")
        && says("x-frame-options", "DENY")
        && says("x-content-type-options", "nosniff")
        && says("cache-control", "no-store")
        && says("referrer-policy", "no-referrer")
}

const PATHS: [&str; 6] = ["/", "/app.js", "/api/snapshot", "/api/events", "/api/rollouts", "/nothing"];

#[tokio::test]
async fn without_a_session_nothing_is_given_and_every_answer_is_hardened() {
    let (stranger, friend) = (Browser::new(), Browser::signed_in().await);
    for path in PATHS {
        let refused = stranger.get(path).await;
        assert!(is_hardened(refused.headers()), "{path}: {:?}", refused.headers());
        assert_eq!(refused.status(), 401, "{path}");
        assert!(text(refused).await.contains("mco dashboard"), "{path}: it says what to do");
        let rebound = friend.send("GET", path, &[("host", "attacker.example:8796")]).await;
        assert_eq!(rebound.status(), 421, "{path}");
        assert!(is_hardened(rebound.headers()) && !text(rebound).await.contains("pools"), "{path}");
        let given = friend.get(path).await;
        assert_eq!(given.status(), if path == "/nothing" { 404 } else { 200 }, "{path}");
        assert!(is_hardened(given.headers()), "{path}");
        let framed =
            friend.send("GET", path, &[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "iframe")]).await;
        assert_eq!(framed.status(), 403, "{path}: in another site's frame");
        let forged =
            friend.send("POST", path, &[("origin", "http://attacker.example"), (ACTION_HEADER, "1")]).await;
        assert_eq!(forged.status(), 403, "{path}: a forged action");
    }
}

#[tokio::test]
async fn a_token_opens_one_browser_and_no_other_host_may_spend_it() {
    let browser = Browser::new();
    let token = browser.gate.invite(Instant::now()).unwrap();
    let path = format!("/?token={token}");
    let elsewhere = browser.send("GET", &path, &[("host", "attacker.example:8796")]).await;
    assert_eq!(
        (elsewhere.status(), elsewhere.headers().get("set-cookie")),
        (StatusCode::MISDIRECTED_REQUEST, None)
    );
    let first = browser.get(&path).await;
    assert!(first.status() == 200 && first.headers().contains_key("set-cookie"), "{first:?}");
    let second = browser.get(&path).await;
    assert_eq!((second.status(), second.headers().get("set-cookie")), (StatusCode::FORBIDDEN, None));
    let guessed = browser.get("/?token=").await;
    assert_eq!(guessed.status(), 403);
}

#[tokio::test]
async fn an_address_that_has_ended_gives_a_page_that_says_how_to_get_another() {
    let browser = Browser::new();
    let Some(long_ago) = Instant::now().checked_sub(Duration::from_secs(11 * 60)) else { return };
    let token = browser.gate.invite(long_ago).unwrap();
    let answer = browser.get(&format!("/?token={token}")).await;
    assert_eq!((answer.status(), answer.headers().get("set-cookie")), (StatusCode::FORBIDDEN, None));
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    assert!(is_hardened(answer.headers()));
    let page = text(answer).await;
    assert!(page.contains("ten minutes, which are over") && page.contains("press Enter"), "{page}");
}

#[tokio::test]
async fn nothing_is_served_outside_of_the_path_that_the_cookie_is_for() {
    let browser = Browser::signed_in().await;
    for path in PATHS {
        let request = Request::builder().uri(path).header("host", HOST).header("cookie", &browser.cookie);
        let answer = browser.app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
}

#[tokio::test]
async fn whoever_reloads_the_first_address_stays_signed_in() {
    let browser = Browser::signed_in().await;
    let again = browser.get("/?token=0123").await;
    assert_eq!((again.status(), again.headers().get("set-cookie")), (StatusCode::OK, None));
}

#[tokio::test]
async fn a_stream_goes_on_where_it_ended_or_says_that_all_is_to_be_read_again() {
    let browser = Browser::signed_in().await;
    let whole: serde_json::Value =
        serde_json::from_str(&text(browser.get("/api/snapshot").await).await).unwrap();
    let id = whole["id"].as_str().unwrap().to_owned();
    browser.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, "it works")])));
    let first = async |headers: &[(&str, &str)], query: &str| {
        let response = browser.send("GET", &format!("/api/events{query}"), headers).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut body = response.into_body();
        let mut all = String::new();
        while !all.contains("event: ") {
            let frame = body.frame().await.unwrap().unwrap();
            all += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
        }
        all
    };
    let resumed = first(&[], &format!("?after={id}")).await;
    assert!(resumed.contains("event: delta") && resumed.contains("\"name\":\"n1\""), "{resumed}");
    // What a browser that comes back says counts more than the address that it comes back to.
    assert!(first(&[("last-event-id", "7.7")], &format!("?after={id}")).await.contains("event: reset"));
    assert!(first(&[("last-event-id", &id)], "?after=7.7").await.contains("event: delta"));
    assert!(first(&[], "").await.contains("event: reset"));
}

#[tokio::test]
async fn a_viewer_that_falls_behind_loses_its_stream() {
    let browser = Browser::signed_in().await;
    let mut body = browser.get("/api/events").await.into_body();
    for n in 0..1000 {
        browser.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, &n.to_string())])));
    }
    let ended = async {
        while let Some(frame) = body.frame().await {
            frame.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(5), ended).await.expect("the stream ends");
}

const SECRET: &str = "hunter2secret";
const SECRET_BASE64: &str = "aHVudGVyMnNlY3JldA==";

/// A cluster that has a secret in everything that a person can write into. With `forbidden`, nobody may read anything.
fn seeded(forbidden: bool) -> Client {
    let answer = move |request: http::Request<kube::client::Body>| async move {
        let metadata =
            request.headers().get("accept").is_some_and(|a| a.to_str().unwrap().contains("PartialObject"));
        let (code, value) = match forbidden {
            true => (403, status(403, "somebody may not read this")),
            false => object(request.uri().path(), metadata)
                .map_or_else(|| (404, status(404, "nothing")), |v| (200, v)),
        };
        let body = kube::client::Body::from(value.to_string().into_bytes());
        Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
    };
    Client::new(tower::service_fn(answer), "default")
}

pub(crate) fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "Forbidden"})
}

/// What is at a path of the API.
pub(crate) fn object(path: &str, metadata: bool) -> Option<Value> {
    const GROUP: &str = "machineconfiguration.openshift.io";
    let said = format!("it failed\npassword={SECRET}");
    let condition = json!({"type": "Ready", "status": "False", "reason": "r", "message": said, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let note = |key: &str| format!("{GROUP}/{key}");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "u", "annotations": {
            note("state"): "Degraded", note("reason"): said, note("currentConfig"): "rendered-worker-1",
            note("desiredConfig"): "rendered-worker-2", note("drainWait"): said,
            "kubectl.kubernetes.io/last-applied-configuration": said},
            "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": {"conditions": [condition], "nodeInfo": {"kubeletVersion": "v1.36", "osImage": "Debian", "kernelVersion": "6",
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kubeProxyVersion": "", "machineID": "",
            "operatingSystem": "linux", "systemUUID": ""}}});
    let config = |name: &str, seen: &str| {
        let owner = json!([{"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": true}]);
        let file = |path: &str, text: &str| json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}});
        let files = json!([
            file("/etc/seen", seen),
            file("/etc/app.conf", &format!("password%3D{SECRET}{seen}%0A")),
            json!({"path": "/etc/closed", "mode": 384, "contents": {"source": format!("data:,{SECRET}{seen}")}})
        ]);
        let origin = |kind, name: &str, lost: &[&str]| render::Origin {
            kind,
            name: name.to_owned(),
            field: String::new(),
            set_by: "50-set".to_owned(),
            lost: lost.iter().map(|l| (*l).to_owned()).collect(),
        };
        let origins = vec![
            origin(render::provenance::Kind::File, "/etc/seen", &["40-lost"]),
            origin(render::provenance::Kind::KernelArgument, &format!("nbd.password={SECRET}"), &[]),
        ];
        // Of the other one it is worked out.
        let kept = name.ends_with('1').then(|| render::Provenance(origins).pack()).flatten();
        let notes: serde_json::Map<_, _> =
            kept.into_iter().map(|packed| (note("provenance"), json!(packed))).collect();
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfig",
            "metadata": {"name": name, "annotations": notes, "ownerReferences": owner, "creationTimestamp": format!("2026-01-01T00:00:0{}Z", &name[name.len() - 1..])},
            "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}},
                "kernelArguments": [format!("nbd.password={SECRET}")]}})
    };
    let pool = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigPool", "metadata": {"name": "worker", "uid": "u"},
        "spec": {"configuration": {"name": "rendered-worker-2", "source": [{"name": "rendered-worker-2"}]},
            "machineConfigSelector": {"matchLabels": {"a": "b"}},
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}}},
        "status": {"conditions": [condition]}});
    let timeline = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "boot-token-0123456789ab", "namespace": "machine-config-boot-tokens"},
        "type": "machineconfiguration.openshift.io/boot-token", "stringData": {},
        "data": {"sha256": SECRET_BASE64, "pool": "d29ya2Vy", "token": SECRET_BASE64}});
    let settings = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ControllerConfig", "metadata": {"name": "machine-config-controller"},
        "spec": {}, "status": {"observedGeneration": 1, "conditions": [condition],
            "controllerCertificates": [{"subject": "CN=ca", "signer": "CN=ca", "bundleFile": "KubeAPIServerServingCAData", "notAfter": "2030-01-01T00:00:00Z"}]}});
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": "n1"}, "type": "Warning", "reason": "Failed", "message": said});
    let list =
        |items: Vec<Value>| Some(json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items}));
    let partial = |mut value: Value| {
        let metadata = value["metadata"].take();
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata})
    };
    let configs = || vec![config("rendered-worker-1", "one"), config("rendered-worker-2", "two")];
    let (_, resource) = path.split_once("/v1/").or_else(|| path.split_once("/v1alpha1/"))?;
    match resource {
        "nodes/n1" => Some(node),
        "nodes" => list(vec![node]),
        "events" => list(vec![event]),
        "machineconfigs" if metadata => list(configs().into_iter().map(partial).collect()),
        "machineconfigs" => list(configs()),
        "machineconfigs/rendered-worker-1" => configs().into_iter().next(),
        "machineconfigs/rendered-worker-2" => configs().into_iter().nth(1),
        "machineconfigpools" => list(vec![pool]),
        "machineconfigpools/worker" => Some(pool),
        "machineconfignodes/n1" => Some(
            json!({"apiVersion": format!("{GROUP}/v1"), "kind": "MachineConfigNode", "metadata": {"name": "n1"},
            "spec": {"node": {"name": "n1"}, "pool": {"name": "worker"}, "configVersion": {"desired": "rendered-worker-2"}},
            "status": {"configVersion": {"current": "rendered-worker-1", "desired": "rendered-worker-2"}, "conditions": [condition]}}),
        ),
        "controllerconfigs" => list(vec![settings]),
        "controllerconfigs/machine-config-controller" => Some(settings),
        "namespaces/machine-config-boot-tokens/secrets" => list(vec![timeline]),
        "machineconfigoperators/cluster" => {
            Some(json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
            "metadata": {"name": "cluster"}, "status": {"conditions": [condition]}}))
        }
        "namespaces/openshift-machine-config-operator/deployments/machine-config-controller" => Some(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "machine-config-controller"},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "mco:1",
                "env": [{"name": "X", "value": SECRET}]}]}}}, "status": {"availableReplicas": 1}}),
        ),
        "rolloutpolicies" => {
            let said = format!("password={SECRET}");
            list(vec![
                json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "careful"},
                "spec": {"pools": {"names": ["worker"]}, "freezes": [{"name": "f", "from": "2030-01-01T00:00:00Z",
                    "to": "2030-01-02T00:00:00Z", "reason": said}]},
                "status": {"pools": [{"name": "worker", "held": said, "gates": [{"gate": "g", "outcome": "Failed", "message": said}],
                    "rejected": [{"config": "rendered-worker-1", "reason": said, "at": "2026-01-01T00:00:00Z"}]}]}}),
            ])
        }
        "pods" | "poddisruptionbudgets" => list(vec![]),
        _ => None,
    }
}

/// Everything that reads from the cluster, and a word that shows that it did.
pub(crate) const READS: [(&str, &str); 14] = [
    ("/api/images", "rendered-worker-1"),
    ("/api/nodes/n1", "it failed"),
    ("/api/pools/worker", "/etc/app.conf"),
    ("/api/pools/worker", "careful"),
    ("/api/pools/worker/plan", "n1"),
    ("/api/snapshot", "version"),
    ("/api/configs", "rendered-worker-2"),
    ("/api/configs/rendered-worker-2", "/etc/app.conf"),
    ("/api/configs/rendered-worker-2", "no provenance is stored on it"),
    ("/api/configs/rendered-worker-1", "40-lost"),
    ("/api/compare/rendered-worker-1/rendered-worker-2", "+two"),
    ("/api/trust", "CN=ca"),
    ("/api/operator", "it failed"),
    ("/api/rollouts", "rollouts"),
];

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
        ("/api/actions", json!({"action": SECRET}).to_string(), "no action"),
    ] {
        let text = text(browser.post(what, body).await).await;
        assert!(text.contains(shows), "{what}: {text}");
        assert!(!text.contains("hunter2"), "{what}: {text}");
    }
}

/// A cluster that is another one once `changed`, and counts what is written into it.
#[derive(Clone, Default)]
struct Changing {
    pinned: bool,
    /// A RolloutPolicy's waves wait for an approval.
    waves: bool,
    changed: Arc<AtomicBool>,
    writes: Arc<AtomicUsize>,
}

impl Changing {
    fn client(&self) -> Client {
        let me = self.clone();
        let answer = move |request: http::Request<kube::client::Body>| {
            if request.method() == Method::PATCH {
                me.writes.fetch_add(1, Ordering::Relaxed);
            }
            let value = me.object(request.uri().path());
            let (code, value) = value.map_or_else(|| (404, status(404, "nothing")), |v| (200, v));
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
        let list =
            |items: Vec<Value>| json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items});
        match resource {
            "machineconfigpools" | "machineconfigpools/worker" => {
                let mut pool = object("/v1/machineconfigpools/worker", false)?;
                // The config changes for an undo; for a release, what its MachineConfigs give.
                if changed && !self.pinned && !self.waves {
                    pool["spec"]["configuration"]["name"] = json!("rendered-worker-3");
                }
                if self.pinned {
                    pool["metadata"]["annotations"] = json!({api::names::own::PINNED: "rendered-worker-2"});
                }
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
                if !self.waves {
                    return Some(list(vec![]));
                }
                let wave = if changed { "rest" } else { "canary" };
                Some(list(vec![
                    json!({"apiVersion": OWN, "kind": "RolloutPolicy", "metadata": {"name": "p"},
                    "spec": {"pools": {"names": ["worker"]}, "waves": [
                        {"name": "canary", "size": 1, "approval": "Needed"}, {"name": "rest", "approval": "Needed"}]},
                    "status": {"pools": [{"name": "worker", "config": "rendered-worker-2", "wave": wave}]}}),
                ]))
            }
            "selfsubjectreviews" => {
                Some(json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
                "metadata": {}, "status": {"userInfo": {"username": "jane"}}}))
            }
            _ => object(path, false),
        }
    }
}

#[tokio::test]
async fn what_is_confirmed_is_what_was_shown_or_nothing_is_done() {
    for (action, pinned, waves) in
        [("undo", false, false), ("release", true, false), ("approve", false, true)]
    {
        for changes in [false, true] {
            let cluster = Changing { pinned, waves, ..Changing::default() };
            let browser = Browser::of(cluster.client()).sign_in().await;
            let mut wanted = json!({"action": action, "pool": "worker"});
            let shown = browser.post("/api/actions", wanted.to_string()).await;
            let (status, shown) = (shown.status(), text(shown).await);
            assert_eq!(status, 200, "{action}: {shown}");
            let shown: Value = serde_json::from_str(&shown).unwrap();
            assert!(shown["possible"] == true && shown["done"] == false, "{action}: {shown}");
            cluster.changed.store(changes, Ordering::Relaxed);
            wanted["confirm"] = json!(true);
            let blind = browser.post("/api/actions", wanted.to_string()).await;
            assert_eq!(blind.status(), 409, "{action}: without what was shown");
            assert_eq!(cluster.writes.load(Ordering::Relaxed), 0, "{action}");
            wanted["seen"] = shown["seen"].clone();
            let done = browser.post("/api/actions", wanted.to_string()).await;
            let (status, done) = (done.status(), text(done).await);
            assert_eq!(status, if changes { 409 } else { 200 }, "{action}, changes: {changes}: {done}");
            assert_eq!(cluster.writes.load(Ordering::Relaxed), usize::from(!changes), "{action}: {done}");
            let says = match (changes, action) {
                (false, _) => "\"done\":true",
                (true, "approve") => "now wave rest does",
                (true, _) => "changed since this was shown",
            };
            assert!(done.contains(says), "{action}: {done}");
        }
    }
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

/// A viewer over a socket who reads nothing for a while: the server holds no more for it than for others, ends its stream, and
/// gives it what it missed when it comes back.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stands_still_is_dropped_and_comes_back_to_what_it_missed() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let browser = Browser::signed_in().await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = browser.app.clone();
    let served = tokio::spawn(async move { axum::serve(listener, app).await });
    let ask = async |after: &str| {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "GET {}/api/events?after={after} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nCookie: {}\r\n\r\n",
            browser.gate.base(),
            browser.cookie
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let mut slow = ask("").await;
    let mut all = vec![];
    slow.read_buf(&mut all).await.unwrap();
    // More than sockets hold, and more differences than a viewer may be behind.
    let big = "x".repeat(64 << 10);
    for n in 0..600 {
        browser.feed.put(Arc::new(fleet(&[("n1", Phase::Moving, &format!("{n} {big}"))])));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::timeout(Duration::from_secs(20), slow.read_to_end(&mut all))
        .await
        .expect("it ends")
        .unwrap();
    let text = String::from_utf8_lossy(&all);
    assert!(!text.contains("599 x"), "it was not given everything");
    let last = text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap().to_owned();
    let first_word = |text: &str| text.contains("event: reset") || text.contains("599 x");
    let mut again = ask(&last).await;
    let mut all = vec![];
    while !first_word(&String::from_utf8_lossy(&all)) {
        let read = tokio::time::timeout(Duration::from_secs(10), again.read_buf(&mut all)).await;
        assert!(read.expect("it goes on").unwrap() > 0);
    }
    served.abort();
}

#[tokio::test]
async fn a_body_that_is_too_long_is_read_to_its_end() {
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let parts = futures::stream::iter(0..10).map(move |_| {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, std::convert::Infallible>("four")
    });
    assert_eq!(read(Body::from_stream(parts), 8).await, Err(StatusCode::PAYLOAD_TOO_LARGE));
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 10);
    assert_eq!(read(Body::from("eight by"), 8).await.unwrap(), "eight by");
}

#[tokio::test]
async fn more_than_ten_megabytes_are_not_looked_at() {
    let browser = Browser::of(seeded(false)).sign_in().await;
    let long = browser.post("/api/check", vec![b'#'; (10 << 20) + 1]).await;
    assert_eq!(long.status(), 413);
    assert!(text(long).await.contains("mco plan -f"));
    assert_eq!(
        browser.post("/api/check", vec![b'#'; 10 << 20]).await.status(),
        400,
        "a comment is no manifest"
    );
    assert_eq!(browser.post("/api/actions", vec![b' '; 1 << 20]).await.status(), 413);
}
