//! Image builds from their first step to their last, each plan as text, in a small world of plain objects (`fake_world`).
//!
//! What it is not: a test of the requests (see the cluster tests of the lab).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod build_sequence;
mod failures;
mod fake_world;
mod removal;
