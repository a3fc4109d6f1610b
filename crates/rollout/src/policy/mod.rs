//! How a pool's rollout may proceed, in addition to `spec.maxUnavailable`: at which times nodes may begin, in which
//! waves, and what must hold before more of them go. The default restricts nothing.
//!
//! Data flow: [`Policy`] (what people ask for) and [`PolicyFacts`] (gates, approvals and times, supplied by the caller)
//! → what a plan may send now, why not more, and when to look again.
//!
//! What it is not: the querying of gates, a clock, or the Kubernetes kind that people write a policy in.

mod calendar;
#[cfg(test)]
mod tests;
mod waves;

pub use calendar::{Freeze, Window, WindowError};
pub use waves::{Members, Wave};

pub(crate) use waves::{Allowance, allowance};

use api::k8s::Time;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What people ask for.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Nodes begin only while one of these is open; empty means at any time. Updates under way when it closes still
    /// finish.
    pub windows: Vec<Window>,
    /// No node begins within these, whatever the windows say.
    pub freezes: Vec<Freeze>,
    /// Which nodes go before which others. Nodes of no wave go last, when all waves have proved themselves. Empty means
    /// all at once.
    pub waves: Vec<Wave>,
    /// Gates that must hold whenever a node begins.
    pub gates: Vec<Arc<str>>,
}

impl Policy {
    /// Whether it restricts nothing.
    pub fn is_default(&self) -> bool {
        let Self { windows, freezes, waves, gates } = self;
        windows.is_empty() && freezes.is_empty() && waves.is_empty() && gates.is_empty()
    }
}

/// What is known at the time of the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyFacts {
    /// Gates by name. One that is missing is unknown.
    pub gates: BTreeMap<Arc<str>, GateState>,
    /// Waves that a person has approved, each for this rendered config.
    pub approved: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Since when nodes are done in the pool's config; soak times count from there. A node that is missing here counts
    /// from now.
    pub done_since: BTreeMap<Arc<str>, Timestamp>,
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum GateState {
    /// It holds.
    Passed,
    /// It does not hold, and why.
    Failed(String),
    /// It could not be asked, and why. No node begins because of a gate that could not be read.
    Unknown(String),
}

/// A policy, and what is known for it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyInput<'a> {
    /// The policy.
    pub policy: &'a Policy,
    /// What is known.
    pub facts: &'a PolicyFacts,
}

impl PolicyFacts {
    /// The first of these gates that does not hold.
    fn shut<'a>(&self, gates: impl IntoIterator<Item = &'a Arc<str>>) -> Option<(Arc<str>, GateState)> {
        gates.into_iter().find_map(|gate| match self.gates.get(gate) {
            Some(GateState::Passed) => None,
            Some(state) => Some((gate.clone(), state.clone())),
            None => Some((gate.clone(), GateState::Unknown("it has not been checked yet".to_owned()))),
        })
    }
}

/// A time for readers of a plan: whole seconds, as API objects write it.
pub(crate) fn time(at: Timestamp) -> Time {
    let second = at.as_second();
    Time(Timestamp::from_second(second).unwrap_or(at))
}

/// The earlier of two times to plan again.
pub(crate) fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
