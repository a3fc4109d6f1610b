//! The node pass against a fake API server.

use super::*;
use crate::cache::store::Item;
use crate::fake_server::shared_with;
use crate::flight::nodes::{PATCHES_IN_FLIGHT, PatchOf};
use crate::passes::nodes::send::PATCHES_WAITING;
use crate::shared::PolicyRevision;
use api::k8s::ObjectMeta;
use api::v1::MachineConfigPoolStatus;
use client::lease::Handover;
use http::{Request, Response};
use kube::client::Body;
use prometheus_client::registry::Registry;
use rollout::NodePatch;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn a_pool_that_is_deleted_while_a_pass_runs_leaves_no_series() {
    let mut registry = Registry::default();
    let shared = Arc::new(shared_with(crate::fake_server::client(|_| None), &mut registry));
    let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
    let value = Arc::new(MachineConfigPool::new("short", Default::default()));
    shared.stores.pools.apply("short".to_owned(), Item { version: 1, uid: "p".to_owned(), value });
    let has = |registry: &Registry| {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text.contains("pool=\"short\"")
    };
    let snapshot = nodes.snapshot();
    let plan = rollout::plan(&snapshot.inputs());
    nodes.report.report(&shared, &plan, &snapshot.pools);
    assert!(has(&registry));
    shared.stores.pools.remove("short");
    shared.metrics.forget_pool("short");
    assert!(!has(&registry));
    // A pass that began before the deletion reports after it.
    nodes.report.report(&shared, &plan, &snapshot.pools);
    assert!(!has(&registry));
}

#[test]
fn a_pass_waits_for_the_time_that_its_plan_names_and_never_for_long_without_a_look() {
    let at = |second| Timestamp::from_second(second).unwrap();
    for (then, want) in [(1_000, 0), (900, 0), (1_001, 1), (1_000_000, 3600)] {
        assert_eq!(until(at(then), at(1_000)), Duration::from_secs(want), "{then}");
    }
}

/// An API server that takes a tenth of a second for each request.
#[tokio::test(start_paused = true)]
async fn a_plan_that_takes_long_to_send_is_made_anew_before_the_rest_is_sent() {
    let (patched, written) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (patched.clone(), written.clone());
    let serve = tower::service_fn(move |request: Request<Body>| {
        let (patched, written) = counters.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            if name == "status" {
                written.fetch_add(1, Ordering::Relaxed);
            } else {
                patched.fetch_add(1, Ordering::Relaxed);
            }
            let metadata = json!({"name": name, "uid": "u", "resourceVersion": "9"});
            let body = json!({"metadata": metadata, "spec": {}}).to_string().into_bytes();
            Ok::<_, std::io::Error>(Response::new(Body::from(body)))
        }
    });
    let client = kube::Client::new(serve, "default");
    let shared = Arc::new(shared_with(client, &mut Registry::default()));
    let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
    let pool = MachineConfigPool::new("worker", Default::default());
    let now_in_cluster = |pool: &MachineConfigPool, version| {
        let value = Arc::new(pool.clone());
        shared.stores.pools.apply("worker".to_owned(), Item { version, uid: "p".to_owned(), value });
    };
    now_in_cluster(&pool, 1);
    let plan = |patches: usize| PoolPlan {
        pool: "worker".into(),
        patches: (0..patches)
            .map(|i| NodePatch { node: format!("n{i}").into(), ..NodePatch::default() })
            .collect(),
        status: Some(MachineConfigPoolStatus { machine_count: 7, ..Default::default() }),
        ..PoolPlan::default()
    };
    let sent = nodes.requests.carry_out(&nodes.shared, &plan(5000), &pool, PolicyRevision::default()).await;
    // Four rounds are answered within half a second; patches that wait for a permit at that time are still sent.
    let most = PATCHES_WAITING + 4 * PATCHES_IN_FLIGHT;
    assert_eq!((sent, patched.swap(0, Ordering::Relaxed)), (SendOutcome::Some, most));
    assert_eq!(written.load(Ordering::Relaxed), 1, "the status is written meanwhile");
    let sent = nodes.requests.carry_out(&nodes.shared, &plan(100), &pool, PolicyRevision::default()).await;
    assert_eq!((sent, patched.swap(0, Ordering::Relaxed)), (SendOutcome::All, 100));
    assert_eq!(written.load(Ordering::Relaxed), 2);
    // The first patches are being sent when the pool changes; the rest is not sent.
    let slow = plan(100);
    let (sent, ()) = tokio::join!(
        nodes.requests.carry_out(&nodes.shared, &slow, &pool, PolicyRevision::default()),
        async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let paused = MachineConfigPool {
                metadata: ObjectMeta { generation: Some(2), ..pool.metadata.clone() },
                ..pool.clone()
            };
            now_in_cluster(&paused, 2);
        }
    );
    let first = PATCHES_IN_FLIGHT;
    assert_eq!((sent, patched.load(Ordering::Relaxed)), (SendOutcome::Some, first));
}

