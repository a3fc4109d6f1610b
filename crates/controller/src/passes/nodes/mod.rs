//! The node pass: carries out one `rollout::plan` over the whole cluster.
//!
//! Flow: caches → plan → all Node patches at once (a bounded number in flight) → pool status → events. Each patch is
//! bound to the version that the plan was made from. If one is refused because its node has changed, the pool's status
//! is written as it is without that patch, and the cluster is planned again: nothing is repeated blindly. A refusal
//! that lasts is reported on the pool. A patch without an answer goes on by itself ([`send`]), and
//! the next plan leaves its node alone.
//!
//! What it is not: a rule. The plan says which node moves, and why another waits.

mod report;
mod send;

use crate::cache::settings::{FEATURE_GATE, STREAMS};
use crate::cache::stores::Stores;
use crate::cache::trimmed::{Config, ImageBuild, ImageConfig};
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::refusals::Topic;
use crate::io::clock::now;
use crate::kind;
use crate::passes::descriptor::Descriptor;
use crate::passes::pinned_images;
use crate::policies::Policies;
use crate::queue::{ALL_NODES, Outcome, Pass, Spacing, Work};
use crate::rights::Right;
use crate::shared::Shared;
use crate::term::fence::{Fence, Fenced};
use crate::watches::inputs;
use api::k8s::ResourceExt;
use api::v1::{MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use client::CallError;
use jiff::Timestamp;
use report::Report;
use rollout::pinned_images::PinFacts;
use rollout::policy::PoolPolicies;
use rollout::view::{DaemonState, NodeView};
use rollout::{ControllerMemory, Facts, Inputs, PoolPlan, Sources, Streams, TroubleOf, Unanswered};
use send::{NO_POOL, Requests, SendOutcome};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Node,
    // At the widest spacing, a plan over thousands of nodes runs eight times a second. A freed slot waits that long at
    // most; people are promised that it is used within 200 ms.
    work: Work { name: "node", parallel: 1, spacing: Spacing::millis(5, 125) },
    reads: &[
        &inputs::POOLS,
        &inputs::CONFIGS,
        &inputs::CONTROLLER_CONFIGS,
        &inputs::ROLLOUT_POLICIES,
        &inputs::NODES,
        &inputs::MACHINE_CONFIG_NODES,
        &inputs::PINNED_IMAGE_SETS,
        &inputs::OS_CONFIGS,
        &inputs::OS_BUILDS,
        &inputs::STREAMS,
        &inputs::FEATURE_GATES,
        &inputs::SCHEDULER,
        &inputs::BOOT_IMAGE_SKEW,
        &inputs::OPERATOR_PODS,
        &inputs::ETCD_PODS,
        &inputs::PODS,
        &inputs::BUDGETS,
    ],
    rights: &[
        Right::new("patch", kind::NODES),
        Right::new("patch", kind::POOLS),
        Right::new("patch", kind::POOLS).on("status"),
        Right::new("patch", kind::ROLLOUT_POLICIES).on("status"),
        // The gates of RolloutPolicies. Rights to Secrets and Jobs are for people to give, by name and namespace.
        Right::new("list", kind::DEPLOYMENTS),
        Right::new("list", kind::STATEFUL_SETS),
        Right::new("list", kind::DAEMON_SETS),
    ],
    marked_by,
    effects: Effects { on_change, is_urgent: is_awaited, ..Effects::NONE },
    start: |shared, handover| {
        let nodes = Arc::new(Nodes::new(shared.clone(), Fence::after(handover, shared)));
        Box::new(move |_| {
            let nodes = nodes.clone();
            Box::pin(async move { nodes.pass().await })
        })
    },
};

fn on_change(shared: &Shared, changed: &Changed<'_>) {
    match changed {
        Changed::Pool(change) if change.new.is_none() => shared.pool_troubles.resolved(&change.name),
        Changed::TermBegins => {
            shared.node_troubles.forget();
            shared.pool_troubles.forget();
        }
        _ => {}
    }
}

/// Whether a change means that one of the last nodes that a wave waits for is now done.
fn is_awaited(shared: &Shared, changed: &Changed<'_>) -> bool {
    let Changed::Node(change) = changed else { return false };
    let is_done = |node: &NodeView| {
        node.ready() && node.state == DaemonState::Done && node.current_config == node.desired_config
    };
    change.new.as_deref().is_some_and(is_done)
        && shared.last_of_waves.lock().unwrap_or_else(PoisonError::into_inner).contains(&*change.name)
}

