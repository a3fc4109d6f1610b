//! The node agent: its own Node in, host changes out.
//!
//! What it is: [`protocol`] decides (pure), the agent does what it says with the API server and the `host` crate, one
//! step at a time. [`start`] is the program's `daemon start`; [`run_with`] is the same with every part passed in, so
//! that many agents can share a process and a client; [`recover`] is what runs before the kubelet, without a cluster.
//!
//! What it is not: the roll-out (who moves when is the controller's), and the changing of files (the `host` crate's).

mod agent;
mod cluster;
mod entry;
mod error;
mod metrics;
mod node;
pub mod protocol;

pub use agent::options::{AgentOptions, Exit};
pub use agent::run::run_with;
pub use cluster::disruption_policy::policy as disruption_policy;
pub use cluster::node_watch::NodeUpdates;
pub use cluster::report::Reporting;
pub use entry::chroot::chroot_into_host;
pub use entry::first_boot::{FirstBoot, complete_first_boot, first_boot};
pub use entry::start::{StartOptions, recover, start};
pub use entry::without_cluster::{AppliedOnce, apply_once, plan_on_host, read_config};
pub use error::DaemonError;
pub use metrics::Metrics;
pub use node::Trouble;