/// From the answer of a gate to the patches: an API server that takes a tenth of a second for each request, and whose node `n0`
/// turns bad while hundreds of patches of one plan are on their way.
#[tokio::test(start_paused = true)]
async fn a_gate_that_fails_stops_the_patches_that_its_plan_has_not_sent_yet() {
    use tokio::time::Instant;
    const WORKS: Duration = Duration::from_millis(1950);
    let begin = Instant::now();
    /// When the gate was told for the first time, and when each patch arrived.
    type Seen = Arc<Mutex<(Option<Instant>, Vec<Instant>)>>;
    let seen = Seen::default();
    let of_server = seen.clone();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let seen = of_server.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let mut seen = seen.lock().unwrap();
            let metadata = json!({"name": name, "uid": "u", "resourceVersion": "9"});
            let object = match name.as_str() {
                "nodes" => {
                    let bad = begin.elapsed() >= WORKS;
                    if bad {
                        seen.0.get_or_insert_with(Instant::now);
                    }
                    let status = if bad { "True" } else { "False" };
                    let status = json!({"conditions": [{"type": "DiskPressure", "status": status}]});
                    json!({"metadata": {}, "items": [{"metadata": {"name": "n0"}, "status": status}]})
                }
                "status" => json!({"metadata": metadata, "spec": {}}),
                _ => {
                    seen.1.push(Instant::now());
                    json!({"metadata": metadata, "spec": {}})
                }
            };
            let body = Body::from(object.to_string().into_bytes());
            Ok::<_, std::io::Error>(Response::new(body))
        }
    });
    let client = kube::Client::new(serve, "default");
    let shared = Arc::new(shared_with(client, &mut Registry::default()));
    let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
    let pool = MachineConfigPool::new("worker", Default::default());
    let item = Item { version: 1, uid: "p".to_owned(), value: Arc::new(pool.clone()) };
    shared.stores.pools.apply("worker".to_owned(), item);
    let policy: RolloutPolicy = serde_json::from_value(json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "p", "uid": "u"},
        "spec": {"pools": {"names": ["worker"]}, "gates": [{
            "name": "disks", "when": ["Always"], "interval": "1s", "failureLimit": 1,
            "nodeCondition": {"type": "DiskPressure", "status": "False"},
        }]},
    }))
    .unwrap();
    let check = rollout::policy::GateCheck {
        gate: "disks".into(),
        baseline: Some(vec![]),
        nodes: vec!["n0".into()],
        ..Default::default()
    };
    let plan = PoolPlan {
        pool: "worker".into(),
        target: Some(rollout::Target { config: "new".into(), image: None }),
        patches: (0..1000)
            .map(|i| NodePatch {
                node: format!("n{i}").into(),
                desired_config: rollout::Change::Set("new".into()),
                ..NodePatch::default()
            })
            .collect(),
        policy: Some(rollout::policy::PolicyPlan {
            policy: "p".into(),
            checks: vec![check],
            ..Default::default()
        }),
        ..PoolPlan::default()
    };
    let policies = PoolPolicies::of(&[&policy], &[&pool], &|_| true, None);
    let all = rollout::RolloutPlan { pools: vec![plan.clone()], ..Default::default() };
    nodes.policies.follow(&shared, &all, &policies, &[Arc::new(policy)], &now());
    // The gate passes, and is asked each second.
    tokio::time::sleep(Duration::from_millis(1900)).await;
    let known = shared.policy_news();
    assert_eq!(known.setbacks, 0);
    let sent = nodes.requests.carry_out(&shared, &plan, &pool, known).await;
    assert_eq!(sent, SendOutcome::Some);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (told, arrived) = seen.lock().unwrap().clone();
    let (told, last) = (told.unwrap(), *arrived.last().unwrap());
    // Those that are on their way to the server at that moment are the last ones; a hundred more waited for a place.
    assert!(last.duration_since(told) <= Duration::from_millis(100), "{:?}", last.duration_since(told));
    assert!(arrived.len() <= 4 * PATCHES_IN_FLIGHT && arrived.len() > PATCHES_IN_FLIGHT, "{}", arrived.len());
    assert_eq!(shared.setbacks.load(Ordering::Acquire), 1);
    // What a gate says, and what was stored, has the next plan wait for no patch that moves no node.
    let taints = PoolPlan {
        patches: plan
            .patches
            .iter()
            .map(|p| NodePatch { node: p.node.clone(), ..NodePatch::default() })
            .collect(),
        ..plan.clone()
    };
    seen.lock().unwrap().1.clear();
    let (sent, ()) =
        tokio::join!(nodes.requests.carry_out(&shared, &taints, &pool, shared.policy_news()), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            shared.advances.fetch_add(1, Ordering::AcqRel);
        });
    assert_eq!((sent, seen.lock().unwrap().1.len()), (SendOutcome::Some, PATCHES_IN_FLIGHT));
}

