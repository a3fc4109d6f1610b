//! The config server, the operator and boot tokens against a real control plane: who gets which config, with which
//! permissions.
//!
//! Not here: a machine that boots with what it was served (`tests/node/first_boot.rs`), and the server without a
//! cluster (`crates/server/tests`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod admission_policies;
mod config_server;
mod dashboard;
#[path = "../common/definitions.rs"]
mod definitions;
mod killed_commands;

mod image_metrics;
mod installation;
mod installation_errors;
mod monitoring;
mod old_images;
mod older_settings;
mod openshift;
mod own_rights;
mod packages;
mod parts;
#[path = "../common/product/mod.rs"]
mod product;
#[path = "../common/prometheus.rs"]
mod prometheus;
#[path = "../common/real_registry.rs"]
mod real_registry;
mod registration;
mod removal;
mod rotation;
mod scraping;
mod stored_versions;
#[path = "../../../server/tests/common/mod.rs"]
mod support;
mod tokens;
mod upgrade;