/// The key of writes of policies' status in [`crate::flight::refusals::CurrentFailures`].
const POLICY_STATUS: &str = "status of rolloutpolicies";

fn marked_by(changed: &Changed<'_>, _: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        Changed::Config(change) => {
            let all = [change.old.as_deref(), change.new.as_deref()];
            all.into_iter().flatten().any(|config| matches!(config, Config::Rendered(_)))
        }
        Changed::RolloutPolicy(change) => {
            let read = |p: &Option<Arc<RolloutPolicy>>| {
                let deleted = |p: &RolloutPolicy| p.metadata.deletion_timestamp.is_some();
                p.as_ref().map(|p| (p.metadata.generation, deleted(p), p.spec.clone(), p.status.clone()))
            };
            read(&change.old) != read(&change.new)
        }
        // A pool's status names its stream.
        Changed::Setting(kind) => [STREAMS, FEATURE_GATE].contains(kind),
        Changed::Pool(_)
        | Changed::ControllerConfig(_)
        | Changed::Node(_)
        | Changed::PlanInput
        | Changed::TermBegins => true,
        // A pool counts its nodes that have the images of its PinnedImageSets.
        Changed::MachineConfigNode(change) => {
            pinned_images::states(&change.old) != pinned_images::states(&change.new)
        }
        Changed::PinnedImageSet(change) => {
            let generation = |s: &Option<Arc<PinnedImageSet>>| s.as_ref().map(|s| s.metadata.generation);
            generation(&change.old) != generation(&change.new)
        }
        _ => false,
    };
    if concerns {
        marks.mark(Pass::Node, ALL_NODES);
    }
}

/// The node pass, and what it has reported already.
pub(crate) struct Nodes {
    shared: Arc<Shared>,
    fence: Fence,
    requests: Requests,
    report: Report,
    policies: Policies,
    pruned: Mutex<Instant>,
}

/// How often interned strings that nothing holds any more are dropped.
const PRUNE: Duration = Duration::from_secs(60);

/// The system clock may be changed while a pass waits for a time, so it looks at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// How long to wait for a time.
fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default().min(LONGEST_WAIT)
}

/// The inputs of a plan, held for as long as the plan is.
struct Snapshot<'a> {
    stores: &'a Stores,
    pools: Vec<Arc<MachineConfigPool>>,
    nodes: Vec<Arc<NodeView>>,
    os_configs: Vec<Arc<ImageConfig>>,
    os_builds: Vec<Arc<ImageBuild>>,
    streams: Option<Arc<Value>>,
    rollout_policies: Vec<Arc<RolloutPolicy>>,
    policies: PoolPolicies,
    refused: BTreeMap<String, String>,
    facts: Facts,
}

/// What became of the patches of a plan that were not written, by the pool of their nodes.
#[derive(Default)]
struct Unwritten {
    /// Why the API server refused one.
    refused: BTreeMap<String, String>,
    /// The nodes that have changed since the plan was made.
    moved_on: BTreeMap<String, Vec<Arc<str>>>,
}

impl Nodes {
    pub(crate) fn new(shared: Arc<Shared>, fence: Fence) -> Self {
        // Left over from an earlier term.
        shared.metrics.pool_alert.clear();
        shared.metrics.state.clear();
        Self {
            shared,
            fence,
            requests: Requests::default(),
            report: Report::default(),
            policies: Policies::default(),
            pruned: Mutex::new(Instant::now()),
        }
    }

