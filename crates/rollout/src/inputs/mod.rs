//! The inputs of a plan, and how they are assembled from the cluster's objects, in one place. The controller fills
//! [`Sources`] from its caches, `mco status` from its watches, and `mco plan --from` from files, so all three plan alike.
//!
//! What it is not: the reading of objects, or the decision.

pub(crate) mod streams;

use crate::configs::{ConfigView, Configs, config_exists};
use crate::drain::Outlook;
use crate::facts::{Facts, Trouble, Unanswered};
use crate::inputs::streams::stream_of;
use crate::os_image::OsImageInput;
use crate::pinned_images::PinFacts;
use crate::policy::{PolicyInput, PoolPolicies};
use crate::target::Layering;
use crate::view::{EtcdMember, NodeView, OsBuild, OsConfig, own};
use api::k8s::Time;
use api::v1::{ControllerConfig, MachineConfigPool};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Everything that a decision is made from.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// All pools of the cluster: which pool a node is in depends on all of them.
    pub pools: Vec<PoolInput<'a>>,
    /// All nodes of the cluster, in any order.
    pub nodes: Vec<&'a NodeView>,
    /// What is known besides pools and nodes.
    pub facts: &'a Facts,
    /// The time, for transition times of conditions.
    pub now: Time,
}

/// A pool and what belongs to it.
#[derive(Clone, Debug)]
pub struct PoolInput<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// On-cluster image builds for it; by default none.
    pub layering: Layering,
    /// Whether the MachineConfig that `spec.configuration` names exists. No node is sent to one that does not.
    pub config_exists: bool,
    /// The configs whose nodes run another OS image than the pool's config names. `None`: not known, so any of them may. It is
    /// filled for pools whose nodes fetch images ahead.
    pub other_image: Option<BTreeSet<Arc<str>>>,
    /// What is known of the image that the rendered config names; `None`: nothing that nodes would have to wait for.
    pub os_image: Option<OsImageInput>,
    /// The OS image stream that the rendered config's image belongs to, if streams are used.
    pub stream: Option<&'a str>,
    /// Why a change of one of its nodes was refused just now. This plan then changes no node of the pool, and the
    /// status says so.
    pub refused: Option<&'a str>,
    /// The policy of the rollout and its facts; `None` means as `spec.maxUnavailable` says, at any time.
    pub policy: Option<PolicyInput<'a>>,
}

impl<'a> PoolInput<'a> {
    /// A pool without image builds whose rendered config exists.
    pub fn of(pool: &'a MachineConfigPool) -> Self {
        Self {
            pool,
            layering: Layering::default(),
            config_exists: true,
            other_image: None,
            os_image: None,
            stream: None,
            refused: None,
            policy: None,
        }
    }

    /// The pool's name.
    pub fn name(&self) -> &'a str {
        self.pool.metadata.name.as_deref().unwrap_or_default()
    }
}

/// What is known about OpenShift's OS image streams.
#[derive(Clone, Copy, Debug)]
pub enum Streams<'a> {
    /// Nothing: what a pool's status says about them stays.
    Unknown,
    /// The OSImageStream `cluster`, if streams are used.
    Known(Option<&'a Value>),
}

/// Everything that the inputs of a plan are made from.
#[expect(missing_debug_implementations, reason = "it is borrowed for one call, and holds a trait object")]
#[derive(Clone)]
pub struct Sources<'a> {
    /// All pools.
    pub pools: Vec<&'a MachineConfigPool>,
    /// All nodes.
    pub nodes: Vec<&'a NodeView>,
    /// All MachineConfigs; `None` if they are not known. Each pool's is then assumed to exist.
    pub configs: Option<&'a dyn Configs>,
    /// All MachineOSConfigs.
    pub os_configs: Vec<&'a OsConfig>,
    /// All MachineOSBuilds.
    pub os_builds: Vec<&'a OsBuild>,
    /// The one ControllerConfig.
    pub controller_config: Option<&'a ControllerConfig>,
    /// Streams of OS images.
    pub streams: Streams<'a>,
    /// The node of each pod of the operator; `None` for a pod that has no node or is being deleted.
    pub operator_nodes: Vec<Option<Arc<str>>>,
    /// `spec.mastersSchedulable` of OpenShift's Scheduler `cluster`.
    pub masters_schedulable: Option<bool>,
    /// The members of etcd that run as static pods; none if etcd runs elsewhere.
    pub etcd: Vec<EtcdMember>,
    /// The RolloutPolicies of the pools; `None` if there are none.
    pub policies: Option<&'a PoolPolicies>,
    /// What drains of nodes would do, as far as they were looked at. `None`: nobody looks, and then no node waits for a look.
    pub outlooks: Option<BTreeMap<Arc<str>, Outlook>>,
    /// PinnedImageSets, and how far nodes are with them.
    pub pins: PinFacts,
    /// What no object says.
    pub memory: ControllerMemory<'a>,
}

