//! The rules of the controller's ClusterRole, and of its Role in its own namespace. Made by `cargo xtask gen` from the descriptors in
//! crates/controller/src/passes; do not edit.
//!
//! What it is not: the reasons for these rights, which stand in the descriptors.

use super::Rule;

#[rustfmt::skip]
pub(super) const RULES: &[Rule] = &[
    Rule {
        group: "",
        resources: &["nodes"],
        names: &[],
        verbs: &["get", "list", "watch", "patch"],
    },
    Rule {
        group: "",
        resources: &["pods"],
        names: &[],
        verbs: &["get", "list", "watch"],
    },
    Rule {
        group: "",
        resources: &["pods/eviction"],
        names: &[],
        verbs: &["create"],
    },
    Rule {
        group: "apps",
        resources: &[
            "daemonsets",
            "deployments",
            "statefulsets",
        ],
        names: &[],
        verbs: &["list"],
    },
    Rule {
        group: "config.openshift.io",
        resources: &[
            "apiservers",
            "clusterimagepolicies",
            "clusterversions",
            "featuregates",
            "imagedigestmirrorsets",
            "imagepolicies",
            "images",
            "imagetagmirrorsets",
            "nodes",
            "schedulers",
        ],
        names: &[],
        verbs: &["get", "list", "watch"],
    },
    Rule {
        group: "config.openshift.io",
        resources: &["imagepolicies/status"],
        names: &[],
        verbs: &["patch"],
    },
    Rule {
        group: "machineconfig.dev",
        resources: &["rolloutpolicies"],
        names: &[],
        verbs: &["get", "list", "watch"],
    },
    Rule {
        group: "machineconfig.dev",
        resources: &["rolloutpolicies/status"],
        names: &[],
        verbs: &["patch"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &[
            "containerruntimeconfigs",
            "kubeletconfigs",
            "machineconfigpools",
            "machineosconfigs",
            "osimagestreams",
        ],
        names: &[],
        verbs: &["get", "list", "watch", "patch"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &[
            "containerruntimeconfigs/finalizers",
            "controllerconfigs/finalizers",
            "kubeletconfigs/finalizers",
            "machineconfigpools/finalizers",
        ],
        names: &[],
        verbs: &["update"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &[
            "containerruntimeconfigs/status",
            "controllerconfigs/status",
            "kubeletconfigs/status",
            "machineconfignodes/status",
            "machineconfigpools/status",
            "machineosbuilds/status",
            "machineosconfigs/status",
            "osimagestreams/status",
        ],
        names: &[],
        verbs: &["patch"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &["controllerconfigs"],
        names: &["machine-config-controller"],
        verbs: &["patch"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &[
            "controllerconfigs",
            "pinnedimagesets",
        ],
        names: &[],
        verbs: &["get", "list", "watch"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &[
            "machineconfignodes",
            "machineosbuilds",
        ],
        names: &[],
        verbs: &["get", "list", "watch", "create", "patch", "delete"],
    },
    Rule {
        group: "machineconfiguration.openshift.io",
        resources: &["machineconfigs"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "update", "patch", "delete"],
    },
    Rule {
        group: "operator.openshift.io",
        resources: &[
            "imagecontentsourcepolicies",
            "machineconfigurations",
        ],
        names: &[],
        verbs: &["get", "list", "watch"],
    },
    Rule {
        group: "policy",
        resources: &["poddisruptionbudgets"],
        names: &[],
        verbs: &["get", "list", "watch"],
    },
];

#[rustfmt::skip]
pub(super) const IN_OWN_NAMESPACE: &[Rule] = &[
    Rule {
        group: "",
        resources: &["configmaps"],
        names: &[],
        verbs: &["get", "create", "delete"],
    },
    Rule {
        group: "",
        resources: &["configmaps"],
        names: &["machine-os-images"],
        verbs: &["get", "patch"],
    },
    Rule {
        group: "",
        resources: &["events"],
        names: &[],
        verbs: &["list", "create"],
    },
    Rule {
        group: "",
        resources: &["secrets"],
        names: &["pull-secret"],
        verbs: &["get", "list", "watch"],
    },
    Rule {
        group: "batch",
        resources: &["jobs"],
        names: &[],
        verbs: &["get", "list", "watch", "create", "delete"],
    },
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &[],
        verbs: &["create"],
    },
    Rule {
        group: "coordination.k8s.io",
        resources: &["leases"],
        names: &["machine-config-controller"],
        verbs: &["get", "update"],
    },
];
