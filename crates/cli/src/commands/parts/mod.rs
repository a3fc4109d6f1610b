//! The parts of the system, each of which runs as `mco PART`.

pub(crate) mod controller;
pub(crate) mod daemon;
pub(crate) mod operator;
pub(crate) mod server;
