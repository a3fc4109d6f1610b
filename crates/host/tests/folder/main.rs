//! Changes of a host that is a folder: mistakes in the config, problems of the host, damaged records, what the host's users do
//! meanwhile, and drift afterwards.
//!
//! What it is not: a process that ends in the middle (`crash`), or chains of changes (`chains`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/planning.rs"]
mod planning;

mod bad_input;
mod bad_journal;
mod boots;
mod drift;
mod drift_repair;
mod earlier_version;
mod effects;
mod folders_and_links;
mod folders_rolled_back;
mod logins;
mod originals;
mod other_users;
mod soft_reboots;
mod sshd;