    /// One pass over all pools and nodes.
    pub(crate) async fn pass(&self) -> Outcome {
        let begin = Instant::now();
        self.prune(begin);
        // Before the inputs are read: a gate that stops passing meanwhile is not missed.
        let known = self.shared.policy_revision();
        let snapshot = self.snapshot(Unwritten::default());
        let plan = rollout::plan(&snapshot.inputs());
        let Snapshot { policies, rollout_policies, .. } = &snapshot;
        let at = now();
        self.policies.follow(&self.shared, &plan, policies, rollout_policies, &at);
        tracing::debug!(
            nodes = snapshot.nodes.len(),
            patches = plan.patches().count(),
            took = ?begin.elapsed(),
            "planned"
        );
        self.report.report(&self.shared, &plan, &snapshot.pools);
        self.shared.wait_history.lock().unwrap_or_else(PoisonError::into_inner).follow(&plan, at.0);
        let Fenced { again, mut refused } = self.fence.close(&self.shared, &plan).await;
        if again {
            return Outcome::Stale;
        }
        // Taken only here: a pass that ends before this point leaves them to the next one.
        refused.extend(self.requests.take_refusals());
        let mut outcome = refused.values().next().map_or(Outcome::Done, |why| Outcome::Failed(why.clone()));
        let free = |(plan, _): &(&PoolPlan, _)| !refused.contains_key(&*plan.pool);
        let both: Vec<_> = plan.pools.iter().zip(&snapshot.pools).filter(free).collect();
        let done = futures::future::join_all(
            both.iter().map(|(plan, pool)| self.requests.carry_out(&self.shared, plan, pool, known)),
        );
        let written = self.policies.write(&self.shared, &plan, policies, rollout_policies, &at);
        let unmanaged = async {
            match refused.contains_key(NO_POOL) {
                true => SendOutcome::All,
                false => self.requests.free_unmanaged(&self.shared, &plan.unmanaged_patches).await,
            }
        };
        let (done, written, unmanaged) = futures::join!(done, written, unmanaged);
        match self.policies_written(written.outcome) {
            Outcome::Done => {}
            // What was written lets nodes go, or something fails that counts more.
            Outcome::After(_) if outcome != Outcome::Done => {}
            other => outcome = other,
        }
        match unmanaged {
            SendOutcome::Refused(why) => outcome = Outcome::Failed(why),
            SendOutcome::Stale(_) if matches!(outcome, Outcome::Done | Outcome::After(_)) => {
                outcome = Outcome::Stale;
            }
            SendOutcome::Some if outcome == Outcome::Done => outcome = Outcome::After(Duration::ZERO),
            SendOutcome::All | SendOutcome::Some | SendOutcome::Stale(_) => {}
        }
        let mut moved_on: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for (result, (_, pool)) in done.into_iter().zip(&both) {
            match result {
                SendOutcome::All => {}
                SendOutcome::Some if outcome == Outcome::Done => outcome = Outcome::After(Duration::ZERO),
                SendOutcome::Some => {}
                SendOutcome::Stale(nodes) => {
                    moved_on.insert(pool.name_any(), nodes);
                    if matches!(outcome, Outcome::Done | Outcome::After(_)) {
                        outcome = Outcome::Stale;
                    }
                }
                SendOutcome::Refused(why) => {
                    refused.insert(pool.name_any(), why.clone());
                    outcome = Outcome::Failed(why);
                }
            }
        }
        let patched: HashSet<&str> = plan.patches().map(|patch| &*patch.node).collect();
        let under_way = self.requests.unanswered();
        let tried = |node: &str| patched.contains(node) || under_way.contains_key(node);
        self.shared.node_troubles.retain(tried);
        if !refused.is_empty() || moved_on.values().any(|nodes| !nodes.is_empty()) {
            self.report_unwritten_nodes(Unwritten { refused, moved_on }).await;
        }
        // Pools report overdue patches at that time, and a policy may let other nodes go, or be told what holds it.
        let looks =
            [self.requests.next_overdue(), plan.look_again.map(|at| until(at, now().0)), written.later];
        match (outcome, looks.into_iter().flatten().min()) {
            (Outcome::Done, Some(wait)) => Outcome::After(wait),
            (outcome, _) => outcome,
        }
    }

    /// The status of pools with a node that could not be patched: the counts as they are without that patch, and, once
    /// it must be reported, why the rollout does not continue. The pass is repeated, and its next status replaces this
    /// one.
    async fn report_unwritten_nodes(&self, unwritten: Unwritten) {
        let keys = unwritten.refused.keys().chain(unwritten.moved_on.keys());
        let concerned: BTreeSet<String> = keys.cloned().collect();
        let snapshot = self.snapshot(unwritten);
        let plan = rollout::plan(&snapshot.inputs());
        let tell = plan.pools.iter().zip(&snapshot.pools).filter_map(|(plan, pool)| {
            let status = plan.status.as_ref().filter(|_| concerned.contains(&*plan.pool))?;
            Some(async move {
                if let Err(not_written) = self.requests.status(&self.shared, pool, status).await {
                    tracing::debug!(pool = %plan.pool, "the pool's status was not written: {not_written:?}");
                }
            })
        });
        futures::future::join_all(tell).await;
    }

