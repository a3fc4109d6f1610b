//! Patches of Nodes and writes to pools that were sent and have no answer yet. The node pass waits for an answer for a
//! moment, then goes on without it. So an object whose writes are never answered, for example because an admission
//! webhook hangs, delays nothing else.
//!
//! Guarantee: as long as a patch may still arrive, its Node is recorded here. The plan keeps that node's slot and does
//! not touch the node (`Facts::unanswered`).
//!
//! What it is not: retries, and when they end (see [`crate::flight::writes`]).

use crate::flight::refusals::NotWritten;
use crate::flight::writes::{until_settled, write_first_boot_nodes, write_status};
use crate::shared::Shared;
use api::k8s::ResourceExt;
use api::v1::{MachineConfigPool, MachineConfigPoolStatus};
use rollout::{Change, NodePatch, Unanswered};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a pass waits for an answer. A server that answers with errors of its own has given its final answer by then
/// (see [`crate::flight::writes`]).
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A patch that was sent.
#[derive(Debug)]
struct Sent {
    at: Instant,
    /// Whether it sends the node to another config.
    moves: bool,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeMap<Arc<str>, Sent>,
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
pub(crate) enum Written {
    /// It is done.
    Done,
    /// It, or an earlier write, has no answer yet.
    Pending,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands the outcome to the pass that waits for it. If none does, a refusal is kept for the next pass.
fn tell(
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
async fn patiently(outcome: oneshot::Receiver<Result<(), NotWritten>>) -> Result<Written, NotWritten> {
    match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(Ok(answer)) => answer.map(|()| Written::Done),
        Err(_) | Ok(Err(_)) => Ok(Written::Pending),
    }
}

impl Requests {
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
        let moves = !patch.desired_config.is_keep() || !patch.desired_image.is_keep();
        lock(&self.state).nodes.insert(patch.node.clone(), Sent { at: Instant::now(), moves });
        let (shared, state, pool) = (shared.clone(), self.state.clone(), pool.clone());
        self.spawn(async move {
            let done = until_settled(&shared, &place, &patch).await;
            let outcome = shared.node_troubles.judge(&patch.node, done);
            // The answer is in the cache.
            lock(&state).nodes.remove(&patch.node);
            drop(place);
            tell(&shared, &state, &pool, waits, outcome);
        });
        outcome
    }

    /// Writes a pool's status and waits a moment for the answer. While an earlier write has no answer, nothing is
    /// written.
    ///
    /// # Errors
    /// A refusal that came in time. Later ones are returned by [`Requests::take_failed`].
    pub(crate) async fn status(
        &self,
        shared: &Arc<Shared>,
        pool: &MachineConfigPool,
        status: &MachineConfigPoolStatus,
    ) -> Result<Written, NotWritten> {
        let name = pool.name_any();
        if !lock(&self.state).statuses.insert(name.clone()) {
            return Ok(Written::Pending);
        }
        let (waits, outcome) = oneshot::channel();
        let (shared, state, pool, status) =
            (shared.clone(), self.state.clone(), pool.clone(), status.clone());
        self.spawn(async move {
            let done = write_status(&shared, &pool, &status).await;
            let outcome = shared.pool_troubles.judge(&name, done);
            lock(&state).statuses.remove(&name);
            tell(&shared, &state, &name, waits, outcome);
        });
        patiently(outcome).await
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
    ) -> Result<Written, NotWritten> {
        let name = pool.name_any();
        match lock(&self.state).first_boots.entry(name.clone()) {
            Entry::Occupied(_) => return Ok(Written::Pending),
            Entry::Vacant(entry) => entry.insert(Instant::now()),
        };
        let (waits, outcome) = oneshot::channel();
        let (shared, state, pool, change) =
            (shared.clone(), self.state.clone(), pool.clone(), change.clone());
        self.spawn(async move {
            let done = write_first_boot_nodes(&shared, &pool, &change).await;
            let outcome = shared.pool_troubles.judge(&format!("{name} first boots"), done);
            lock(&state).first_boots.remove(&name);
            tell(&shared, &state, &name, waits, outcome);
        });
        patiently(outcome).await
    }

    /// Pools whose list of expected first boots was written a while ago and has no answer. That delays nothing.
    pub(crate) fn overdue_first_boots(&self) -> Vec<String> {
        let state = lock(&self.state);
        let overdue = state.first_boots.iter().filter(|(_, at)| at.elapsed() >= PATIENCE);
        overdue.map(|(pool, _)| pool.clone()).collect()
    }

    /// Nodes whose patches have no answer yet.
    pub(crate) fn unanswered(&self) -> BTreeMap<Arc<str>, Unanswered> {
        let state = lock(&self.state);
        let one = |sent: &Sent| Unanswered { moves: sent.moves, overdue: sent.at.elapsed() >= PATIENCE };
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
    pub(crate) fn take_failed(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut lock(&self.state).failed)
    }
}
