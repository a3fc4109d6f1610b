//! Role labels of nodes: who sets them, and which of them mean the control plane.
//!
//! What it is not: which pool owns a node, or the rules for control-plane nodes (see `node`).

use super::names::Labels;
use api::names::label::{CONTROL_PLANE_ROLE, ETCD_ROLE, MASTER_ROLE};
use api::v1::ControllerConfigSpec;
use serde::{Deserialize, Serialize};

/// The kind of cluster, by which component labels nodes with their roles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Cluster {
    /// There is no ControllerConfig, so this is not known. Nothing moves that either of the other two would leave
    /// alone: no node is assumed to be a worker, and no control-plane node belongs to a custom pool.
    #[default]
    Unknown,
    /// kubeadm, k3s and the like: role labels are followed if they exist, and assumed if they do not.
    Plain,
    /// OpenShift labels each node for its pool: selectors alone decide.
    OpenShift,
}

impl Cluster {
    /// As the ControllerConfig says. Agents, the controller and people can all read that object.
    pub fn of(config: Option<&ControllerConfigSpec>) -> Self {
        match config.map(ControllerConfigSpec::is_openshift) {
            Some(true) => Self::OpenShift,
            Some(false) => Self::Plain,
            None => Self::Unknown,
        }
    }
}

const CONTROL_PLANE_ROLES: [&str; 2] = [MASTER_ROLE, CONTROL_PLANE_ROLE];

/// Whether a node with these labels belongs to the control plane: it has one of the two role labels. The value does not
/// matter: k3s sets `true`, kubeadm an empty value.
pub fn is_control_plane(labels: &Labels) -> bool {
    CONTROL_PLANE_ROLES.iter().any(|key| labels.get(key).is_some())
}

/// Whether a node with a label of this name may have a member of etcd: it is of the control plane, or runs etcd alone.
pub fn is_role_with_etcd(label: &str) -> bool {
    label == ETCD_ROLE || CONTROL_PLANE_ROLES.contains(&label)
}

/// Whether a node with these labels is a member of etcd, either as part of the control plane or running etcd alone.
pub(crate) fn is_etcd(labels: &Labels) -> bool {
    labels.get(ETCD_ROLE).is_some()
}
