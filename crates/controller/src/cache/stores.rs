//! The caches of all kinds that plans are made from.
//!
//! What it is not: what is kept of each object (see `trimmed`), how they are filled (see `watches`), or the cluster's settings (see
//! `settings`).

use crate::cache::store::{Item, Store};
use crate::cache::trimmed::{Config, ImageBuild, ImageConfig};
use crate::cache::watch::version_of;
use api::k8s::{ObjectReference, ResourceExt};
use api::v1::{ControllerConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use build::JobFacts;
use rollout::view::{EtcdMember, NodeView};
use rollout::{ConfigView, Configs, ImageLookup};
use std::sync::Arc;

/// The caches.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) pools: Arc<Store<MachineConfigPool>>,
    pub(crate) configs: Arc<Store<Config>>,
    pub(crate) controller_configs: Arc<Store<ControllerConfig>>,
    pub(crate) nodes: Arc<Store<NodeView>>,
    /// Stored without their status, except for what it says of PinnedImageSets. The kind may not be installed.
    pub(crate) machine_config_nodes: Arc<Store<MachineConfigNode>>,
    /// This kind may not be installed either.
    pub(crate) rollout_policies: Arc<Store<RolloutPolicy>>,
    /// Nor this one. Stored without their images.
    pub(crate) pinned_image_sets: Arc<Store<PinnedImageSet>>,
    /// Nor this one.
    pub(crate) os_configs: Arc<Store<ImageConfig>>,
    pub(crate) os_builds: Arc<Store<ImageBuild>>,
    /// The Jobs of image builds, in our own namespace.
    pub(crate) build_jobs: Arc<Store<JobFacts>>,
    /// `spec.mastersSchedulable` of OpenShift's Scheduler.
    pub(crate) masters_schedulable: Arc<Store<bool>>,
    /// Whether OpenShift's MachineConfiguration turns off the check of how old boot images are.
    pub(crate) boot_image_skew: Arc<Store<bool>>,
    /// The nodes that run a pod of the operator.
    pub(crate) operator_nodes: Arc<Store<Option<Arc<str>>>>,
    /// The members of etcd that run as static pods, in each of the places where there may be some.
    pub(crate) etcd: [Arc<Store<Option<EtcdMember>>>; EtcdMember::PLACES.len()],
}

impl Stores {
    /// The one ControllerConfig.
    pub(crate) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(api::names::CONTROLLER_CONFIG)
    }
}

impl Configs for Stores {
    fn view(&self, name: &str) -> Option<ConfigView> {
        let config = self.configs.get(name)?;
        let (pool, looked) = match &*config {
            Config::Rendered(rendered) => {
                let looked = ImageLookup::of(rendered.metadata.annotations.as_ref(), config.os_image_url());
                (Some(rendered.pool.as_str().into()), looked)
            }
            Config::Source(_) => (None, ImageLookup::default()),
        };
        Some(ConfigView { pool, os_image_url: config.os_image_url().into(), looked })
    }
}

/// An object kept whole, except for `metadata.managedFields`.
pub(crate) fn untrimmed<K: ResourceExt>(mut object: K) -> Item<K> {
    object.managed_fields_mut().clear();
    Item { version: version_of(&object), uid: object.uid().unwrap_or_default(), value: Arc::new(object) }
}

/// Where a Secret is: namespace and name.
pub(crate) type SecretLocation = Option<(String, String)>;

/// The namespace of a reference that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "openshift-config";

/// Where the pull secret is.
pub(crate) fn pull_secret_location(at: Option<&ObjectReference>) -> SecretLocation {
    let at = at?;
    let namespace = at.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    Some((namespace, at.name.clone().unwrap_or_default()))
}
