//! The values of a rollout decision: what it is made from ([`Inputs`]), and what it says ([`RolloutPlan`]).
//!
//! What it is not: the decision itself (see [`crate::plan`]). A plan is complete: the executor chooses nothing, and
//! every node of a pool has a [`Step`] that says what it does or what it waits for.

use crate::layered::Layering;
use crate::patch::{Change, NodePatch};
use crate::policy::{GateState, PolicyInput};
use crate::roles::Cluster;
use crate::topology::{self, Topology};
use crate::view::{DaemonState, NodeView};
use api::events::{ControllerEvent, Severity};
use api::k8s::Time;
use api::v1::{ControllerCertificate, ControllerConfig, MachineConfigPool, MachineConfigPoolStatus};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that a decision is made from.
#[derive(Clone, Debug)]
pub struct Inputs<'a> {
    /// All pools of the cluster: which pool a node is in depends on all of them.
    pub pools: Vec<PoolInput<'a>>,
    /// All nodes of the cluster, in any order.
    pub nodes: Vec<&'a NodeView>,
    /// What is known besides pools and nodes.
    pub facts: &'a Facts,
    /// The time, for transition times of conditions.
    pub now: Time,
}

/// A pool and what belongs to it.
#[derive(Clone, Debug)]
pub struct PoolInput<'a> {
    /// The pool.
    pub pool: &'a MachineConfigPool,
    /// On-cluster image builds for it; by default none.
    pub layering: Layering,
    /// Whether the MachineConfig that `spec.configuration` names exists. No node is sent to one that does not.
    pub config_exists: bool,
    /// The OS image stream that the rendered config's image belongs to, if streams are used.
    pub stream: Option<&'a str>,
    /// Why a change of one of its nodes was refused just now. This plan then changes no node of the pool, and the
    /// status says so.
    pub refused: Option<&'a str>,
    /// The policy of the rollout and its facts; `None` means as `spec.maxUnavailable` says, at any time.
    pub policy: Option<PolicyInput<'a>>,
}

impl<'a> PoolInput<'a> {
    /// A pool without image builds whose rendered config exists.
    pub fn of(pool: &'a MachineConfigPool) -> Self {
        Self {
            pool,
            layering: Layering::default(),
            config_exists: true,
            stream: None,
            refused: None,
            policy: None,
        }
    }

    /// The pool's name.
    pub fn name(&self) -> &'a str {
        self.pool.metadata.name.as_deref().unwrap_or_default()
    }
}

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
    /// Other problems. They delay nothing; pools report them in the message of `Updating`.
    pub troubles: Vec<Trouble>,
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
        self.cluster == Cluster::Unknown || &*self.control_plane_topology == "HighlyAvailableArbiter"
    }
}

/// What to do now, and the state of everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPlan {
    /// One plan for each pool of the input, in the same order.
    pub pools: Vec<PoolPlan>,
    /// Nodes that no pool can own, and why.
    pub unmanaged: Vec<Unmanaged>,
    /// Control-plane nodes that also match a custom pool, which is ignored (metric `mcc_pool_alert`).
    pub pool_alerts: Vec<Arc<str>>,
    /// When to plan again although nothing has changed: a window opens or closes, or a soak time ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again: Option<Timestamp>,
}

/// What to do for one pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolPlan {
    /// The pool.
    pub pool: Arc<str>,
    /// Where its nodes should go; `None` if nothing is rendered yet.
    pub target: Option<Target>,
    /// Why no node of the pool gets anything new, whatever its state; `None` if nodes may move.
    pub hold: Option<Hold>,
    /// How many nodes may be on their way, and which are.
    pub capacity: Capacity,
    /// One patch for each node that changes. They are independent: send them at once.
    pub patches: Vec<NodePatch>,
    /// The pool's status after the patches, if it differs from the present one.
    pub status: Option<MachineConfigPoolStatus>,
    /// Transitions to report to people.
    pub events: Vec<EventPlan>,
    /// The pool's annotation with the nodes whose first boot into it is expected, if it changes.
    pub first_boot_nodes: Change<Arc<str>>,
    /// Nodes of this pool that claim to have first booted into another pool, with that pool, which does not expect
    /// them. They get no labels.
    pub unexpected: Vec<(Arc<str>, Arc<str>)>,
    /// Every node of the pool, by name.
    pub nodes: Vec<NodeStep>,
    /// As [`RolloutPlan::look_again`], for this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again: Option<Timestamp>,
}

/// Where nodes should go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The rendered MachineConfig.
    pub config: Arc<str>,
    /// The layered OS image, where the pool has one.
    pub image: Option<Arc<str>>,
}

impl Target {
    /// Where the nodes of a pool with this rendered config go: to the image that was built for it, where one is built.
    pub(crate) fn of(config: Arc<str>, layering: &Layering) -> Self {
        match &layering.build {
            Some(build) if layering.config.is_some() => {
                Self { config: build.machine_config.clone(), image: layering.image().cloned() }
            }
            _ => Self { config, image: None },
        }
    }
}

