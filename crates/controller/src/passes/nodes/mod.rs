//! The node pass: carries out one `rollout::plan` over the whole cluster.
//!
//! Flow: caches → plan → all Node patches at once (a bounded number in flight) → pool status → events. Each patch is
//! bound to the version that the plan was made from. If one is refused because its node has changed, the pool's status
//! is written as it is without that patch, and the cluster is planned again: nothing is repeated blindly. A refusal
//! that lasts is reported on the pool. A patch without an answer goes on by itself ([`crate::flight::requests`]), and
//! the next plan leaves its node alone.
//!
//! What it is not: a rule. The plan says which node moves, and why another waits.

mod report;

use crate::cache::settings::{FEATURE_GATE, STREAMS};
use crate::cache::stores::{Config, Stores};
use crate::dirty::{Changed, DirtyKeys, Known};
use crate::flight::permits::Whose;
use crate::flight::refusals::NotWritten;
use crate::flight::requests::{PATIENCE, Requests, Written};
use crate::io::events::{Source, node_reference, reference};
use crate::passes::descriptor::{Descriptor, Right, kind};
use crate::passes::queue::{Outcome, Pass, Spacing, Work};
use crate::shared::Shared;
use crate::term::fence::{Fence, Fenced};
use crate::term::leader::now;
use api::k8s::ResourceExt;
use api::v1::MachineConfigPool;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use report::Report;
use rollout::view::{NodeView, OsBuild, OsConfig};
use rollout::{
    ConfigView, Configs, EventObject, EventPlan, Facts, Inputs, NodePatch, PoolPlan, Sources, Streams,
    Trouble, TroubleOf, Unanswered,
};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Node,
    // At the widest spacing, a plan over thousands of nodes runs eight times a second. A freed slot waits that long at
    // most; people are promised that it is used within 200 ms.
    work: Work { name: "node", parallel: 1, spacing: Spacing::millis(5, 125) },
    reads: &[
        kind::POOLS,
        kind::CONFIGS,
        kind::CONTROLLER_CONFIGS,
        kind::NODES,
        kind::OS_CONFIGS,
        kind::OS_BUILDS,
        kind::STREAMS,
        kind::FEATURE_GATES,
        kind::SCHEDULERS,
        kind::MACHINE_CONFIGURATIONS,
        kind::PODS,
    ],
    writes: &[
        Right::new("patch", kind::NODES),
        Right::new("patch", kind::POOLS),
        Right::new("patch", kind::POOL_STATUS),
    ],
    marked_by,
    start: |shared, handover| {
        let nodes = Arc::new(Nodes::new(shared.clone(), Fence::after(handover, shared)));
        Box::new(move |_| {
            let nodes = nodes.clone();
            Box::pin(async move { nodes.pass().await })
        })
    },
};

/// The only key: a plan looks at the whole cluster, because a node's pool depends on all pools.
const ALL: &str = "cluster";

fn marked_by(changed: &Changed<'_>, _: Known<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        Changed::Config(change) => {
            let all = [change.old.as_deref(), change.new.as_deref()];
            all.into_iter().flatten().any(|config| matches!(config, Config::Rendered(_)))
        }
        // A pool's status names its stream.
        Changed::Setting(kind) => [STREAMS, FEATURE_GATE].contains(kind),
        Changed::Pool(_)
        | Changed::ControllerConfig(_)
        | Changed::Node(_)
        | Changed::PlanInput
        | Changed::TermBegins => true,
        Changed::MachineConfigNode(_) | Changed::SettingKnown | Changed::TemplateInput => false,
    };
    if concerns {
        marks.mark(Pass::Node, ALL);
    }
}

/// The node pass, and what it has reported already.
pub(crate) struct Nodes {
    shared: Arc<Shared>,
    fence: Fence,
    requests: Requests,
    report: Report,
    pruned: Mutex<Instant>,
}

/// Patches of a pool's plan that hold a permit or wait for one. No more are started, because each takes ten kilobytes.
const PATCHES_WAITING: usize = 512;

