//! The caches of the cluster's objects: one store for each kind, filled by a watch. Objects are trimmed on arrival.
//!
//! What it is not: which kinds are watched, or what a change of one means (see `watches`).

pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod stores;
pub(crate) mod trimmed;
pub(crate) mod watch;
