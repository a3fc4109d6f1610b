//! `mco` as a user runs it, without a cluster: with files, golden output, and an API server that misbehaves.
//! `INSTA_UPDATE=always cargo test -p cli` accepts the current output.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod clusters;

mod no_cluster;
mod offline;
mod plan_change;
mod plan_from;
mod until_updated;
