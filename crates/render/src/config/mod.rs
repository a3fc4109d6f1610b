//! MachineConfigs to one rendered config of a pool: checked, merged, named, with where everything comes from; and what
//! people ask of rendered configs: what differs, why, since when.
//!
//! What it is not: MachineConfigs that are made here (see `template` and `settings`).

pub(crate) mod blame;
pub(crate) mod check;
pub(crate) mod diff;
mod explain;
mod follow;
pub mod history;
pub(crate) mod inputs;
pub(crate) mod merge;
pub(crate) mod name;
pub(crate) mod object;
pub(crate) mod plan;
pub mod provenance;
pub mod streams;
