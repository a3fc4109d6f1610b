//! Turns MachineConfigs into one rendered config for a pool: checked, merged, named, and with the origin of everything
//! in it. Also answers questions about rendered configs: what differs, why, and since when.
//!
//! What it is not: MachineConfigs that are generated (see `template` and `settings`).

pub(crate) mod blame;
pub(crate) mod check;
pub(crate) mod diff;
mod explain;
pub mod history;
pub(crate) mod inputs;
pub(crate) mod merge;
pub(crate) mod name;
pub(crate) mod object;
pub(crate) mod plan;
pub mod provenance;
mod reconcilable;
pub mod streams;
