//! The caches of the cluster's objects: one store for each kind, filled by watches. Objects are trimmed on arrival.

pub(crate) mod follow;
pub(crate) mod follow_settings;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod stores;
pub(crate) mod template_inputs;
pub(crate) mod watch;
