//! The lab itself, without machines: control planes that start and stop, a lab that outlives its command, and the fault
//! proxy.
//!
//! Not here: the lab's machines (`tests/node`), and the product.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
mod fault_proxy;
mod lifecycle;
mod up_down;
