//! How the settings object, the MachineConfigOperator `cluster`, is called in texts and in URLs.
//!
//! What it is not: what stands in it (see `object`).

use api::names::CLUSTER;

/// The kind's name in URLs.
pub(crate) const PLURAL: &str = "machineconfigoperators";

/// How the settings object is called in texts.
pub(crate) fn name() -> String {
    format!("MachineConfigOperator {CLUSTER}")
}
