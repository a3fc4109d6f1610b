//! The arguments of commands that change a cluster.
//!
//! What it is not: the commands (see `commands::change`).

pub(crate) mod approve;
pub(crate) mod install;
pub(crate) mod pause;
pub(crate) mod retry;
pub(crate) mod undo;
pub(crate) mod uninstall;
