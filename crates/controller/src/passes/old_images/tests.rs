//! The pass with a fake API server and a fake registry.
//!
//! Not here: what tags tell (see `tags`).

mod tags;

use super::*;
use crate::cache::store::Store;
use crate::cache::watch::{ReadRequirement, WatchedKind};
use crate::fake_server::{answer, insecure, item, put_pool, shared};
use futures::FutureExt as _;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::Relaxed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Answers each DELETE with this status, and everything else with 404. Returns its address, and what it is asked.
async fn fake_registry(status: u16) -> (String, Arc<Mutex<Vec<String>>>) {
    fake_registry_with(status, |_| None).await
}

/// The same, where a GET of some paths has another answer.
async fn fake_registry_with(
    status: u16,
    says: impl Fn(&str) -> Option<(u16, String)> + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
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
            let path = line.split(' ').nth(1).and_then(|p| p.strip_prefix("/v2/os/")).unwrap_or_default();
            let (code, body) = match line.starts_with("DELETE ") {
                true => (status, String::new()),
                false => says(path).unwrap_or((404, String::new())),
            };
            log.lock().unwrap().push(line);
            let length = body.len();
            let head =
                format!("HTTP/1.1 {code} x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            let _ = stream.write_all(head.as_bytes()).await;
        }
    });
    (address, asked)
}

/// What there is, and what the controller may read.
struct World {
    /// The list.
    list: Vec<Pushed>,
    /// Whether the push secret can be read.
    secret: bool,
    /// An annotation of the only node at the API server, which the cache does not have.
    node: Option<(&'static str, String)>,
    /// From which list of nodes on it has that.
    from: usize,
    /// An annotation of the pool's rendered config.
    config: Option<(&'static str, String)>,
    /// The phase of a pod of the build `b1`.
    pod: Option<&'static str>,
    /// Whether the second pass comes when nothing waits any more.
    is_late: bool,
    /// What of the caches is not as it should be.
    cache: Cache,
}

/// What of the caches is not as it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// Nothing.
    Current,
    /// The watch of MachineConfigs fails.
    InTrouble,
    /// It fails from the second list of nodes on.
    InTroubleLater,
    /// There is a MachineConfig that has not arrived.
    Behind,
    /// No watch fills the cache of this kind.
    Unwatched(&'static str),
}

impl World {
    fn of(list: Vec<Pushed>) -> Self {
        Self {
            list,
            secret: true,
            node: None,
            from: 1,
            config: None,
            pod: None,
            is_late: false,
            cache: Cache::Current,
        }
    }
}

fn pushed(registry: &str) -> Pushed {
    pushed_as(registry, DIGEST)
}

fn pushed_as(registry: &str, digest: &str) -> Pushed {
    let name = format!("{registry}/os@{digest}");
    let [secret, os_config, pool] = ["push", "worker", "worker"].map(str::to_owned);
    Pushed {
        what: build::pushed::PushedContent::Image { name, tag: format!("{registry}/os:b1") },
        secret,
        os_config,
        pool,
        kept: None,
    }
}

/// Two passes one after the other. Returns the list after each of them, and what is next.
async fn passes(world: World, registry: &str) -> [(Vec<Pushed>, Outcome); 2] {
    let config = insecure(registry);
    let data: BTreeMap<String, String> = world.list.iter().map(|p| (p.key(), p.text())).collect();
    let map = Arc::new(Mutex::new(json!({"metadata": {"name": "machine-os-images"}, "data": data})));
    let kept = map.clone();
    let (rendered, world_cache, is_late) = (world.config.clone(), world.cache, world.is_late);
    let lists = Arc::new(Mutex::new(0));
    let configs_of_world = Arc::new(Mutex::new(None::<Arc<Store<Config>>>));
    let watched = configs_of_world.clone();
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
            return answer(
                200,
                &json!({"metadata": {"name": "rendered-worker-a"}, "spec": {"config": config}}),
            );
        }
        if path.ends_with("/pods") {
            let labels = json!({build::names::OS_BUILD: "b1"});
            let pods: Vec<Value> = world
                .pod
                .iter()
                .map(|phase| json!({"metadata": {"name": "p", "labels": labels}, "status": {"phase": phase}}))
                .collect();
            return answer(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": pods}));
        }
        if path.ends_with("/machineconfigs") && world.cache == Cache::Behind {
            let new = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "new", "resourceVersion": "9"}});
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "9"}, "items": [new]});
            return answer(200, &list);
        }
        let is_nodes = path.ends_with("/nodes");
        let mut lists = lists.lock().unwrap();
        *lists += usize::from(is_nodes);
        if is_nodes && world.cache == Cache::InTroubleLater {
            watched.lock().unwrap().as_ref().unwrap().set_trouble(Some("refused".to_owned()));
        }
        let nodes: Vec<Value> = match (&world.node, is_nodes && *lists >= world.from) {
            (Some((key, value)), true) => {
                vec![
                    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": "n", "annotations": {*key: value}}}),
                ]
            }
            _ => vec![],
        };
        answer(200, &json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": nodes}))
    }));
    put_pool(&shared);
    *configs_of_world.lock().unwrap() = Some(shared.stores.configs.clone());
    let streams = shared.settings.store(STREAMS).unwrap().clone();
    let watched: [(&str, Arc<dyn crate::cache::store::Cache>); 3] = [
        ("MachineConfig", shared.stores.configs.clone()),
        ("ControllerConfig", shared.stores.controller_configs.clone()),
        ("OSImageStream", streams),
    ];
    for (kind, cache) in watched.into_iter().filter(|(kind, _)| world_cache != Cache::Unwatched(kind)) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(api::names::GROUP, "v1", kind));
        shared.add_watched_kind(WatchedKind {
            kind: kind.to_owned(),
            need: ReadRequirement::Always,
            api: Api::all_with(shared.client.clone(), &resource),
            which: kube::runtime::watcher::Config::default(),
            cache,
        });
    }
    if world_cache == Cache::InTrouble {
        shared.stores.configs.set_trouble(Some("refused".to_owned()));
    }
    let mut configs = BTreeMap::new();
    if let Some((key, value)) = rendered {
        let owner = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": true});
        let object = json!({"metadata": {"name": "rendered-worker-a", "annotations": {key: value}, "ownerReferences": [owner]}, "spec": {}});
        let config = Config::new(serde_json::from_value(object).unwrap());
        assert!(config.source().is_none());
        configs.insert("rendered-worker-a".to_owned(), item(config));
    }
    shared.stores.configs.replace(configs);
    shared.stores.os_configs.replace(BTreeMap::new());
    shared.stores.os_builds.replace(BTreeMap::new());
    shared.stores.nodes.replace(BTreeMap::new());
    let cleaner = Cleaner { shared, waits: Mutex::default() };
    let mut all = vec![];
    for _ in 0..2 {
        let outcome = cleaner.pass().await;
        if is_late {
            cleaner.waits().clear();
        }
        let data = map.lock().unwrap()["data"].clone();
        let list = data.as_object().unwrap().values().filter_map(|t| Pushed::read(t.as_str()?)).collect();
        all.push((list, outcome));
    }
    all.try_into().unwrap_or_else(|_| panic!("two"))
}

