//! The host of one agent: the `host` crate's operations put together into the protocol's steps, drift, and what the agent
//! keeps up beside the config (certificates, the kubelet's health, logins).
//!
//! What it is not: the changing of files itself (the `host` crate's).

pub(crate) mod certificates;
pub(crate) mod drift_check;
pub(crate) mod drift_repair;
pub(crate) mod drift_watch;
pub(crate) mod kubelet_health;
pub(crate) mod logins;
pub(crate) mod machine;