fn a_pool(name: &str, version: usize) -> serde_json::Value {
    json!({
        "metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()},
        "spec": {"nodeSelector": {"matchLabels": {"pool": name}}, "configuration": {"name": "new"}},
    })
}

fn a_node(name: &str, version: usize, desired: &str) -> serde_json::Value {
    use api::names::annotation;
    json!({
        "metadata": {
            "name": name, "uid": name, "resourceVersion": version.to_string(),
            "labels": {"pool": name.trim_end_matches(char::is_numeric)},
            "annotations": {
                annotation::CURRENT_CONFIG: "old", annotation::DESIRED_CONFIG: desired, annotation::STATE: "Done",
            },
        },
    })
}

/// The requests to a server that never answers patches of node `a1`, as behind an admission webhook that hangs.
#[derive(Default)]
struct Asked {
    a1: AtomicUsize,
    version: AtomicUsize,
    sent: Mutex<BTreeSet<String>>,
    status: Mutex<String>,
}

impl Asked {
    async fn answer(&self, request: Request<Body>) -> serde_json::Value {
        let (parts, body) = request.into_parts();
        let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
        let path = parts.uri.path();
        let name = path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default();
        let version = self.version.fetch_add(1, Ordering::Relaxed) + 2;
        if path.ends_with("/status") {
            if name == "a" {
                *self.status.lock().unwrap() = body;
            }
            return a_pool(name, version);
        }
        if name == "a1" {
            if parts.method == "PATCH" {
                self.a1.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
            return a_node(name, 1, "old");
        }
        let moves = body.contains(api::names::annotation::DESIRED_CONFIG);
        if moves {
            self.sent.lock().unwrap().insert(name.to_owned());
        }
        a_node(name, version, if moves { "new" } else { "old" })
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_never_answered_for_holds_up_nobody_but_itself() {
    let asked = Arc::new(Asked::default());
    let server = asked.clone();
    let serve = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let object = server.answer(request).await;
            Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
        }
    });
    let client = kube::Client::new(serve, "default");
    let shared = Arc::new(shared_with(client, &mut Registry::default()));
    for name in ["a", "b"] {
        let pool = serde_json::from_value(a_pool(name, 1)).unwrap();
        let item = Item { version: 1, uid: name.to_owned(), value: Arc::new(pool) };
        shared.stores.pools.apply(name.to_owned(), item);
        for node in [format!("{name}1"), format!("{name}2")] {
            let view = shared.view(&serde_json::from_value(a_node(&node, 1, "old")).unwrap());
            let item = Item { version: 1, uid: node.clone(), value: Arc::new(view) };
            shared.stores.nodes.apply(node, item);
        }
    }
    let config = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "spec": {}});
    shared.config_answer(serde_json::from_value(config).unwrap());
    let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
    let pass = async || {
        let outcome = tokio::time::timeout(Duration::from_secs(10), nodes.pass()).await;
        outcome.expect("a pass ends although one node does not answer")
    };
    for _ in 0..4 {
        pass().await;
    }
    let said = asked.status.lock().unwrap().clone();
    assert!(said.contains("does not answer changes of Node a1"), "{said}");
    let went = asked.sent.lock().unwrap().clone();
    assert_eq!(went, ["b1".to_owned()].into(), "the other pool continues, and this one keeps the slot");
    let drain =
        tokio::time::timeout(Duration::from_secs(1), shared.permits.take(PatchOf::Drain, &shared.terms))
            .await;
    assert!(drain.is_ok(), "drains have permits of their own");
    // The patch is tried for some minutes, until it can no longer arrive. Then the node is read, and patched again.
    tokio::time::sleep(client::lease::STRAY * 4).await;
    let tries = asked.a1.load(Ordering::Relaxed);
    assert!((5..30).contains(&tries), "{tries} tries");
    tokio::time::sleep(client::lease::STRAY * 4).await;
    assert_eq!(asked.a1.load(Ordering::Relaxed), tries, "they end");
    let failed = pass().await;
    assert!(matches!(failed, Outcome::Failed(_)), "{failed:?}");
    pass().await;
    assert!(asked.a1.load(Ordering::Relaxed) > tries, "and begin anew");
}

