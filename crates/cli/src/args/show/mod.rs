//! The arguments of commands that only show.
//!
//! What it is not: the commands (see `commands::show`).

pub(crate) mod bundle;
pub(crate) mod dashboard;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod plan;
pub(crate) mod status;
