//! The settings object, the MachineConfigOperator `cluster`: what it says, read and checked, and how it is called.
//!
//! What it is not: what `mco install` writes into the ControllerConfig (see `controller_config_values`).

mod name;
pub mod object;

pub(crate) use name::{PLURAL, name};
