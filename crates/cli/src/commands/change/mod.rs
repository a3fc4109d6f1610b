//! Commands that change a cluster.

pub(crate) mod approve;
pub(crate) mod install;
mod installed;
pub(crate) mod pause;
pub(crate) mod retry;
pub(crate) mod undo;
pub(crate) mod uninstall;
