//! Why something cannot be generated, with object, path and remedy.
//!
//! What it is not: errors of one kind of settings, which are in files of their own beside this one.

use super::Kind;
use crate::settings::container_runtime::ContainerRuntimeError;
use crate::settings::kubelet::KubeletError;
use crate::settings::kubelet_config::KubeletConfigError;
use crate::settings::registries::RegistriesError;
use crate::template::TemplateError;
use api::names::annotation;

/// Settings that cannot be turned into a MachineConfig.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GeneratedError {
    /// A template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A kubelet's config.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// A KubeletConfig.
    #[error(transparent)]
    KubeletConfig(#[from] KubeletConfigError),
    /// A ContainerRuntimeConfig.
    #[error(transparent)]
    ContainerRuntime(#[from] ContainerRuntimeError),
    /// Registries and mirrors.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// The list of feature gates.
    #[error("FeatureGate cluster: status.featureGates: {0}")]
    FeatureGates(String),
    /// A pool selector that cannot be evaluated.
    #[error("{kind} {name}: spec.machineConfigPoolSelector: {message}")]
    Selector {
        /// The object's kind.
        kind: Kind,
        /// The object.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// An object that selects no pool.
    #[error(
        "{kind} {name}: spec.machineConfigPoolSelector: could not find any MachineConfigPool whose labels it matches; \
         correct it, or label the pool"
    )]
    NoPool {
        /// The object's kind.
        kind: Kind,
        /// The object.
        name: String,
    },
    /// A KubeletConfig although the kubelet's config is managed by others.
    #[error(
        "KubeletConfig {name}: the templates do not generate the kubelet's config of pool {pool}; switch on \
         a template layer that does: annotate ControllerConfig machine-config-controller with {}=kubeadm (or kubelet)",
        annotation::TEMPLATE_LAYERS
    )]
    NoKubelet {
        /// The object.
        name: String,
        /// The pool.
        pool: String,
    },
    /// Several objects for one pool, before there is a cluster that knows which was first.
    #[error(
        "MachineConfigPool {pool}: more than one {kind} is for it: {names}; at bootstrap only one is supported"
    )]
    Several {
        /// The pool.
        pool: String,
        /// The kind.
        kind: Kind,
        /// The objects.
        names: String,
    },
    /// The number in the name of what is made cannot be used.
    #[error("{kind} {name}: {message}")]
    Number {
        /// The object's kind.
        kind: Kind,
        /// The object.
        name: String,
        /// What is wrong, and the remedy.
        message: String,
    },
}
