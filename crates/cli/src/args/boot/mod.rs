//! The arguments of commands for what machines need to boot into a pool.
//!
//! What it is not: the commands (see `commands::boot`).

pub(crate) mod pointer;
pub(crate) mod token;