/// How long the patches of one plan are sent; the rest is planned again. An API server that is busy with thousands of
/// nodes takes minutes for all patches. If somebody pauses the pool or gives it another config, whatever was not sent
/// yet stops at once.
const SENDING: Duration = Duration::from_millis(500);

/// How often interned strings that nothing holds any more are dropped.
const PRUNE: Duration = Duration::from_secs(60);

/// The system clock may be changed while a pass waits for a time, so it looks at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// How long to wait for a time.
fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default().min(LONGEST_WAIT)
}

/// The outcome of a pool's plan.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Sent {
    /// It was carried out.
    All,
    /// The time for one plan is over (see [`SENDING`]), or the pool has changed.
    Some,
    /// Objects have changed since the plan: these nodes, or the pool.
    Stale(Vec<Arc<str>>),
    /// A write was refused, in the API server's words.
    Refused(String),
}

impl From<NotWritten> for Sent {
    fn from(not_written: NotWritten) -> Self {
        match not_written {
            NotWritten::Stale => Self::Stale(vec![]),
            NotWritten::Refused(why) => Self::Refused(why),
        }
    }
}

/// The inputs of a plan, held for as long as the plan is.
struct Snapshot<'a> {
    stores: &'a Stores,
    pools: Vec<Arc<MachineConfigPool>>,
    nodes: Vec<Arc<NodeView>>,
    os_configs: Vec<Arc<OsConfig>>,
    os_builds: Vec<Arc<OsBuild>>,
    streams: Option<Arc<Value>>,
    facts: Facts,
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
            pruned: Mutex::new(Instant::now()),
        }
    }

    /// One pass over all pools and nodes.
    pub(crate) async fn pass(&self) -> Outcome {
        let begin = Instant::now();
        self.prune(begin);
        let snapshot = self.snapshot();
        let plan = rollout::plan(&snapshot.inputs());
        tracing::debug!(
            nodes = snapshot.nodes.len(),
            patches = plan.pools.iter().map(|p| p.patches.len()).sum::<usize>(),
            took = ?begin.elapsed(),
            "planned"
        );
        self.report.tell(&self.shared, &plan, &snapshot.pools);
        let Fenced { again, mut refused } = self.fence.close(&self.shared, &plan).await;
        if again {
            return Outcome::Stale;
        }
        // Taken only here: a pass that ends before this point leaves them to the next one.
        refused.extend(self.requests.take_failed());
        let mut outcome = refused.values().next().map_or(Outcome::Done, |why| Outcome::Failed(why.clone()));
        let free = |(plan, _): &(&PoolPlan, _)| !refused.contains_key(&*plan.pool);
        let both: Vec<_> = plan.pools.iter().zip(&snapshot.pools).filter(free).collect();
        let done = futures::future::join_all(both.iter().map(|(plan, pool)| self.carry_out(plan, pool)));
        let mut moved_on: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
        for (result, (_, pool)) in done.await.into_iter().zip(&both) {
            match result {
                Sent::All => {}
                Sent::Some if outcome == Outcome::Done => outcome = Outcome::After(Duration::ZERO),
                Sent::Some => {}
                Sent::Stale(nodes) => {
                    moved_on.insert(pool.name_any(), nodes);
                    if matches!(outcome, Outcome::Done | Outcome::After(_)) {
                        outcome = Outcome::Stale;
                    }
                }
                Sent::Refused(why) => {
                    refused.insert(pool.name_any(), why.clone());
                    outcome = Outcome::Failed(why);
                }
            }
        }
        let patched: HashSet<&str> =
            plan.pools.iter().flat_map(|p| &p.patches).map(|patch| &*patch.node).collect();
        let under_way = self.requests.unanswered();
        let tried = |node: &str| patched.contains(node) || under_way.contains_key(node);
        self.shared.node_troubles.retain(tried);
        if !refused.is_empty() || moved_on.values().any(|nodes| !nodes.is_empty()) {
            self.tell_undone(&refused, &moved_on).await;
        }
        // Pools report overdue patches at that time, and a policy may let other nodes go.
        let looks = [self.requests.next_overdue(), plan.look_again.map(|at| until(at, now().0))];
        match (outcome, looks.into_iter().flatten().min()) {
            (Outcome::Done, Some(wait)) => Outcome::After(wait),
            (outcome, _) => outcome,
        }
    }

    /// The status of pools with a node that could not be patched: the counts as they are without that patch, and, once
    /// it must be reported, why the rollout does not continue. The pass is repeated, and its next status replaces this
    /// one.
    async fn tell_undone(
        &self,
        refused: &BTreeMap<String, String>,
        moved_on: &BTreeMap<String, Vec<Arc<str>>>,
    ) {
        let mut snapshot = self.snapshot();
        let waiting = Unanswered { moves: true, overdue: false };
        let without = moved_on.values().flatten().map(|node| (node.clone(), waiting));
        snapshot.facts.unanswered.extend(without);
        let mut inputs = snapshot.inputs();
        for pool in &mut inputs.pools {
            pool.refused = refused.get(pool.name()).map(String::as_str);
        }
        let plan = rollout::plan(&inputs);
        let concerned = |pool: &str| refused.contains_key(pool) || moved_on.contains_key(pool);
        let tell = plan.pools.iter().zip(&snapshot.pools).filter_map(|(plan, pool)| {
            let status = plan.status.as_ref().filter(|_| concerned(&plan.pool))?;
            Some(async move {
                if let Err(not_written) = self.requests.status(&self.shared, pool, status).await {
                    tracing::debug!(pool = %plan.pool, "the pool's status was not written: {not_written:?}");
                }
            })
        });
        futures::future::join_all(tell).await;
    }

    fn prune(&self, now: Instant) {
        let mut last = self.pruned.lock().unwrap_or_else(PoisonError::into_inner);
        if now.duration_since(*last) >= PRUNE {
            *last = now;
            self.shared.names.lock().unwrap_or_else(PoisonError::into_inner).prune();
        }
    }

    fn snapshot(&self) -> Snapshot<'_> {
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
            facts: Facts::default(),
        };
        let controller_config = stores.controller_config();
        let sources = Sources {
            controller_config: controller_config.as_deref(),
            operator_nodes: stores.operator_nodes.all().iter().map(|node| (**node).clone()).collect(),
            masters_schedulable: stores.masters_schedulable.get(api::names::CLUSTER).map(|s| *s),
            ..snapshot.sources()
        };
        let late = self.requests.overdue_first_boots().into_iter().map(|pool| Trouble {
            text: format!(
                "the API server does not answer a change of the pool's annotation {}; check for an admission \
                 webhook that \
                 hangs",
                api::names::annotation::FIRST_BOOT_NODES
            ),
            of: TroubleOf::Pool(pool.into()),
        });
        snapshot.facts = Facts {
            unanswered: self.requests.unanswered(),
            troubles: self.shared.side_problems.all().into_iter().chain(late).collect(),
            ..sources.facts()
        };
        snapshot
    }

    async fn carry_out(&self, plan: &PoolPlan, pool: &MachineConfigPool) -> Sent {
        let (mut refused, mut moved_on) = (None, vec![]);
        // Nodes that move go first: thousands of others may only get or lose a taint.
        let (moves, rest): (Vec<&NodePatch>, Vec<&NodePatch>) =
            plan.patches.iter().partition(|p| !p.desired_config.is_keep());
        let patches: Vec<NodePatch> = moves.into_iter().chain(rest).cloned().collect();
        // While a patch waits for its permit, somebody may pause the pool, revert the change, or lower
        // `maxUnavailable`.
        let planned = pool.metadata.generation;
        let send = |patch: NodePatch| {
            let (shared, pool) = (self.shared.clone(), plan.pool.clone());
            let requests = &self.requests;
            async move {
                let as_planned =
                    || shared.stores.pools.get(&pool).is_some_and(|p| p.metadata.generation == planned);
                let place = shared.place(Whose::Pool(&pool)).await;
                if !as_planned() {
                    return (patch, None);
                }
                // The channel closes without an answer only when this controller shuts down.
                let answer = requests.send(&shared, &pool, place, patch.clone()).await.ok();
                (patch, answer)
            }
        };
        let (until, all) = (tokio::time::Instant::now() + SENDING, patches.len());
        let in_time = |_: &NodePatch| futures::future::ready(tokio::time::Instant::now() < until);
        let mut results =
            stream::iter(patches).take_while(in_time).map(send).buffer_unordered(PATCHES_WAITING);
        let mut answers = 0;
        // Patches that still wait for a permit by then are dropped, unsent. Those that were sent continue on their own.
        let last = until + PATIENCE;
        let mut sent: Vec<Arc<str>> = vec![];
        while let Ok(Some((patch, answer))) = tokio::time::timeout_at(last, results.next()).await {
            let Some(result) = answer else { continue };
            answers += 1;
            match result {
                Ok(()) if !patch.desired_config.is_keep() => sent.push(patch.node),
                Ok(()) => {}
                Err(NotWritten::Stale) => moved_on.push(patch.node),
                Err(NotWritten::Refused(why)) => refused = refused.or(Some(why)),
            }
        }
        let sent: Vec<&str> = sent.iter().map(|n| &**n).collect();
        for event in plan.told_of_sent(&sent) {
            self.tell(&event, pool);
        }
        if let Some(why) = refused {
            return Sent::Refused(why);
        }
        if !moved_on.is_empty() {
            return Sent::Stale(moved_on);
        }
        // A name that was used is removed from the list before anything else is written to the version that was planned
        // from; the status follows with the next plan. A write without an answer delays nothing.
        if !plan.first_boot_nodes.is_keep() {
            match self.requests.first_boot_nodes(&self.shared, pool, &plan.first_boot_nodes).await {
                Ok(Written::Done) => return Sent::Some,
                Ok(Written::Pending) => {}
                Err(not_written) => return not_written.into(),
            }
        }
        // Written also while many patches are left: with thousands of nodes that takes minutes, and somebody is
        // watching.
        if let Some(status) = &plan.status
            && let Err(not_written) = self.requests.status(&self.shared, pool, status).await
        {
            return not_written.into();
        }
        for event in plan.told_of_status() {
            self.tell(event, pool);
        }
        if answers < all { Sent::Some } else { Sent::All }
    }

    fn tell(&self, event: &EventPlan, pool: &MachineConfigPool) {
        let about = match &event.about {
            EventObject::Pool(name) if **name == pool.name_any() => reference(pool),
            EventObject::Pool(name) => match self.shared.stores.pools.get(name) {
                Some(pool) => reference(&*pool),
                None => return,
            },
            EventObject::Node(name) => node_reference(name),
        };
        self.shared.events.publish(Source::Node, about, event.reason, event.message.clone());
    }
}

impl Configs for Stores {
    fn view(&self, name: &str) -> Option<ConfigView> {
        let config = self.configs.get(name)?;
        let pool = match &*config {
            Config::Rendered(rendered) => Some(rendered.pool.as_str().into()),
            Config::Source(_) => None,
        };
        Some(ConfigView { pool, os_image_url: config.os_image_url().into() })
    }
}

impl Snapshot<'_> {
    /// The sources of a plan, except those that only facts are made from.
    fn sources(&self) -> Sources<'_> {
        Sources {
            pools: self.pools.iter().map(AsRef::as_ref).collect(),
            nodes: self.nodes.iter().map(AsRef::as_ref).collect(),
            configs: Some(self.stores),
            os_configs: self.os_configs.iter().map(AsRef::as_ref).collect(),
            os_builds: self.os_builds.iter().map(AsRef::as_ref).collect(),
            controller_config: None,
            streams: Streams::Known(self.streams.as_deref()),
            operator_nodes: vec![],
            masters_schedulable: None,
        }
    }

    fn inputs(&self) -> Inputs<'_> {
        self.sources().inputs(&self.facts, now())
    }
}

#[cfg(test)]
mod tests;