    /// The outcome of the writes of policies' status. No node moves before the rollout's progress is written, so pools
    /// report it when that fails.
    fn policies_written(&self, written: Option<Result<bool, CallError>>) -> Outcome {
        let shared = &self.shared;
        let (outcome, words) = match written {
            // The answer has the cluster planned again.
            None => return Outcome::Done,
            Some(Ok(wrote)) => {
                shared.troubles.resolved(POLICY_STATUS);
                // What is stored now may let nodes go: they do not wait for the distance between passes.
                (if wrote { Outcome::After(Duration::ZERO) } else { Outcome::Done }, None)
            }
            Some(Err(e)) if e.is_conflict() || e.is_not_found() => return Outcome::Stale,
            Some(Err(e)) => (Outcome::Failed(e.chain()), shared.troubles.due_message(POLICY_STATUS, &e)),
        };
        let text =
            words.map(|w| format!("the status of RolloutPolicies cannot be written, so no wave begins: {w}"));
        shared.report_problem(Topic::Policies, TroubleOf::Cluster, text);
        outcome
    }

    fn prune(&self, now: Instant) {
        let mut last = self.pruned.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(*last) >= PRUNE {
            *last = now;
            self.shared.names.lock().unwrap_or_else(PoisonError::into_inner).prune();
        }
    }

    /// What is known now. Nodes of patches that were not written are planned as if their patches were on their way.
    fn snapshot(&self, unwritten: Unwritten) -> Snapshot<'_> {
        let Unwritten { refused, moved_on } = unwritten;
        let mut unanswered = self.requests.unanswered();
        let waiting = Unanswered { moves: true, overdue: false };
        unanswered.extend(moved_on.into_values().flatten().map(|node| (node, waiting)));
        let stores = &self.shared.stores;
        let settings = &self.shared.settings;
        let streams = settings
            .one(STREAMS)
            .filter(|_| !render::streams::switched_off(settings.one(FEATURE_GATE).as_deref()));
        let mut snapshot = Snapshot {
            stores,
            pools: stores.pools.all(),
            nodes: stores.nodes.all(),
            os_configs: stores.os_configs.all(),
            os_builds: stores.os_builds.all(),
            streams,
            rollout_policies: stores.rollout_policies.all(),
            policies: PoolPolicies::default(),
            refused,
            facts: Facts::default(),
        };
        if !snapshot.rollout_policies.is_empty() {
            let policies: Vec<&RolloutPolicy> = snapshot.rollout_policies.iter().map(AsRef::as_ref).collect();
            let pools: Vec<&MachineConfigPool> = snapshot.pools.iter().map(AsRef::as_ref).collect();
            snapshot.policies =
                PoolPolicies::of(&policies, &pools, Some(stores), Some(&self.policies.observations(&pools)));
        }
        let controller_config = stores.controller_config();
        let sources = Sources {
            controller_config: controller_config.as_deref(),
            operator_nodes: stores.operator_nodes.all().iter().map(|node| (**node).clone()).collect(),
            masters_schedulable: stores.masters_schedulable.get(api::names::CLUSTER).map(|s| *s),
            etcd: stores.etcd.iter().flat_map(|s| s.all()).filter_map(|member| (*member).clone()).collect(),
            outlooks: Some(self.policies.outlooks()),
            pins: pinned_images::facts(stores),
            memory: ControllerMemory {
                refused: None,
                unanswered,
                troubles: self
                    .shared
                    .side_problems
                    .all()
                    .into_iter()
                    .chain(self.requests.overdue_first_boots())
                    .collect(),
            },
            ..snapshot.sources()
        };
        snapshot.facts = sources.facts();
        snapshot
    }
}

impl Snapshot<'_> {
    /// The sources of a plan, except those that only facts are made from.
    fn sources(&self) -> Sources<'_> {
        Sources {
            pools: self.pools.iter().map(AsRef::as_ref).collect(),
            nodes: self.nodes.iter().map(AsRef::as_ref).collect(),
            configs: Some(self.stores),
            os_configs: self.os_configs.iter().map(|c| &c.view).collect(),
            os_builds: self.os_builds.iter().map(|b| &b.view).collect(),
            controller_config: None,
            streams: Streams::Known(self.streams.as_deref()),
            operator_nodes: vec![],
            masters_schedulable: None,
            etcd: vec![],
            policies: Some(&self.policies),
            outlooks: None,
            pins: PinFacts::default(),
            memory: ControllerMemory { refused: Some(&self.refused), ..ControllerMemory::default() },
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        self.sources().inputs(&self.facts, now())
    }
}

#[cfg(test)]
mod tests;