/// The requests to a server that answers patches of node `a1` with a given code, and accepts writes to pools.
struct Refusing {
    code: u16,
    /// Whether it leaves changes of pools' annotations unanswered too.
    mute: bool,
    written: Mutex<String>,
    annotated: AtomicUsize,
    /// How often a Node was patched.
    patched: AtomicUsize,
}

impl Refusing {
    fn new(code: u16, mute: bool) -> Arc<Self> {
        Arc::new(Self {
            code,
            mute,
            written: Mutex::default(),
            annotated: AtomicUsize::new(0),
            patched: AtomicUsize::new(0),
        })
    }

    /// The node pass over pool `a` with node `a1`, whose update taint should be removed.
    fn nodes(self: &Arc<Self>, pool: serde_json::Value) -> (Nodes, Arc<Shared>) {
        let server = self.clone();
        let stored = pool.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let (server, stored) = (server.clone(), stored.clone());
            async move {
                let (parts, body) = request.into_parts();
                let path = parts.uri.path();
                let (mut code, mut object) = (200, stored);
                if path.ends_with("/status") {
                    let body = body.collect_bytes().await.unwrap();
                    *server.written.lock().unwrap() = String::from_utf8(body.to_vec()).unwrap();
                } else if path.ends_with("/machineconfigpools/a") {
                    server.annotated.fetch_add(1, Ordering::Relaxed);
                    if server.mute {
                        std::future::pending::<()>().await;
                    }
                } else {
                    server.patched.fetch_add(1, Ordering::Relaxed);
                    (code, object) = (
                        server.code,
                        json!({"kind": "Status", "code": server.code, "message": "no, says a1"}),
                    );
                }
                let body = Body::from(object.to_string().into_bytes());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let client = kube::Client::new(serve, "default");
        let shared = Arc::new(shared_with(client, &mut Registry::default()));
        let pool = serde_json::from_value(pool).unwrap();
        let item = Item { version: 1, uid: "a".to_owned(), value: Arc::new(pool) };
        shared.stores.pools.apply("a".to_owned(), item);
        let mut node = a_node("a1", 1, "new");
        node["metadata"]["annotations"][api::names::annotation::CURRENT_CONFIG] = json!("new");
        if self.code != 200 {
            node["spec"]["taints"] = json!([{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}]);
        }
        let view = shared.view(&serde_json::from_value(node).unwrap());
        let item = Item { version: 1, uid: "a1".to_owned(), value: Arc::new(view) };
        shared.stores.nodes.apply("a1".to_owned(), item);
        let config = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "spec": {}});
        shared.config_answer(serde_json::from_value(config).unwrap());
        (Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared)), shared)
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_that_lasts_is_told_on_a_pool_whose_nodes_are_all_updated_and_freezes_no_status() {
    for (code, at_once) in [(409, false), (404, false), (422, true)] {
        let server = Refusing::new(code, false);
        let (nodes, shared) = server.nodes(a_pool("a", 1));
        let first = nodes.pass().await;
        let written = server.written.lock().unwrap().clone();
        assert!(written.contains("\"machineCount\":1"), "{code}: the counts are written: {written}");
        assert_eq!(written.contains("no, says a1"), at_once, "{code}: {written}");
        assert_eq!(matches!(first, Outcome::Failed(_)), at_once, "{code}: {first:?}");
        tokio::time::advance(Duration::from_secs(6)).await;
        let later = nodes.pass().await;
        assert!(matches!(later, Outcome::Failed(_)), "{code}: {later:?}");
        let written = server.written.lock().unwrap().clone();
        assert!(written.contains("no, says a1") && written.contains("Updating"), "{code}: {written}");
        // A write that was abandoned is not yet a failure when it is tried again later.
        assert!(shared.node_troubles.knows("a1"));
        shared.stores.nodes.remove("a1");
        nodes.pass().await;
        assert!(!shared.node_troubles.knows("a1"), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_taint_of_a_node_that_no_pool_owns_is_removed_and_a_refusal_is_tried_again() {
    for code in [200, 422] {
        let server = Refusing::new(code, false);
        let (nodes, shared) = server.nodes(a_pool("a", 1));
        let mut node = a_node("a1", 2, "new");
        node["metadata"]["labels"] = json!({"node-role.kubernetes.io/storage": ""});
        node["spec"]["taints"] = json!([{"key": "machineconfig.dev/joining", "effect": "NoSchedule"}]);
        let view = Arc::new(shared.view(&serde_json::from_value(node).unwrap()));
        shared.stores.nodes.apply("a1".to_owned(), Item { version: 2, uid: "a1".to_owned(), value: view });
        for _ in 0..2 {
            let done = nodes.pass().await;
            let refused = matches!(&done, Outcome::Failed(why) if why.contains("no, says a1"));
            assert_eq!(refused, code != 200, "{done:?}");
        }
        assert!(server.patched.load(Ordering::Relaxed) >= 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_first_boots_that_is_never_answered_for_slows_no_pass_and_is_told() {
    let server = Refusing::new(200, true);
    let mut pool = a_pool("a", 1);
    pool["metadata"]["annotations"] = json!({api::names::annotation::FIRST_BOOT_NODES: "a1,a2"});
    let (nodes, _context) = server.nodes(pool);
    nodes.pass().await;
    let begin = tokio::time::Instant::now();
    for _ in 0..3 {
        nodes.pass().await;
    }
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(server.annotated.load(Ordering::Relaxed), 1, "one write is in flight");
    let written = server.written.lock().unwrap().clone();
    assert!(written.contains("\"machineCount\":1"), "the status is still written: {written}");
    assert!(
        written.contains("does not answer") && written.contains(api::names::annotation::FIRST_BOOT_NODES),
        "{written}"
    );
}

/// The third filler of a plan, `mco status`, is compared with the same reader of objects, beside its watches.
#[tokio::test]
async fn the_pass_and_its_objects_in_files_lead_to_the_same_plan() {
    const POOLS: &str = "machineconfiguration.openshift.io/v1";
    let config = |name: &str| json!({"apiVersion": POOLS, "kind": "MachineConfig", "metadata": {"name": name}, "spec": {}});
    let node = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name,
            "labels": {"node-role.kubernetes.io/worker": ""},
            "annotations": {"machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
                "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
                "machineconfiguration.openshift.io/state": "Done"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let objects = vec![
        json!({"apiVersion": POOLS, "kind": "MachineConfigPool", "metadata": {"name": "worker"}, "spec": {
            "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
            "configuration": {"name": "rendered-worker-2"}}}),
        config("rendered-worker-1"),
        config("rendered-worker-2"),
        node("a"),
        node("b"),
        json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "p"},
            "spec": {"pools": {"names": ["worker"]}, "drain": {"after": "1h"}}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": "front", "labels": {"app": "shop"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]},
            "spec": {"nodeName": "a", "containers": []}, "status": {"phase": "Running"}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"namespace": "shop", "name": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "shop"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}),
    ];
    let served = objects.clone();
    let client = crate::fake_server::client(move |request| {
        let (path, query) =
            (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let kind = if path.ends_with("/pods") { "Pod" } else { "PodDisruptionBudget" };
        let on_node =
            |o: &Value| kind != "Pod" || query.ends_with(o["spec"]["nodeName"].as_str().unwrap_or("?"));
        let items: Vec<&Value> = served.iter().filter(|o| o["kind"] == kind && on_node(o)).collect();
        let list = json!({"apiVersion": "v1", "kind": format!("{kind}List"), "metadata": {}, "items": items});
        crate::fake_server::answer(200, &list)
    });
    let shared = Arc::new(shared_with(client, &mut Registry::default()));
    fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
        serde_json::from_value(object.clone()).unwrap()
    }
    fn item<T>(value: T) -> Item<T> {
        Item { version: 1, uid: "u".to_owned(), value: Arc::new(value) }
    }
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        match object["kind"].as_str().unwrap() {
            "MachineConfigPool" => drop(shared.stores.pools.apply(name, item(read(object)))),
            "MachineConfig" => {
                drop(shared.stores.configs.apply(name, item(Config::Source(Arc::new(read(object))))));
            }
            "Node" => drop(shared.stores.nodes.apply(name, item(NodeView::from_node(&read(object))))),
            "RolloutPolicy" => drop(shared.stores.rollout_policies.apply(name, item(read(object)))),
            _ => {}
        }
    }
    let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
    let steps = |plan: &rollout::RolloutPlan| plan.pools[0].nodes.clone();
    let files = rollout::Situation::from_objects(objects.iter().map(|o| ("f", o))).unwrap();
    let (pools, all): (Vec<_>, Vec<_>) =
        (files.pools.values().cloned().collect(), files.nodes.values().cloned().collect());
    let policies = files.policies();
    let want = steps(&rollout::plan(&files.inputs(&pools, &all, &policies, &now())));
    let look = async {
        loop {
            let snapshot = nodes.snapshot();
            let plan = rollout::plan(&snapshot.inputs());
            if steps(&plan) == want {
                return;
            }
            nodes.policies.follow(&shared, &plan, &snapshot.policies, &snapshot.rollout_policies, &now());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(10), look).await;
    let snapshot = nodes.snapshot();
    assert!(done.is_ok(), "{:?}", steps(&rollout::plan(&snapshot.inputs())));
    assert!(want.iter().any(|n| &*n.node == "b" && n.step == rollout::Step::Goes), "{want:?}");
}
