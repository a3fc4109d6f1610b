//! Chains of changes of a host that is a folder: those that were recorded of the reference, and random ones.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/chain.rs"]
mod chain;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/random.rs"]
mod random;

mod random_chains;
mod recorded;
