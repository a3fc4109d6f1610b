//! Patches of Nodes in flight: how many at once ([`Permits`]), and each one until its outcome is known. A patch is bound to the
//! resource version that it was decided on, and its answer goes into the cache before anything else is decided. None is
//! sent once the lease is lost or this controller shuts down.
//!
//! What it is not: the choice of what to write.

use crate::cache::trimmed::TrimmedNode;
use crate::flight::WriteContext;
use crate::io::backoff::WORK;
use client::lease::{STRAY, TermSignals};
use client::{CallError, call};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rollout::NodePatch;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a delayed patch checks whether the lease was renewed after all.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// Node patches in flight at once, for each pool and for all drains together: at ten milliseconds each, thousands a
/// second. The API server serves 200 writes at a time by default, which leaves room for others. Each patch in flight
/// holds a connection with its buffers here.
pub(crate) const PATCHES_IN_FLIGHT: usize = 32;

/// Whose patch a permit is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PatchOf<'a> {
    /// A drain's.
    Drain,
    /// That of a node of this pool.
    Pool(&'a str),
}

/// All permits for Node patches. Each pool has its own, and drains have theirs, so that unanswered patches of one pool
/// do not block other pools. They are no rate limit: an answered patch frees its permit at once.
#[derive(Debug)]
pub(crate) struct Permits {
    /// Cancelled when no further Node patch may be sent, because this controller shuts down.
    closing: CancellationToken,
    drains: Arc<Semaphore>,
    pools: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for Permits {
    fn default() -> Self {
        Self {
            closing: CancellationToken::new(),
            drains: Arc::new(Semaphore::new(PATCHES_IN_FLIGHT)),
            pools: Mutex::default(),
        }
    }
}

impl Permits {
    /// The permits of one pool, or of drains.
    fn of(&self, whose: PatchOf<'_>) -> Arc<Semaphore> {
        let PatchOf::Pool(pool) = whose else { return self.drains.clone() };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(PATCHES_IN_FLIGHT));
        pools.entry(pool.to_owned()).or_insert_with(new).clone()
    }

    /// Waits for a permit to send a Node patch, and until the lease is held. Never returns once [`Permits::close`] was
    /// called.
    pub(crate) async fn take(&self, whose: PatchOf<'_>, terms: &TermSignals) -> OwnedSemaphorePermit {
        let permit = self.of(whose).acquire_owned().await;
        // The lease may still be renewed. If it is not, the pass that waits here is dropped with all others.
        while terms.has_expired() {
            tokio::time::sleep(LEASE_LOOK).await;
        }
        match permit {
            Ok(permit) if !self.closing.is_cancelled() => permit,
            none => {
                // A task that waits for all permits must get this one.
                drop(none);
                std::future::pending().await
            }
        }
    }

    /// Stops further Node patches and waits, for at most `most`, for the answers of those in flight. A patch that is
    /// still on its way when the next leader plans could take a slot that this leader gives to another node.
    pub(crate) async fn close(&self, terms: &TermSignals, most: Duration) {
        self.closing.cancel();
        if tokio::time::timeout(most, self.take_all()).await.is_err() {
            terms.leave_unanswered();
            tracing::warn!("some patches of nodes have no answer yet; the next leader fences them off");
        }
    }

    /// Waits until every permit is free, and takes all of them for good.
    async fn take_all(&self) {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let mut all: Vec<Arc<Semaphore>> = pools;
        all.push(self.drains.clone());
        let number = u32::try_from(PATCHES_IN_FLIGHT).unwrap_or(u32::MAX);
        futures::future::join_all(all.iter().map(async |places| {
            if let Ok(taken) = places.acquire_many(number).await {
                taken.forget();
            }
        }))
        .await;
    }
}

/// After this many server errors in a row for one Node's patch, the server will continue to fail: an admission webhook
/// is down, for example. If the first attempt did take effect after all, the next one was a conflict, and the watch has
/// had seconds to deliver it. So the other nodes need not wait for this patch any longer.
const FAULTS: u32 = 6;

/// How long a patch without an answer is sent again. An API server that was away for a while has answered by then. A
/// webhook that hangs has not, and the plan may want something else for the node by now.
const TRYING: Duration = Duration::from_mins(5);

