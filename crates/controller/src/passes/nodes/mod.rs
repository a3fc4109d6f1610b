//! The node pass: carries out one `rollout::plan` over the whole cluster.
//!
//! Flow: caches → plan → all Node patches at once (a bounded number in flight) → pool status → events. Each patch is
//! bound to the version that the plan was made from. If one is refused because its node has changed, the pool's status
//! is written as it is without that patch, and the cluster is planned again: nothing is repeated blindly. A refusal
//! that lasts is reported on the pool. A patch without an answer goes on by itself ([`crate::flight::requests`]), and
//! the next plan leaves its node alone.
//!
//! What it is not: a rule. The plan says which node moves, and why another waits.

use crate::cache::settings::{FEATURE_GATE, STREAMS};
use crate::cache::stores::{Config, Stores};
use crate::dirty::{Changed, DirtyKeys, Known};
use crate::flight::permits::Whose;
use crate::flight::refusals::NotWritten;
use crate::flight::requests::{PATIENCE, Requests, Written};
use crate::io::events::{Source, node_reference, reference};
use crate::io::metrics;
use crate::passes::descriptor::{Descriptor, Right, kind};
use crate::passes::queue::{Outcome, Pass, Spacing, Work};
use crate::shared::Shared;
use crate::term::fence::{Fence, Fenced};
use crate::term::leader::now;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::v1::MachineConfigPool;
use futures::stream::{self, StreamExt};
use jiff::Timestamp;
use rollout::view::{NodeView, OsBuild, OsConfig};
use rollout::{
    ConfigView, Configs, EventObject, EventPlan, Facts, Inputs, NoPool, NodePatch, PoolPlan, RolloutPlan,
    Sources, Step, Streams, Trouble, TroubleOf, Unanswered,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    told: Mutex<HashMap<Arc<str>, NoPool>>,
    /// Nodes that were reported because no pool vouches for where they booted, with that pool.
    unexpected: Mutex<BTreeSet<(Arc<str>, Arc<str>)>>,
    /// Nodes whose metric reports a conflict between pools.
    alerts: Mutex<BTreeSet<Arc<str>>>,
    /// What each node's metric reports: pool, state and reason.
    states: Mutex<HashMap<Arc<str>, Standing>>,
    pruned: Mutex<Instant>,
}

type Standing = (Arc<str>, &'static str, &'static str);

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
            told: Mutex::default(),
            unexpected: Mutex::default(),
            alerts: Mutex::default(),
            states: Mutex::default(),
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
        self.tell_unmanaged(&plan);
        self.tell_unvouched(&plan);
        self.count(&plan, &snapshot);
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

    /// Reports nodes that no pool can own: once, and again when the reason changes.
    fn tell_unmanaged(&self, plan: &RolloutPlan) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *told);
        for unmanaged in &plan.unmanaged {
            told.insert(unmanaged.node.clone(), unmanaged.why.clone());
            if before.get(&unmanaged.node) == Some(&unmanaged.why) {
                continue;
            }
            match &unmanaged.why {
                NoPool::NoMatch => {
                    tracing::debug!(node = %unmanaged.node, "no pool's nodeSelector matches; the node is left alone");
                }
                NoPool::NoDaemon => {
                    tracing::debug!(node = %unmanaged.node, "no role label, and no agent has reported; the node is left alone");
                }
                // The pools' conditions and events report it too; this line is for those who search the log for the
                // node.
                NoPool::SeveralCustom(pools) => tracing::warn!(
                    node = %unmanaged.node,
                    "matches the custom pools {}; left alone until its labels match one of them only",
                    pools.join(" and ")
                ),
            }
        }
    }

    /// Reports, once, nodes that get no labels because only their own Node says that they booted into another pool.
    fn tell_unvouched(&self, plan: &RolloutPlan) {
        let now: BTreeSet<_> = plan.pools.iter().flat_map(|p| p.unexpected.iter().cloned()).collect();
        let mut told = self.unexpected.lock().unwrap_or_else(PoisonError::into_inner);
        for (node, pool) in now.difference(&told) {
            let text = format!(
                "Node {node} says that it first booted into pool {pool}, which does not expect it, so it is not given that \
                pool's labels. If it belongs there, label it, or name it in the pool's annotation {}",
                api::names::annotation::FIRST_BOOT_NODES
            );
            tracing::warn!(%node, "{text}");
            let about = node_reference(node);
            self.shared.events.publish(Source::Node, about, ControllerEvent::FirstBootNotExpected, text);
        }
        *told = now;
    }

    fn count(&self, plan: &RolloutPlan, snapshot: &Snapshot<'_>) {
        let metrics = &self.shared.metrics;
        for (plan, pool) in plan.pools.iter().zip(&snapshot.pools) {
            let Some(status) = plan.status.as_ref().or(pool.status.as_ref()) else { continue };
            let labels = metrics::Pool { pool: plan.pool.to_string() };
            for (family, value) in [
                (&metrics.machine_count, status.machine_count),
                (&metrics.updated_machine_count, status.updated_machine_count),
                (&metrics.degraded_machine_count, status.degraded_machine_count),
                (&metrics.unavailable_machine_count, status.unavailable_machine_count),
            ] {
                family.get_or_create(&labels).set(value.into());
            }
        }
        self.count_steps(plan);
        let stores = &self.shared.stores;
        let unwatched = stores.boot_image_skew.get(api::names::CLUSTER).is_some_and(|none| *none);
        // If boot images are not managed by us, or that is not known, there is nothing to report.
        let applies = stores.controller_config().is_some_and(|c| {
            !["", "SingleReplica"].contains(&c.spec.control_plane_topology())
                && c.spec.platform_type() != "BareMetal"
        });
        metrics.boot_image_skew.set(i64::from(unwatched && applies));
        for pool in &plan.pools {
            self.shared.forget_series_if_gone(&pool.pool);
        }
        let labels = |node: &Arc<str>| metrics::Node { node: node.to_string() };
        let now: BTreeSet<Arc<str>> = plan.pool_alerts.iter().cloned().collect();
        let mut before = self.alerts.lock().unwrap_or_else(PoisonError::into_inner);
        for node in before.difference(&now) {
            metrics.pool_alert.remove(&labels(node));
        }
        for node in now.difference(&before) {
            metrics.pool_alert.get_or_create(&labels(node)).set(1);
        }
        *before = now;
    }
}

