//! What is known of the cluster, from what its watches have reported: a snapshot, the plan that it shows, and what is missing or
//! may be out of date.
//!
//! What it is not: the following (see the module above).

use super::ClusterWatch;
use crate::status::node_progress::Progress;
use crate::status::served::UnreadKind;
use crate::status::watches::streams;
use crate::status::{Snapshot, View};
use api::definition::Defined as _;
use api::k8s::Time;
use api::names;
use api::v1alpha1::RolloutPolicy;
use jiff::Timestamp;
use rollout::pinned_images::PinFacts;
use rollout::policy::PoolPolicies;
use rollout::{ControllerMemory, RolloutPlan, Sources, Streams};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A plan, and what it was made from.
pub(super) struct Planned {
    /// The policies that it follows.
    pub(super) policies: PoolPolicies,
    /// PinnedImageSets, and how far nodes are with them.
    pub(super) pins: PinFacts,
    pub(super) plan: RolloutPlan,
}

impl ClusterWatch {
    /// Why the known objects may be out of date: the last failure of each watch that has not succeeded since, with its kinds.
    /// A failure is forgotten after some time, so call this again.
    pub fn trouble(&self) -> Option<String> {
        self.troubles.text()
    }

    /// What is not known because this person may not read it, the API server did not answer in time, or another version has
    /// written it: each as a sentence.
    pub fn unread(&self) -> Vec<UnreadKind> {
        let newer = self.policies.known.iter().filter(|(_, policy)| policy.is_none());
        let newer = newer.map(|(name, _)| UnreadKind {
            kind: RolloutPolicy::DEFINITION.kind,
            words: format!(
                "RolloutPolicy {name} cannot be read, because another version wrote it: nodes that it holds back are \
                 shown as free to move"
            ),
        });
        let looks = self.drain_outlooks.unread().map(|words| UnreadKind { kind: "Pod", words });
        let costs = self.change_costs.unread().map(|words| UnreadKind { kind: "MachineConfig", words });
        self.served.unread().into_iter().chain(newer).chain(looks).chain(costs).collect()
    }

    /// What the drain of a node waits for, as the controller says on the Node; `None`: it does not wait, or there is none.
    pub fn drain_wait(&self, node: &str) -> Option<&Arc<str>> {
        self.nodes.known.get(node)?.view.drain_wait.as_ref()
    }

    /// The zone of a node, where its Node has a label for it.
    pub fn zone(&self, node: &str) -> Option<&str> {
        self.nodes.known.get(node)?.view.zone()
    }

    /// What MachineConfigNodes say, by node; `None` for one without a status. Unchanged entries are the same value in memory.
    pub fn progress(&self) -> &BTreeMap<String, Option<Arc<Progress>>> {
        &self.progress.known
    }

    /// Whether a pool is paused; `None`: there is no such pool.
    pub fn is_paused(&self, pool: &str) -> Option<bool> {
        self.pools.known.get(pool).map(|p| p.spec.paused)
    }

    /// The OS image streams, as the controller sees them.
    fn known_streams(&self) -> Streams<'_> {
        if !self.streams_listed() {
            return Streams::Unknown;
        }
        let gate = self.feature_gates.known.get(names::CLUSTER);
        streams(&self.served, gate, self.streams.known.get(names::CLUSTER))
    }

    /// The plan, and what it was made from. What the plan asks to have looked up comes before a later one.
    pub(super) fn plan(&self, now: Timestamp) -> Planned {
        let (pools, policies): (Vec<_>, Vec<_>) =
            (self.pools.known.values().collect(), self.policies.known.values().flatten().collect());
        let mut policies = PoolPolicies::of(&policies, &pools, Some(&self.configs.known), None);
        policies.add_costs(&self.change_costs.costs(&self.pools.known));
        let pins = |(node, progress): (&String, &Option<Arc<Progress>>)| {
            Some((Arc::from(&**node), progress.as_ref()?.pins.clone()))
        };
        let sources = Sources {
            pools,
            nodes: self.nodes.known.values().map(|n| &n.view).collect(),
            configs: Some(&self.configs.known),
            os_configs: self.os_configs.known.values().collect(),
            os_builds: self.os_builds.known.values().collect(),
            controller_config: self.settings.known.get(names::CONTROLLER_CONFIG),
            streams: self.known_streams(),
            operator_nodes: self.operators.known.values().cloned().collect(),
            masters_schedulable: self.schedulable.known.get(names::CLUSTER).copied(),
            etcd: self.etcd.iter().flat_map(|place| place.known.values().flatten()).cloned().collect(),
            policies: Some(&policies),
            outlooks: self.drain_outlooks.outlooks(),
            // Of sets that cannot be read, the generations are those that the nodes report.
            pins: PinFacts {
                generations: self.pinned_sets.known.clone(),
                nodes: self.progress.known.iter().filter_map(pins).collect(),
            },
            memory: ControllerMemory::default(),
        };
        let facts = sources.facts();
        let plan = rollout::plan(&sources.inputs(&facts, Time(now)));
        self.drain_outlooks.request(&plan);
        self.change_costs.request(&plan, &self.pools.known);
        Planned { pins: sources.pins, plan, policies }
    }

    /// Looks things up until the plan waits for nothing: each plan may ask for more.
    pub(super) async fn fetch_lookups(&mut self, now: Timestamp) {
        while self.asks_for_lookups(now) {
            tokio::select! {
                () = self.drain_outlooks.changed() => {}
                () = self.change_costs.changed() => {}
            }
        }
    }

    /// Whether the plan waits for something that is looked up. Without a policy that has `drain`, windows or freezes there is
    /// nothing.
    fn asks_for_lookups(&self, now: Timestamp) -> bool {
        let asks = |policy: &RolloutPolicy| {
            let spec = &policy.spec;
            spec.drain.is_some() || !spec.windows.is_empty() || !spec.freezes.is_empty()
        };
        let asks = self.policies.known.values().flatten().any(asks);
        if asks {
            self.plan(now);
        }
        asks && (self.drain_outlooks.are_due() || self.change_costs.are_due())
    }

    /// Where everything stands.
    pub fn snapshot(&self, only: &[String]) -> Snapshot {
        let now = Timestamp::now();
        let Planned { policies, pins, plan } = self.plan(now);
        let view = View {
            plan: &plan,
            pools: &self.pools.known,
            nodes: &self.nodes.known,
            policies: Some(&policies),
            progress: &self.progress.known,
            pins: &pins,
        };
        let snapshot = Snapshot::of(view, only, now);
        // After the plan: it says what is looked up.
        Snapshot { unread: self.unread(), trouble: self.trouble(), ..snapshot }
    }
}
