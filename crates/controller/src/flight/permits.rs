//! Permits for patches of Nodes: how many are in flight at once, and that none is sent once the lease is lost or this
//! controller shuts down.
//!
//! What it is not: the sending (see `nodes`).

use crate::term::leader::TermSignals;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How often a delayed patch checks whether the lease was renewed after all.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// Node patches in flight at once, for each pool and for all drains together: at ten milliseconds each, thousands a
/// second. The API server serves 200 writes at a time by default, which leaves room for others. Each patch in flight
/// holds a connection with its buffers here.
pub(crate) const PATCHES_IN_FLIGHT: usize = 32;

/// Whose patch a permit is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Whose<'a> {
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
    fn of(&self, whose: Whose<'_>) -> Arc<Semaphore> {
        let Whose::Pool(pool) = whose else { return self.drains.clone() };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(PATCHES_IN_FLIGHT));
        pools.entry(pool.to_owned()).or_insert_with(new).clone()
    }

    /// Waits for a permit to send a Node patch, and until the lease is held. Never returns once [`Permits::close`] was
    /// called.
    pub(crate) async fn take(&self, whose: Whose<'_>, terms: &TermSignals) -> OwnedSemaphorePermit {
        let permit = self.of(whose).acquire_owned().await;
        // The lease may still be renewed. If it is not, the pass that waits here is dropped with all others.
        while terms.over() {
            tokio::time::sleep(LEASE_LOOK).await;
        }
        match permit {
            Ok(permit) if !self.closing.is_cancelled() => permit,
            none => {
                // The one who waits for all permits must get this one.
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
