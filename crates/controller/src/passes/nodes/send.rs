//! Carries out the plan of one pool: sends its Node patches, writes its status, records its events; and keeps a record of
//! what was sent and has no answer yet. The node pass waits for an answer for a moment, then goes on without it. So an
//! object whose writes are never answered, for example because an admission webhook hangs, delays nothing else.
//!
//! Guarantee: as long as a patch may still arrive, its Node is recorded here. The plan keeps that node's slot and does
//! not touch the node (`Facts::unanswered`).
//!
//! What it is not: retries, and when they end (see [`crate::flight::nodes`]).

use crate::flight::nodes::{PATIENCE, PatchOf, until_settled};
use crate::flight::pools::{write_first_boot_nodes, write_status};
use crate::flight::refusals::NotWritten;
use crate::io::events::{Source, node_reference, reference};
use crate::shared::{PolicyRevision, Shared};
use api::k8s::ResourceExt;
use api::v1::{MachineConfigPool, MachineConfigPoolStatus};
use futures::stream::{self, StreamExt};
use rollout::{Change, EventObject, EventPlan, NodePatch, PoolPlan, Trouble, TroubleOf, Unanswered};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Patches of a pool's plan that hold a permit or wait for one. No more are started, because each takes ten kilobytes.
pub(super) const PATCHES_WAITING: usize = 512;

/// How long the patches of one plan are sent; the rest is planned again. An API server that is busy with thousands of
/// nodes takes minutes for all patches. If somebody pauses the pool or gives it another config, whatever was not sent
/// yet stops at once.
const SENDING: Duration = Duration::from_millis(500);

/// The outcome of a pool's plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SendOutcome {
    /// It was carried out.
    All,
    /// The time for one plan is over (see [`SENDING`]), or the pool has changed.
    Some,
    /// Objects have changed since the plan: these nodes, or the pool.
    Stale(Vec<Arc<str>>),
    /// A write was refused, in the API server's words.
    Refused(String),
}

impl From<NotWritten> for SendOutcome {
    fn from(not_written: NotWritten) -> Self {
        match not_written {
            NotWritten::Stale => Self::Stale(vec![]),
            NotWritten::Refused(why) => Self::Refused(why),
        }
    }
}

/// The name under which refusals and permits of nodes without a pool are kept: no pool has an empty name.
pub(super) const NO_POOL: &str = "";

/// The answers to Node patches that arrived in time.
#[derive(Debug, Default)]
struct PatchAnswers {
    /// How many were answered.
    answers: usize,
    /// The nodes that were sent to another config.
    sent: Vec<Arc<str>>,
    /// The nodes that had changed since the plan.
    moved_on: Vec<Arc<str>>,
    /// The first refusal.
    refused: Option<String>,
}

/// A patch that was sent.
#[derive(Debug)]
struct InFlight {
    at: Instant,
    /// Whether it sends the node to another config.
    moves: bool,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<Arc<str>, InFlight>,
    /// Pools whose status is being written.
    statuses: BTreeSet<String>,
    /// Pools whose list of expected first boots is being written, and since when.
    first_boots: BTreeMap<String, Instant>,
    /// Refusals that arrived after the pass had stopped waiting, by pool.
    failed: BTreeMap<String, String>,
}

/// The writes in flight. Dropping it drops the requests.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    // Not part of the state, because the tasks themselves hold the state.
    tasks: Mutex<JoinSet<()>>,
    state: Arc<Mutex<State>>,
}

/// The outcome of a write to a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteState {
    /// It is done.
    Done,
    /// It, or an earlier write, has no answer yet.
    Pending,
}

/// Whether a patch may send its node to another config or image.
fn moves(patch: &NodePatch) -> bool {
    !patch.desired_config.is_keep() || !patch.desired_image.is_keep()
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands the outcome to the pass that waits for it. If none does, a refusal is kept for the next pass.
fn hand_over(
    shared: &Shared,
    state: &Mutex<State>,
    pool: &str,
    waits: oneshot::Sender<Result<(), NotWritten>>,
    outcome: Result<(), NotWritten>,
) {
    let Err(late) = waits.send(outcome) else { return };
    if let Err(NotWritten::Refused(words)) = late {
        lock(state).failed.insert(pool.to_owned(), words);
    }
    shared.mark_cluster();
}

/// Waits a moment for an outcome. A write without one by then continues on its own, or this controller is shutting
/// down.
async fn outcome_in_time(
    outcome: oneshot::Receiver<Result<(), NotWritten>>,
) -> Result<WriteState, NotWritten> {
    match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(Ok(answer)) => answer.map(|()| WriteState::Done),
        Err(_) | Ok(Err(_)) => Ok(WriteState::Pending),
    }
}

