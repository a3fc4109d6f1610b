//! A change that ends at any instruction: at every fault point (`points`), and by real kills and real disks (`real`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/pairs.rs"]
mod pairs;
#[path = "../common/prepared.rs"]
mod prepared;

mod points;
mod real;
