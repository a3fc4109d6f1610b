//! The pass with a fake API server and a stand-in for a registry.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::{answer, shared};
use api::v1::{ControllerConfig, MachineConfigPool};
use futures::FutureExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Answers each DELETE with this status, and everything else with 404. Returns its address, and what it is asked.
async fn stand_in(status: u16) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(Mutex::new(vec![]));
    let log = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = vec![0; 8192];
            let count = stream.read(&mut read).await.unwrap_or_default();
            // TLS begins with this byte; a request here fits into one piece.
            if count == 0 || read[0] == 0x16 {
                continue;
            }
            let line = String::from_utf8_lossy(&read[..count]).lines().next().unwrap_or_default().to_owned();
            let code = if line.starts_with("DELETE ") { status } else { 404 };
            log.lock().unwrap().push(line);
            let head = format!("HTTP/1.1 {code} x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes()).await;
        }
    });
    (address, asked)
}

fn item<T>(value: T) -> Item<T> {
    Item { version: 1, uid: "u".to_owned(), value: Arc::new(value) }
}

/// What there is, and what the controller may read.
struct World {
    /// The list.
    list: Vec<Pushed>,
    /// Whether the push secret can be read.
    secret: bool,
    /// An annotation of the only node at the API server, which the cache does not have.
    node: Option<(&'static str, String)>,
}

fn pushed(registry: &str) -> Pushed {
    let name = format!("{registry}/os@{DIGEST}");
    let [secret, os_config, pool] = ["push", "worker", "worker"].map(str::to_owned);
    Pushed {
        what: build::pushed::What::Image { name, tag: format!("{registry}/os:b1") },
        secret,
        os_config,
        pool,
        kept: None,
    }
}

/// Two passes one after the other. Returns the list after each of them, and what is next.
async fn passes(world: World, registry: &str) -> [(Vec<Pushed>, Outcome); 2] {
    let conf = format!("%5B%5Bregistry%5D%5D%0Alocation%20%3D%20%22{registry}%22%0Ainsecure%20%3D%20true%0A");
    let data: BTreeMap<String, String> = world.list.iter().map(|p| (p.key(), p.text())).collect();
    let map = Arc::new(Mutex::new(json!({"metadata": {"name": "machine-os-images"}, "data": data})));
    let kept = map.clone();
    let shared = Arc::new(shared(move |request| {
        let path = request.uri().path().to_owned();
        if path.ends_with("/configmaps/machine-os-images") {
            let mut map = kept.lock().unwrap();
            if request.method() == http::Method::PATCH {
                let body = request.into_body().collect_bytes().now_or_never().unwrap().unwrap();
                let patch: Value = serde_json::from_slice(&body).unwrap();
                for (key, value) in patch["data"].as_object().unwrap() {
                    let data = map["data"].as_object_mut().unwrap();
                    match value {
                        Value::Null => drop(data.remove(key)),
                        text => drop(data.insert(key.clone(), text.clone())),
                    }
                }
            }
            return answer(200, &map);
        }
        if path.ends_with("/secrets/push") && !world.secret {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"});
            return answer(403, &status);
        }
        if path.ends_with("/secrets/push") {
            // {"auths":{}}
            return answer(
                200,
                &json!({"metadata": {"name": "push"}, "data": {".dockerconfigjson": "eyJhdXRocyI6e319"}}),
            );
        }
        if path.ends_with("/machineconfigs/rendered-worker-a") {
            let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
                {"path": "/etc/containers/registries.conf", "contents": {"source": format!("data:,{conf}")}}]}});
            return answer(
                200,
                &json!({"metadata": {"name": "rendered-worker-a"}, "spec": {"config": config}}),
            );
        }
        let nodes: Vec<Value> = match (&world.node, path.ends_with("/nodes")) {
            (Some((key, value)), true) => {
                vec![
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "n", "annotations": {*key: value}}}),
                ]
            }
            _ => vec![],
        };
        answer(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": nodes}))
    }));
    let pool: MachineConfigPool = serde_json::from_value(
        json!({"metadata": {"name": "worker"}, "spec": {"configuration": {"name": "rendered-worker-a"}}}),
    )
    .unwrap();
    let cluster: ControllerConfig =
        serde_json::from_value(json!({"metadata": {"name": api::names::CONTROLLER_CONFIG}, "spec": {}}))
            .unwrap();
    shared.stores.pools.apply("worker".to_owned(), item(pool));
    shared.stores.controller_configs.apply(api::names::CONTROLLER_CONFIG.to_owned(), item(cluster));
    shared.stores.os_configs.replace(BTreeMap::new());
    shared.stores.os_builds.replace(BTreeMap::new());
    shared.stores.nodes.replace(BTreeMap::new());
    let cleaner = Cleaner { shared, waits: Mutex::default() };
    let mut all = vec![];
    for _ in 0..2 {
        let outcome = cleaner.pass().await;
        let data = map.lock().unwrap()["data"].clone();
        let list = data.as_object().unwrap().values().filter_map(|t| Pushed::read(t.as_str()?)).collect();
        all.push((list, outcome));
    }
    all.try_into().unwrap_or_else(|_| panic!("two"))
}

