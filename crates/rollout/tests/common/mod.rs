//! Builders for pools and nodes, shared by the tests. What it is not: a fake API server or controller.
#![allow(dead_code, reason = "each test file is a crate of its own and uses a part")]

use api::k8s::{LabelSelector, Node, Time};
use api::v1::{MachineConfigPool, MachineConfigPoolSpec, PoolConfiguration};
use jiff::{SignedDuration, Timestamp};
use rollout::view::NodeView;
use rollout::{Cluster, Facts, Inputs, Layering, PoolInput, PoolPlan, RolloutPlan, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
}

/// A Node under construction.
#[derive(Clone, Debug)]
pub(crate) struct Mk(Value);

/// A ready worker without annotations.
pub(crate) fn node(name: &str) -> Mk {
    Mk(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1",
                     "creationTimestamp": at(1_000).to_string(),
                     "labels": {"node-role.kubernetes.io/worker": ""}, "annotations": {}},
        "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

/// A worker with current and desired config: Done when they are equal, else Working.
pub(crate) fn moved(name: &str, current: &str, desired: &str) -> Mk {
    let state = if current == desired { "Done" } else { "Working" };
    node(name).note("currentConfig", current).note("desiredConfig", desired).state(state)
}

impl Mk {
    pub(crate) fn note(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key_of(key)] = json!(value);
        self
    }

    pub(crate) fn state(self, state: &str) -> Self {
        self.note("state", state)
    }

    pub(crate) fn images(mut self, current: Option<&str>, desired: Option<&str>) -> Self {
        for (key, value) in [("currentImage", current), ("desiredImage", desired)] {
            if let Some(value) = value {
                self = self.note(key, value);
            }
        }
        self
    }

    pub(crate) fn unready(mut self) -> Self {
        self.0["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]);
        self
    }

    pub(crate) fn with_conditions(mut self, conditions: &[(&str, &str)]) -> Self {
        let list = conditions.iter().map(|(type_, status)| json!({"type": type_, "status": status}));
        self.0["status"]["conditions"] = list.collect();
        self
    }

    pub(crate) fn cordoned(mut self) -> Self {
        self.0["spec"]["unschedulable"] = json!(true);
        self
    }

    pub(crate) fn taint(mut self, key: &str, effect: &str) -> Self {
        let list = &mut self.0["spec"]["taints"];
        if list.is_null() {
            *list = json!([]);
        }
        list.as_array_mut().unwrap().push(json!({"key": key, "effect": effect}));
        self
    }

    pub(crate) fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = json!(value);
        self
    }

    /// Its roles, instead of worker.
    pub(crate) fn roles(mut self, roles: &[&str]) -> Self {
        self.0["metadata"]["labels"] =
            roles.iter().map(|r| (format!("node-role.kubernetes.io/{r}"), json!(""))).collect();
        self
    }

    pub(crate) fn boot(mut self, id: &str) -> Self {
        self.0["status"]["nodeInfo"] = json!({"bootID": id, "architecture": "", "containerRuntimeVersion": "",
            "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "", "operatingSystem": "",
            "osImage": "", "systemUUID": ""});
        self
    }

    pub(crate) fn created(mut self, second: i64) -> Self {
        self.0["metadata"]["creationTimestamp"] = json!(at(second).to_string());
        self
    }

    pub(crate) fn json(self) -> Value {
        self.0
    }

    pub(crate) fn view(self) -> NodeView {
        let node: Node = serde_json::from_value(self.0).unwrap();
        NodeView::from_node(&node)
    }
}

pub(crate) fn selector(value: Value) -> Option<LabelSelector> {
    serde_json::from_value(value).unwrap()
}

