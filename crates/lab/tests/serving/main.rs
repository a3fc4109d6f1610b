//! What is installed in a cluster, against a real control plane: installation by `mco install`, Helm chart or kustomize base, the
//! settings object, upgrade and removal, also when they are interrupted; the rights with which each part runs, and what
//! admission policies refuse; the rotation of the API server's CA; metrics, alerts and dashboards; OpenShift's objects; and which
//! machine the config server gives which config, with which boot token.
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
