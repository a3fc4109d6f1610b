//! MachineConfigs that are generated from the cluster's settings: KubeletConfigs, ContainerRuntimeConfigs, mirrors,
//! registries and signature policies.
//!
//! What it is not: MachineConfigs from templates (see `template`), which these are merged over.

pub(crate) mod container_runtime;
pub(crate) mod durations;
pub mod generated;
pub mod kubelet;
pub(crate) mod kubelet_config;
mod kubelet_fields;
mod quantity;
pub(crate) mod registries;
