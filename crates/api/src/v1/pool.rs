//! MachineConfigPool: a group of nodes that share one rendered MachineConfig.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types.go>.

use crate::conditions::Condition;
use crate::k8s::{IntOrString, LabelSelector, ObjectReference, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

crate::definition::resource::resource!(
    /// A group of nodes and the config that they are to be in.
    MachineConfigPool, MachineConfigPoolSpec, MachineConfigPoolStatus,
    "machineconfiguration.openshift.io", "v1", "machineconfigpools"
);

/// Which MachineConfigs, which nodes, how fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolSpec {
    /// Picks MachineConfigs by label. Absent or empty picks none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_config_selector: Option<LabelSelector>,
    /// Picks nodes by label. Absent or empty picks none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<LabelSelector>,
    /// No node is moved to another config while this is set; rendering goes on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// How many nodes may be unavailable at once: a number, or a percentage of the pool rounded down; at least 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,
    /// The rendered config to move to. Written by the render controller.
    #[serde(default)]
    pub configuration: PoolConfiguration,
    /// Images that every node of the pool keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_image_sets: Option<Vec<NamedRef>>,
    /// The OS image stream to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<NamedRef>,
}

/// A reference by name alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NamedRef {
    /// The object's name.
    pub name: String,
}

/// A rendered config and what it was made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolConfiguration {
    /// The API version of the rendered config, where written by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// The kind of the rendered config, where written by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The rendered config's name. Empty: there is none yet.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The MachineConfigs that it was merged from, in merge order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Vec<ObjectReference>>,
}

/// Where the pool stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigPoolStatus {
    /// The pool's generation that this was computed from.
    #[serde(default)]
    pub observed_generation: i64,
    /// The config that all nodes were last in together.
    #[serde(default)]
    pub configuration: PoolConfiguration,
    /// Nodes in the pool.
    #[serde(default)]
    pub machine_count: i32,
    /// Nodes in the pool's config.
    #[serde(default)]
    pub updated_machine_count: i32,
    /// Nodes in the pool's config that are Ready and take pods.
    #[serde(default)]
    pub ready_machine_count: i32,
    /// Nodes that are not Ready, or on their way.
    #[serde(default)]
    pub unavailable_machine_count: i32,
    /// Nodes that report Degraded or Unreconcilable.
    #[serde(default)]
    pub degraded_machine_count: i32,
    /// Updated, Updating, Degraded and their causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<Condition>>,
    /// When the API server's CA certificates expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cert_expirys: Option<Vec<CertExpiry>>,
    /// Counts of what is kept in step beside the config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_synchronizers_status: Option<Vec<PoolSynchronizerStatus>>,
    /// The OS image stream that the pool is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_image_stream: Option<NamedRef>,
}

/// One certificate's end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertExpiry {
    /// The bundle that contains it.
    pub bundle: String,
    /// Its subject.
    pub subject: String,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiry: Option<Time>,
}

/// Counts of one synchroniser.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolSynchronizerStatus {
    /// `PinnedImageSets`.
    pub pool_synchronizer_type: String,
    /// Nodes.
    pub machine_count: i64,
    /// Nodes in step.
    pub updated_machine_count: i64,
    /// Nodes in step and ready.
    pub ready_machine_count: i64,
    /// Nodes available.
    pub available_machine_count: i64,
    /// Nodes not available.
    pub unavailable_machine_count: i64,
    /// The generation that this was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