/// What only the running controller knows, because no object says it. Everybody else leaves it empty: a plan that is made
/// from objects alone may let a node go that the controller holds back for a moment, and names fewer problems.
#[derive(Clone, Debug, Default)]
pub struct ControllerMemory<'a> {
    /// Why a change of a pool's node was refused just now, by the pool's name.
    pub refused: Option<&'a BTreeMap<String, String>>,
    /// Nodes with a patch that the API server has not answered.
    pub unanswered: BTreeMap<Arc<str>, Unanswered>,
    /// Problems besides the rollout.
    pub troubles: Vec<Trouble>,
}

impl<'a> Sources<'a> {
    /// What is known besides pools and nodes.
    pub fn facts(&self) -> Facts {
        let booted = self.nodes.iter().filter(|n| !n.custom_pool_labels_applied);
        let booted = booted.filter_map(|n| n.first_pivot_config.clone());
        let owned = |name: Arc<str>| Some((name.clone(), self.configs?.view(&name)?.pool?));
        let ControllerMemory { unanswered, troubles, .. } = self.memory.clone();
        let Facts { cluster, control_plane_topology, certificates, .. } =
            Facts::of(self.controller_config, self.nodes.iter().copied());
        // Each field by its name: a fact that is added has to have a source here, for all who plan.
        Facts {
            cluster,
            control_plane_topology,
            certificates,
            first_pivot_pools: booted.filter_map(owned).collect(),
            operator_node: match self.operator_nodes.as_slice() {
                [one] => one.clone(),
                _ => None,
            },
            masters_schedulable: self.masters_schedulable,
            // A pod of a node that is gone stays until somebody clears it away.
            etcd_not_ready: self
                .etcd
                .iter()
                .filter(|member| {
                    let node = self.nodes.iter().find(|n| n.name == member.node);
                    node.is_some_and(|node| !member.is_ready_since_boot(node))
                })
                .map(|member| member.node.clone())
                .collect(),
            etcd_containers: self
                .etcd
                .iter()
                .filter_map(|member| Some((member.node.clone(), member.container.clone()?)))
                .collect(),
            looks: self.outlooks.is_some(),
            outlooks: self.outlooks.clone().unwrap_or_default(),
            pins: self.pins.clone(),
            unanswered,
            troubles,
        }
    }

