//! Controller, agents and command line against a real control plane, with nodes that are folders.
//!
//! Not here: faults of the surroundings (`tests/faults`), what booting machines are served (`tests/serving`), and
//! machines (`tests/node`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod agents;
mod bad_input;
mod build_pods;
mod crds;
#[path = "../common/definitions.rs"]
mod definitions;
mod drains;
mod examples;
mod followed_policies;
mod generated;
mod image_builds;
mod joining;
mod old_images;
mod os_streams;
mod pause_and_revert;
#[path = "../common/product/mod.rs"]
mod product;
#[path = "../common/real_registry.rs"]
mod real_registry;
mod render;
mod render_refused;
mod rollout;
mod rollout_limits;
mod rollout_policy;
mod rollout_tools;
mod skew;
mod templates;
mod undo;
