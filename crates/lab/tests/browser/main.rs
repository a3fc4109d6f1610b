//! The dashboard in a real browser (Debian's Chromium, headless) against a real control plane with simulated nodes.
//!
//! Not here: the dashboard's routes and who may use them, which need no browser (`crates/dashboard`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod chromium;
mod dashboard;
mod in_cluster;
mod page;
#[path = "../common/product/mod.rs"]
mod product;
mod views;
