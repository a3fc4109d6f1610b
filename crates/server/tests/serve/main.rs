//! The config server in this process, with requests over real connections.
//!
//! Not here: how it follows a cluster (see the lab's `serving`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "../common/mod.rs"]
mod common;

mod metrics;
mod recorded;
mod requests;
mod tls;
mod wire;
