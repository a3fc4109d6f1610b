//! What the controller may do with which kinds of objects: the values that descriptors of passes are made of.
//!
//! What it is not: which pass needs which right (see `passes`).

/// A kind: API group and plural.
pub(crate) type Resource = (&'static str, &'static str);

/// A right that a part of the controller needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group; empty: the core group.
    pub group: &'static str,
    /// The plural, with the subresource after a slash.
    pub resource: &'static str,
    /// The verb.
    pub verb: &'static str,
    /// The names of the objects that it is limited to; empty: all objects of the kind.
    pub names: &'static [&'static str],
}

impl Right {
    /// A right to all objects of a kind.
    pub(crate) const fn new(verb: &'static str, (group, resource): Resource) -> Self {
        Self { group, resource, verb, names: &[] }
    }

    /// A right to the objects of a kind with these names.
    pub(crate) const fn named(
        verb: &'static str,
        (group, resource): Resource,
        names: &'static [&'static str],
    ) -> Self {
        Self { group, resource, verb, names }
    }
}

/// The kinds that passes use.
///
/// The right to update `…/finalizers` is for API servers with the admission plugin OwnerReferencesPermissionEnforcement. They ask for
/// it when an object gets an owner that must not be deleted before it. The objects that are made from these kinds have such owners.
pub(crate) mod kind {
    use super::Resource;
    use api::names::GROUP;

    const OURS: &str = "machineconfig.dev";
    const CONFIG: &str = "config.openshift.io";
    const OPERATOR: &str = "operator.openshift.io";

    pub(crate) const POOLS: Resource = (GROUP, "machineconfigpools");
    pub(crate) const POOL_STATUS: Resource = (GROUP, "machineconfigpools/status");
    pub(crate) const POOL_FINALIZERS: Resource = (GROUP, "machineconfigpools/finalizers");
    pub(crate) const CONFIGS: Resource = (GROUP, "machineconfigs");
    pub(crate) const CONTROLLER_CONFIGS: Resource = (GROUP, "controllerconfigs");
    pub(crate) const CONTROLLER_CONFIG_STATUS: Resource = (GROUP, "controllerconfigs/status");
    pub(crate) const CONTROLLER_CONFIG_FINALIZERS: Resource = (GROUP, "controllerconfigs/finalizers");
    pub(crate) const MACHINE_CONFIG_NODES: Resource = (GROUP, "machineconfignodes");
    pub(crate) const MACHINE_CONFIG_NODE_STATUS: Resource = (GROUP, "machineconfignodes/status");
    pub(crate) const OS_CONFIGS: Resource = (GROUP, "machineosconfigs");
    pub(crate) const OS_CONFIG_STATUS: Resource = (GROUP, "machineosconfigs/status");
    pub(crate) const OS_BUILDS: Resource = (GROUP, "machineosbuilds");
    pub(crate) const OS_BUILD_STATUS: Resource = (GROUP, "machineosbuilds/status");
    pub(crate) const PINNED_IMAGE_SETS: Resource = (GROUP, "pinnedimagesets");
    pub(crate) const STREAMS: Resource = (GROUP, "osimagestreams");
    pub(crate) const STREAM_STATUS: Resource = (GROUP, "osimagestreams/status");
    pub(crate) const KUBELET_CONFIGS: Resource = (GROUP, "kubeletconfigs");
    pub(crate) const KUBELET_CONFIG_STATUS: Resource = (GROUP, "kubeletconfigs/status");
    pub(crate) const KUBELET_CONFIG_FINALIZERS: Resource = (GROUP, "kubeletconfigs/finalizers");
    pub(crate) const RUNTIME_CONFIGS: Resource = (GROUP, "containerruntimeconfigs");
    pub(crate) const RUNTIME_CONFIG_STATUS: Resource = (GROUP, "containerruntimeconfigs/status");
    pub(crate) const RUNTIME_CONFIG_FINALIZERS: Resource = (GROUP, "containerruntimeconfigs/finalizers");
    pub(crate) const ROLLOUT_POLICIES: Resource = (OURS, "rolloutpolicies");
    pub(crate) const ROLLOUT_POLICY_STATUS: Resource = (OURS, "rolloutpolicies/status");
    pub(crate) const DEPLOYMENTS: Resource = ("apps", "deployments");
    pub(crate) const STATEFUL_SETS: Resource = ("apps", "statefulsets");
    pub(crate) const DAEMON_SETS: Resource = ("apps", "daemonsets");
    pub(crate) const NODES: Resource = ("", "nodes");
    pub(crate) const PODS: Resource = ("", "pods");
    pub(crate) const EVICTIONS: Resource = ("", "pods/eviction");
    pub(crate) const BUDGETS: Resource = ("policy", "poddisruptionbudgets");
    pub(crate) const SCHEDULERS: Resource = (CONFIG, "schedulers");
    pub(crate) const MACHINE_CONFIGURATIONS: Resource = (OPERATOR, "machineconfigurations");
    pub(crate) const FEATURE_GATES: Resource = (CONFIG, "featuregates");
    pub(crate) const API_SERVERS: Resource = (CONFIG, "apiservers");
    pub(crate) const NODE_SETTINGS: Resource = (CONFIG, "nodes");
    pub(crate) const IMAGES: Resource = (CONFIG, "images");
    pub(crate) const CLUSTER_VERSIONS: Resource = (CONFIG, "clusterversions");
    pub(crate) const DIGEST_MIRRORS: Resource = (CONFIG, "imagedigestmirrorsets");
    pub(crate) const TAG_MIRRORS: Resource = (CONFIG, "imagetagmirrorsets");
    pub(crate) const SOURCE_POLICIES: Resource = (OPERATOR, "imagecontentsourcepolicies");
    pub(crate) const CLUSTER_IMAGE_POLICIES: Resource = (CONFIG, "clusterimagepolicies");
    pub(crate) const IMAGE_POLICIES: Resource = (CONFIG, "imagepolicies");
    pub(crate) const IMAGE_POLICY_STATUS: Resource = (CONFIG, "imagepolicies/status");
}
