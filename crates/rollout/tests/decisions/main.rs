//! What the plans decide over pools, nodes and pods, by tables and by properties.
//!
//! What it is not: every order of events (`protocol`), or what the reference does (`reference`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]

#[path = "../common/mod.rs"]
mod common;

mod drains;
mod going_back;
mod large_pools;
mod machine_config_nodes;
mod nodes;
mod policies;
mod pool_status;
mod properties;
mod roles;