impl Requests {
    /// Carries out the plan of one pool: its Node patches at once, a bounded number in flight, then its status and events.
    /// `known`: how much was known of RolloutPolicies when the plan was made.
    pub(super) async fn carry_out(
        &self,
        shared: &Arc<Shared>,
        plan: &PoolPlan,
        pool: &MachineConfigPool,
        known: PolicyRevision,
    ) -> SendOutcome {
        // While a patch waits for its permit, somebody may pause the pool, revert the change, or lower
        // `maxUnavailable`.
        let (planned, has_policy) = (pool.metadata.generation, plan.policy.is_some());
        let as_planned = |patch: &NodePatch| {
            let same = shared.stores.pools.get(&plan.pool).is_some_and(|p| p.metadata.generation == planned);
            let now = shared.policy_revision();
            // A failing gate stops the patches that are not sent yet. Patches that move no node give way to a newer plan
            // that may move some: otherwise a wave would wait for the taints of thousands of nodes.
            let stands = now.setbacks == known.setbacks && (moves(patch) || now.advances == known.advances);
            same && (!has_policy || stands)
        };
        let PatchAnswers { answers, sent, moved_on, refused } =
            self.send_all(shared, &plan.pool, &plan.patches, as_planned).await;
        let all = plan.patches.len();
        let sent: Vec<&str> = sent.iter().map(|n| &**n).collect();
        for event in plan.events_of_sent(&sent) {
            record_event(shared, &event, pool);
        }
        if let Some(why) = refused {
            return SendOutcome::Refused(why);
        }
        if !moved_on.is_empty() {
            return SendOutcome::Stale(moved_on);
        }
        // A name that was used is removed from the list before anything else is written to the version that was planned
        // from; the status follows with the next plan. A write without an answer delays nothing.
        if !plan.first_boot_nodes.is_keep() {
            match self.first_boot_nodes(shared, pool, &plan.first_boot_nodes).await {
                Ok(WriteState::Done) => return SendOutcome::Some,
                Ok(WriteState::Pending) => {}
                Err(not_written) => return not_written.into(),
            }
        }
        // Written also while many patches are left: with thousands of nodes that takes minutes, and somebody is
        // watching.
        if let Some(status) = &plan.status
            && let Err(not_written) = self.status(shared, pool, status).await
        {
            return not_written.into();
        }
        for event in plan.events_of_status() {
            record_event(shared, event, pool);
        }
        if answers < all { SendOutcome::Some } else { SendOutcome::All }
    }

    /// Sends the patches of nodes that no pool owns. They move no node.
    pub(super) async fn free_unmanaged(&self, shared: &Arc<Shared>, patches: &[NodePatch]) -> SendOutcome {
        let PatchAnswers { answers, moved_on, refused, .. } =
            self.send_all(shared, &NO_POOL.into(), patches, |_| true).await;
        match refused {
            Some(why) => SendOutcome::Refused(why),
            None if !moved_on.is_empty() => SendOutcome::Stale(moved_on),
            None if answers < patches.len() => SendOutcome::Some,
            None => SendOutcome::All,
        }
    }

