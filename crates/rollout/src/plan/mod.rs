//! What a rollout decision says: [`RolloutPlan`].
//!
//! What it is not: what it is made from (see [`crate::Inputs`]), or the decision itself (see `decide`). A plan is complete: the
//! executor chooses nothing, and every node of a pool has a [`Step`] that says what it does or what it waits for.

pub(crate) mod capacity;
mod choice;
pub(crate) mod decide;
pub(crate) mod late_patches;
mod prefetch;

use crate::event::EventPlan;
use crate::hold::{Hold, Reason, Wait};
use crate::node::membership::Unmanaged;
use crate::patch::{Change, NodePatch};
use crate::policy::PolicyPlan;
use crate::target::Target;
use crate::view::DaemonState;
use api::v1::MachineConfigPoolStatus;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What to do now, and the state of everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutPlan {
    /// One plan for each pool of the input, in the same order.
    pub pools: Vec<PoolPlan>,
    /// Nodes that no pool can own, and why.
    pub unmanaged: Vec<Unmanaged>,
    /// Patches that remove the taint of nodes that join from nodes of [`RolloutPlan::unmanaged`]. They are independent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged_patches: Vec<NodePatch>,
    /// Control-plane nodes that also match a custom pool, which is ignored (metric `mcc_pool_alert`).
    pub pool_alerts: Vec<Arc<str>>,
    /// When to plan again although nothing has changed: a window opens or closes, or a soak time or
    /// [`Unmanaged::tainted_until`] ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again: Option<Timestamp>,
}

impl RolloutPlan {
    /// All patches, also those of nodes that no pool owns.
    pub fn patches(&self) -> impl Iterator<Item = &NodePatch> {
        self.pools.iter().flat_map(|pool| &pool.patches).chain(&self.unmanaged_patches)
    }

    /// The plans of the pools' policies, with each pool's name.
    pub fn of_policies(&self) -> Vec<(&str, &PolicyPlan)> {
        self.pools.iter().filter_map(|pool| Some((&*pool.pool, pool.policy.as_ref()?))).collect()
    }
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
    /// The plan of the pool's policy, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyPlan>,
    /// As [`RolloutPlan::look_again`], for this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look_again: Option<Timestamp>,
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

/// A node and where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStep {
    /// The node.
    pub node: Arc<str>,
    /// What it does, or waits for.
    pub step: Step,
}

/// The step of a node after the plan is carried out.
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
