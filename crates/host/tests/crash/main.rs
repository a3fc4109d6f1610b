//! A change that ends at any instruction: at every fault point (`fault_points`, `boot_fault_points`, and `loader` with a
//! boot loader), by real kills (`kills`), on real disks that fail (`broken_disks`), and beside somebody who changes the operating
//! system too (`foreign_deployment`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/config_pairs.rs"]
mod config_pairs;
#[path = "../common/prepared.rs"]
mod prepared;

mod boot_fault_points;
mod broken_disks;
mod etc_merge;
mod fault_points;
mod foreign_deployment;
mod kills;
mod live_extensions;
mod live_undone;
mod loader;
mod os_history;
mod outcome;
mod packages;
mod trial;
mod trial_ends;