#[tokio::test]
async fn what_nothing_names_is_deleted_and_leaves_the_list() {
    let (registry, asked) = stand_in(202).await;
    let world = World { list: vec![pushed(&registry)], secret: true, node: None };
    let [(list, outcome), (_, again)] = passes(world, &registry).await;
    assert_eq!((list, outcome, again), (vec![], Outcome::Done, Outcome::Done));
    let hex = DIGEST.strip_prefix("sha256:").unwrap();
    let want = [
        format!("GET /v2/os/manifests/sha256-{hex}.sig HTTP/1.1"),
        format!("DELETE /v2/os/manifests/{DIGEST} HTTP/1.1"),
    ];
    assert_eq!(*asked.lock().unwrap(), want, "the signature was looked for, and nothing was asked twice");
}

#[tokio::test]
async fn a_registry_that_refuses_is_asked_once() {
    for status in [405, 403, 401, 400] {
        let (registry, asked) = stand_in(status).await;
        let world = World { list: vec![pushed(&registry)], secret: true, node: None };
        let [(list, outcome), (still, again)] = passes(world, &registry).await;
        let kept = list[0].kept.clone().unwrap();
        assert!(kept.for_good, "{status}: {kept:?}");
        assert_eq!((still, outcome, again), (list, Outcome::Done, Outcome::Done));
        let deletions = asked.lock().unwrap().iter().filter(|line| line.starts_with("DELETE")).count();
        assert_eq!(deletions, 1, "{status}");
    }
}

#[tokio::test]
async fn what_may_pass_is_tried_again_later_and_the_list_says_why() {
    let (registry, asked) = stand_in(202).await;
    let world = World { list: vec![pushed(&registry)], secret: false, node: None };
    let [(list, outcome), (_, again)] = passes(world, &registry).await;
    let kept = list[0].kept.clone().unwrap();
    assert!(!kept.for_good && kept.why.contains("give the controller the right"), "{kept:?}");
    assert!(
        matches!(outcome, Outcome::After(_)) && matches!(again, Outcome::After(_)),
        "{outcome:?} {again:?}"
    );
    assert_eq!(*asked.lock().unwrap(), [""; 0], "no registry is asked without the push secret");
    let nobody = World { list: vec![pushed("127.0.0.1:1")], secret: true, node: None };
    let [(list, outcome), _] = passes(nobody, "127.0.0.1:1").await;
    assert!(!list[0].kept.as_ref().unwrap().for_good && matches!(outcome, Outcome::After(_)), "{list:?}");
}

#[tokio::test]
async fn what_a_node_has_that_the_cache_does_not_know_stays() {
    let (registry, asked) = stand_in(202).await;
    for key in [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE, own::PREVIOUS_IMAGE] {
        let one = pushed(&registry);
        let node = Some((key, format!("{registry}/os@{DIGEST}")));
        let [(list, _), _] = passes(World { list: vec![one.clone()], secret: true, node }, &registry).await;
        assert_eq!(list, [one], "{key}");
    }
    assert_eq!(*asked.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn what_may_free_an_image_marks_the_pass() {
    let shared = shared(|_| None);
    let caches = Caches { stores: &shared.stores, named: &shared.named, templates: &shared.gates.templates };
    let marks = |changed: &Changed<'_>| {
        let mut marks = DirtyKeys::default();
        marked_by(changed, caches, &mut marks);
        marks.has(Pass::OldImages)
    };
    assert!(marks(&Changed::ImageBuild("worker")) && marks(&Changed::TermBegins));
    assert!(!marks(&Changed::PlanInput));
    let node = |image: Option<&str>| {
        Some(Arc::new(NodeView {
            previous_image: image.map(|image| Box::new(Arc::from(image))),
            ..NodeView::default()
        }))
    };
    let change = |old, new| crate::cache::store::Change { name: "n".to_owned(), old, new };
    for (old, new, want) in [
        (node(Some("a")), node(Some("b")), true),
        (node(Some("a")), node(None), true),
        (node(Some("a")), node(Some("a")), false),
        (node(Some("a")), None, true),
        (None, node(Some("a")), false),
    ] {
        assert_eq!(marks(&Changed::Node(&change(old, new))), want);
    }
}
