//! What is kept of each object in the caches. Nodes and MachineConfigNodes are decoded into the few fields that are read; all
//! other bytes (images, conditions, managed fields) are skipped by the decoder and never take memory.
//!
//! What it is not: the caches (see `stores`), or types to write with: writes are patches.

use api::formats::shape;
use api::k8s::{
    Node, NodeCondition, NodeSpec, NodeStatus, ObjectMeta, OwnerReference, Pod, ResourceExt, Taint, Time,
};
use api::rendered::owning_pool;
use api::v1::{
    MachineConfig, MachineConfigNode, MachineConfigNodeSpec, MachineConfigNodeStatus, MachineConfigPool,
    MachineOSBuild, MachineOSConfig, PinnedImageSetState,
};
use build::Base;
use kube::Resource;
use rollout::view::{OsBuild, OsConfig};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    /// What an image is built from.
    pub(crate) base: Base,
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
                let base = Base::of(&object);
                let mut metadata = object.metadata;
                metadata.managed_fields = None;
                // Only people read it, through `mco explain`.
                metadata.annotations.get_or_insert_default().remove(api::names::annotation::PROVENANCE);
                Self::Rendered(Box::new(Rendered { metadata, pool, base }))
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
            Self::Rendered(rendered) => &rendered.base.os_image,
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

/// A MachineOSConfig in the cache. A rollout needs only what its view reads, so that a malformed object does not turn a pool
/// with an image of its own into one without.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImageConfig {
    /// What a rollout reads.
    pub(crate) view: OsConfig,
    /// The object, or why it cannot be read.
    pub(crate) object: Result<MachineOSConfig, String>,
}

/// A MachineOSBuild in the cache.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ImageBuild {
    /// What a rollout reads.
    pub(crate) view: OsBuild,
    /// The object, or why it cannot be read.
    pub(crate) object: Result<MachineOSBuild, String>,
}

/// Reads an object that may be malformed. Why it cannot be read goes into a condition, so that no value is quoted.
fn typed<K: serde::de::DeserializeOwned + ResourceExt>(mut object: Value) -> Result<K, String> {
    object.pointer_mut("/metadata").and_then(Value::as_object_mut).and_then(|m| m.remove("managedFields"));
    shape::read(&object).map_err(|e| e.to_string())
}

impl ImageConfig {
    /// From the object as JSON.
    pub(crate) fn new(object: Value) -> Self {
        Self { view: OsConfig::new(&object), object: typed(object) }
    }

    /// The pool that it is for; empty if it names none.
    pub(crate) fn pool(&self) -> &str {
        self.view.pool()
    }
}

impl ImageBuild {
    /// From the object as JSON.
    pub(crate) fn new(object: Value) -> Self {
        Self { view: OsBuild::new(&object), object: typed(object) }
    }

    /// The pool that it is for, by its label; empty if it has none.
    pub(crate) fn pool(&self) -> &str {
        let labels = self.object.as_ref().ok().and_then(|o| o.metadata.labels.as_ref());
        labels.and_then(|l| l.get(build::names::POOL)).map(String::as_str).unwrap_or_default()
    }
}

/// The node of an operator's pod that is not being deleted.
pub(crate) fn operator_node(pod: &Pod) -> Option<Arc<str>> {
    let gone = pod.metadata.deletion_timestamp.is_some();
    pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty() && !gone).map(Arc::from)
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

