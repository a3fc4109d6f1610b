//! The kinds of objects that the controller reads and writes, each with all of its names. Rights, watches and requests are made from
//! this table.
//!
//! What it is not: which pass uses which kind (see the descriptors in `passes`), or how it is watched (see `watches::inputs`).

use api::definition::{Defined as _, Definition};
use api::names::GROUP;
use api::v1alpha1::RolloutPolicy;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;

/// A kind of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    /// The API group; empty: the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// Its name in manifests.
    pub(crate) name: &'static str,
    /// Its name in URLs and rights.
    pub(crate) plural: &'static str,
}

impl Kind {
    const fn v1(group: &'static str, name: &'static str, plural: &'static str) -> Self {
        Self { group, version: "v1", name, plural }
    }

    const fn defined(definition: Definition) -> Self {
        let Definition { group, version, kind, plural, .. } = definition;
        Self { group, version, name: kind, plural }
    }

    /// The kind, for requests about objects that are not decoded.
    pub(crate) fn resource(self) -> ApiResource {
        let names = GroupVersionKind::gvk(self.group, self.version, self.name);
        ApiResource::from_gvk_with_plural(&names, self.plural)
    }
}

/// The groups of OpenShift's settings.
const CONFIG: &str = "config.openshift.io";
const OPERATOR: &str = "operator.openshift.io";

pub(crate) const POOLS: Kind = Kind::v1(GROUP, "MachineConfigPool", "machineconfigpools");
pub(crate) const CONFIGS: Kind = Kind::v1(GROUP, "MachineConfig", "machineconfigs");
pub(crate) const CONTROLLER_CONFIGS: Kind = Kind::v1(GROUP, "ControllerConfig", "controllerconfigs");
pub(crate) const MACHINE_CONFIG_NODES: Kind = Kind::v1(GROUP, "MachineConfigNode", "machineconfignodes");
pub(crate) const OS_CONFIGS: Kind = Kind::v1(GROUP, "MachineOSConfig", "machineosconfigs");
pub(crate) const OS_BUILDS: Kind = Kind::v1(GROUP, "MachineOSBuild", "machineosbuilds");
pub(crate) const PINNED_IMAGE_SETS: Kind = Kind::v1(GROUP, "PinnedImageSet", "pinnedimagesets");
pub(crate) const STREAMS: Kind = Kind::v1(GROUP, "OSImageStream", "osimagestreams");
pub(crate) const KUBELET_CONFIGS: Kind = Kind::v1(GROUP, "KubeletConfig", "kubeletconfigs");
pub(crate) const RUNTIME_CONFIGS: Kind = Kind::v1(GROUP, "ContainerRuntimeConfig", "containerruntimeconfigs");
pub(crate) const ROLLOUT_POLICIES: Kind = Kind::defined(RolloutPolicy::DEFINITION);
pub(crate) const DEPLOYMENTS: Kind = Kind::v1("apps", "Deployment", "deployments");
pub(crate) const STATEFUL_SETS: Kind = Kind::v1("apps", "StatefulSet", "statefulsets");
pub(crate) const DAEMON_SETS: Kind = Kind::v1("apps", "DaemonSet", "daemonsets");
pub(crate) const JOBS: Kind = Kind::v1("batch", "Job", "jobs");
pub(crate) const NODES: Kind = Kind::v1("", "Node", "nodes");
pub(crate) const PODS: Kind = Kind::v1("", "Pod", "pods");
pub(crate) const CONFIG_MAPS: Kind = Kind::v1("", "ConfigMap", "configmaps");
pub(crate) const SECRETS: Kind = Kind::v1("", "Secret", "secrets");
pub(crate) const EVENTS: Kind = Kind::v1("", "Event", "events");
pub(crate) const LEASES: Kind = Kind::v1("coordination.k8s.io", "Lease", "leases");
pub(crate) const BUDGETS: Kind = Kind::v1("policy", "PodDisruptionBudget", "poddisruptionbudgets");
pub(crate) const SCHEDULERS: Kind = Kind::v1(CONFIG, "Scheduler", "schedulers");
pub(crate) const MACHINE_CONFIGURATIONS: Kind =
    Kind::v1(OPERATOR, "MachineConfiguration", "machineconfigurations");
