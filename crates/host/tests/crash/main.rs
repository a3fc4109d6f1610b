//! A change that ends at any instruction: at every fault point (`points`, `boot_points`, and `loader` with a boot loader), by real kills (`kills`),
//! and on real disks that fail (`broken_disks`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/pairs.rs"]
mod pairs;
#[path = "../common/prepared.rs"]
mod prepared;

mod boot_points;
mod broken_disks;
mod kills;
mod live;
mod live_undone;
mod loader;
mod merge;
mod os_history;
mod outcome;
mod packages;
mod points;
mod trial;
mod trial_ends;
