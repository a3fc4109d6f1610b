//! The node pass against a fake API server.
//!
//! Not here: writes that are refused or never answered (see `refused_writes`).

mod refused_writes;

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
    let snapshot = nodes.snapshot(Unwritten::default());
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
    let policies = PoolPolicies::of(&[&policy], &[&pool], None, None);
    let all = rollout::RolloutPlan { pools: vec![plan.clone()], ..Default::default() };
    nodes.policies.follow(&shared, &all, &policies, &[Arc::new(policy)], &now());
    // The gate passes, and is asked each second.
    tokio::time::sleep(Duration::from_millis(1900)).await;
    let known = shared.policy_revision();
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
        tokio::join!(nodes.requests.carry_out(&shared, &taints, &pool, shared.policy_revision()), async {
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
            let snapshot = nodes.snapshot(Unwritten::default());
            let plan = rollout::plan(&snapshot.inputs());
            if steps(&plan) == want {
                return;
            }
            nodes.policies.follow(&shared, &plan, &snapshot.policies, &snapshot.rollout_policies, &now());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(10), look).await;
    let snapshot = nodes.snapshot(Unwritten::default());
    assert!(done.is_ok(), "{:?}", steps(&rollout::plan(&snapshot.inputs())));
    assert!(want.iter().any(|n| &*n.node == "b" && n.step == rollout::Step::Goes), "{want:?}");
}
