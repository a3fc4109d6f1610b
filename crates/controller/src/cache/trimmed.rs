//! Nodes and MachineConfigNodes as they are decoded from the wire: only the few fields that the caches keep. All other
//! bytes (images, conditions, managed fields) are skipped by the decoder and never take memory.
//!
//! What it is not: types to write with. Writes are patches.

use api::k8s::{Node, NodeCondition, NodeSpec, NodeStatus, ObjectMeta, OwnerReference, Taint, Time};
use api::v1::{MachineConfigNode, MachineConfigNodeSpec};
use kube::Resource;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

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
}

/// Reads a spec that is malformed as an empty one, which the pass then corrects. One such object must not stop the
/// others.
fn readable<'de, D: Deserializer<'de>>(from: D) -> Result<MachineConfigNodeSpec, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(from)?).unwrap_or_default())
}

/// A MachineConfigNode without its status. Whoever adds to the status reads it first.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "RawProgress")]
pub(crate) struct TrimmedMachineConfigNode(pub(crate) MachineConfigNode);

impl From<RawProgress> for TrimmedMachineConfigNode {
    fn from(raw: RawProgress) -> Self {
        Self(MachineConfigNode { metadata: raw.metadata.into(), spec: raw.spec, status: None })
    }
}

macro_rules! as_resource {
    ($light:ty, $whole:ty) => {
        impl Resource for $light {
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
    fn a_light_node_is_seen_as_the_whole_one() {
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
        let light: TrimmedNode = serde_json::from_value(node).unwrap();
        assert_eq!(NodeView::from_node(&light.0), NodeView::from_node(&whole));
        assert!(light.0.status.is_some_and(|s| s.images.is_none()));
        let bare: TrimmedNode = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
        assert_eq!(bare.0.metadata.name.as_deref(), Some("n"));
    }

    #[test]
    fn a_spec_that_cannot_be_read_does_not_stop_the_others() {
        let object = json!({"metadata": {"name": "n"}, "spec": {"configVersion": 7}});
        let light: TrimmedMachineConfigNode = serde_json::from_value(object).unwrap();
        assert_eq!(light.0.spec, MachineConfigNodeSpec::default());
    }
}
