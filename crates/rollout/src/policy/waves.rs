//! Which nodes a policy lets go now: first windows and freezes, then the one wave whose turn it is, once the waves
//! before it have proved themselves.
//!
//! What it is not: the choice among those nodes (see `decide`).

use crate::capacity::order;
use crate::node::Flags;
use crate::plan::Hold;
use crate::policy::calendar::Opening;
use crate::policy::{PolicyInput, earlier, time};
use crate::view::NodeView;
use api::k8s::{IntOrString, LabelSelector};
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Nodes that go before others.
#[derive(Clone, Debug)]
pub struct Wave {
    /// Its name, for people and for approvals.
    pub name: Arc<str>,
    /// Which nodes it takes, out of those that no earlier wave takes.
    pub members: Members,
    /// How many of its nodes may be on their way at once, never more than the pool's own `maxUnavailable`; `None` means
    /// that one.
    pub max_unavailable: Option<IntOrString>,
    /// How long all its nodes must have been done before the next wave begins.
    pub soak: SignedDuration,
    /// It begins only once a person has approved it, for this very config.
    pub needs_approval: bool,
    /// Gates that must hold before it begins, while it goes and soaks, and from then on.
    pub gates: Vec<Arc<str>>,
}

/// Which nodes a wave takes.
#[derive(Clone, Debug)]
pub enum Members {
    /// Those with these labels.
    Selected(LabelSelector),
    /// This many, in the order in which nodes go: by zone, then by age.
    Number(usize),
    /// This percentage of the pool's nodes, rounded up, in the same order.
    Percent(u8),
}

/// What a policy allows now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    /// Nothing new begins.
    pub(crate) hold: Option<Hold>,
    /// The wave whose turn it is, and its nodes; `None`: all nodes.
    pub(crate) turn: Option<(Arc<str>, HashSet<Arc<str>>)>,
    /// The wave's own limit, as it is written in the policy.
    pub(crate) max_unavailable: Option<IntOrString>,
    /// When to plan again although nothing has changed.
    pub(crate) look_again: Option<Timestamp>,
}

impl Allowance {
    /// Whether this node may begin.
    pub(crate) fn allows(&self, node: &str) -> bool {
        self.turn.as_ref().is_none_or(|(_, nodes)| nodes.contains(node))
    }
}

/// The name of the nodes that no wave takes.
const REST: &str = "rest";

/// What the policy allows for a pool's nodes now.
pub(crate) fn allowance(
    policed: PolicyInput<'_>,
    config: &str,
    nodes: &[(&NodeView, Flags)],
    now: Timestamp,
) -> Allowance {
    let PolicyInput { policy, facts } = policed;
    if policy.is_default() || !nodes.iter().any(|(_, f)| f.candidate) {
        return Allowance::default();
    }
    let hold = |hold, look_again| Allowance { hold: Some(hold), look_again, ..Allowance::default() };
    if let Some(freeze) = policy.freezes.iter().find(|f| f.holds(now)) {
        let until = freeze.until.map(time);
        return hold(Hold::Frozen { until, reason: freeze.reason.clone() }, freeze.until);
    }
    let mut look_again = policy.freezes.iter().map(|f| f.from).filter(|from| *from > now).min();
    if !policy.windows.is_empty() {
        let openings: Vec<Opening> = policy.windows.iter().map(|w| w.at(now)).collect();
        // The window that closes last.
        let closes =
            openings.iter().filter_map(|o| if let Opening::Open(end) = o { Some(*end) } else { None });
        let Some(closes) = closes.max() else {
            let opens =
                openings.iter().filter_map(|o| if let Opening::Shut(at) = o { *at } else { None }).min();
            return hold(Hold::OutsideWindow { opens: opens.map(time) }, opens);
        };
        look_again = earlier(look_again, Some(closes));
    }
    if let Some((gate, state)) = facts.shut(&policy.gates) {
        return hold(Hold::Gate { gate, state }, look_again);
    }
    let mut rest = Some((REST.into(), None));
    let mut members = members(&policy.waves, nodes);
    let mut gates: Vec<Arc<str>> = vec![];
    for wave in &policy.waves {
        gates.extend(wave.gates.iter().cloned());
        let mine = members.remove(&wave.name).unwrap_or_default();
        let of_it = || nodes.iter().filter(|(n, _)| mine.contains(&n.name));
        let open = of_it().any(|(_, f)| !(f.updated && f.ready));
        let begun = of_it().any(|(_, f)| !f.candidate);
        if open && wave.needs_approval && !begun {
            let approved = facts.approved.contains(&(wave.name.clone(), config.into()));
            if !approved {
                return hold(Hold::Approval { wave: wave.name.clone() }, look_again);
            }
        }
        if let Some((gate, state)) = facts.shut(&gates) {
            return hold(Hold::Gate { gate, state }, look_again);
        }
        if open {
            rest = Some((wave.name.clone(), Some((mine, wave.max_unavailable.clone()))));
            break;
        }
        // If it is not known since when a node is done, it counts from now.
        let done = of_it().map(|(n, _)| facts.done_since.get(&n.name).copied().unwrap_or(now).min(now)).max();
        let soaked = done.and_then(|done| done.checked_add(wave.soak).ok()).filter(|until| *until > now);
        if let Some(until) = soaked {
            let hold = Hold::Soak { wave: wave.name.clone(), until: time(until) };
            return Allowance {
                hold: Some(hold),
                look_again: earlier(look_again, Some(until)),
                ..Allowance::default()
            };
        }
    }
    match rest {
        Some((name, Some((nodes, max_unavailable)))) => {
            Allowance { hold: None, turn: Some((name, nodes)), max_unavailable, look_again }
        }
        // All waves have proved themselves.
        _ => Allowance { look_again, ..Allowance::default() },
    }
}

/// Which nodes each wave takes. This does not depend on the nodes' progress.
fn members(waves: &[Wave], nodes: &[(&NodeView, Flags)]) -> HashMap<Arc<str>, HashSet<Arc<str>>> {
    let mut left: Vec<&NodeView> = nodes.iter().map(|(n, _)| *n).collect();
    left.sort_unstable_by(|a, b| order(a, b));
    let all = left.len();
    let mut members = HashMap::new();
    for wave in waves {
        let number = match &wave.members {
            Members::Selected(selector) => {
                let (mine, others) = left.into_iter().partition(|n: &&NodeView| {
                    let label = |key: &str| n.labels.get(key);
                    api::selector::matches_by(Some(selector), &label).unwrap_or(false)
                });
                left = others;
                let mine: Vec<&NodeView> = mine;
                members.insert(wave.name.clone(), mine.iter().map(|n| n.name.clone()).collect());
                continue;
            }
            Members::Number(number) => *number,
            Members::Percent(percent) => all.saturating_mul(usize::from(*percent)).div_ceil(100),
        };
        let others = left.split_off(number.min(left.len()));
        members.insert(wave.name.clone(), left.iter().map(|n| n.name.clone()).collect());
        left = others;
    }
    members
}
