//! What is known about the cluster besides pools and nodes.
//!
//! What it is not: how it is gathered from objects (see `inputs`).

use crate::drain::Outlook;
use crate::pinned_images::PinFacts;
use crate::topology::{self, Topology};
use crate::view::NodeView;
use crate::view::roles::Cluster;
use api::topology::ControlPlaneTopology;
use api::v1::{ControllerCertificate, ControllerConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts about the cluster besides pools and nodes. The default is a plain Kubernetes cluster about which nothing is
/// known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Facts {
    /// Who labels its nodes.
    pub cluster: Cluster,
    /// `HighlyAvailable`, `SingleReplica` and so on; empty if unknown, and then not copied to nodes.
    pub control_plane_topology: Arc<str>,
    /// `status.controllerCertificates` of the ControllerConfig.
    pub certificates: Vec<ControllerCertificate>,
    /// The one node that runs the operator; `None` if there are several pods.
    pub operator_node: Option<Arc<str>>,
    /// For each MachineConfig that a node first booted into, the pool that owns it.
    pub first_pivot_pools: BTreeMap<Arc<str>, Arc<str>>,
    /// Nodes with a patch that the API server has not answered: the patch may have arrived, may still arrive, or never
    /// will.
    pub unanswered: BTreeMap<Arc<str>, Unanswered>,
    /// `spec.mastersSchedulable` of OpenShift's Scheduler; `None` if there is none. Control-plane nodes are then left
    /// alone.
    pub masters_schedulable: Option<bool>,
    /// Nodes whose member of etcd is not Ready, or not known to be since its node booted. While there is one, no other
    /// control-plane node goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub etcd_not_ready: Vec<Arc<str>>,
    /// For each node with a member of etcd, the id of its container.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub etcd_containers: BTreeMap<Arc<str>, Arc<str>>,
    /// Other problems. They delay nothing; pools report them in the message of `Updating`.
    pub troubles: Vec<Trouble>,
    /// What drains of nodes would do, as far as they were looked at.
    pub outlooks: BTreeMap<Arc<str>, Outlook>,
    /// PinnedImageSets, and how far nodes are with them. Nothing waits for it.
    #[serde(default, skip_serializing_if = "PinFacts::is_empty")]
    pub pins: PinFacts,
    /// The caller looks at the nodes that a plan asks for, or has looked at all. Otherwise no node waits for a look.
    pub looks: bool,
}

/// A problem besides the rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trouble {
    /// Which pools report it.
    pub of: TroubleOf,
    /// What it is, with the object and the remedy.
    pub text: String,
}

/// Which pools report a [`Trouble`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum TroubleOf {
    /// All of them.
    Cluster,
    /// This one.
    Pool(Arc<str>),
    /// The one that owns this node.
    Node(Arc<str>),
}

/// A patch without an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unanswered {
    /// It sends its node to another config, so the node may be on its way.
    pub moves: bool,
    /// The answer takes longer than it should.
    pub overdue: bool,
}

impl Facts {
    /// The facts that come from the ControllerConfig and the nodes; all others have their default.
    pub fn of<'a>(config: Option<&ControllerConfig>, nodes: impl IntoIterator<Item = &'a NodeView>) -> Self {
        let spec = config.map(|c| &c.spec);
        let certificates = config.and_then(|c| c.status.as_ref()?.controller_certificates.clone());
        Self {
            cluster: Cluster::of(spec),
            control_plane_topology: topology::control_plane(config, Topology::of(nodes)).into(),
            certificates: certificates.unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Whether the topology has an arbiter beside two masters, or is not known. An arbiter's pool is then held for its
    /// masters.
    pub fn has_arbiter(&self) -> bool {
        let topology = ControlPlaneTopology::parse(&self.control_plane_topology);
        self.cluster == Cluster::Unknown || topology == Some(ControlPlaneTopology::HighlyAvailableArbiter)
    }
}
