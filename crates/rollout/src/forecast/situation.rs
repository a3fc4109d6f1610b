//! Reads the inputs of a plan from cluster objects in files (a must-gather dump, `kubectl get -o yaml`): the same
//! objects that the controller watches, given as JSON values.
//!
//! What it is not: the reading of files, or the decision.

use crate::configs::{ConfigView, Configs};
use crate::drain::outlook;
use crate::facts::Facts;
use crate::inputs::{ControllerMemory, Inputs, Sources, Streams};
use crate::os_image::ImageLookup;
use crate::pinned_images::PinFacts;
use crate::plan::RolloutPlan;
use crate::plan::decide::plan;
use crate::policy::{Costs, PoolPolicies};
use crate::status::pin::pinned_config;
use crate::status::pinned_text;
use crate::view::{BudgetView, EtcdMember, Names, NodeView, OsBuild, OsConfig, PodView};
use api::definition::{Defined as _, Definition};
use api::formats::shape::ShapeError;
use api::images::os_image::OsImage;
use api::k8s::{Node, OwnerReference, Pod, PodDisruptionBudget, Time};
use api::names::{CLUSTER, CONTROLLER_CONFIG, GROUP, NAMESPACE, label, part};
use api::rendered::owning_pool;
use api::v1::{ControllerConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::{RolloutPolicy, RolloutPolicySpec};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An object of a relevant kind that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {kind} {name} cannot be read; correct it or leave it out")]
pub struct SituationError {
    /// The file, or the other source.
    pub origin: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its first field that is not as its kind has it, without its value: that may be a secret.
    pub source: ShapeError,
}

/// A cluster at one moment, as far as rollout and drains need it.
#[derive(Clone, Debug, Default)]
pub struct Situation {
    /// By name.
    pub pools: BTreeMap<String, MachineConfigPool>,
    /// By name.
    pub nodes: BTreeMap<String, NodeView>,
    /// All pods.
    pub pods: Vec<PodView>,
    /// All budgets.
    pub budgets: Vec<BudgetView>,
    /// MachineConfigs by name; `None` if there was none among the objects. Each pool's is then assumed to exist.
    pub configs: Option<BTreeMap<String, ConfigView>>,
    /// Facts besides them.
    pub facts: Facts,
    /// All RolloutPolicies.
    pub rollout_policies: Vec<RolloutPolicy>,
    /// What changes cost a node, as far as the caller has found it out.
    pub costs: Costs,
    os_configs: Vec<OsConfig>,
    os_builds: Vec<OsBuild>,
    streams: Option<Value>,
    /// What is not known and what was assumed instead, in words.
    pub notes: Vec<String>,
}

const POLICY: Definition = RolloutPolicy::DEFINITION;
/// The name of the kind as a pattern.
const POLICY_KIND: &str = POLICY.kind;
/// Kind and, for kinds that are read only in one API group, that group.
const KINDS: [(&str, &str); 13] = [
    ("MachineConfigPool", GROUP),
    ("MachineConfig", GROUP),
    ("ControllerConfig", GROUP),
    ("MachineOSConfig", GROUP),
    ("MachineOSBuild", GROUP),
    ("OSImageStream", GROUP),
    ("PinnedImageSet", GROUP),
    ("MachineConfigNode", GROUP),
    ("Scheduler", "config.openshift.io"),
    ("PodDisruptionBudget", "policy"),
    (POLICY_KIND, POLICY.group),
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

/// Of two copies of an object (a dump may hold several) the newer one is kept; if equally old, the later one in the
/// input.
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
    /// The kinds of the objects that it is read from.
    pub fn kinds() -> impl Iterator<Item = &'static str> {
        KINDS.iter().map(|(kind, _)| *kind)
    }

    /// Reads objects, each with its source. Other kinds are ignored. Of a MachineConfig without its contents, the image is known as
    /// far as the controller has left it in an annotation.
    ///
    /// # Errors
    /// An object of a relevant kind that cannot be read: without it the answer could be wrong.
    pub fn from_objects<'a>(
        objects: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Result<Self, SituationError> {
        let (mut me, mut names) = (Self::default(), Names::default());
        let (mut operator_nodes, mut controller_config, mut masters_schedulable) = (vec![], None, None);
        let (mut etcd, mut pins) = (vec![], PinFacts::default());
        let mut saw_pods = false;
        for ((kind, namespace, name), (origin, object)) in newest(objects) {
            if name.is_empty() {
                me.notes.push(format!("{origin}: a {kind} without a name is skipped"));
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
                    if namespace == NAMESPACE && object["metadata"]["labels"][label::PART] == part::OPERATOR {
                        let stays = object["metadata"]["deletionTimestamp"].is_null();
                        let node = Some(text(object, "/spec/nodeName")).filter(|n| stays && !n.is_empty());
                        operator_nodes.push(node.map(Arc::from));
                    }
                    etcd.extend(EtcdMember::from_pod(&pod));
                    me.pods.push(PodView::from_pod(&pod, &mut names));
                }
                "PodDisruptionBudget" => {
                    let budget: PodDisruptionBudget = at.read()?;
                    me.budgets.push(BudgetView::from_budget(&budget, &mut names));
                }
                "MachineConfig" => {
                    let owners = object.pointer("/metadata/ownerReferences");
                    let owners = owners.and_then(|o| Vec::<OwnerReference>::deserialize(o).ok());
                    let notes = object.pointer("/metadata/annotations");
                    let notes = notes.and_then(|n| BTreeMap::<String, String>::deserialize(n).ok());
                    let url = match object["spec"].is_object() {
                        true => text(object, "/spec/osImageURL").to_owned(),
                        false => OsImage::url(notes.as_ref()),
                    };
                    let view = ConfigView {
                        pool: owning_pool(owners.as_deref()).map(Arc::from),
                        // What no controller has found out, none will here.
                        looked: OsImage::read(notes.as_ref(), &url)
                            .map_or(ImageLookup::NotKnown, ImageLookup::Found),
                        os_image_url: url.into(),
                    };
                    me.configs.get_or_insert_default().insert(name.to_owned(), view);
                }
                POLICY_KIND => me.rollout_policies.push(at.read()?),
                "PinnedImageSet" => {
                    let set: PinnedImageSet = at.read()?;
                    pins.generations.insert(name.to_owned(), PinnedImageSet::generation_in(&set.metadata));
                }
                "MachineConfigNode" => {
                    let node: MachineConfigNode = at.read()?;
                    let states = node.status.and_then(|status| status.pinned_image_sets);
                    pins.nodes.extend(states.map(|states| (Arc::from(name), states)));
                }
                "ControllerConfig" if name == CONTROLLER_CONFIG => {
                    controller_config = Some(at.read::<ControllerConfig>()?);
                }
                "Scheduler" if name == CLUSTER => {
                    masters_schedulable = Some(object["spec"]["mastersSchedulable"] == true);
                }
                "OSImageStream" if name == CLUSTER => me.streams = Some(object.clone()),
                "MachineOSConfig" => me.os_configs.push(OsConfig::new(object)),
                "MachineOSBuild" => me.os_builds.push(OsBuild::new(object)),
                _ => {}
            }
        }
        let policies = me.policies();
        let drains = me.rollout_policies.iter().any(|p| p.spec.drain.is_some());
        let outlooks = drains.then(|| {
            let (pods, budgets): (Vec<_>, Vec<_>) = (me.pods.iter().collect(), me.budgets.iter().collect());
            let look = |node: &NodeView| (node.name.clone(), outlook(node, &pods, &budgets));
            me.nodes.values().map(look).collect()
        });
        let (pools, nodes) = (me.pools.values().collect(), me.nodes.values().collect());
        let sources = Sources {
            outlooks,
            controller_config: controller_config.as_ref(),
            operator_nodes,
            masters_schedulable,
            etcd,
            pins,
            ..me.sources(pools, nodes, &policies)
        };
        me.facts = sources.facts();
        me.note(saw_pods);
        Ok(me)
    }

    fn note(&mut self, saw_pods: bool) {
        if self.configs.is_none() {
            self.notes.push(
                "there is no MachineConfig among the objects: each pool's rendered config is assumed to exist"
                    .to_owned(),
            );
        }
        if !saw_pods {
            self.notes.push(
                "there is no Pod among the objects: nodes are assumed to be empty and to drain at once"
                    .to_owned(),
            );
        }
        if self.facts.control_plane_topology.is_empty() {
            self.notes.push("the control-plane topology is unknown: nodes are not given one".to_owned());
        }
        for (name, pool) in &self.pools {
            if let Some(config) = pinned_config(pool) {
                self.notes.push(format!("pool {name}: {}", pinned_text(pool, config)));
            }
        }
    }

    /// Whether nodes of a pool run an image that is built for it: a MachineOSConfig names the pool.
    pub fn builds_image(&self, pool: &str) -> bool {
        self.os_configs.iter().any(|config| config.pool() == pool)
    }

    /// All MachineConfigs; `None` if there are none among the objects.
    fn known_configs(&self) -> Option<&dyn Configs> {
        self.configs.as_ref().map(|all| all as &dyn Configs)
    }

    /// Which RolloutPolicy is which pool's, with what the policies' status says of it.
    pub fn policies(&self) -> PoolPolicies {
        let (policies, pools): (Vec<_>, Vec<_>) =
            (self.rollout_policies.iter().collect(), self.pools.values().collect());
        let mut all = PoolPolicies::of(&policies, &pools, self.known_configs(), None);
        all.add_costs(&self.costs);
        all
    }

    /// Whether what changes cost a node may decide about a plan: a policy has windows or freezes.
    pub fn asks_for_costs(&self) -> bool {
        let asks = |spec: &RolloutPolicySpec| !spec.windows.is_empty() || !spec.freezes.is_empty();
        self.rollout_policies.iter().any(|policy| asks(&policy.spec))
    }

    /// The plan of this situation: what happens in it first.
    pub fn plan(&self, now: &Time) -> RolloutPlan {
        let (pools, nodes): (Vec<_>, Vec<_>) =
            (self.pools.values().cloned().collect(), self.nodes.values().cloned().collect());
        plan(&self.inputs(&pools, &nodes, &self.policies(), now))
    }

    /// The inputs of a plan for the pools and nodes of this situation.
    pub fn inputs<'a>(
        &'a self,
        pools: &'a [MachineConfigPool],
        nodes: &'a [NodeView],
        policies: &'a PoolPolicies,
        now: &Time,
    ) -> Inputs<'a> {
        self.sources(pools.iter().collect(), nodes.iter().collect(), policies)
            .inputs(&self.facts, now.clone())
    }

    /// The sources, except those that only facts are made from.
    fn sources<'a>(
        &'a self,
        pools: Vec<&'a MachineConfigPool>,
        nodes: Vec<&'a NodeView>,
        policies: &'a PoolPolicies,
    ) -> Sources<'a> {
        Sources {
            pools,
            nodes,
            configs: self.known_configs(),
            os_configs: self.os_configs.iter().collect(),
            os_builds: self.os_builds.iter().collect(),
            controller_config: None,
            // A dump without streams does not show whether there are any.
            streams: self.streams.as_ref().map_or(Streams::Unknown, |all| Streams::Known(Some(all))),
            operator_nodes: vec![],
            masters_schedulable: None,
            etcd: vec![],
            policies: Some(policies),
            outlooks: None,
            pins: PinFacts::default(),
            memory: ControllerMemory::default(),
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
        api::formats::shape::read(self.object).map_err(|source| SituationError {
            origin: self.origin.to_owned(),
            kind: self.kind.to_owned(),
            name: self.name.to_owned(),
            source,
        })
    }
}
