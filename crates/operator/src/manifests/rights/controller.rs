//! The rights of the controller: its ClusterRole, and its Role in its own namespace.

use super::objects::{READ, named, rule};
use super::{CONTROLLER, OPENSHIFT_SETTINGS, PULL_SECRET, SETTINGS_GROUP};
use api::names::{CONTROLLER_CONFIG, GROUP, PUSHED_IMAGES};
use serde_json::Value;

/// The rules of the controller's ClusterRole. A test compares them with what its passes declare.
pub fn controller() -> Vec<Value> {
    let config = "config.openshift.io";
    vec![
        rule(GROUP, &["machineconfigs"], &["get", "list", "watch", "create", "update", "patch", "delete"]),
        rule(GROUP, &["machineconfigpools"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["controllerconfigs"], &READ),
        // Whose version it is, see `passes/version_claim.rs` of the controller, and the topology, see `rollout::topology`.
        named(GROUP, "controllerconfigs", &[CONTROLLER_CONFIG], &["patch"]),
        rule(GROUP, &["kubeletconfigs", "containerruntimeconfigs"], &["get", "list", "watch", "patch"]),
        rule(
            GROUP,
            &[
                "machineconfigpools/status",
                "controllerconfigs/status",
                "kubeletconfigs/status",
                "containerruntimeconfigs/status",
                "machineconfignodes/status",
                "machineosconfigs/status",
                "machineosbuilds/status",
            ],
            &["patch"],
        ),
        // Where an API server asks for it (OwnerReferencesPermissionEnforcement): what is made from these has them as
        // owners that are not to go first.
        rule(
            GROUP,
            &[
                "machineconfigpools/finalizers",
                "controllerconfigs/finalizers",
                "kubeletconfigs/finalizers",
                "containerruntimeconfigs/finalizers",
            ],
            &["update"],
        ),
        rule(GROUP, &["machineconfignodes"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(GROUP, &["machineosconfigs"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["machineosbuilds"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule(GROUP, &["osimagestreams"], &["get", "list", "watch", "patch"]),
        rule(GROUP, &["pinnedimagesets"], &READ),
        rule(GROUP, &["osimagestreams/status"], &["patch"]),
        rule(SETTINGS_GROUP, &["rolloutpolicies"], &READ),
        rule(SETTINGS_GROUP, &["rolloutpolicies/status"], &["patch"]),
        // Gates of RolloutPolicies. Rights to Secrets and Jobs are for people to give, by name and namespace.
        rule("apps", &["deployments", "statefulsets", "daemonsets"], &["list"]),
        rule("", &["nodes"], &["get", "list", "watch", "patch"]),
        rule("", &["pods"], &READ),
        rule("", &["pods/eviction"], &["create"]),
        rule("policy", &["poddisruptionbudgets"], &READ),
        rule(config, &OPENSHIFT_SETTINGS, &READ),
        rule(config, &["imagepolicies/status"], &["patch"]),
        rule("operator.openshift.io", &["imagecontentsourcepolicies", "machineconfigurations"], &READ),
    ]
}

pub(super) fn controller_in_namespace(pull_secret: Option<&str>) -> Vec<Value> {
    let mut pull = vec![PULL_SECRET];
    pull.extend(pull_secret.filter(|name| *name != PULL_SECRET));
    vec![
        named("coordination.k8s.io", "leases", &[CONTROLLER], &["get", "update"]),
        // `create` cannot be limited by name.
        rule("coordination.k8s.io", &["leases"], &["create"]),
        // Of pods of image builds that do not start.
        rule("", &["events"], &["create", "list"]),
        named("", "secrets", &pull, &READ),
        // Image builds. Their names are hashes, so they cannot be limited by name.
        rule("batch", &["jobs"], &["get", "list", "watch", "create", "delete"]),
        rule("", &["configmaps"], &["get", "create", "delete"]),
        // The list of what builds have pushed. The right to read push secrets is in a Role of its own, see `push_secrets`.
        named("", "configmaps", &[PUSHED_IMAGES], &["patch"]),
    ]
}
