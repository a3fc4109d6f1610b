//! MachineConfigs that are made from the cluster's settings: KubeletConfigs, ContainerRuntimeConfigs, mirrors, registries and
//! signatures.
//!
//! What it is not: MachineConfigs from templates (see `template`), which these lie over.

pub(crate) mod container_runtime;
pub mod generated;
pub mod kubelet;
pub(crate) mod kubelet_config;
mod kubelet_fields;
mod quantity;
pub(crate) mod registries;
