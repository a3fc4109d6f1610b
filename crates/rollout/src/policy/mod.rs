//! How a pool's rollout may proceed, in addition to `spec.maxUnavailable`: at which times nodes may begin, in which
//! waves, what must hold before more of them go, and what happens when that fails. The default restricts nothing.
//!
//! Data flow: RolloutPolicies → [`assign()`] (which one is a pool's, and whether it can be used) → [`Policy`] (what people
//! ask for) and [`PolicyFacts`] (gates, approvals, and the progress that the policy's status holds) → what a plan may
//! send now, why not more, when to look again, and the progress from here.
//!
//! Plans act on the progress that is stored, never on one that they have just computed. So a controller that starts in
//! the middle of a rollout goes on where the last one stopped: no wave begins before its predecessor's end was written
//! down, and nothing goes back before the reason was.
//!
//! What it is not: the checking of gates (that needs the network), or a clock.

mod assign;
mod calendar;
pub mod gates;
mod parse;
mod pool_policies;
mod progress;
mod rejected_elsewhere;
mod waves;

pub use crate::hold::{GateState, UnknownCost};
pub use crate::target::ChangeAsked;
pub use assign::{Assigned, Assignment, NotInForce, PolicyPool, Verdict, assign};
pub use calendar::{Freeze, Hours, Window, WindowError};
pub use gates::Gate;
pub use parse::{PolicyError, parse};
pub use pool_policies::{PolicyObservations, PoolPolicies, changes_words_only};
pub use progress::ApprovalRequest;
pub use waves::{Members, Wave};

pub(crate) use crate::time::time;
pub(crate) use progress::{PolicySubject, is_rejected, next, rollback_target};
pub(crate) use rejected_elsewhere::{RejectedElsewhere, holds_without_waves};
pub(crate) use waves::{Allowance, overlap};

use crate::drain::DrainLimit;
use crate::hold::Hold;
use api::k8s::IntOrString;
use api::v1alpha1::{MaxDisruption, PoolProgress};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The nodes on which the Jobs of gates have ended, by gate.
pub type JobNodes = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// What people ask for.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The RolloutPolicy.
    pub name: Arc<str>,
    /// Nodes begin only while one of these is open; empty means at any time. Updates under way when it closes still
    /// finish.
    pub windows: Vec<Window>,
    /// No node begins within these, whatever the windows say.
    pub freezes: Vec<Freeze>,
    /// Which nodes go before which others. Nodes of no wave go last, when all waves have proved themselves. Empty means
    /// all at once.
    pub waves: Vec<Wave>,
    /// How many nodes of one zone may be out at once.
    pub zones: Option<ZoneLimit>,
    /// What must hold for more nodes to go.
    pub gates: Vec<Gate>,
    /// Whether nodes go back when a gate or a node fails. Otherwise the pool holds.
    pub rolls_back: bool,
    /// After how long on its way to a config a node has failed.
    pub node_deadline: Option<SignedDuration>,
    /// How many nodes that are out of service in another config take no slot: a number, or a percentage of the pool.
    pub unrelated_unavailable: Option<IntOrString>,
    /// The most that a change may cost a node outside of windows; `None`: nothing happens there.
    pub max_disruption: Option<MaxDisruption>,
    /// What happens to a drain that does not end.
    pub drain: Option<DrainLimit>,
}

impl Policy {
    /// Whether it restricts nothing.
    pub fn is_default(&self) -> bool {
        let Self { name: _, windows, freezes, zones, unrelated_unavailable, waves: _, gates: _, .. } = self;
        let free = windows.is_empty() && freezes.is_empty() && zones.is_none() && self.drain.is_none();
        free && unrelated_unavailable.is_none() && self.node_deadline.is_none() && !self.has_progress()
    }

    /// How many nodes of a pool of this size may be out for reasons of their own and take no slot. A percentage is rounded
    /// down.
    pub(crate) fn allowed_unavailable(&self, nodes: usize) -> usize {
        match &self.unrelated_unavailable {
            None => 0,
            Some(IntOrString::Int(n)) => usize::try_from(*n).unwrap_or_default(),
            Some(IntOrString::String(text)) => {
                let percent = text.strip_suffix('%').and_then(|number| number.parse::<usize>().ok());
                nodes.saturating_mul(percent.unwrap_or_default()) / 100
            }
        }
    }

