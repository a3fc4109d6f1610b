//! The recorded situations of `tests/conformance/rollout`. Each is given to the planner as the reference controller saw
//! it; the plans are applied until nothing changes, and the outcome is compared with what the reference did.
//!
//! Intended differences are listed in `accept-rollout.txt` beside the cases, node by node; the rest of such a case is
//! still compared.
//!
//! As in the recording, the pool is paused until its nodes are at rest, and nodes are created a second apart.
//!
//! What it is not: a run of the controller. `check_rollout.py` beside the cases does the same against a real API
//! server.

use api::k8s::{IntOrString, LabelSelector, Node, Time};
use api::names::annotation;
use api::v1::{MachineConfigPool, MachineConfigPoolSpec, PoolConfiguration};
use jiff::Timestamp;
use rollout::drain::{self, Drain};
use rollout::view::NodeView;
use rollout::{Facts, Inputs, PoolInput};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Applying plans must come to rest; the longest way is cordon, drain, uncordon, move.
const ROUNDS: usize = 8;

#[derive(Deserialize)]
struct Case {
    id: String,
    about: String,
    pool: PoolSpec,
    nodes: Vec<NodeSpec>,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PoolSpec {
    #[serde(default)]
    max_unavailable: Option<IntOrString>,
    #[serde(default)]
    paused: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeSpec {
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    conditions: Option<BTreeMap<String, String>>,
    unschedulable: Option<bool>,
    taints: Option<Value>,
}

#[derive(Deserialize)]
struct Expect {
    pool: BTreeMap<String, Value>,
    nodes: Vec<BTreeMap<String, Value>>,
}

fn view(case: &Case, index: usize) -> NodeView {
    let spec = &case.nodes[index];
    let annotations: BTreeMap<String, String> = spec
        .annotations
        .iter()
        .map(|(k, v)| (format!("machineconfiguration.openshift.io/{k}"), v.clone()))
        .collect();
    let mut labels = spec.labels.clone();
    labels.insert("node-role.kubernetes.io/worker".to_owned(), String::new());
    labels.insert(format!("node-role.kubernetes.io/{}", case.id), String::new());
    let ready = BTreeMap::from([("Ready".to_owned(), "True".to_owned())]);
    let conditions: Vec<Value> = spec
        .conditions
        .as_ref()
        .unwrap_or(&ready)
        .iter()
        .map(|(t, s)| json!({"type": t, "status": s}))
        .collect();
    let made = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1_000 + index as i64);
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": format!("{}-{index}", case.id), "uid": format!("uid-{index}"), "resourceVersion": "1",
                     "creationTimestamp": made.to_string(), "labels": labels, "annotations": annotations},
        "spec": {"unschedulable": spec.unschedulable, "taints": spec.taints},
        "status": {"conditions": conditions},
    }))
    .unwrap();
    NodeView::from_node(&node)
}

fn pools(case: &Case, paused: bool) -> Vec<MachineConfigPool> {
    let selector = |role: &str| -> Option<LabelSelector> {
        serde_json::from_value(json!({"matchLabels": {format!("node-role.kubernetes.io/{role}"): ""}}))
            .unwrap()
    };
    let pool = |name: &str, max_unavailable, paused| {
        let mut pool = MachineConfigPool::new(
            name,
            MachineConfigPoolSpec {
                node_selector: selector(name),
                paused,
                max_unavailable,
                configuration: PoolConfiguration { name: "NEW".to_owned(), ..PoolConfiguration::default() },
                ..MachineConfigPoolSpec::default()
            },
        );
        pool.metadata.generation = Some(1);
        pool
    };
    let mut case_pool = pool(&case.id, case.pool.max_unavailable.clone(), paused);
    let rendered = json!([{"type": "RenderDegraded", "status": "False"}]);
    case_pool.status.get_or_insert_default().conditions = Some(serde_json::from_value(rendered).unwrap());
    vec![pool("master", None, false), pool("worker", None, false), case_pool]
}

/// Plans and applies until nothing changes.
fn settle(pools: &mut [MachineConfigPool], nodes: &mut [NodeView], drains: &mut [Drain], now: Timestamp) {
    let facts = Facts::default();
    for round in 0.. {
        assert!(round < ROUNDS, "no rest after {ROUNDS} rounds");
        let mut changed = false;
        for (node, state) in nodes.iter_mut().zip(drains.iter_mut()) {
            let plan = drain::plan(node, &[], &[], state, now);
            changed |= plan.patch.is_some();
            *state = plan.state;
            if let Some(patch) = plan.patch {
                *node = patch.applied_to(node);
            }
        }
        let plan = rollout::plan(&Inputs {
            pools: pools.iter().map(PoolInput::of).collect(),
            nodes: nodes.iter().collect(),
            facts: &facts,
            now: Time(now),
        });
        for (pool, plan) in pools.iter_mut().zip(&plan.pools) {
            for patch in &plan.patches {
                let node = nodes.iter_mut().find(|n| n.name == patch.node).unwrap();
                *node = patch.applied_to(node);
            }
            if let Some(status) = &plan.status {
                pool.status = Some(status.clone());
            }
            changed |= !plan.patches.is_empty() || plan.status.is_some();
        }
        if !changed {
            return;
        }
    }
}

