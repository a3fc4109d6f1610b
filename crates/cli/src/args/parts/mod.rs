//! The arguments of the parts of the system, each of which runs as `mco PART`.
//!
//! What it is not: the commands (see `commands::parts`).

pub(crate) mod controller;
pub(crate) mod daemon;
pub(crate) mod operator;
pub(crate) mod server;
