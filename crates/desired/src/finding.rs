//! A difference that cannot be applied: where it is, why, what to do, and whether the config or the host is at fault.
//!
//! What it is not: the checks that find them (see `desired_host` and `rules` for what a config asks for; `host` for what is
//! in the way on a machine).

use std::fmt;

use serde::Serialize;

/// Whether a difference cannot be applied to any running machine, or only not to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// The config asks for something that no running machine can do. The node becomes Unreconcilable.
    Config,
    /// Something on this machine is in the way. The node becomes Degraded, and recovers once that is gone.
    Machine,
}

/// One difference that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Irreconcilable {
    /// A path in the MachineConfig, such as `spec.config.storage.disks`, or a file's path.
    pub path: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: String,
    /// Whether the config or the machine is at fault.
    pub scope: Scope,
}

impl fmt::Display for Irreconcilable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path, self.why, self.remedy)
    }
}