fn seen(
    pool: &MachineConfigPool,
    nodes: &[NodeView],
) -> (BTreeMap<String, Value>, Vec<BTreeMap<String, Value>>) {
    let status: BTreeMap<String, Value> =
        serde_json::from_value(serde_json::to_value(pool.status.as_ref().unwrap()).unwrap()).unwrap();
    let nodes = nodes.iter().map(|n| {
        let mut taints: Vec<_> = n
            .taints
            .iter()
            .filter(|t| !t.key.starts_with("node.kubernetes.io/"))
            .map(|t| format!("{}:{}", t.key, t.effect))
            .collect();
        taints.sort();
        let mut out = BTreeMap::from([
            ("unschedulable".to_owned(), json!(n.unschedulable)),
            ("taints".to_owned(), json!(taints)),
        ]);
        for (key, value) in [
            (annotation::DESIRED_CONFIG, &n.desired_config),
            (annotation::DESIRED_DRAIN, &n.desired_drain),
            (annotation::LAST_APPLIED_DRAIN, &n.last_applied_drain),
        ] {
            let short = key.rsplit('/').next().unwrap().to_owned();
            out.extend(value.as_ref().map(|v| (short, json!(v))));
        }
        out
    });
    (status, nodes.collect())
}

fn differences(case: &Case) -> Vec<String> {
    let mut nodes: Vec<NodeView> = (0..case.nodes.len()).map(|i| view(case, i)).collect();
    let mut drains = vec![Drain::default(); nodes.len()];
    let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(100_000);
    let mut pools = pools(case, true);
    settle(&mut pools, &mut nodes, &mut drains, now);
    pools[2].spec.paused = case.pool.paused;
    settle(&mut pools, &mut nodes, &mut drains, now);
    let (pool, nodes) = seen(&pools[2], &nodes);
    let mut out = vec![];
    for (i, (want, got)) in case.expect.nodes.iter().zip(&nodes).enumerate() {
        if want != got {
            out.push(format!("node {i}: want {want:?}, got {got:?}"));
        }
    }
    for (key, want) in &case.expect.pool {
        if key != "conditions" {
            if pool.get(key) != Some(want) {
                out.push(format!("pool {key}: want {want}, got {:?}", pool.get(key)));
            }
            continue;
        }
        for (type_, want) in want.as_object().unwrap() {
            let got = pool["conditions"].as_array().unwrap().iter().find(|c| c["type"] == **type_);
            let status = got.map(|c| &c["status"]);
            // The texts of these two are part of the interface.
            let text = ["Updated", "Updating"].contains(&type_.as_str());
            let message = got.map(|c| &c["message"]);
            if status != Some(&want[0]) || (text && message != Some(&want[2])) {
                out.push(format!("condition {type_}: want {want}, got {got:?}"));
            }
        }
    }
    out
}

/// The nodes of each case that end otherwise on purpose.
fn accepted(dir: &Path) -> BTreeMap<String, Vec<usize>> {
    let text = std::fs::read_to_string(dir.join("../accept-rollout.txt")).unwrap();
    let mut all = BTreeMap::<String, Vec<usize>>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (case, node) = (words.next().unwrap(), words.next().unwrap());
        all.entry(case.to_owned()).or_default().push(node.parse().unwrap());
    }
    all
}

/// What is wanted of a case when these nodes are sent.
fn sent(expect: &mut Expect, nodes: &[usize]) {
    for i in nodes {
        let node = expect.nodes.get_mut(*i).unwrap();
        assert_eq!(node["desiredConfig"], "OLD", "the reference did not move it");
        node.insert("desiredConfig".to_owned(), json!("NEW"));
        let taints = node.get_mut("taints").and_then(Value::as_array_mut).unwrap();
        taints.retain(|t| *t != "UpdateInProgress:PreferNoSchedule");
        let out = expect.pool.get_mut("unavailableMachineCount").unwrap();
        *out = json!(out.as_u64().unwrap() - 1);
    }
}

#[test]
fn every_recorded_situation_ends_as_the_reference_left_it() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/rollout");
    let mut accepted = accepted(&dir);
    let mut files: Vec<_> = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let (mut cases, mut failed) = (0, vec![]);
    for file in files.iter().filter(|f| f.extension().is_some_and(|e| e == "json")) {
        let mut case: Case = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        cases += 1;
        sent(&mut case.expect, &accepted.remove(&case.id).unwrap_or_default());
        for difference in differences(&case) {
            failed.push(format!("{} ({}): {difference}", case.id, case.about));
        }
    }
    assert!(failed.is_empty(), "{} differences in {cases} cases\n{}", failed.len(), failed.join("\n"));
    assert_eq!(cases, 336);
    assert!(accepted.is_empty(), "no such cases: {accepted:?}");
}
