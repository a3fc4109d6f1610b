//! Cluster objects from files (a must-gather dump, `kubectl get -o yaml`) as the inputs of a plan: what the controller
//! reads from its watches, read from JSON values. What it is not: the reading of files, and the decision.

use crate::layered::Layering;
use crate::plan::{Facts, Inputs, PoolInput};
use crate::streams::stream_of;
use crate::view::{BudgetView, Names, NodeView, OsBuild, OsConfig, PodView};
use api::k8s::{Node, Pod, PodDisruptionBudget, Time};
use api::names::{CLUSTER, CONTROLLER_CONFIG, GROUP, NAMESPACE};
use api::v1::{ControllerConfig, MachineConfigPool};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An object that is of a kind that matters and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {kind} {name} cannot be read; correct it or leave it out")]
pub struct SituationError {
    /// The file, or where else it comes from.
    pub origin: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Why.
    pub source: serde_json::Error,
}

/// A cluster at one moment, as far as rollout and drains look at it.
#[derive(Debug, Default)]
pub struct Situation {
    /// By name.
    pub pools: BTreeMap<String, MachineConfigPool>,
    /// By name.
    pub nodes: BTreeMap<String, NodeView>,
    /// All pods.
    pub pods: Vec<PodView>,
    /// All budgets.
    pub budgets: Vec<BudgetView>,
    /// Names of MachineConfigs; `None`: none was among the objects, and each pool's is taken to exist.
    pub configs: Option<BTreeSet<String>>,
    /// Facts beside them.
    pub facts: Facts,
    os_configs: Vec<OsConfig>,
    os_builds: Vec<OsBuild>,
    /// `osImageURL` of MachineConfigs that have one.
    os_images: BTreeMap<String, String>,
    streams: Option<Value>,
    /// What is not known and was assumed, in words.
    pub notes: Vec<String>,
}

/// Kind and, where its kind is read only there, API group.
const KINDS: [(&str, &str); 10] = [
    ("MachineConfigPool", GROUP),
    ("MachineConfig", GROUP),
    ("ControllerConfig", GROUP),
    ("MachineOSConfig", GROUP),
    ("MachineOSBuild", GROUP),
    ("OSImageStream", GROUP),
    ("Scheduler", "config.openshift.io"),
    ("PodDisruptionBudget", "policy"),
    ("Node", ""),
    ("Pod", ""),
];

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn kind_of(object: &Value) -> Option<&'static str> {
    let group = match text(object, "/apiVersion").rsplit_once('/') {
        Some((group, _)) => group,
        None => "",
    };
    KINDS.iter().find(|(kind, of)| *kind == text(object, "/kind") && group == *of).map(|(kind, _)| *kind)
}