/// The safety check, computed before anything is chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Capacity {
    /// `maxUnavailable` as a number.
    pub max: usize,
    /// Nodes that are not ready, or on their way, before this plan.
    pub unavailable: Vec<Arc<str>>,
    /// Those of them that are in service but have to go, because their daemons report a fault in the present config.
    /// They go in the slots that they hold.
    pub broken: Vec<Arc<str>>,
    /// Nodes that fail to reach the pool's config: each holds a slot.
    pub failing: Vec<Arc<str>>,
    /// Further nodes that a patch without an answer may have sent: each holds a slot.
    pub unanswered: Vec<Arc<str>>,
    /// How many more may go, before this plan.
    pub free: usize,
}

/// Why no node of a pool is given anything new.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Hold {
    /// `spec.nodeSelector` is `{}`.
    SelectsAll,
    /// `spec.configuration.name` is empty.
    NothingRendered,
    /// The MachineConfig that `spec.configuration` names does not exist.
    ConfigMissing(Arc<str>),
    /// It is being deleted.
    Deleting,
    /// `spec.paused`.
    Paused,
    /// The OS image is not ready.
    Image(crate::layered::ImageWait),
    /// `spec.maxUnavailable` cannot be read; how it stands there.
    MaxUnavailable(String),
    /// The arbiter moves only when all masters are done or, where they are held, available.
    Masters(Vec<Arc<str>>),
    /// Masters do not move while the arbiter is unavailable.
    Arbiter(Vec<Arc<str>>),
    /// There is no master pool beside the arbiter's.
    NoMasterPool,
    /// A change of one of its nodes was refused; in the API server's words.
    Refused(String),
    /// A freeze of its policy is in force.
    Frozen {
        /// Until when; `None`: until somebody takes it back.
        until: Option<Time>,
        /// Why, as it stands there.
        reason: String,
    },
    /// None of its policy's windows is open.
    OutsideWindow {
        /// When one opens; `None`: never.
        opens: Option<Time>,
    },
    /// A gate does not hold, or nobody knows whether it does.
    Gate {
        /// The gate.
        gate: Arc<str>,
        /// What it says.
        state: GateState,
    },
    /// A wave begins only when a person lets it go.
    Approval {
        /// The wave.
        wave: Arc<str>,
    },
    /// A wave is done and is to prove itself for a time.
    Soak {
        /// The wave.
        wave: Arc<str>,
        /// Until when.
        until: Time,
    },
    /// A pool's selector cannot be evaluated: no node's pool is sure.
    Selector {
        /// The pool.
        pool: Arc<str>,
        /// What is wrong, with its path.
        error: String,
    },
}

/// A node that no pool can own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmanaged {
    /// The node.
    pub node: Arc<str>,
    /// Why.
    pub why: NoPool,
}

/// Why no pool owns a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NoPool {
    /// No pool's selector matches.
    NoMatch,
    /// It has no role label, and no daemon has reported from it: nobody says that it is a worker of ours.
    NoDaemon,
    /// Two or more custom pools match.
    SeveralCustom(Vec<Arc<str>>),
}

/// A node and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStep {
    /// The node.
    pub node: Arc<str>,
    /// What it does, or waits for.
    pub step: Step,
}

/// Where a node stands after the plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// In the pool's config and available.
    Done,
    /// In the pool's config, but not available: it holds a slot.
    Unavailable(Reason),
    /// It is sent to the pool's config by this plan.
    Goes,
    /// It was sent there before and is at work.
    Moving {
        /// What its daemon says.
        state: DaemonState,
        /// It reboots.
        rebooting: bool,
        /// What its drain waits for.
        drain: Option<Arc<str>>,
    },
    /// It was sent to the pool's config and fails to get there. It tries again.
    Failing(Reason),
    /// It is to go and cannot yet.
    Waits(Wait),
}

/// A text, with a word for what kind it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    /// Its conditions say so.
    NotReady(Arc<str>),
    /// `spec.unschedulable` is set.
    Cordoned,
    /// Its daemon says Degraded or Unreconcilable, for this reason.
    Daemon(DaemonState, Option<Arc<str>>),
    /// Its daemon is not done.
    NotDone(DaemonState),
}

/// Why a node that is to go does not go now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Wait {
    /// The pool is held; its `hold` says why.
    Pool,
    /// All slots are taken, by these nodes.
    Capacity {
        /// How many may be on their way.
        max: usize,
        /// Those that are: shared by all nodes that wait for the same.
        by: Arc<[Arc<str>]>,
    },
    /// It is not available itself; it goes when it is.
    Node(Reason),
    /// The API server has not answered its last patch.
    Unanswered,
    /// It runs the operator, and another control-plane node goes first.
    RunsOperator,
    /// It is a control-plane node, and these of whatever pools are out of service or on their way.
    ControlPlane(Arc<[Arc<str>]>),
    /// It booted into this custom pool's config, and gets its labels first.
    PoolLabels(Arc<str>),
    /// This wave of the pool's policy goes first.
    Wave(Arc<str>),
}

/// The object that an event is about. Both kinds are cluster-scoped: the event stands in our own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventObject {
    /// A MachineConfigPool.
    Pool(Arc<str>),
    /// A Node.
    Node(Arc<str>),
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPlan {
    /// Normal or Warning.
    pub kind: Severity,
    /// Which event.
    pub reason: ControllerEvent,
    /// The object.
    pub about: EventObject,
    /// A sentence.
    pub message: String,
}

impl EventPlan {
    pub(crate) fn new(reason: ControllerEvent, about: EventObject, message: String) -> Self {
        Self { kind: reason.severity(), reason, about, message }
    }
}
