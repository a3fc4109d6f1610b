//! Every Kubernetes type that this system defines or reads, with its labels, annotations, names and conditions.
//!
//! What it is: types, constants, label selectors, and the CustomResourceDefinitions as they are installed ([`crds`]).
//! It also re-exports the few `k8s-openapi` types that the pure crates need ([`k8s`]), so that none of them depends on
//! a Kubernetes library itself.
//!
//! What it is not: decisions (see `render`, `rollout`, `host`) or clients (see `controller`, `daemon`).
//!
//! The formats are those of OpenShift's `machineconfiguration.openshift.io/v1`.

pub mod backoff;
pub mod ca_rotation;
pub mod conditions;
pub mod crds;
pub mod definition;
pub mod detected;
pub mod drain_request;
pub mod drift;
pub mod events;
pub mod first_boot;
pub mod formats;
pub mod images;
pub mod names;
pub mod node_state;
pub mod paths;
pub mod pod;
pub mod pod_start;
pub mod render_reason;
pub mod rendered;
pub mod topology;
pub mod trial;
pub mod v1;
pub mod v1alpha1;

/// The Kubernetes types that the pure crates use.
pub mod k8s {
    pub use crate::pod::{Pod, PodStatus};
    pub use k8s_openapi::ByteString;
    pub use k8s_openapi::api::core::v1::{
        ConfigMap, Event, Node, NodeCondition, NodeSpec, NodeStatus, ObjectReference, Secret, Taint,
    };
    pub use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
    pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as MetaCondition;
    pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
        LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, Time,
    };
    pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    pub use kube::Resource;
    pub use kube::ResourceExt;
}