impl From<Meta> for ObjectMeta {
    fn from(meta: Meta) -> Self {
        Self {
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version,
            generation: meta.generation,
            creation_timestamp: meta.creation_timestamp,
            deletion_timestamp: meta.deletion_timestamp,
            labels: meta.labels,
            annotations: meta.annotations,
            owner_references: meta.owner_references,
            ..Self::default()
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNode {
    metadata: Meta,
    spec: RawNodeSpec,
    status: RawNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNodeSpec {
    unschedulable: Option<bool>,
    taints: Option<Vec<Taint>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawNodeStatus {
    phase: Option<String>,
    conditions: Option<Vec<NodeCondition>>,
}

/// A Node with the fields that [`rollout::view::NodeView`] reads.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawNode")]
pub(crate) struct TrimmedNode(pub(crate) Node);

impl From<RawNode> for TrimmedNode {
    fn from(raw: RawNode) -> Self {
        let RawNode { metadata, spec, status } = raw;
        Self(Node {
            metadata: metadata.into(),
            spec: Some(NodeSpec {
                unschedulable: spec.unschedulable,
                taints: spec.taints,
                ..NodeSpec::default()
            }),
            status: Some(NodeStatus {
                phase: status.phase,
                conditions: status.conditions,
                ..NodeStatus::default()
            }),
        })
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawProgress {
    metadata: Meta,
    #[serde(deserialize_with = "readable")]
    spec: MachineConfigNodeSpec,
    status: RawProgressStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RawProgressStatus {
    pinned_image_sets: Option<Vec<PinnedImageSetState>>,
}

/// Reads a spec that is malformed as an empty one, which the pass then corrects. One such object must not stop the
/// others.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<MachineConfigNodeSpec, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// A MachineConfigNode without its status, except for what it says of PinnedImageSets. Whoever adds to the status reads it first.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawProgress")]
pub(crate) struct TrimmedMachineConfigNode(pub(crate) MachineConfigNode);

impl From<RawProgress> for TrimmedMachineConfigNode {
    fn from(raw: RawProgress) -> Self {
        let pins = raw.status.pinned_image_sets.filter(|pins| !pins.is_empty());
        let status = pins.map(|pins| MachineConfigNodeStatus {
            pinned_image_sets: Some(pins),
            ..MachineConfigNodeStatus::default()
        });
        Self(MachineConfigNode { metadata: raw.metadata.into(), spec: raw.spec, status })
    }
}

macro_rules! as_resource {
    ($trimmed:ty, $whole:ty) => {
        impl Resource for $trimmed {
            type DynamicType = ();
            type Scope = <$whole as Resource>::Scope;

            fn kind((): &()) -> Cow<'_, str> {
                <$whole>::kind(&())
            }
            fn group((): &()) -> Cow<'_, str> {
                <$whole>::group(&())
            }
            fn version((): &()) -> Cow<'_, str> {
                <$whole>::version(&())
            }
            fn plural((): &()) -> Cow<'_, str> {
                <$whole>::plural(&())
            }
            fn meta(&self) -> &ObjectMeta {
                &self.0.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.0.metadata
            }
        }
    };
}

as_resource!(TrimmedNode, Node);
as_resource!(TrimmedMachineConfigNode, MachineConfigNode);

#[cfg(test)]
mod tests {
    use super::*;
    use rollout::view::NodeView;
    use serde_json::json;

    #[test]
    fn a_trimmed_node_is_seen_as_the_whole_one() {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "z"},
                "annotations": {
                    "machineconfiguration.openshift.io/currentConfig": "a",
                    "machineconfiguration.openshift.io/desiredConfig": "b",
                    "machineconfiguration.openshift.io/cordon": "daemon",
                    "machineconfiguration.openshift.io/reason": "broken",
                },
                "managedFields": [{"manager": "m", "operation": "Update", "fieldsV1": {"f:metadata": {}}}],
            },
            "spec": {"unschedulable": true, "taints": [{"key": "k", "effect": "NoSchedule"}], "podCIDR": "10.0.0.0/24"},
            "status": {
                "phase": "Pending",
                "images": [{"names": ["i"], "sizeBytes": 5}],
                "conditions": [{"type": "Ready", "status": "False", "reason": "R", "message": "m",
                    "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        });
        let whole: Node = serde_json::from_value(node.clone()).unwrap();
        let trimmed: TrimmedNode = serde_json::from_value(node).unwrap();
        assert_eq!(NodeView::from_node(&trimmed.0), NodeView::from_node(&whole));
        assert!(trimmed.0.status.is_some_and(|s| s.images.is_none()));
        let bare: TrimmedNode = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(bare.0.metadata.name.as_deref(), Some("n"));
    }

    #[test]
    fn of_an_object_that_cannot_be_read_no_value_is_quoted() {
        let object = json!({"metadata": {"name": "worker"}, "spec": {"renderedImagePushSpec": ["hunter2"]}});
        let want = "spec.renderedImagePushSpec: expected a string, found a list";
        assert_eq!(ImageConfig::new(object.clone()).object.unwrap_err(), want);
        assert_eq!(ImageBuild::new(object).object.unwrap_err(), want);
    }

    #[test]
    fn a_spec_that_cannot_be_read_does_not_stop_the_others() {
        let object = json!({"metadata": {"name": "n"}, "spec": {"configVersion": 7}});
        let trimmed: TrimmedMachineConfigNode = serde_json::from_value(object).unwrap();
        assert_eq!(trimmed.0.spec, MachineConfigNodeSpec::default());
    }
}
