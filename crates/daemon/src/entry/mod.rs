//! Where the program's subcommands come in: `daemon start`, `recover`, `firstboot-complete-machineconfig`, `plan` and
//! `start --once-from`, each with the parts of one real host.
//!
//! What it is not: the reading of flags and environment (the program's), nor any decision.

pub(crate) mod chroot;
pub(crate) mod first_boot;
pub(crate) mod start;
pub(crate) mod without_cluster;
