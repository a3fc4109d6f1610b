//! What tells the echo of our own write to a pool from a change by somebody else.
//!
//! What it is not: the write (see `pools`).

use api::v1::PoolConfiguration;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The config that rendering last wrote into each pool. When that write comes back from the watch, nothing needs to be
/// done.
#[derive(Debug, Default)]
pub(crate) struct Named(Mutex<HashMap<String, PoolConfiguration>>);

impl Named {
    fn all(&self) -> MutexGuard<'_, HashMap<String, PoolConfiguration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the config that is about to be written into the pool.
    pub(crate) fn expect(&self, pool: &str, configuration: PoolConfiguration) {
        self.all().insert(pool.to_owned(), configuration);
    }

    /// Whether this is what rendering last wrote into the pool.
    pub(crate) fn is(&self, pool: &str, configuration: &PoolConfiguration) -> bool {
        self.all().get(pool).is_some_and(|named| named == configuration)
    }

    /// Forgets a pool that is gone.
    pub(crate) fn forget(&self, pool: &str) {
        self.all().remove(pool);
    }

    /// Forgets everything at the start of a term: another leader may have written other configs into the pools.
    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}
