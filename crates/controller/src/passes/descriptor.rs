//! What the rest of the controller knows of a pass: one value, declared beside the pass's code. A new pass is a file
//! with a [`Descriptor`], a variant of [`Pass`], and its line in [`crate::passes::ALL`].

use crate::dirty::Marker;
use crate::passes::queue::{Outcome, Pass, Work};
use crate::shared::Shared;
use crate::term::leader::Handover;
use futures::future::BoxFuture;
use std::sync::Arc;

/// The description of a pass.
pub(crate) struct Descriptor {
    /// Which pass it is.
    pub(crate) pass: Pass,
    /// How its queue is worked off.
    pub(crate) work: Work,
    /// The kinds that it reads, from caches or from the API server: group and plural.
    pub(crate) reads: &'static [Resource],
    /// The rights that it needs, besides reading those kinds.
    pub(crate) writes: &'static [Right],
    /// Which keys a change marks.
    pub(crate) marked_by: Marker,
    /// Creates the function that runs over one key. Called once for each term.
    pub(crate) start: fn(&Arc<Shared>, Handover) -> Run,
}

/// The function that runs over one key.
pub(crate) type Run = Box<dyn Fn(String) -> BoxFuture<'static, Outcome> + Send + Sync>;

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
}

impl Right {
    /// A right.
    pub(crate) const fn new(verb: &'static str, (group, resource): Resource) -> Self {
        Self { group, resource, verb }
    }
}

/// The verbs that watching and reading a kind requires.
const READ: [&str; 3] = ["get", "list", "watch"];

impl Descriptor {
    /// All rights that the pass needs.
    pub(crate) fn rights(&self) -> impl Iterator<Item = Right> {
        let reads = self.reads.iter().flat_map(|kind| READ.map(|verb| Right::new(verb, *kind)));
        reads.chain(self.writes.iter().copied())
    }
}

/// A pass that remembers nothing between runs.
pub(crate) fn stateless<F, Fut>(shared: &Arc<Shared>, pass: F) -> Run
where
    F: Fn(Arc<Shared>, String) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let shared = shared.clone();
    Box::new(move |key| Box::pin(pass(shared.clone(), key)))
}

/// The kinds that passes use.
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
