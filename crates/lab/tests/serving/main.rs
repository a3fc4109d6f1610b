//! The config server, the operator and boot tokens against a real control plane: who gets which config, with which
//! permissions.
//!
//! What it is not: a machine that boots with what it was served (`tests/node/first_boot.rs`), or the server without a
//! cluster (`crates/server/tests`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod config_server;
#[path = "../common/definitions.rs"]
mod definitions;

mod installation;
mod monitoring;
mod packages;
mod parts;
#[path = "../product/mod.rs"]
mod product;
mod removal;
#[path = "../../../server/tests/support/mod.rs"]
mod support;
mod tokens;
mod trouble;