#[tokio::test]
async fn what_nothing_names_is_deleted_and_leaves_the_list() {
    let (registry, asked) = fake_registry(202).await;
    let world = World::of(vec![pushed(&registry)]);
    let [(list, outcome), (_, again)] = passes(world, &registry).await;
    assert_eq!((list, outcome, again), (vec![], Outcome::Done, Outcome::Done));
    let hex = DIGEST.strip_prefix("sha256:").unwrap();
    let want = [
        "GET /v2/os/tags/list HTTP/1.1".to_owned(),
        "GET /v2/os/manifests/b1 HTTP/1.1".to_owned(),
        format!("GET /v2/os/manifests/sha256-{hex}.sig HTTP/1.1"),
        format!("DELETE /v2/os/manifests/{DIGEST} HTTP/1.1"),
    ];
    assert_eq!(
        *asked.lock().unwrap(),
        want,
        "other tags and the signature were looked for, and nothing was asked twice"
    );
}

#[tokio::test]
async fn a_registry_that_refuses_is_asked_once() {
    for status in [405, 403, 401, 400] {
        let (registry, asked) = fake_registry(status).await;
        let world = World::of(vec![pushed(&registry)]);
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
    let (registry, asked) = fake_registry(202).await;
    let world = World { secret: false, ..World::of(vec![pushed(&registry)]) };
    let [(list, outcome), (_, again)] = passes(world, &registry).await;
    let kept = list[0].kept.clone().unwrap();
    assert!(
        kept.until_mended
            && !kept.for_good
            && kept.why.contains("the operator grants the controller the right"),
        "{kept:?}"
    );
    assert!(
        matches!(outcome, Outcome::After(_)) && matches!(again, Outcome::After(_)),
        "{outcome:?} {again:?}"
    );
    assert_eq!(*asked.lock().unwrap(), [""; 0], "no registry is asked without the push secret");
    let nobody = World::of(vec![pushed("127.0.0.1:1")]);
    let [(list, outcome), _] = passes(nobody, "127.0.0.1:1").await;
    let kept = list[0].kept.as_ref().unwrap();
    assert!(!kept.for_good && !kept.until_mended && matches!(outcome, Outcome::After(_)), "{list:?}");
}

#[tokio::test]
async fn while_it_is_not_known_what_names_images_nothing_goes_and_it_is_looked_again() {
    let (registry, asked) = fake_registry(202).await;
    let unwatched = ["MachineConfig", "ControllerConfig", "OSImageStream"].map(Cache::Unwatched);
    for cache in [Cache::InTrouble, Cache::InTroubleLater, Cache::Behind].into_iter().chain(unwatched) {
        let one = pushed(&registry);
        let [(list, outcome), (still, again)] =
            passes(World { cache, ..World::of(vec![one.clone()]) }, &registry).await;
        assert_eq!((list, still), (vec![one.clone()], vec![one]), "{cache:?}");
        for outcome in [outcome, again] {
            assert!(matches!(outcome, Outcome::After(_)), "{cache:?}: {outcome:?}");
        }
    }
    assert!(!asked.lock().unwrap().iter().any(|line| line.starts_with("DELETE")));
}

#[tokio::test]
async fn what_a_node_has_that_the_cache_does_not_know_stays() {
    let (registry, asked) = fake_registry(202).await;
    for key in [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE, own::PREVIOUS_IMAGE] {
        let one = pushed(&registry);
        let node = Some((key, format!("{registry}/os@{DIGEST}")));
        let [(list, _), _] = passes(World { node, ..World::of(vec![one.clone()]) }, &registry).await;
        assert_eq!(list, [one], "{key}");
    }
    assert!(!asked.lock().unwrap().iter().any(|line| line.starts_with("DELETE")));
}

#[tokio::test]
async fn what_a_rendered_config_sends_its_nodes_to_stays() {
    let (registry, asked) = fake_registry(202).await;
    let found = api::images::os_image::OsImage {
        of: format!("{registry}/os:prod"),
        image: format!("{registry}/os@{DIGEST}"),
        ..api::images::os_image::OsImage::default()
    };
    for config in
        [(own::OS_IMAGE, found.text()), (annotation::PRE_BUILT_IMAGE, format!("{registry}/os@{DIGEST}"))]
    {
        let one = pushed(&registry);
        let world = World { config: Some(config.clone()), ..World::of(vec![one.clone()]) };
        let [(list, _), _] = passes(world, &registry).await;
        assert_eq!(list, [one], "{config:?}");
    }
    assert_eq!(*asked.lock().unwrap(), [""; 0]);
}

#[tokio::test]
async fn it_is_decided_again_before_each_deletion() {
    let second = format!("sha256:{}", "0a".repeat(32));
    // The node takes an image while the other tags of the first one are looked through, or before the second one's turn.
    for (from, takes_first, left) in [(1, true, 1), (2, false, 1), (9, false, 0)] {
        let (registry, asked) = fake_registry(202).await;
        let all = vec![pushed(&registry), pushed_as(&registry, &second)];
        let first = all.iter().min_by_key(|p| p.key()).unwrap();
        let (early, late) = match first.text().contains(DIGEST) {
            true => (DIGEST, second.as_str()),
            false => (second.as_str(), DIGEST),
        };
        let taken = if takes_first { early } else { late };
        let node = Some((annotation::DESIRED_IMAGE, format!("{registry}/os@{taken}")));
        let [(list, _), _] = passes(World { node, from, ..World::of(all) }, &registry).await;
        assert_eq!(list.len(), left, "{from}: {list:?}");
        let deletion = format!("DELETE /v2/os/manifests/{taken} HTTP/1.1");
        assert_eq!(asked.lock().unwrap().contains(&deletion), left == 0, "{from}");
        assert!(list.iter().all(|p| p.kept.is_none()), "nothing has failed");
    }
}

#[tokio::test]
async fn layers_that_become_an_image_in_use_while_others_go_stay() {
    const MANIFEST: &str = "{\"schemaVersion\": 2}";
    let digest = registry::Digest::of(MANIFEST.as_bytes()).to_string();
    let (registry, asked) = fake_registry_with(202, |path| {
        let tags: Vec<String> = (0..25).map(|i| format!("{i:064x}")).collect();
        let list = json!({ "tags": tags }).to_string();
        Some((200, if path == "tags/list" { list } else { MANIFEST.to_owned() }))
    })
    .await;
    let what = build::pushed::PushedContent::Layers { repository: format!("{registry}/os") };
    let layers = Pushed { what, ..pushed(&registry) };
    let node = Some((annotation::DESIRED_IMAGE, format!("m.io/os@{digest}")));
    let [(list, _), _] = passes(World { node, from: 2, ..World::of(vec![layers]) }, &registry).await;
    assert_eq!(list, []);
    let count = asked.lock().unwrap().iter().filter(|line| line.starts_with("DELETE")).count();
    assert_eq!(count, 20);
}

#[tokio::test]
async fn what_may_free_an_image_marks_the_pass() {
    let shared = shared(|_| None);
    let caches = Caches {
        stores: &shared.stores,
        own_writes: &shared.own_writes,
        templates: &shared.prerequisites.templates,
    };
    let marks = |changed: &Changed<'_>| {
        let mut marks = DirtyKeys::default();
        marked_by(changed, caches, &mut marks);
        marks.take(Pass::OldImages).is_some()
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
