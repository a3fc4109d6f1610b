//! How the settings object, the MachineConfigOperator `cluster`, is called in texts and in URLs.
//!
//! What it is not: what stands in it (see `object`).

use api::definition::Defined as _;
use api::names::CLUSTER;
use api::v1alpha1::MachineConfigOperator;

/// The kind's name in URLs.
pub(crate) const PLURAL: &str = MachineConfigOperator::DEFINITION.plural;

/// How the settings object is called in texts.
pub(crate) fn name() -> String {
    format!("MachineConfigOperator {CLUSTER}")
}
