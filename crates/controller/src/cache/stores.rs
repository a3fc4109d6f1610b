//! The caches of all kinds that plans are made from, and what is kept of a MachineConfig.
//!
//! What it is not: how they are filled (see `follow`), or the cluster's settings (see `settings`).

use crate::cache::store::{Item, Store};
use crate::cache::watch::version_of;
use api::k8s::{ObjectMeta, ObjectReference, Pod, ResourceExt};
use api::rendered::owning_pool;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use rollout::view::{NodeView, OsBuild, OsConfig};
use std::sync::Arc;

/// The caches.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) pools: Arc<Store<MachineConfigPool>>,
    pub(crate) configs: Arc<Store<Config>>,
    pub(crate) controller_configs: Arc<Store<ControllerConfig>>,
    pub(crate) nodes: Arc<Store<NodeView>>,
    /// Stored without their status. The kind may not be installed.
    pub(crate) progress: Arc<Store<MachineConfigNode>>,
    /// This kind may not be installed either.
    pub(crate) os_configs: Arc<Store<OsConfig>>,
    pub(crate) os_builds: Arc<Store<OsBuild>>,
    /// `spec.mastersSchedulable` of OpenShift's Scheduler.
    pub(crate) masters_schedulable: Arc<Store<bool>>,
    /// Whether OpenShift's MachineConfiguration turns off the check of how old boot images are.
    pub(crate) boot_image_skew: Arc<Store<bool>>,
    /// The nodes that run a pod of the operator.
    pub(crate) operator_nodes: Arc<Store<Option<Arc<str>>>>,
}

impl Stores {
    /// The one ControllerConfig.
    pub(crate) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(api::names::CONTROLLER_CONFIG)
    }
}

/// A MachineConfig in the cache.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Config {
    /// An input of rendering: kept whole.
    Source(Arc<MachineConfig>),
    /// A pool's rendered config, up to 1.5 MB: kept without its spec. A pass that needs the spec reads it from the API
    /// server.
    Rendered(Box<Rendered>),
}

/// What is kept of a rendered config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rendered {
    /// Name, annotations, owners, creation time.
    pub(crate) metadata: ObjectMeta,
    /// The pool that owns it.
    pub(crate) pool: String,
    /// `spec.osImageURL`.
    pub(crate) os_image_url: Box<str>,
}

impl Rendered {
    /// Whether this very pool owns it, and not an earlier pool of the same name.
    pub(crate) fn is_owned_by(&self, pool: &MachineConfigPool) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|o| o.controller == Some(true) && Some(&o.uid) == pool.metadata.uid.as_ref())
    }
}

impl Config {
    pub(crate) fn new(object: MachineConfig) -> Self {
        match owning_pool(object.metadata.owner_references.as_deref()).map(str::to_owned) {
            Some(pool) => {
                let mut metadata = object.metadata;
                metadata.managed_fields = None;
                // Only people read it, through `mco explain`.
                metadata.annotations.get_or_insert_default().remove(api::names::annotation::PROVENANCE);
                let os_image_url = object.spec.os_image_url.into_boxed_str();
                Self::Rendered(Box::new(Rendered { metadata, pool, os_image_url }))
            }
            None => {
                let mut object = object;
                object.metadata.managed_fields = None;
                Self::Source(Arc::new(object))
            }
        }
    }

    /// `spec.osImageURL`; empty if there is none.
    pub(crate) fn os_image_url(&self) -> &str {
        match self {
            Self::Source(object) => &object.spec.os_image_url,
            Self::Rendered(rendered) => &rendered.os_image_url,
        }
    }

    /// The object, if it is an input of rendering.
    pub(crate) fn source(&self) -> Option<&Arc<MachineConfig>> {
        match self {
            Self::Source(object) => Some(object),
            Self::Rendered(_) => None,
        }
    }
}

/// An object kept whole, except for `metadata.managedFields`.
pub(crate) fn whole<K: ResourceExt>(mut object: K) -> Item<K> {
    object.managed_fields_mut().clear();
    Item { version: version_of(&object), uid: object.uid().unwrap_or_default(), value: Arc::new(object) }
}

/// The node of an operator's pod that is not being deleted.
pub(crate) fn operator_node(pod: &Pod) -> Option<Arc<str>> {
    let gone = pod.metadata.deletion_timestamp.is_some();
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty() && !gone).map(Arc::from)
}

/// Where a Secret is: namespace and name.
pub(crate) type Place = Option<(String, String)>;

/// The namespace of a reference that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "openshift-config";

/// Where the pull secret is.
pub(crate) fn place(at: Option<&ObjectReference>) -> Place {
    let at = at?;
    let namespace = at.namespace.clone().unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    Some((namespace, at.name.clone().unwrap_or_default()))
}
