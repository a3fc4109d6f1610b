//! Permits for Node patches: how many are in flight at once. Each pool has its own permits, and drains have theirs, so
//! that unanswered patches of one pool do not block other pools.
//!
//! What it is not: a rate limit. An answered patch frees its permit at once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

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

/// All permits.
#[derive(Debug)]
pub(crate) struct Places {
    drains: Arc<Semaphore>,
    pools: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl Default for Places {
    fn default() -> Self {
        Self { drains: Arc::new(Semaphore::new(PATCHES_IN_FLIGHT)), pools: Mutex::default() }
    }
}

impl Places {
    /// The permits of one pool, or of drains.
    pub(crate) fn of(&self, whose: Whose<'_>) -> Arc<Semaphore> {
        let Whose::Pool(pool) = whose else { return self.drains.clone() };
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(PATCHES_IN_FLIGHT));
        pools.entry(pool.to_owned()).or_insert_with(new).clone()
    }

    /// Waits until every permit is free, and takes all of them for good.
    pub(crate) async fn take_all(&self) {
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