pub(crate) const FEATURE_GATES: Kind = Kind::v1(CONFIG, "FeatureGate", "featuregates");
pub(crate) const API_SERVERS: Kind = Kind::v1(CONFIG, "APIServer", "apiservers");
pub(crate) const NODE_SETTINGS: Kind = Kind::v1(CONFIG, "Node", "nodes");
pub(crate) const IMAGES: Kind = Kind::v1(CONFIG, "Image", "images");
pub(crate) const CLUSTER_VERSIONS: Kind = Kind::v1(CONFIG, "ClusterVersion", "clusterversions");
pub(crate) const DIGEST_MIRRORS: Kind = Kind::v1(CONFIG, "ImageDigestMirrorSet", "imagedigestmirrorsets");
pub(crate) const TAG_MIRRORS: Kind = Kind::v1(CONFIG, "ImageTagMirrorSet", "imagetagmirrorsets");
pub(crate) const SOURCE_POLICIES: Kind = Kind {
    version: "v1alpha1",
    ..Kind::v1(OPERATOR, "ImageContentSourcePolicy", "imagecontentsourcepolicies")
};
pub(crate) const CLUSTER_IMAGE_POLICIES: Kind =
    Kind::v1(CONFIG, "ClusterImagePolicy", "clusterimagepolicies");
pub(crate) const IMAGE_POLICIES: Kind = Kind::v1(CONFIG, "ImagePolicy", "imagepolicies");

#[cfg(test)]
mod tests {
    use super::*;
    use api::k8s::{ConfigMap, Event, Node, Pod, Secret};
    use api::v1::{
        ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild,
        MachineOSConfig, PinnedImageSet,
    };

    #[test]
    fn a_kind_has_the_names_of_its_type() {
        fn names<K: kube::Resource<DynamicType = ()>>() -> ApiResource {
            ApiResource::erase::<K>(&())
        }
        for (kind, names) in [
            (POOLS, names::<MachineConfigPool>()),
            (CONFIGS, names::<MachineConfig>()),
            (CONTROLLER_CONFIGS, names::<ControllerConfig>()),
            (MACHINE_CONFIG_NODES, names::<MachineConfigNode>()),
            (OS_CONFIGS, names::<MachineOSConfig>()),
            (OS_BUILDS, names::<MachineOSBuild>()),
            (PINNED_IMAGE_SETS, names::<PinnedImageSet>()),
            (ROLLOUT_POLICIES, names::<RolloutPolicy>()),
            (NODES, names::<Node>()),
            (PODS, names::<Pod>()),
            (CONFIG_MAPS, names::<ConfigMap>()),
            (SECRETS, names::<Secret>()),
            (EVENTS, names::<Event>()),
        ] {
            assert_eq!(kind.resource(), names);
        }
    }

    #[test]
    fn a_kind_without_a_type_has_the_names_of_its_definition() {
        // Of OpenShift's Scheduler there is none here.
        let definitions = api::crds::all().unwrap();
        for kind in [
            STREAMS,
            KUBELET_CONFIGS,
            RUNTIME_CONFIGS,
            MACHINE_CONFIGURATIONS,
            FEATURE_GATES,
            API_SERVERS,
            NODE_SETTINGS,
            IMAGES,
            CLUSTER_VERSIONS,
            DIGEST_MIRRORS,
            TAG_MIRRORS,
            SOURCE_POLICIES,
            CLUSTER_IMAGE_POLICIES,
            IMAGE_POLICIES,
        ] {
            let found =
                definitions.iter().find(|crd| (&*crd.group, &*crd.plural) == (kind.group, kind.plural));
            let spec = &found.unwrap_or_else(|| panic!("{kind:?} is not defined")).object["spec"];
            assert_eq!(spec["names"]["kind"], kind.name);
            let versions = spec["versions"].as_array().unwrap();
            assert!(versions.iter().any(|v| v["name"] == kind.version), "{kind:?}");
        }
    }
}
