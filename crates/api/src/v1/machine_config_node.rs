//! MachineConfigNode: how far one node's update is, step by step. Named as its node, and owned by it.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types_machineconfignode.go>.

use super::PinnedImageSetState;
use crate::k8s::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::definition::resource::resource!(
    /// The progress of one node's update.
    MachineConfigNode, MachineConfigNodeSpec, MachineConfigNodeStatus,
    "machineconfiguration.openshift.io", "v1", "machineconfignodes"
);

/// Which node, which pool, which config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigNodeSpec {
    /// The node.
    #[serde(default)]
    pub node: super::NamedRef,
    /// Its pool, or `not-yet-set`.
    #[serde(default)]
    pub pool: super::NamedRef,
    /// The config to move to.
    #[serde(default)]
    pub config_version: DesiredConfigVersion,
}

/// The config to move to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DesiredConfigVersion {
    /// A rendered MachineConfig's name, or `not-yet-set`.
    pub desired: String,
}

/// Conditions and the config in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigNodeStatus {
    /// The generation of the object that this condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One for each step of an update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<NodeStepCondition>>,
    /// Configs in effect and wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_version: Option<ConfigVersionStatus>,
    /// How far the node is with each PinnedImageSet of its pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_image_sets: Option<Vec<PinnedImageSetState>>,
}

/// Configs in effect and wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigVersionStatus {
    /// The config in effect.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub current: String,
    /// The config to move to.
    pub desired: String,
}

/// One step's condition (`metav1.Condition`: all fields required, reason not empty).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStepCondition {
    /// The step.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When `status` last changed.
    pub last_transition_time: Time,
    /// One word.
    pub reason: String,
    /// A sentence.
    #[serde(default)]
    pub message: String,
}

crate::conditions::status_condition!(NodeStepCondition);
