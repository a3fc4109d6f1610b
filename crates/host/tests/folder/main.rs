//! Changes of a host that is a folder: what is wrong with the config, with the host or with our own records, what its users do
//! meanwhile, and what is found afterwards.
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
mod folders_and_links;
mod logins;
mod other_users;
