//! The desired state of a host: a parsed MachineConfig, what it wants of the operating system, the rules of what a
//! running machine cannot apply, the agent's reserved paths, and the masking of secrets. Everything takes and returns
//! values; nothing logs.
//!
//! ```text
//! MachineConfigSpec ─► DesiredHost::parse ─► DesiredHost ─┬─► irreconcilable(old, new, overrides), rules::broken ─► findings
//!                                                         └─► (host: diff, plan, drift)
//! ```
//!
//! Who has parsed a config hands the [`DesiredHost`] on, so that nobody parses it again for the same update or rendering. It
//! holds the contents of all files, so nobody keeps it at rest (see docs/architecture.md, "Inside the host").
//!
//! What it is not: a host (see `host`), a pool (see `render`), Kubernetes clients, files.

mod content;
mod cut_off;
mod desired_host;
mod disruption_policy;
mod finding;
mod image;
mod irreconcilable;
mod login;
pub mod mask;
mod os;
pub mod packages;
pub mod paths;
pub mod rules;

pub use content::{Content, sha256};
pub use cut_off::{CutOffReason, KUBELET_UNITS, SSH_UNITS, field_cuts_off, file_cuts_off, unit_cuts_off};
pub use desired_host::{
    DEV_NULL, DesiredHost, DesiredPath, FILE_MODE, FileOrigin, Paths, ignition_config, ignition_value,
    parsed_entries,
};
pub use disruption_policy::{
    DEFAULT_SERVICES, DisruptionPolicy, FilePolicy, HOST_PACKAGES_ALLOWED, KeyPolicy,
    LIVE_EXTENSIONS_ALLOWED, PolicyAction, PoolDisruption, Service, UPDATE_CA_TRUST, UnitPolicy,
};
pub use finding::{Irreconcilable, Scope};
pub use image::{by_digest, config_and_image, in_image, lacks_image_to_return_to, with_image};
pub use irreconcilable::irreconcilable;
pub use login::{has_core_login, removes_last_login};
pub use os::{DEFAULT_KERNEL, DesiredOs, KERNEL_TYPES, OsField, arguments, kernel_type, refused_extension};
pub use paths::has_contents;
pub use rules::{CORE, Overrides};
