//! Why a pool or a node does not move: values that policies decide on, plans say, and people read.
//!
//! What it is not: the decision (see `policy` and `plan`), or the words (see `explain`).

use crate::os_image::OsImageWait;
use crate::target::{ChangeAsked, ImageWait};
use crate::view::DaemonState;
use api::k8s::Time;
use api::v1alpha1::{GateOutcome, GateResult};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
    Image(ImageWait),
    /// The image that the rendered config names is not known yet, or no node can run it.
    OsImage(OsImageWait),
    /// `spec.maxUnavailable` cannot be read. Holds its text.
    MaxUnavailable(String),
    /// The pool's annotation [`own::PREFETCH`](api::names::own::PREFETCH) cannot be read. Holds its text.
    PrefetchLimit(String),
    /// The next OS image is fetched on the nodes first.
    Prefetch {
        /// How many nodes have not tried yet, or not to the end.
        left: usize,
        /// How many nodes fetch it.
        of: usize,
        /// On how many at once.
        at_once: usize,
    },
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
        /// The reason, as it was written.
        reason: String,
        /// Some changes may begin all the same, and it is not known whether the pool's is one of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unknown: Option<UnknownCost>,
    },
    /// None of its policy's windows is open.
    OutsideWindow {
        /// When one opens; `None`: never.
        opens: Option<Time>,
        /// Some changes may begin all the same, and it is not known whether the pool's is one of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unknown: Option<UnknownCost>,
    },
    /// A gate does not hold, or that is unknown.
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
        /// An approval that is not for it, as it is in the pool's annotation.
        wrong: Option<String>,
    },
    /// Its policy cannot be followed; why, with the remedy.
    Policy(String),
    /// What was decided last is being written into the policy's status; nodes go when it is.
    Recording {
        /// The RolloutPolicy.
        policy: Arc<str>,
    },
    /// A node failed on its way, and the policy holds the pool for that.
    NodeFailed {
        /// The node.
        node: Arc<str>,
        /// How.
        why: String,
        /// The RolloutPolicy.
        policy: Arc<str>,
    },
    /// The pool's config did harm and is not tried again.
    Rejected {
        /// The config.
        config: Arc<str>,
        /// The harm.
        reason: String,
        /// The RolloutPolicy.
        policy: Arc<str>,
        /// Where the nodes go, or have gone; absent: they stay where they are.
        back_to: Option<Arc<str>>,
    },
    /// Another pool has rejected a change that this one would take, too. Its first wave begins only when a person lets it go.
    RejectedElsewhere {
        /// The wave; `None`: the pool has no waves, and no node of it goes.
        wave: Option<Arc<str>>,
        /// The other pool.
        pool: Arc<str>,
        /// What that pool has rejected.
        config: Arc<str>,
        /// The MachineConfigs in both.
        shared: Vec<Arc<str>>,
    },
    /// A wave of its policy selects nodes by label, and there is none that no earlier wave has: it would prove nothing.
    EmptyWave {
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

impl Hold {
    /// Whether it ends by a person's approval.
    pub fn needs_approval(&self) -> bool {
        matches!(self, Self::Approval { .. } | Self::RejectedElsewhere { .. })
    }

    /// In one word, for the conditions of a policy.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Frozen { unknown: Some(UnknownCost { why: Some(_), .. }), .. }
            | Self::OutsideWindow { unknown: Some(UnknownCost { why: Some(_), .. }), .. } => "CostUnknown",
            Self::Frozen { .. } => "Frozen",
            Self::OutsideWindow { .. } => "OutsideWindow",
            Self::Gate { state: GateState::Failed(_), .. } => "GateFailed",
            Self::Gate { state: GateState::Unknown(_), .. } => "GateUnreadable",
            Self::Gate { state: GateState::Passed | GateState::Failing(_), .. } => "GateNotPassed",
            Self::Approval { wrong: None, .. } => "ApprovalNeeded",
            Self::Approval { wrong: Some(_), .. } => "WrongApproval",
            Self::Policy(_) => "Policy",
            Self::Recording { .. } => "Recording",
            Self::NodeFailed { .. } => "NodeFailed",
            Self::Rejected { .. } => "Rejected",
            Self::RejectedElsewhere { .. } => "RejectedElsewhere",
            Self::EmptyWave { .. } => "EmptyWave",
            Self::Soak { .. } => "Soak",
            Self::Paused => "Paused",
            Self::Prefetch { .. } => "Prefetch",
            Self::SelectsAll
            | Self::NothingRendered
            | Self::ConfigMissing(_)
            | Self::Deleting
            | Self::Image(_)
            | Self::OsImage(_)
            | Self::MaxUnavailable(_)
            | Self::PrefetchLimit(_)
            | Self::Masters(_)
            | Self::Arbiter(_)
            | Self::NoMasterPool
            | Self::Refused(_)
            | Self::Selector { .. } => "Pool",
        }
    }
}

/// A change of which it is not known what it costs a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnknownCost {
    /// The change.
    #[serde(flatten)]
    pub change: ChangeAsked,
    /// Why it is not known; `None`: nobody has looked yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Arc<str>>,
}

/// Why a node is not available, or does not reach its config.
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

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GateState {
    /// It passes.
    Passed,
    /// Checks fail, but not as often in a row yet that the gate has failed; the last one's reason. No node begins.
    Failing(String),
    /// It has failed, and why.
    Failed(String),
    /// It could not be asked, and why. No node begins because of a gate that could not be read.
    Unknown(String),
}

impl GateState {
    /// As the status of a policy holds it.
    pub fn of(result: &GateResult) -> Self {
        let message = result.message.clone();
        match result.outcome {
            GateOutcome::Passed => Self::Passed,
            GateOutcome::Failing => Self::Failing(message),
            GateOutcome::Failed => Self::Failed(message),
            GateOutcome::NoAnswer => Self::Unknown(message),
        }
    }
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
    /// It is a control-plane node, and the members of etcd on these are not Ready.
    Etcd(Arc<[Arc<str>]>),
    /// It booted into this custom pool's config, and gets its labels first.
    PoolLabels(Arc<str>),
    /// It fetches the next OS image first.
    Prefetch(Prefetching),
    /// This wave of the pool's policy goes first.
    Wave(Arc<str>),
    /// Its pods are looked at before it is cordoned.
    #[serde(rename = "look")]
    DrainOutlook,
    /// It is put aside, because its drain did not end.
    #[serde(rename = "aside")]
    Quarantined {
        /// What its drain would wait for now, if it has been looked at.
        why: Option<String>,
    },
    /// As many nodes of its zone as the policy allows are out.
    Zone {
        /// The zone; empty: nodes without one.
        zone: Arc<str>,
        /// How many may be.
        max: usize,
    },
}

/// How far a node is that fetches the next OS image before it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Prefetching {
    /// It fetches it.
    Now,
    /// Others fetch it first.
    Later,
    /// It could not, and tries again.
    Failed {
        /// What its agent says.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn waits_whose_rust_names_changed_are_serialised_as_before() {
        for (wait, want) in [
            (Wait::DrainOutlook, json!("look")),
            (Wait::Quarantined { why: None }, json!({"aside": {"why": null}})),
        ] {
            assert_eq!(serde_json::to_value(&wait).unwrap(), want);
            assert_eq!(serde_json::from_value::<Wait>(want).unwrap(), wait);
        }
    }
}
