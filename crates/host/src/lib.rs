//! One machine: what must change on it to reach a config, what that costs, and how it is done so that a crash at any
//! instruction leaves the old state or the new one.
//!
//! ```text
//! Host::probe ─► Facts ─┐
//! current, desired ─────┼─► plan ─► HostPlan ─► (the caller drains) ─► Host::apply ─► (the caller reboots)
//! DisruptionPolicy ─────┘                                                  │
//! at start-up: Host::recover ◄──────────── journal ◄───────────────────────┘
//! ```
//!
//! What it is not: anything of Kubernetes. It is synchronous; async callers give it a thread.

mod batch;
mod bounded;
mod change;
mod dbus;
mod disruption;
mod drift;
mod error;
mod facts;
mod fake;
pub mod fault;
mod found;
mod host;
mod journal;
mod keys;
mod lock;
mod look;
mod obstacle;
mod os;
pub mod paths;
mod plan;
mod policy;
mod preview;
mod programs;
mod record;
mod registries;
mod resolve;
mod root;
mod shadow;
mod sshd;
mod step;
mod steps;
mod systemd;
mod trail;
mod trust;
mod unit_file;
mod users;
mod validate;
mod watch;
mod xattr;

pub use dbus::DbusSystemd;
pub use desired::{Content, Irreconcilable, OsState, Scope};
pub use disruption::{Disruption, ServiceDisruption};
pub use drift::applied;
pub use error::Error;
pub use facts::{Facts, PathFacts};
pub use fake::FakeSystemd;
pub use found::{Attributes, Found, FsError};
pub use host::{Applied, Host, RebootStatus, Recovery};
pub use obstacle::Obstacle;
pub use os::{FakeOs, OsBackend, OsError, Unsupported};
pub use plan::{Change, HostPlan, plan};
pub use policy::{DisruptionPolicy, FilePolicy, KeyPolicy, PolicyAction, Service, UnitPolicy};
pub use preview::{Severity, preview, warnings};
pub use programs::{HostPrograms, Output, ProgramError, Programs};
pub use record::{Boot, CurrentConfig, Names, PendingReboot};
pub use root::{Options, Root};
pub use sshd::{Answer, SshdAnswers};
pub use step::{Replaces, Secret, ServiceAction, Step, UnitAction};
pub use systemd::{Rationale, Systemd, SystemdError, UnitFileState};
pub use trust::TrustTool;
pub use users::{User, Users};
pub use validate::Drift;
pub use watch::{Stop, Touched, Watch};
