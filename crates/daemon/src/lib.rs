//! The node agent: its own Node in, host changes out.
//!
//! What it is: [`protocol`] decides (pure), the agent does what it says with the API server and the `host` crate, one
//! step at a time. [`start`] is the program's `daemon start`; [`run_with`] is the same with every part passed in, so
//! that many agents can share a process and a client; [`recover`] is what runs before the kubelet, without a cluster.
//!
//! What it is not: the roll-out (who moves when is the controller's), and the changing of files (the `host` crate's).

mod agent;
mod certificates;
mod check;
pub mod clock;
mod cluster;
mod drift;
mod enter;
mod error;
mod feed;
mod first_boot;
mod health;
mod here;
mod identity;
pub mod join;
mod logins;
mod machine;
mod metrics;
mod parts;
mod policy;
mod progress_patch;
pub mod protocol;
mod repair;
mod report;
mod run;
mod start;

pub use enter::enter_host;
pub use error::DaemonError;
pub use feed::Feed;
pub use first_boot::{FirstBoot, complete, first_boot};
pub use here::{Once, once, plan_here, read_config};
pub use metrics::Metrics;
pub use parts::{Exit, Parts, Reporting, Trouble};
pub use policy::policy as disruption_policy;
pub use run::run_with;
pub use start::{Options, recover, start};