    /// The configs that nodes are in whose OS image is another one than that of the pool's config. A config that names no image
    /// leaves each node on its own.
    fn other_image(&self, pool: &MachineConfigPool) -> Option<BTreeSet<Arc<str>>> {
        let asked = pool.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(own::PREFETCH));
        let configs = self.configs.filter(|_| asked)?;
        let next = configs.view(&pool.spec.configuration.name).map(|c| c.os_image_url).unwrap_or_default();
        let current: BTreeSet<&Arc<str>> =
            self.nodes.iter().filter_map(|n| n.current_config.as_ref()).collect();
        let differs = |config: &&Arc<str>| {
            !next.is_empty() && configs.view(config).is_none_or(|config| config.os_image_url != next)
        };
        Some(current.into_iter().filter(differs).cloned().collect())
    }

    /// What nodes of a pool may have to wait for because of the image of their next config.
    fn os_image(&self, pool: &MachineConfigPool) -> Option<OsImageInput> {
        let configs = self.configs?;
        let next = configs.view(&pool.spec.configuration.name)?;
        // Nodes that have the image already go on with it.
        OsImageInput::of(pool, (&next.os_image_url, &next.looked), || {
            let known: BTreeSet<&Arc<str>> =
                self.nodes.iter().filter_map(|n| n.current_config.as_ref()).collect();
            let own = |c: ConfigView| c.os_image_url == next.os_image_url && c.pool == next.pool;
            known.into_iter().filter(|name| configs.view(name).is_some_and(own)).cloned().collect()
        })
    }

    /// The inputs of a plan at a point in time, with the result of [`Sources::facts`].
    pub fn inputs(&self, facts: &'a Facts, now: Time) -> Inputs<'a> {
        let input = |pool: &'a MachineConfigPool| {
            let (input, config) = (PoolInput::of(pool), &pool.spec.configuration.name);
            let view = |name: &str| self.configs.and_then(|all| all.view(name));
            let url = |name: &str| view(name).map(|c| c.os_image_url.into_string());
            let had = pool.status.as_ref().and_then(|s| s.os_image_stream.as_ref()).map(|s| &*s.name);
            PoolInput {
                stream: match self.streams {
                    Streams::Unknown => had,
                    Streams::Known(streams) => streams.and_then(|streams| stream_of(pool, url, streams)),
                },
                other_image: self.other_image(pool),
                os_image: self.os_image(pool),
                config_exists: config_exists(self.configs, config),
                refused: self.memory.refused.and_then(|all| all.get(input.name())).map(String::as_str),
                policy: self.policies.and_then(|all| all.input(input.name())),
                layering: Layering::find(input.name(), config, &self.os_configs, &self.os_builds),
                ..input
            }
        };
        Inputs {
            pools: self.pools.iter().copied().map(input).collect(),
            nodes: self.nodes.clone(),
            facts,
            now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::TroubleOf;
    use serde_json::json;

    fn time() -> Time {
        Time(jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn every_input_of_the_view_reaches_the_plan() {
        let pool: MachineConfigPool = serde_json::from_value(json!({"metadata": {"name": "infra"},
            "spec": {"configuration": {"name": "rendered-infra-1"}}, "status": {"osImageStream": {"name": "old"}}}))
        .unwrap();
        let node = |pivot: &str| NodeView {
            name: "n".into(),
            first_pivot_config: Some(pivot.into()),
            ..NodeView::default()
        };
        let nodes = [node("rendered-infra-0"), node("gone")];
        let view = |url: &str| ConfigView {
            pool: Some("infra".into()),
            os_image_url: url.into(),
            ..ConfigView::default()
        };
        let configs: BTreeMap<String, ConfigView> = [("rendered-infra-0", ""), ("rendered-infra-1", "i2")]
            .map(|(name, url)| (name.to_owned(), view(url)))
            .into();
        let config: ControllerConfig =
            serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"infra": {
            "status": {"controlPlaneTopology": "SingleReplica"}}},
            "status": {"controllerCertificates": [{"bundleFile": "b", "subject": "s", "signer": "s"}]}}))
            .unwrap();
        let streams = json!({"status": {"availableStreams": [{"name": "second", "osImage": "i2"}]}});
        let os_config = OsConfig::new(&json!({"metadata": {"name": "os"},
            "spec": {"machineConfigPool": {"name": "infra"}}, "status": {"currentImagePullSpec": "i"}}));
        let sources = Sources {
            pools: vec![&pool],
            nodes: nodes.iter().collect(),
            configs: Some(&configs),
            os_configs: vec![&os_config],
            os_builds: vec![],
            controller_config: Some(&config),
            streams: Streams::Known(Some(&streams)),
            operator_nodes: vec![Some("m".into())],
            masters_schedulable: Some(true),
            policies: None,
            outlooks: None,
            pins: PinFacts::default(),
            memory: ControllerMemory::default(),
            etcd: ["n", "gone"]
                .map(|node| EtcdMember { node: node.into(), ready: false, container: Some("c".into()) })
                .into(),
        };
        let facts = sources.facts();
        assert!(!facts.control_plane_topology.is_empty());
        assert_eq!((facts.certificates.len(), facts.masters_schedulable), (1, Some(true)));
        assert_eq!(facts.operator_node.as_deref(), Some("m"));
        assert_eq!(facts.etcd_not_ready, ["n".into()], "and not that of a node that is gone");
        assert_eq!(facts.etcd_containers.get("n").map(|id| &**id), Some("c"));
        let pivots = BTreeMap::from([("rendered-infra-0".into(), "infra".into())]);
        assert_eq!(facts.first_pivot_pools, pivots);
        let inputs = sources.inputs(&facts, time());
        let input = &inputs.pools[0];
        assert_eq!((input.stream, input.config_exists), (Some("second"), true));
        assert!(input.layering.is_layered());
        // With two pods, or none on a node, no single node has to go last.
        for operator_nodes in [vec![], vec![None], vec![Some("a".into()), Some("b".into())]] {
            assert_eq!(Sources { operator_nodes, ..sources.clone() }.facts().operator_node, None);
        }
        assert!(!facts.looks, "nobody looks at drains");
        let outlooks = BTreeMap::from([("n".into(), Outlook::Ends)]);
        let pins = PinFacts { generations: [("set".to_owned(), 1)].into(), ..PinFacts::default() };
        let refused = BTreeMap::from([("infra".to_owned(), "no".to_owned())]);
        let memory = ControllerMemory {
            refused: Some(&refused),
            unanswered: [("n".into(), Unanswered { moves: true, overdue: false })].into(),
            troubles: vec![Trouble { of: TroubleOf::Cluster, text: "a trouble".to_owned() }],
        };
        assert_eq!(sources.inputs(&facts, time()).pools[0].refused, None);
        let remembers = Sources { memory: memory.clone(), ..sources.clone() };
        assert_eq!(remembers.inputs(&facts, time()).pools[0].refused, Some("no"));
        let (some, held) = (Some(outlooks.clone()), pins.clone());
        let more = Sources { outlooks: some, pins: held, memory: memory.clone(), ..sources.clone() }.facts();
        assert_eq!((more.looks, more.outlooks, more.pins), (true, outlooks, pins));
        assert_eq!((more.unanswered, more.troubles), (memory.unanswered, memory.troubles));
        let none_seen = Sources { outlooks: Some(BTreeMap::new()), ..sources.clone() }.facts();
        assert!(none_seen.looks, "none is looked at yet, and nodes wait for it");
        let unknown = Sources { streams: Streams::Unknown, configs: None, ..sources.clone() };
        let inputs = unknown.inputs(&facts, time());
        assert_eq!((inputs.pools[0].stream, inputs.pools[0].config_exists), (Some("old"), true));
        let none = BTreeMap::new();
        let off = Sources { streams: Streams::Known(None), configs: Some(&none), ..sources };
        let inputs = off.inputs(&facts, time());
        assert_eq!((inputs.pools[0].stream, inputs.pools[0].config_exists), (None, false));
    }
}
