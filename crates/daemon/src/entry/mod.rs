//! The entry points of the program's subcommands: `daemon start`, `recover`, `firstboot-complete-machineconfig`,
//! `plan`, `try`, `confirm`, `watch-trial` and `start --once-from`. Each assembles the parts for one real host.
//!
//! Not here: flags and environment variables (the program reads these), nor any decision.

pub(crate) mod chroot;
pub(crate) mod first_boot;
pub(crate) mod open_host;
pub(crate) mod start;
pub(crate) mod trial;
pub(crate) mod try_on_host;
pub(crate) mod without_cluster;
