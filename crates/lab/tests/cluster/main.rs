//! Controller, agents and command line against a real control plane, with nodes that are folders.
//!
//! What it is not: what happens when something around them fails (`tests/faults`), what machines that boot are served
//! (`tests/serving`), or machines (`tests/node`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod agents;
mod bad_input;
mod crds;
#[path = "../common/definitions.rs"]
mod definitions;
mod drains;
mod examples;
mod generated;
mod joining;
mod preview;
#[path = "../product/mod.rs"]
mod product;
mod render;
mod rollout;
mod rollout_tools;
mod stop_and_go;
mod templates;
