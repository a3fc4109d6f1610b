//! What is known of the cluster, from what its watches have reported: a snapshot, the plan that it shows, and what is missing or
//! may be out of date.
//!
//! What it is not: the following (see the module above).

use super::ClusterWatch;
use crate::status::node_progress::Progress;
use crate::status::served::UnreadKind;
use crate::status::watches::streams;
use crate::status::{Snapshot, View};
use api::k8s::Time;
use api::names;
use jiff::Timestamp;
use rollout::pinned_images::PinFacts;
use rollout::policy::PoolPolicies;
use rollout::{ControllerMemory, RolloutPlan, Sources, Streams};
use std::collections::BTreeMap;
use std::sync::Arc;

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
            kind: "RolloutPolicy",
            words: format!(
                "RolloutPolicy {name} cannot be read, because another version wrote it: nodes that it holds back are \
                 shown as free to move"
            ),
        });
        let looks =
            self.drain_outlooks.unread().map(|words| UnreadKind { kind: "Pod", words: words.to_owned() });
        self.served.unread().into_iter().chain(newer).chain(looks).collect()
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

    /// The policies of the pools, and the plan that follows them. The looks that the plan asks for come before a later one.
    pub(super) fn plan(&self, now: Timestamp) -> (PoolPolicies, RolloutPlan) {
        let (pools, policies): (Vec<_>, Vec<_>) =
            (self.pools.known.values().collect(), self.policies.known.values().flatten().collect());
        let exists = |name: &str| self.configs.known.contains_key(name);
        let policies = PoolPolicies::of(&policies, &pools, &exists, None);
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
            // Sets are not watched: their generations are those that the nodes report.
            pins: PinFacts {
                nodes: self.progress.known.iter().filter_map(pins).collect(),
                ..PinFacts::default()
            },
            memory: ControllerMemory::default(),
        };
        let facts = sources.facts();
        let plan = rollout::plan(&sources.inputs(&facts, Time(now)));
        self.drain_outlooks.request(&plan);
        (policies, plan)
    }

    /// Looks at nodes until the plan waits for no look: each plan may ask about further nodes.
    pub(super) async fn fetch_outlooks(&mut self) {
        while self.asks_for_outlooks() {
            self.drain_outlooks.changed().await;
        }
    }

    /// Whether the plan waits for looks at nodes. Without a policy that has `drain` there are none.
    fn asks_for_outlooks(&self) -> bool {
        let drains = self.policies.known.values().flatten().any(|policy| policy.spec.drain.is_some());
        if drains {
            self.plan(Timestamp::now());
        }
        drains && self.drain_outlooks.are_due()
    }

    /// Where everything stands.
    pub fn snapshot(&self, only: &[String]) -> Snapshot {
        let now = Timestamp::now();
        let (policies, plan) = self.plan(now);
        let view = View {
            plan: &plan,
            pools: &self.pools.known,
            nodes: &self.nodes.known,
            policies: Some(&policies),
            progress: &self.progress.known,
        };
        Snapshot::of(view, only, now)
    }
}
