//! The node agent: it watches its own Node and changes its host to match.
//!
//! [`protocol`] decides and is pure. The agent carries out one action at a time with the API server and the `host`
//! crate. [`start`] is the program's `daemon start`. [`run_with`] is the same with every part passed in, so that many
//! agents can share a process and a client. [`recover`] runs before the kubelet, without a cluster.
//!
//! Not here: the rollout (the controller decides which node moves when), nor changes of files (the `host` crate).

mod agent;
mod cluster;
mod entry;
mod error;
mod metrics;
mod node;
mod pinned_images;
pub mod protocol;

pub use agent::options::{AgentOptions, Exit};
pub use agent::run::run_with;
pub use cluster::own_node::NodeUpdates;
pub use cluster::report::Reporting;
pub use entry::chroot::chroot_into_host;
pub use entry::first_boot::{FirstBoot, complete_first_boot, first_boot};
pub use entry::start::{StartOptions, recover, start};
pub use entry::trial::watch_trial;
pub use entry::try_on_host::{TryOnHost, TryState, confirm_on_host};
pub use entry::without_cluster::{AppliedOnce, PlannedOnHost, apply_once, plan_on_host, read_config};
pub use error::DaemonError;
pub use metrics::{Metrics, metrics_sample};
pub use node::HostTrouble;
