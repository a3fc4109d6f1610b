//! The config server in this process, asked over real connections.
//!
//! What it is not: a cluster that it follows (see the lab's `serving`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

#[path = "../support/mod.rs"]
mod support;

mod recorded;
mod requests;
mod told;
mod wire;