impl Nodes {
    /// Updates the metrics: how many nodes of each pool are in which state, and since when each node is in its state.
    /// Each pass goes through thousands of nodes, so only changes may cost anything.
    fn count_steps(&self, plan: &RolloutPlan) {
        let metrics = &self.shared.metrics;
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *states);
        let labels = |node: &Arc<str>, (pool, state, reason): &Standing| metrics::State {
            node: node.to_string(),
            pool: pool.to_string(),
            state: (*state).to_owned(),
            reason: (*reason).to_owned(),
        };
        let time = now().0.as_second();
        for pool in &plan.pools {
            let mut counts: BTreeMap<&str, i64> = Step::STATES.map(|state| (state, 0)).into();
            for node in &pool.nodes {
                let (state, reason) = node.step.words();
                *counts.entry(state).or_default() += 1;
                let standing = (pool.pool.clone(), state, reason);
                let old = before.remove(&node.node);
                if old.as_ref() != Some(&standing) {
                    if let Some(old) = old {
                        metrics.state.remove(&labels(&node.node, &old));
                    }
                    metrics.state.get_or_create(&labels(&node.node, &standing)).set(time);
                }
                states.insert(node.node.clone(), standing);
            }
            let text = pool.pool.to_string();
            for (state, count) in counts {
                let labels = metrics::PoolState { pool: text.clone(), state: state.to_owned() };
                metrics.rollout_nodes.get_or_create(&labels).set(count);
            }
            let held = metrics.rollout_held.get_or_create(&metrics::Pool { pool: text }).clone();
            held.set(i64::from(pool.hold.is_some()));
        }
        for (node, old) in before {
            metrics.state.remove(&labels(&node, &old));
        }
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
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::shared_with;
    use crate::term::leader::Handover;
    use api::k8s::ObjectMeta;
    use api::v1::MachineConfigPoolStatus;
    use http::{Request, Response};
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use serde_json::json;
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
        let snapshot = nodes.snapshot();
        let plan = rollout::plan(&snapshot.inputs());
        nodes.count(&plan, &snapshot);
        assert!(has(&registry));
        shared.stores.pools.remove("short");
        shared.metrics.forget_pool("short");
        assert!(!has(&registry));
        // The pass that began before the deletion.
        nodes.count(&plan, &snapshot);
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
        let sent = nodes.carry_out(&plan(5000), &pool).await;
        // Four rounds are answered within half a second; patches that wait for a permit at that time are still sent.
        let most = PATCHES_WAITING + 4 * crate::flight::permits::PATCHES_IN_FLIGHT;
        assert_eq!((sent, patched.swap(0, Ordering::Relaxed)), (Sent::Some, most));
        assert_eq!(written.load(Ordering::Relaxed), 1, "the status is told on the way");
        let sent = nodes.carry_out(&plan(100), &pool).await;
        assert_eq!((sent, patched.swap(0, Ordering::Relaxed)), (Sent::All, 100));
        assert_eq!(written.load(Ordering::Relaxed), 2);
        // The first round is on its way when the pool changes; the rest is not sent.
        let slow = plan(100);
        let (sent, ()) = tokio::join!(nodes.carry_out(&slow, &pool), async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let paused = MachineConfigPool {
                metadata: ObjectMeta { generation: Some(2), ..pool.metadata.clone() },
                ..pool.clone()
            };
            now_in_cluster(&paused, 2);
        });
        let first = crate::flight::permits::PATCHES_IN_FLIGHT;
        assert_eq!((sent, patched.load(Ordering::Relaxed)), (Sent::Some, first));
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

    /// The requests to a server that never answers patches of node `a1`, as behind an admission webhook that hangs.
    #[derive(Default)]
    struct Asked {
        a1: AtomicUsize,
        version: AtomicUsize,
        sent: Mutex<BTreeSet<String>>,
        status: Mutex<String>,
    }

    impl Asked {
        async fn answer(&self, request: Request<Body>) -> serde_json::Value {
            let (parts, body) = request.into_parts();
            let body = String::from_utf8(body.collect_bytes().await.unwrap().to_vec()).unwrap();
            let path = parts.uri.path();
            let name = path.trim_end_matches("/status").rsplit('/').next().unwrap_or_default();
            let version = self.version.fetch_add(1, Ordering::Relaxed) + 2;
            if path.ends_with("/status") {
                if name == "a" {
                    *self.status.lock().unwrap() = body;
                }
                return a_pool(name, version);
            }
            if name == "a1" {
                if parts.method == "PATCH" {
                    self.a1.fetch_add(1, Ordering::Relaxed);
                    std::future::pending::<()>().await;
                }
                return a_node(name, 1, "old");
            }
            let moves = body.contains(api::names::annotation::DESIRED_CONFIG);
            if moves {
                self.sent.lock().unwrap().insert(name.to_owned());
            }
            a_node(name, version, if moves { "new" } else { "old" })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_never_answered_for_holds_up_nobody_but_itself() {
        let asked = Arc::new(Asked::default());
        let server = asked.clone();
        let serve = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let object = server.answer(request).await;
                Ok::<_, std::io::Error>(Response::new(Body::from(object.to_string().into_bytes())))
            }
        });
        let client = kube::Client::new(serve, "default");
        let shared = Arc::new(shared_with(client, &mut Registry::default()));
        for name in ["a", "b"] {
            let pool = serde_json::from_value(a_pool(name, 1)).unwrap();
            let item = Item { version: 1, uid: name.to_owned(), value: Arc::new(pool) };
            shared.stores.pools.apply(name.to_owned(), item);
            for node in [format!("{name}1"), format!("{name}2")] {
                let view = shared.view(&serde_json::from_value(a_node(&node, 1, "old")).unwrap());
                let item = Item { version: 1, uid: node.clone(), value: Arc::new(view) };
                shared.stores.nodes.apply(node, item);
            }
        }
        let config = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "spec": {}});
        shared.config_answer(serde_json::from_value(config).unwrap());
        let nodes = Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared));
        let pass = async || {
            let outcome = tokio::time::timeout(Duration::from_secs(10), nodes.pass()).await;
            outcome.expect("a pass ends, whatever one node does")
        };
        for _ in 0..4 {
            pass().await;
        }
        let said = asked.status.lock().unwrap().clone();
        assert!(said.contains("does not answer changes of Node a1"), "{said}");
        let went = asked.sent.lock().unwrap().clone();
        assert_eq!(went, ["b1".to_owned()].into(), "the other pool goes on, and this one keeps the slot");
        let drain = tokio::time::timeout(Duration::from_secs(1), shared.place(Whose::Drain)).await;
        assert!(drain.is_ok(), "drains have places of their own");
        // The patch is tried for some minutes, until it can no longer arrive. Then the node is read, and patched again.
        tokio::time::sleep(crate::term::leader::STRAY * 4).await;
        let tries = asked.a1.load(Ordering::Relaxed);
        assert!((5..30).contains(&tries), "{tries} tries");
        tokio::time::sleep(crate::term::leader::STRAY * 4).await;
        assert_eq!(asked.a1.load(Ordering::Relaxed), tries, "they end");
        let failed = pass().await;
        assert!(matches!(failed, Outcome::Failed(_)), "{failed:?}");
        pass().await;
        assert!(asked.a1.load(Ordering::Relaxed) > tries, "and begin anew");
    }

    /// The requests to a server that answers patches of node `a1` with a given code, and accepts writes to pools.
    struct Refusing {
        code: u16,
        /// It does not answer changes of pools' annotations either.
        mute: bool,
        written: Mutex<String>,
        annotated: AtomicUsize,
    }

    impl Refusing {
        fn new(code: u16, mute: bool) -> Arc<Self> {
            Arc::new(Self { code, mute, written: Mutex::default(), annotated: AtomicUsize::new(0) })
        }

        /// The node pass over pool `a` with node `a1`, whose update taint should be removed.
        fn nodes(self: &Arc<Self>, pool: serde_json::Value) -> (Nodes, Arc<Shared>) {
            let server = self.clone();
            let stored = pool.clone();
            let serve = tower::service_fn(move |request: Request<Body>| {
                let (server, stored) = (server.clone(), stored.clone());
                async move {
                    let (parts, body) = request.into_parts();
                    let path = parts.uri.path();
                    let (mut code, mut object) = (200, stored);
                    if path.ends_with("/status") {
                        let body = body.collect_bytes().await.unwrap();
                        *server.written.lock().unwrap() = String::from_utf8(body.to_vec()).unwrap();
                    } else if path.ends_with("/machineconfigpools/a") {
                        server.annotated.fetch_add(1, Ordering::Relaxed);
                        if server.mute {
                            std::future::pending::<()>().await;
                        }
                    } else {
                        (code, object) = (
                            server.code,
                            json!({"kind": "Status", "code": server.code, "message": "no, says a1"}),
                        );
                    }
                    let body = Body::from(object.to_string().into_bytes());
                    Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
                }
            });
            let client = kube::Client::new(serve, "default");
            let shared = Arc::new(shared_with(client, &mut Registry::default()));
            let pool = serde_json::from_value(pool).unwrap();
            let item = Item { version: 1, uid: "a".to_owned(), value: Arc::new(pool) };
            shared.stores.pools.apply("a".to_owned(), item);
            let mut node = a_node("a1", 1, "new");
            node["metadata"]["annotations"][api::names::annotation::CURRENT_CONFIG] = json!("new");
            if self.code != 200 {
                node["spec"]["taints"] = json!([{"key": "UpdateInProgress", "effect": "PreferNoSchedule"}]);
            }
            let view = shared.view(&serde_json::from_value(node).unwrap());
            let item = Item { version: 1, uid: "a1".to_owned(), value: Arc::new(view) };
            shared.stores.nodes.apply("a1".to_owned(), item);
            let config = json!({"metadata": {"name": "new", "resourceVersion": "1"}, "spec": {}});
            shared.config_answer(serde_json::from_value(config).unwrap());
            (Nodes::new(shared.clone(), Fence::after(Handover::Clean, &shared)), shared)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_that_lasts_is_told_on_a_pool_whose_nodes_are_all_updated_and_freezes_no_status() {
        for (code, at_once) in [(409, false), (404, false), (422, true)] {
            let server = Refusing::new(code, false);
            let (nodes, shared) = server.nodes(a_pool("a", 1));
            let first = nodes.pass().await;
            let written = server.written.lock().unwrap().clone();
            assert!(written.contains("\"machineCount\":1"), "{code}: the counts are written: {written}");
            assert_eq!(written.contains("no, says a1"), at_once, "{code}: {written}");
            assert_eq!(matches!(first, Outcome::Failed(_)), at_once, "{code}: {first:?}");
            tokio::time::advance(Duration::from_secs(6)).await;
            let later = nodes.pass().await;
            assert!(matches!(later, Outcome::Failed(_)), "{code}: {later:?}");
            let written = server.written.lock().unwrap().clone();
            assert!(written.contains("no, says a1") && written.contains("Updating"), "{code}: {written}");
            // A write that was given up has not failed when it is tried again later.
            assert!(shared.node_troubles.knows("a1"));
            shared.stores.nodes.remove("a1");
            nodes.pass().await;
            assert!(!shared.node_troubles.knows("a1"), "{code}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_of_first_boots_that_is_never_answered_for_slows_no_pass_and_is_told() {
        let server = Refusing::new(200, true);
        let mut pool = a_pool("a", 1);
        pool["metadata"]["annotations"] = json!({api::names::annotation::FIRST_BOOT_NODES: "a1,a2"});
        let (nodes, _context) = server.nodes(pool);
        nodes.pass().await;
        let begin = tokio::time::Instant::now();
        for _ in 0..3 {
            nodes.pass().await;
        }
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        assert_eq!(server.annotated.load(Ordering::Relaxed), 1, "one is under way");
        let written = server.written.lock().unwrap().clone();
        assert!(written.contains("\"machineCount\":1"), "the status is written all the same: {written}");
        assert!(
            written.contains("does not answer") && written.contains(api::names::annotation::FIRST_BOOT_NODES),
            "{written}"
        );
    }
}
