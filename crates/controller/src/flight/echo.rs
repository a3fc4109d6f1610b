//! Tells the echo of our own write to a pool from a change by somebody else.

use api::v1::PoolConfiguration;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What rendering last had each pool name. A pool that comes to name this asks for nothing.
#[derive(Debug, Default)]
pub(crate) struct Named(Mutex<HashMap<String, PoolConfiguration>>);

impl Named {
    fn all(&self) -> MutexGuard<'_, HashMap<String, PoolConfiguration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool is about to be given this.
    pub(crate) fn expect(&self, pool: &str, configuration: PoolConfiguration) {
        self.all().insert(pool.to_owned(), configuration);
    }

    /// Is this what rendering last gave the pool?
    pub(crate) fn is(&self, pool: &str, configuration: &PoolConfiguration) -> bool {
        self.all().get(pool).is_some_and(|named| named == configuration)
    }

    /// The pool is gone.
    pub(crate) fn forget(&self, pool: &str) {
        self.all().remove(pool);
    }

    /// A term begins: another leader may have had the pools name something else.
    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}
