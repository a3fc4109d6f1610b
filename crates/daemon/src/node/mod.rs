//! The host of one agent: the `host` crate's operations combined into the protocol's steps, drift, and what the agent
//! maintains besides the config (certificates, the kubelet's health, logins).
//!
//! Not here: how files are changed (the `host` crate).

use tokio::sync::watch;

pub(crate) mod boot_units;
pub(crate) mod certificates;
pub(crate) mod drift_check;
pub(crate) mod drift_reason;
pub(crate) mod drift_repair;
pub(crate) mod drift_watch;
pub(crate) mod kubelet_health;
pub(crate) mod logins;
pub(crate) mod machine;

/// What is wrong on the host other than its config, as it comes and goes; with path and remedy.
pub type HostTrouble = watch::Receiver<Option<String>>;
