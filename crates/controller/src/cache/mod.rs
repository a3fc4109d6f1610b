//! What is known of the cluster: one store a kind, filled by watches, trimmed on arrival.

pub(crate) mod follow;
pub(crate) mod follow_settings;
pub(crate) mod followed;
pub(crate) mod settings;
pub(crate) mod store;
pub(crate) mod stores;
pub(crate) mod template_inputs;
pub(crate) mod trimmed;
pub(crate) mod watch;
