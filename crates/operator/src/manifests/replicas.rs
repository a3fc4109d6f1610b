//! How many controllers run: by the topology of the control plane, until somebody scales their Deployment. Pure.

use api::detected::{Detected, REPLICAS};
use api::k8s::ObjectMeta;
use api::topology::ControlPlaneTopology;
use serde::Deserialize as _;
use serde_json::Value;

/// How many controllers run. One leads, and another takes over when its node is drained. With a single control-plane node a
/// second one has nowhere to run, and their PodDisruptionBudget would block a drain of that node.
pub(crate) fn controllers(topology: Option<ControlPlaneTopology>) -> u32 {
    if topology == Some(ControlPlaneTopology::SingleReplica) { 1 } else { 2 }
}

/// Somebody has scaled the controllers' Deployment: its number is not the one that was written. It is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReplicaOverride {
    /// Its number of replicas.
    pub(super) has: u32,
    /// The number that was written, from its record. It is kept, so that the Deployment still counts as scaled.
    pub(super) recorded: String,
}

impl ReplicaOverride {
    /// `None`: nobody has scaled it.
    pub(crate) fn of(deployment: &Value) -> Option<Self> {
        let has = deployment.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
        let metadata = ObjectMeta::deserialize(deployment.get("metadata")?).ok()?;
        // Deployments of earlier versions have two and no record.
        let recorded = Detected::of(&metadata).get(REPLICAS).unwrap_or("2").to_owned();
        (has.to_string() != recorded)
            .then_some(Self { has: u32::try_from(has).unwrap_or_default(), recorded })
    }
}
