//! A difference that cannot be applied: where, why, what to do, and whose fault it is.
//!
//! What it is not: the finding of them (see `wanted` and `rules` for what a config asks for; `host` for what a machine
//! has in the way).

use std::fmt;

use serde::Serialize;

/// Why a difference cannot be applied to a running machine: to any, or to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// The config asks for what no running machine can do. The node becomes Unreconcilable.
    Config,
    /// Something on this machine is in the way. The node becomes Degraded, and recovers when that is gone.
    Machine,
}

/// One difference that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Irreconcilable {
    /// Where: a path in the MachineConfig such as `spec.config.storage.disks`, or a file's path.
    pub path: String,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: String,
    /// Whose fault it is.
    pub scope: Scope,
}

impl fmt::Display for Irreconcilable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path, self.why, self.remedy)
    }
}