/// How long a pass waits for an answer. A server that answers with errors of its own has given its final answer by then
/// (see [`FAULTS`]).
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// How often the cache is checked for the outcome of a patch.
const LOOK: Duration = Duration::from_millis(250);

/// Sends one Node patch, holding a permit, and puts the answer into the cache. Returns when the outcome is known: there
/// is an answer; or the Node has another version, to which the patch is not bound; or the patch has arrived or never
/// will.
pub(crate) async fn until_settled(
    answers: &impl WriteContext,
    place: &OwnedSemaphorePermit,
    patch: &NodePatch,
) -> Result<(), CallError> {
    let done = send(answers, place, patch).await;
    if done.as_ref().is_err_and(|e| e.is_unanswered() && !e.is_server_fault()) {
        let last = Instant::now();
        let version = |node: &str| answers.node_version(node);
        let bound = patch.resource_version.parse().ok();
        while last.elapsed() < STRAY && version(&patch.node) == bound {
            tokio::time::sleep(LOOK).await;
        }
        // It may have arrived although the watch has not delivered the new version.
        if version(&patch.node) == bound {
            read(answers, &patch.node).await;
        }
    }
    done
}

/// Sends one Node patch, holding a permit, until it is answered (see [`until_answered`]).
pub(crate) async fn send(
    answers: &impl WriteContext,
    place: &OwnedSemaphorePermit,
    patch: &NodePatch,
) -> Result<(), CallError> {
    // For these fields this does the same as a merge patch, and the API server need not convert the Node to JSON and
    // back.
    let body = Patch::Strategic(patch.merge_patch());
    until_answered(answers, place, &patch.node, &body, patch).await?;
    tracing::info!(node = %patch.node, "{patch}");
    Ok(())
}

/// Sends one Node patch, holding a permit, until it is answered or [`TRYING`] has passed, and puts the answer into the
/// cache.
///
/// A patch without an answer may have arrived, or may still arrive. A plan made before that is known could send another
/// node as well, and so exceed `maxUnavailable`. So the patch is sent again until it is answered. Because it is bound
/// to a version it takes effect at most once. A refusal says that the node has changed, maybe by an earlier copy of
/// this patch; so the node is read before anything else is decided.
pub(crate) async fn until_answered(
    answers: &impl WriteContext,
    _place: &OwnedSemaphorePermit,
    name: &str,
    body: &Patch<Value>,
    words: &(dyn Display + Sync),
) -> Result<(), CallError> {
    let api = Api::<TrimmedNode>::all(answers.client());
    let params = PatchParams::default();
    let (begin, mut attempt, mut faults) = (Instant::now(), 0, 0);
    loop {
        let error = match call(|| format!("patch of node {words}"), api.patch(name, &params, body)).await {
            Ok(node) => {
                answers.node_answer(&node.0);
                return Ok(());
            }
            Err(e) => e,
        };
        faults = if error.is_server_fault() { faults + 1 } else { 0 };
        if !error.is_unanswered() || faults >= FAULTS || begin.elapsed() >= TRYING {
            if attempt > 0 {
                read(answers, name).await;
            }
            return Err(error);
        }
        let delay = WORK.delay(attempt);
        if attempt == 0 {
            tracing::warn!(node = %name, "{}; it is sent again until the API server answers", error.chain());
        } else {
            tracing::debug!(node = %name, attempt, ?delay, "{}", error.chain());
        }
        tokio::time::sleep(delay).await;
        attempt += 1;
    }
}

/// Puts the current Node into the cache as soon as it can be read.
async fn read(answers: &impl WriteContext, name: &str) {
    let api = Api::<TrimmedNode>::all(answers.client());
    let (mut attempt, mut faults) = (0, 0);
    loop {
        let error = match call(|| format!("node {name}"), api.get(name)).await {
            Ok(node) => return answers.node_answer(&node.0),
            Err(e) => e,
        };
        faults = if error.is_server_fault() { faults + 1 } else { 0 };
        // It is gone, we may not read it, or the fault lasts: the watch will deliver what is true.
        if !error.is_unanswered() || faults >= FAULTS {
            return;
        }
        tracing::debug!(node = %name, attempt, "{}", error.chain());
        tokio::time::sleep(WORK.delay(attempt)).await;
        attempt += 1;
    }
}

#[cfg(test)]
mod tests;