/// Of two copies of an object (a dump may hold several) the newer one is kept, of equally old ones the later.
fn newest<'a>(
    objects: impl IntoIterator<Item = (&'a str, &'a Value)>,
) -> BTreeMap<(&'static str, &'a str, &'a str), (&'a str, &'a Value)> {
    let mut found: BTreeMap<_, (&str, &Value)> = BTreeMap::new();
    let version = |v: &Value| text(v, "/metadata/resourceVersion").parse::<u64>().unwrap_or_default();
    for (origin, object) in objects {
        let Some(kind) = kind_of(object) else { continue };
        let key = (kind, text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        if found.get(&key).is_none_or(|(_, old)| version(old) <= version(object)) {
            found.insert(key, (origin, object));
        }
    }
    found
}

impl Situation {
    /// From objects, each with where it comes from. Other kinds are passed over.
    ///
    /// # Errors
    /// An object of a kind that matters and that cannot be read: without it another answer would come out.
    pub fn from_objects<'a>(
        objects: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self, SituationError> {
        let (mut me, mut names) = (Self::default(), Names::default());
        let (mut pivots, mut operator_nodes) = (BTreeMap::new(), vec![]);
        let mut saw_pods = false;
        let mut controller_config: Option<ControllerConfig> = None;
        for ((kind, namespace, name), (origin, object)) in newest(objects) {
            if name.is_empty() {
                me.notes.push(format!("{origin}: a {kind} without a name is passed over"));
                continue;
            }
            let at = At { origin, kind, name, object };
            match kind {
                "MachineConfigPool" => {
                    me.pools.insert(name.to_owned(), at.read()?);
                }
                "Node" => {
                    me.nodes.insert(name.to_owned(), NodeView::interned(&at.read::<Node>()?, &mut names));
                }
                "Pod" => {
                    let pod: Pod = at.read()?;
                    saw_pods = true;
                    if namespace == NAMESPACE
                        && object["metadata"]["labels"]["k8s-app"] == "machine-config-operator"
                        && object["metadata"]["deletionTimestamp"].is_null()
                        && !text(object, "/spec/nodeName").is_empty()
                    {
                        operator_nodes.push(text(object, "/spec/nodeName"));
                    }
                    me.pods.push(PodView::from_pod(&pod, &mut names));
                }
                "PodDisruptionBudget" => {
                    let budget: PodDisruptionBudget = at.read()?;
                    me.budgets.push(BudgetView::from_budget(&budget, &mut names));
                }
                "MachineConfig" => {
                    me.configs.get_or_insert_default().insert(name.to_owned());
                    let image = text(object, "/spec/osImageURL");
                    if !image.is_empty() {
                        me.os_images.insert(name.to_owned(), image.to_owned());
                    }
                    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array);
                    let pool = owners
                        .into_iter()
                        .flatten()
                        .find(|o| o["controller"] == true && o["kind"] == "MachineConfigPool");
                    if let Some(pool) = pool.and_then(|o| o["name"].as_str()) {
                        pivots.insert(name, pool);
                    }
                }
                "ControllerConfig" if name == CONTROLLER_CONFIG => {
                    let config: ControllerConfig = at.read()?;
                    controller_config = Some(config);
                }
                "Scheduler" if name == CLUSTER => {
                    me.facts.masters_schedulable = Some(object["spec"]["mastersSchedulable"] == true);
                }
                "OSImageStream" if name == CLUSTER => me.streams = Some(object.clone()),
                "MachineOSConfig" => me.os_configs.push(OsConfig::new(object)),
                "MachineOSBuild" => me.os_builds.push(OsBuild::new(object)),
                _ => {}
            }
        }
        me.facts = Facts {
            masters_schedulable: me.facts.masters_schedulable,
            ..Facts::of(controller_config.as_ref(), me.nodes.values())
        };
        if let [one] = operator_nodes.as_slice() {
            me.facts.operator_node = Some((*one).into());
        }
        let booted = me.nodes.values().filter(|n| !n.custom_pool_labels_applied);
        let booted: BTreeSet<Arc<str>> = booted.filter_map(|n| n.first_pivot_config.clone()).collect();
        me.facts.first_pivot_pools =
            booted.into_iter().filter_map(|c| pivots.get(&*c).map(|p| (c.clone(), (*p).into()))).collect();
        me.note(saw_pods);
        Ok(me)
    }

    fn note(&mut self, saw_pods: bool) {
        if self.configs.is_none() {
            self.notes.push(
                "no MachineConfig is among the objects: each pool's rendered config is taken to exist"
                    .to_owned(),
            );
        }
        if !saw_pods {
            self.notes.push(
                "no Pod is among the objects: nodes are taken to be empty, and to drain at once".to_owned(),
            );
        }
        if self.facts.control_plane_topology.is_empty() {
            self.notes.push("no control-plane topology is known: nodes are not given one".to_owned());
        }
    }

    /// The image builds of a pool that is to be in a config.
    pub fn layering(&self, pool: &str, config: &str) -> Layering {
        Layering::find(pool, config, &self.os_configs, &self.os_builds)
    }

    /// The inputs of a plan for pools and nodes as they stand here.
    pub fn inputs<'a>(
        &'a self,
        pools: &'a [MachineConfigPool],
        nodes: &'a [NodeView],
        now: &Time,
    ) -> Inputs<'a> {
        let input = |pool: &'a MachineConfigPool| {
            let (input, config) = (PoolInput::of(pool), &pool.spec.configuration.name);
            let url = |name: &str| self.os_images.get(name).cloned();
            let had = pool.status.as_ref().and_then(|s| s.os_image_stream.as_ref()).map(|s| &*s.name);
            PoolInput {
                // A dump without streams says nothing of them.
                stream: self.streams.as_ref().map_or(had, |streams| stream_of(pool, url, streams)),
                config_exists: self.configs.as_ref().is_none_or(|all| all.contains(config)),
                layering: self.layering(input.name(), config),
                ..input
            }
        };
        Inputs {
            pools: pools.iter().map(input).collect(),
            nodes: nodes.iter().collect(),
            facts: &self.facts,
            now: now.clone(),
        }
    }
}

struct At<'a> {
    origin: &'a str,
    kind: &'a str,
    name: &'a str,
    object: &'a Value,
}

impl At<'_> {
    fn read<T: DeserializeOwned>(&self) -> Result<T, SituationError> {
        T::deserialize(self.object).map_err(|source| SituationError {
            origin: self.origin.to_owned(),
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            source,
        })
    }
}
