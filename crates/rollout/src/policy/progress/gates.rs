//! What gates say of a pool's rollout, which of them have to be checked, and what has failed.
//!
//! What it is not: the checks, and what one answer means (see `policy::gates`).

use super::{Evaluation, WORDS};
use crate::hold::{GateState, Hold, Reason};
use crate::node::Flags;
use crate::policy::waves::Group;
use crate::policy::{Gate, GateCheck, earlier};
use crate::view::NodeView;
use api::formats::text::cut;
use api::v1alpha1::{GateOutcome, GateResult, PoolProgress};
use jiff::Timestamp;

impl Evaluation<'_> {
    /// What has failed: as a hold, and as the reason why the config is rejected. And when a node's deadline ends next.
    pub(super) fn failure(
        &self,
        groups: &[Group<'_>],
        at: usize,
    ) -> (Option<(Hold, String)>, Option<Timestamp>) {
        let strays = self.left_by_earlier_changes(groups, at).any(|(_, f)| still_moves(f));
        let failed = |gate: &Gate| match self.facts.gates.get(&gate.name) {
            Some(state @ GateState::Failed(_)) => {
                Some(Hold::Gate { gate: gate.name.clone(), state: state.clone() })
            }
            _ => None,
        };
        if let Some(hold) = self.policy.gates.iter().find_map(failed).filter(|_| !strays) {
            let reason = hold.to_string();
            return (Some((hold, reason)), None);
        }
        let mut ends: Option<Timestamp> = None;
        for (node, flags) in self.nodes.iter().filter(|(_, f)| f.at_target) {
            let why = if flags.failing {
                Reason::Daemon(node.state.clone(), node.reason.clone()).to_string()
            } else if let (Some(limit), Some(since), false) =
                (self.policy.node_deadline, self.since(node), flags.updated && flags.ready)
            {
                match since.checked_add(limit) {
                    Ok(end) if end <= self.now => format!("it has not reached the config within {limit:#}"),
                    Ok(end) => {
                        ends = earlier(ends, Some(end));
                        continue;
                    }
                    Err(_) => continue,
                }
            } else {
                continue;
            };
            let reason = format!("node {} failed: {why}", node.name);
            let hold = Hold::NodeFailed { node: node.name.clone(), why, policy: self.policy.name.clone() };
            return (Some((hold, reason)), None);
        }
        (None, ends)
    }

    /// Since when a node is on its way. One that has arrived in the config, and is out of service or has drifted, may have been
    /// in service meanwhile: only who has seen it knows.
    fn since(&self, node: &NodeView) -> Option<Timestamp> {
        let seen = self.facts.sent.get(&node.name).copied();
        let arrived = node.current_config == node.desired_config && node.current_image == node.desired_image;
        if arrived { seen } else { node.sent_to(self.config).or(seen) }
    }

    pub(super) fn result(&self, gate: &str) -> GateResult {
        let (outcome, message) = match self.facts.gates.get(gate) {
            Some(GateState::Passed) => (GateOutcome::Passed, ""),
            Some(GateState::Failed(why)) => (GateOutcome::Failed, why.as_str()),
            Some(GateState::Failing(why)) => (GateOutcome::Failing, why.as_str()),
            Some(GateState::Unknown(why)) => (GateOutcome::NoAnswer, why.as_str()),
            None => (GateOutcome::NoAnswer, gates_unchecked()),
        };
        GateResult { gate: gate.to_owned(), outcome, message: cut(message, WORDS).into_owned() }
    }

    pub(super) fn check(
        &self,
        gate: &Gate,
        progress: &PoolProgress,
        of_wave: Option<&Group<'_>>,
    ) -> GateCheck {
        let stored = progress.baseline.iter().find(|b| *b.gate == *gate.name);
        let (baseline, workloads) =
            (stored.map(|b| b.broken.clone()), stored.map(|b| b.workloads.clone()).unwrap_or_default());
        let nodes = match (gate.of_nodes(), gate.of_wave(), of_wave) {
            // A node that reboots for its update is out of service for a while; that is no failure.
            (true, ..) => self.nodes.iter().filter(|(_, f)| f.done).map(|(n, _)| n.name.clone()).collect(),
            // A Job says something about the config on nodes that are in it. On a node that is out of service it would
            // never end.
            (_, true, Some(group)) => {
                let runs = |f: &Flags| f.updated && f.ready;
                let of_it = self.nodes.iter().filter(|(n, f)| runs(f) && group.nodes.contains(&n.name));
                let mut all: Vec<_> = of_it.map(|(n, _)| n.name.clone()).collect();
                all.sort_unstable();
                all
            }
            _ => vec![],
        };
        let away = match gate.of_workloads() {
            true => self.nodes.iter().filter(|(_, f)| !(f.done && f.ready)).count(),
            false => 0,
        };
        GateCheck { gate: gate.name.clone(), baseline, workloads, nodes, away }
    }

    /// The gates that are checked before the first wave begins.
    pub(super) fn first_checks(&self, progress: &PoolProgress) -> Vec<GateCheck> {
        let first = self.policy.gates.iter().filter(|g| g.has_baseline() || g.before_wave);
        first.map(|gate| self.check(gate, progress, None)).collect()
    }

    /// The first of these gates that does not hold. What Jobs said counts if they have ended on all nodes of this wave
    /// that they are to run on.
    pub(super) fn first_closed_gate<'g>(
        &self,
        mut gates: impl Iterator<Item = &'g Gate>,
        of_wave: Option<&Group<'_>>,
    ) -> Option<Hold> {
        let state = |gate: &Gate| match self.facts.gates.get(&gate.name) {
            Some(GateState::Passed) => {
                let ran = self.facts.ran_on.get(&gate.name)?;
                let wanted = self.check(gate, &self.facts.progress, of_wave).nodes;
                let all = wanted.iter().all(|node| ran.contains(node));
                (!all)
                    .then(|| GateState::Unknown("its Job has not ended on all nodes of the wave".to_owned()))
            }
            Some(state) => Some(state.clone()),
            None => Some(GateState::Unknown(gates_unchecked().to_owned())),
        };
        gates.find_map(|gate| Some(Hold::Gate { gate: gate.name.clone(), state: state(gate)? }))
    }
}

/// Whether a node that an earlier change left behind can still move. One that is out of service for good, or put aside, keeps no
/// other from going, and is no reason to take a gate's failure for that of the earlier change.
pub(super) fn still_moves(flags: &Flags) -> bool {
    flags.can_be_asked() || flags.unanswered || flags.at_target && !flags.updated
}

fn gates_unchecked() -> &'static str {
    "it has not been checked yet"
}
