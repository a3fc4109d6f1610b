//! Rollouts while something fails: the API server, the network, clocks, the controller or its leader. An observer with a
//! watch of its own fails the test at the first node too many out of service.
//!
//! Not here: what an administrator does during a rollout (`tests/cluster/pause_and_revert.rs`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod api_server;
mod clocks;
mod leader;
mod lost_objects;
mod outages;
#[path = "../common/product/mod.rs"]
mod product;
