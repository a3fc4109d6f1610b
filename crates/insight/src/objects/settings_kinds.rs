//! The kinds that hold settings of a cluster, of which the controller makes MachineConfigs.
//!
//! What it is not: what is made of them (see `change::settings`).

use api::names::GROUP;

/// OpenShift's settings of a cluster.
pub(crate) const CONFIG: &str = "config.openshift.io";

/// Kinds that MachineConfigs are made of: API group, version, kind.
pub(crate) const SETTINGS: [(&str, &str, &str); 11] = [
    (GROUP, "v1", "KubeletConfig"),
    (GROUP, "v1", "ContainerRuntimeConfig"),
    (CONFIG, "v1", "Node"),
    (CONFIG, "v1", "Image"),
    (CONFIG, "v1", "APIServer"),
    (CONFIG, "v1", "ClusterVersion"),
    (CONFIG, "v1", "ImageDigestMirrorSet"),
    (CONFIG, "v1", "ImageTagMirrorSet"),
    (CONFIG, "v1", "ClusterImagePolicy"),
    (CONFIG, "v1", "ImagePolicy"),
    ("operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy"),
];
/// Its feature gates also decide whether OS image streams are used.
pub(crate) const FEATURE_GATE: (&str, &str) = (CONFIG, "FeatureGate");
