//! Machines that boot: the lab's own, and the product on them.
//!
//! Not here: nodes that are folders (`tests/cluster`). Every test here that starts a machine needs root.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod agent_pod;
mod bad_input;
mod boot_loader;
mod cleanup;
#[path = "../common/mod.rs"]
mod common;
mod cuts;
mod debs;
mod delivered;
mod drain;
mod drift;
mod effects;
mod effects_of_services;
mod first_boot;
mod joining;
mod k3s;
mod kubeadm;
mod kubelet;
mod machines;
mod networkd;
mod packages;
mod pinned_images;
mod prefetch;
#[path = "../common/product/mod.rs"]
mod product;
#[path = "../common/prometheus.rs"]
mod prometheus;
mod second_distribution;
mod second_drain;
mod secrets;
mod services;
mod trial;
mod uninstall;
mod updates;
mod waiting_config;
mod workload;