    /// Sends Node patches at once, a bounded number in flight, for as long as [`SENDING`]. `as_planned`: whether one that
    /// has its permit may still be sent.
    async fn send_all(
        &self,
        shared: &Arc<Shared>,
        pool: &Arc<str>,
        patches: &[NodePatch],
        as_planned: impl Fn(&NodePatch) -> bool,
    ) -> PatchAnswers {
        // Nodes that move go first: thousands of others may only get or lose a taint.
        let (first, rest): (Vec<&NodePatch>, Vec<&NodePatch>) = patches.iter().partition(|p| moves(p));
        let patches: Vec<NodePatch> = first.into_iter().chain(rest).cloned().collect();
        let as_planned = &as_planned;
        let send = |patch: NodePatch| async move {
            let place = shared.permits.take(PatchOf::Pool(pool), &shared.terms).await;
            if !as_planned(&patch) {
                return (patch, None);
            }
            // The channel closes without an answer only when this controller shuts down.
            let answer = self.send(shared, pool, place, patch.clone()).await.ok();
            (patch, answer)
        };
        let until = tokio::time::Instant::now() + SENDING;
        let in_time = |_: &NodePatch| futures::future::ready(tokio::time::Instant::now() < until);
        let results = stream::iter(patches).take_while(in_time).map(send).buffer_unordered(PATCHES_WAITING);
        let mut results = std::pin::pin!(results);
        let mut all = PatchAnswers::default();
        // Patches that still wait for a permit by then are dropped, unsent. Those that were sent continue on their own.
        let last = until + PATIENCE;
        while let Ok(Some((patch, answer))) = tokio::time::timeout_at(last, results.next()).await {
            let Some(result) = answer else { continue };
            all.answers += 1;
            match result {
                Ok(()) if !patch.desired_config.is_keep() => all.sent.push(patch.node),
                Ok(()) => {}
                Err(NotWritten::Stale) => all.moved_on.push(patch.node),
                Err(NotWritten::Refused(why)) => all.refused = all.refused.or(Some(why)),
            }
        }
        all
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Sends one patch, holding a permit. The returned receiver gets the outcome once it is known.
    pub(crate) fn send(
        &self,
        shared: &Arc<Shared>,
        pool: &Arc<str>,
        place: OwnedSemaphorePermit,
        patch: NodePatch,
    ) -> oneshot::Receiver<Result<(), NotWritten>> {
        let (waits, outcome) = oneshot::channel();
        let moves = moves(&patch);
        lock(&self.state).nodes.insert(patch.node.clone(), InFlight { at: Instant::now(), moves });
        let (shared, state, pool) = (shared.clone(), self.state.clone(), pool.clone());
        self.spawn(async move {
            let done = until_settled(&*shared, &place, &patch).await;
            let outcome = shared.node_troubles.outcome(&patch.node, done);
            // The answer is in the cache.
            lock(&state).nodes.remove(&patch.node);
            drop(place);
            hand_over(&shared, &state, &pool, waits, outcome);
        });
        outcome
    }

    /// Writes a pool's status and waits a moment for the answer. While an earlier write has no answer, nothing is
    /// written.
    ///
    /// # Errors
    /// A refusal that came in time. Later ones are returned by [`Requests::take_refusals`].
    pub(crate) async fn status(
        &self,
        shared: &Arc<Shared>,
        pool: &MachineConfigPool,
        status: &MachineConfigPoolStatus,
    ) -> Result<WriteState, NotWritten> {
        let name = pool.name_any();
        if !lock(&self.state).statuses.insert(name.clone()) {
            return Ok(WriteState::Pending);
        }
        let (waits, outcome) = oneshot::channel();
        let (shared, state, pool, status) =
            (shared.clone(), self.state.clone(), pool.clone(), status.clone());
        self.spawn(async move {
            let done = write_status(&*shared, &pool, &status).await;
            let outcome = shared.pool_troubles.outcome(&name, done);
            lock(&state).statuses.remove(&name);
            hand_over(&shared, &state, &name, waits, outcome);
        });
        outcome_in_time(outcome).await
    }

    /// Writes which nodes a pool expects to boot into it, and waits a moment for the answer. While an earlier write has
    /// no answer, nothing is written.
    ///
    /// # Errors
    /// As [`Requests::status`].
    pub(crate) async fn first_boot_nodes(
        &self,
        shared: &Arc<Shared>,
        pool: &MachineConfigPool,
        change: &Change<Arc<str>>,
    ) -> Result<WriteState, NotWritten> {
        let name = pool.name_any();
        match lock(&self.state).first_boots.entry(name.clone()) {
            Entry::Occupied(_) => return Ok(WriteState::Pending),
            Entry::Vacant(entry) => entry.insert(Instant::now()),
        };
        let (waits, outcome) = oneshot::channel();
        let (shared, state, pool, change) =
            (shared.clone(), self.state.clone(), pool.clone(), change.clone());
        self.spawn(async move {
            let done = write_first_boot_nodes(&*shared, &pool, &change).await;
            let outcome = shared.pool_troubles.outcome(&format!("{name} first boots"), done);
            lock(&state).first_boots.remove(&name);
            hand_over(&shared, &state, &name, waits, outcome);
        });
        outcome_in_time(outcome).await
    }

    /// Pools whose list of expected first boots was written a while ago and has no answer. That delays nothing.
    pub(crate) fn overdue_first_boots(&self) -> Vec<Trouble> {
        let state = lock(&self.state);
        let overdue = state.first_boots.iter().filter(|(_, at)| at.elapsed() >= PATIENCE);
        let trouble = |(pool, _): (&String, &Instant)| Trouble {
            text: format!(
                "the API server does not answer a change of the pool's annotation {}; check for an admission webhook that hangs",
                api::names::annotation::FIRST_BOOT_NODES
            ),
            of: TroubleOf::Pool(pool.as_str().into()),
        };
        overdue.map(trouble).collect()
    }

    /// Nodes whose patches have no answer yet.
    pub(crate) fn unanswered(&self) -> BTreeMap<Arc<str>, Unanswered> {
        let state = lock(&self.state);
        let one = |sent: &InFlight| Unanswered { moves: sent.moves, overdue: sent.at.elapsed() >= PATIENCE };
        state.nodes.iter().map(|(node, sent)| (node.clone(), one(sent))).collect()
    }

    /// How long until another of them is overdue.
    pub(crate) fn next_overdue(&self) -> Option<Duration> {
        let state = lock(&self.state);
        let sent = state.nodes.values().map(|sent| sent.at).chain(state.first_boots.values().copied());
        let left = sent.map(|at| PATIENCE.saturating_sub(at.elapsed()));
        left.filter(|left| !left.is_zero()).min()
    }

    /// Refusals since the last pass, by pool.
    pub(crate) fn take_refusals(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut lock(&self.state).failed)
    }
}

/// Records an event about this pool, another one, or a node.
fn record_event(shared: &Shared, event: &EventPlan, pool: &MachineConfigPool) {
    let about = match &event.about {
        EventObject::Pool(name) if **name == pool.name_any() => reference(pool),
        EventObject::Pool(name) => match shared.stores.pools.get(name) {
            Some(pool) => reference(&*pool),
            None => return,
        },
        EventObject::Node(name) => node_reference(name),
    };
    shared.events.publish(Source::Node, about, event.reason, event.message.clone());
}
