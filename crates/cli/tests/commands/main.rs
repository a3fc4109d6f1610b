//! `mco` as a user runs it, without a cluster: against files, golden output, and an API server that misbehaves.
//! `INSTA_UPDATE=always cargo test -p cli` accepts what the program prints now.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod clusters;

mod no_cluster;
mod offline;
mod plan_change;
mod plan_from;
mod until_updated;