    /// Whether its windows and freezes let updates begin at a time; `None`: it has neither.
    pub fn hours(&self, now: Timestamp) -> Option<Hours> {
        if self.windows.is_empty() && self.freezes.is_empty() {
            return None;
        }
        let waves::CalendarAnswer { holds, look_again: _ } = waves::calendar(self, now);
        let mut holds = holds.into_iter();
        let Some((hold, passes)) = holds.next() else {
            let freeze = self.freezes.iter().map(|f| f.from).filter(|from| *from > now).min();
            return Some(Hours::Open { until: earlier(calendar::open_until(&self.windows, now), freeze) });
        };
        // A change has to pass a window that is shut during a freeze, too.
        let what = match (passes, holds.next().map(|(_, passes)| passes)) {
            (None, _) | (_, Some(None)) => None,
            (Some(waves::Exemption::Certificates), Some(Some(waves::Exemption::UpTo(most)))) => {
                Some(format!("changes of certificates alone that cost a node at most {most:?}"))
            }
            (Some(waves::Exemption::Certificates), _) => Some("changes of certificates alone".to_owned()),
            (Some(waves::Exemption::UpTo(most)), _) => {
                Some(format!("changes that cost a node at most {most:?}"))
            }
        };
        let passes = what.map(|what| format!("{what} may begin all the same")).unwrap_or_default();
        match hold {
            Hold::Frozen { until, reason, unknown: _ } => {
                Some(Hours::Frozen { until: until.map(|t| t.0), reason, passes })
            }
            Hold::OutsideWindow { opens, unknown: _ } => {
                Some(Hours::Shut { opens: opens.map(|t| t.0), passes })
            }
            _ => None,
        }
    }

    /// Whether it decides by what happened before: that must be stored before a node moves.
    pub fn has_progress(&self) -> bool {
        !self.waves.is_empty() || !self.gates.is_empty() || self.rolls_back
    }
}

/// A limit on the nodes of one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneLimit {
    /// The label that names a node's zone. Nodes without it are one zone together.
    pub key: Arc<str>,
    /// How many of them may be out of service or on their way.
    pub max: usize,
}

/// What is known at the time of the plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyFacts {
    /// What gates say, by name. One that is missing has not been checked.
    pub gates: BTreeMap<Arc<str>, GateState>,
    /// The nodes on which the Jobs of a gate have ended, of gates that run some. Without an entry, what the gate says is
    /// for all nodes.
    pub ran_on: JobNodes,
    /// What was found broken by gates whose baseline is not stored yet.
    pub baselines: BTreeMap<Arc<str>, Vec<String>>,
    /// The workloads that gates found when they were first checked, of gates about workloads.
    pub workloads: BTreeMap<Arc<str>, Vec<String>>,
    /// The pool's entry in the policy's status.
    pub progress: PoolProgress,
    /// The approval that the pool's annotations hold.
    pub approval: Option<ApprovalRequest>,
    /// Since when nodes are on their way to the pool's config, as far as the caller has seen it, for those that do not say it
    /// themselves ([`own::SENT`](api::names::own::SENT)). A node that says it neither way has no deadline yet.
    pub sent: BTreeMap<Arc<str>, Timestamp>,
    /// What changes cost a node.
    pub costs: Costs,
    /// The controller let nodes go when it last wrote the pool's entry: for views that do not know what changes cost.
    pub let_go: bool,
}

/// What changes from one rendered config to another cost a node, or why that is not known. A change that is not in it has not been
/// looked at yet.
pub type Costs = BTreeMap<ChangeAsked, Result<ChangeCost, Arc<str>>>;

/// What a change costs a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCost {
    /// The least limit that lets it pass; `None`: it reboots the node, or cannot be applied.
    pub least: Option<MaxDisruption>,
    /// It is about certificates and nothing else.
    pub certificates: bool,
}

/// The policy of a pool.
#[derive(Clone, Copy, Debug)]
pub enum PolicyInput<'a> {
    /// It is in force.
    InForce {
        /// The policy.
        policy: &'a Policy,
        /// What is known.
        facts: &'a PolicyFacts,
    },
    /// There is one, but it cannot be followed, and why, with the remedy. The pool holds.
    Unusable(&'a str),
}

/// What a plan says about a pool's policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyPlan {
    /// The RolloutPolicy.
    pub policy: Arc<str>,
    /// The pool's entry in the policy's status from now on.
    pub progress: PoolProgress,
    /// Gates that have to be checked now; others need no checks, and what they said before counts no longer.
    pub checks: Vec<GateCheck>,
    /// Changes whose cost decides whether nodes may go: each is computed, and kept up to date, while it is listed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<ChangeAsked>,
    /// The pool's nodes leave a rejected config, so no drain of theirs is given up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub back: bool,
    /// Why no further node moves, in one word; absent: nodes may move, or that lasts for one request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<String>,
    /// Waves whose selectors pick the same nodes, in words with the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<String>,
    /// Nodes whose pods have to be looked at, once and again, as long as they stand here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<Arc<str>>,
}

/// A gate that has to be checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateCheck {
    /// The gate.
    pub gate: Arc<str>,
    /// What was broken before the change; absent: that is what the check has to find out.
    pub baseline: Option<Vec<String>>,
    /// The workloads that were there before the change, as far as that is stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// The nodes that it is about: those of the wave for a Job, those of the pool for a condition of nodes, none for
    /// others.
    pub nodes: Vec<Arc<str>>,
    /// For workloads: how many nodes of the pool are on their way or out of service. As many pods of a DaemonSet may be missing.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub away: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The earlier of two times to plan again.
pub(crate) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