/// A pool that selects its role's label, with this config and `maxUnavailable`.
pub(crate) fn pool(name: &str, config: &str, max: Value) -> MachineConfigPool {
    let mut pool = MachineConfigPool::new(
        name,
        MachineConfigPoolSpec {
            node_selector: selector(json!({"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}})),
            max_unavailable: serde_json::from_value(max).unwrap(),
            configuration: PoolConfiguration { name: config.to_owned(), ..PoolConfiguration::default() },
            ..MachineConfigPoolSpec::default()
        },
    );
    pool.metadata.generation = Some(1);
    pool
}

/// A cluster to plan for.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) pools: Vec<MachineConfigPool>,
    pub(crate) nodes: Vec<NodeView>,
    pub(crate) facts: Facts,
    pub(crate) layering: BTreeMap<String, Layering>,
}

impl World {
    pub(crate) fn new(pools: Vec<MachineConfigPool>, nodes: Vec<Mk>) -> Self {
        let nodes = nodes.into_iter().map(Mk::view).collect();
        let facts = Facts { cluster: Cluster::Plain, ..Facts::default() };
        Self { pools, nodes, facts, ..Self::default() }
    }

    /// One worker pool with config `v1`.
    pub(crate) fn workers(max: Value, nodes: Vec<Mk>) -> Self {
        Self::new(vec![pool("worker", "v1", max)], nodes)
    }

    pub(crate) fn plan_at(&self, second: i64) -> RolloutPlan {
        rollout::plan(&Inputs {
            pools: self
                .pools
                .iter()
                .map(|p| {
                    let name = p.metadata.name.as_deref().unwrap();
                    PoolInput {
                        layering: self.layering.get(name).cloned().unwrap_or_default(),
                        ..PoolInput::of(p)
                    }
                })
                .collect(),
            nodes: self.nodes.iter().collect(),
            facts: &self.facts,
            now: Time(at(second)),
        })
    }

    pub(crate) fn plan(&self) -> RolloutPlan {
        self.plan_at(100_000)
    }

    /// The plan of one pool.
    pub(crate) fn plan_of(&self, name: &str) -> PoolPlan {
        self.plan().pools.into_iter().find(|p| &*p.pool == name).unwrap()
    }

    /// Applies a plan to the views.
    pub(crate) fn apply(&mut self, plan: &RolloutPlan) {
        for patch in plan.patches() {
            let node = self.nodes.iter_mut().find(|n| n.name == patch.node).unwrap();
            *node = patch.applied_to(node);
        }
        for (pool, plan) in self.pools.iter_mut().zip(&plan.pools) {
            let key = api::names::annotation::FIRST_BOOT_NODES.to_owned();
            match &plan.first_boot_nodes {
                rollout::Change::Keep => {}
                rollout::Change::Set(list) => {
                    pool.metadata.annotations.get_or_insert_default().insert(key, list.to_string());
                }
                rollout::Change::Remove => {
                    pool.metadata.annotations.get_or_insert_default().remove(&key);
                }
            }
            if let Some(status) = &plan.status {
                pool.status = Some(status.clone());
            }
        }
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..10 {
            let plan = self.plan();
            if plan.pools.iter().all(|p| p.patches.is_empty() && p.status.is_none()) {
                return;
            }
            self.apply(&plan);
        }
        panic!("no rest: {}", self.plan());
    }
}

/// The nodes that a plan sends, by name.
pub(crate) fn goes(plan: &PoolPlan) -> Vec<String> {
    plan.nodes.iter().filter(|n| n.step == Step::Goes).map(|n| n.node.to_string()).collect()
}

/// The body of one node's patch without `resourceVersion`; null if there is no patch.
pub(crate) fn patch(plan: &PoolPlan, node: &str) -> Value {
    plan.patches.iter().find(|p| &*p.node == node).map_or(Value::Null, body)
}

/// The body of a patch without `resourceVersion`.
pub(crate) fn body(patch: &rollout::NodePatch) -> Value {
    let mut body = patch.merge_patch();
    let version = body["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    assert_eq!(version, Some(json!("1")), "every patch is bound to the version it was decided on");
    if body["metadata"] == json!({}) {
        body.as_object_mut().unwrap().remove("metadata");
    }
    body
}

/// A patch of annotations.
/// The key of an annotation; one without a group is of the reference's.
fn key_of(key: &str) -> String {
    match key.contains('/') {
        true => key.to_owned(),
        false => format!("machineconfiguration.openshift.io/{key}"),
    }
}

pub(crate) fn notes(pairs: &[(&str, Option<&str>)]) -> Value {
    let map: serde_json::Map<String, Value> = pairs.iter().map(|(k, v)| (key_of(k), json!(v))).collect();
    json!({"metadata": {"annotations": map}})
}
