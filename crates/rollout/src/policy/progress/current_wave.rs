//! The current wave of a rollout, and what keeps the next one from beginning.
//!
//! What it is not: which nodes a wave has (see `policy::waves`).

use super::gates::still_moves;
use super::{Evaluation, PolicyOutcome, settled};
use crate::hold::{GateState, Hold};
use crate::node::Flags;
use crate::policy::waves::{Group, Members};
use crate::policy::{Allowance, Gate, GateCheck, time};
use crate::view::NodeView;
use api::names::EMPTY_CONFIG;
use api::rendered::RenderedName;
use api::v1alpha1::{GateBaseline, PoolProgress};
use std::collections::HashSet;
use std::sync::Arc;

/// One walk through the waves, from the stored one on: what it has found so far.
struct WaveWalk<'l, 'a> {
    evaluation: &'l Evaluation<'a>,
    groups: &'l [Group<'l>],
    /// The wave that is stored.
    stored: usize,
    /// The wave that is looked at.
    at: usize,
    progress: PoolProgress,
    checks: Vec<GateCheck>,
}

impl Evaluation<'_> {
    /// The wave whose turn it is, from the one that is stored on.
    pub(super) fn wave(&self, groups: &[Group<'_>], at: usize, progress: PoolProgress) -> PolicyOutcome {
        let mut walk = WaveWalk { evaluation: self, groups, stored: at, at, progress, checks: vec![] };
        let allowance = walk.of_earlier_changes().or_else(|| walk.baselines()).or_else(|| {
            walk.checks.extend(walk.always().map(|gate| self.check(gate, &self.facts.progress, None)));
            walk.waves()
        });
        match allowance {
            Some(allowance) => PolicyOutcome {
                allowance,
                progress: walk.progress,
                checks: walk.checks,
                ..PolicyOutcome::default()
            },
            None => {
                let old = &self.facts.progress;
                PolicyOutcome { progress: settled(old, &old.name, self.config), ..PolicyOutcome::default() }
            }
        }
    }
}

/// Nothing moves, and why.
fn held(hold: Hold) -> Allowance {
    Allowance { hold: Some(hold), ..Allowance::default() }
}

impl<'l> WaveWalk<'l, '_> {
    /// The gates that are checked all the time.
    fn always(&self) -> impl Iterator<Item = &'l Gate> + use<'l> {
        self.evaluation.policy.gates.iter().filter(|gate| gate.always)
    }

    /// Nodes that an earlier change left in a config go first.
    fn of_earlier_changes(&mut self) -> Option<Allowance> {
        let ahead: HashSet<Arc<str>> = self
            .evaluation
            .left_by_earlier_changes(self.groups, self.at)
            .filter(|(_, f)| still_moves(f))
            .map(|(n, _)| n.name.clone())
            .collect();
        if ahead.is_empty() {
            return None;
        }
        self.progress.soak_until = None;
        let first = self.groups.first();
        let wave = first.map(|g| g.name.clone()).unwrap_or_default();
        Some(Allowance {
            hold: first.and_then(|g| self.evaluation.approval(g, &mut self.progress)),
            turn: Some((wave, ahead)),
            max_unavailable: first.and_then(|g| g.wave?.max_unavailable.clone()),
            ..Allowance::default()
        })
    }

    /// Baselines come before waves: whatever a gate says later is compared with them.
    fn baselines(&mut self) -> Option<Allowance> {
        let (evaluation, mut hold) = (self.evaluation, None);
        for gate in evaluation.policy.gates.iter().filter(|g| g.has_baseline()) {
            let workloads = || evaluation.facts.workloads.get(&gate.name).cloned().unwrap_or_default();
            if let Some(known) = self.progress.baseline.iter_mut().find(|b| *b.gate == *gate.name) {
                if known.workloads.is_empty() {
                    known.workloads = workloads();
                }
                continue;
            }
            if let Some(broken) = evaluation.facts.baselines.get(&gate.name) {
                let (gate, broken) = (gate.name.to_string(), broken.clone());
                self.progress.baseline.push(GateBaseline { gate, broken, workloads: workloads() });
            } else {
                hold = evaluation.first_closed_gate(std::iter::once(gate), None).or(hold);
            }
            // It passed, but what it compares with is not stored.
            hold.get_or_insert_with(|| evaluation.recording());
        }
        let hold = hold?;
        self.checks = evaluation.first_checks(&self.progress);
        Some(held(hold))
    }

    /// The first wave, from the stored one on, that is not done, soaks, or waits for a gate. `None`: all are done.
    fn waves(&mut self) -> Option<Allowance> {
        let excused = self.evaluation.allowed_unavailable();
        while let Some(group) = self.groups.get(self.at) {
            if let Some(hold) = self.evaluation.empty_wave(group) {
                self.progress.soak_until = None;
                return Some(held(hold));
            }
            let is_last = self.at + 1 == self.groups.len();
            if !self.is_done(group, is_last && self.at > 0, &excused) {
                return Some(self.moves(group));
            }
            let mut earlier = self.groups.iter().take(self.at);
            if is_last && let Some(late) = earlier.find(|g| !self.is_done(g, false, &excused)) {
                return Some(self.goes_back_to(late));
            }
            if let Some(allowance) = self.rests(group) {
                return Some(allowance);
            }
            self.progress.soak_until = None;
            // A gate that is also checked before the next wave is checked again.
            self.checks.truncate(self.always().count());
            self.at += 1;
        }
        self.last_jobs()
    }

    /// The last wave whose nodes are not none, of the first `count`.
    fn last_of(&self, count: usize) -> Option<&'l Group<'l>> {
        self.groups.iter().take(count).rfind(|g| !g.nodes.is_empty())
    }

    /// Jobs run on the nodes of a wave before the next one begins. None begins after the last one, so the config counts
    /// as proved only when they have ended there, too.
    fn last_jobs(&mut self) -> Option<Allowance> {
        let (evaluation, group) = (self.evaluation, self.last_of(self.groups.len())?);
        let jobs = || evaluation.policy.gates.iter().filter(|g| g.before_wave && g.of_wave());
        self.checks.extend(jobs().map(|g| evaluation.check(g, &evaluation.facts.progress, Some(group))));
        let hold = evaluation.first_closed_gate(jobs(), Some(group))?;
        self.at = self.groups.iter().position(|g| g.name == group.name).unwrap_or_default();
        self.stays_in(group);
        Some(held(hold))
    }

    /// Whether all of a wave's nodes are in the config, besides those that are excused. An excused node proves nothing.
    /// So a wave before the last needs at least one node that is in the config; after the last, no other wave relies on it.
    fn is_done(&self, group: &Group<'_>, is_last: bool, excused: &HashSet<&str>) -> bool {
        let of_it = self.evaluation.nodes.iter().filter(|(n, _)| group.nodes.contains(&n.name));
        let mut of_it = of_it.peekable();
        let (mut proves, mut all) = (is_last || of_it.peek().is_none(), true);
        for (node, flags) in of_it {
            let updated = flags.updated && flags.ready;
            proves |= updated;
            all &= updated || excused.contains(&*node.name);
        }
        proves && all
    }

    /// A wave that is not done: its nodes go, once people and gates let it begin.
    fn moves(&mut self, group: &Group<'_>) -> Allowance {
        let (evaluation, old) = (self.evaluation, &self.evaluation.facts.progress);
        self.progress.soak_until = None;
        let is_stored = self.at == self.stored && old.wave.as_deref() == Some(&*group.name);
        let first = evaluation.policy.gates.iter().filter(|g| g.before_wave);
        let last = self.last_of(self.at);
        if evaluation.policy.has_progress() && !is_stored {
            (self.progress.wave, self.progress.wave_begun) = (Some(group.name.to_string()), false);
            // They are checked while that is written; gates of a soak that has just ended are checked again afterwards.
            let soaked = last.is_some_and(|g| g.soak().is_positive());
            let now = first.filter(|g| !(g.soak && soaked));
            self.checks.extend(now.map(|g| evaluation.check(g, old, last)));
            return held(evaluation.recording());
        }
        let mut hold = evaluation.approval(group, &mut self.progress);
        // Whether it has begun is stored, not seen from its nodes: one may have booted into the config. No node goes before
        // that: these gates have no more to say then, and would be heard while nodes move.
        if !old.wave_begun && first.clone().next().is_some() {
            self.checks.extend(first.clone().map(|g| evaluation.check(g, old, last)));
            hold = hold
                .or_else(|| evaluation.first_closed_gate(first, last))
                .or_else(|| evaluation.first_closed_gate(self.always(), None));
            if hold.is_none() {
                self.progress.wave_begun = true;
                hold = Some(evaluation.recording());
            }
        } else {
            // Jobs begin on each node that is done.
            let jobs = || evaluation.policy.gates.iter().filter(|g| g.before_wave && g.of_wave());
            self.checks.extend(jobs().map(|g| evaluation.check(g, old, Some(group))));
            // A failing gate already holds further nodes back before it has failed often enough to count as failed.
            let fails =
                |g: &&Gate| matches!(evaluation.facts.gates.get(&g.name), Some(GateState::Failing(_)));
            hold = hold.or_else(|| evaluation.first_closed_gate(jobs().filter(fails), Some(group)));
        }
        let hold = hold.or_else(|| evaluation.first_closed_gate(self.always(), None));
        let earlier = self.groups.get(..=self.stored).unwrap_or_default();
        let nodes = earlier.iter().flat_map(|g| g.nodes.iter().cloned()).collect();
        Allowance {
            hold,
            turn: group.wave.map(|_| (group.name.clone(), nodes)),
            max_unavailable: group.wave.and_then(|w| w.max_unavailable.clone()),
            ..Allowance::default()
        }
    }

    /// A node of an earlier wave is not there any more, or has come to it since: all nodes may go.
    fn goes_back_to(&mut self, late: &Group<'_>) -> Allowance {
        self.progress.soak_until = None;
        let nodes = self.evaluation.nodes.iter().map(|(n, _)| n.name.clone()).collect();
        let hold = self.evaluation.approval(late, &mut self.progress);
        let hold = hold.or_else(|| self.evaluation.first_closed_gate(self.always(), None));
        Allowance { hold, turn: Some((late.name.clone(), nodes)), ..Allowance::default() }
    }

    /// What a wave that is done waits for before the next one: its soak time, and its gates. `None`: nothing.
    fn rests(&mut self, group: &Group<'_>) -> Option<Allowance> {
        if group.nodes.is_empty() {
            return None;
        }
        if group.soak().is_positive() {
            return self.soaks(group);
        }
        let hold = self.evaluation.first_closed_gate(self.always(), None)?;
        self.stays_in(group);
        Some(held(hold))
    }

    fn soaks(&mut self, group: &Group<'_>) -> Option<Allowance> {
        let (evaluation, old) = (self.evaluation, &self.evaluation.facts.progress);
        // After the last wave Jobs must have ended, too (see `last_jobs`): they run while it soaks.
        let is_last = self.last_of(self.groups.len()).is_some_and(|g| g.name == group.name);
        let gates =
            evaluation.policy.gates.iter().filter(move |g| g.soak || is_last && g.before_wave && g.of_wave());
        self.checks.extend(gates.clone().map(|g| evaluation.check(g, old, Some(group))));
        let is_stored = self.at == self.stored && old.wave.as_deref() == Some(&*group.name);
        let stored = old.soak_until.as_ref().filter(|_| is_stored);
        self.stays_in(group);
        let whole = time(evaluation.now.checked_add(group.soak()).unwrap_or(evaluation.now));
        // The policy may have been given a shorter soak meanwhile.
        let until = stored.filter(|until| until.0 <= whole.0).cloned().unwrap_or(whole);
        self.progress.soak_until = Some(until.clone());
        let is_over = until.0 <= evaluation.now;
        let gate = evaluation.first_closed_gate(gates.chain(self.always()), Some(group));
        if stored.is_some() && is_over && gate.is_none() {
            return None;
        }
        let look_again = (!is_over).then_some(until.0);
        let hold = match gate {
            Some(gate) if is_over => gate,
            _ => Hold::Soak { wave: group.name.clone(), until },
        };
        Some(Allowance { look_again, ..held(hold) })
    }

    /// The progress stays in this wave.
    fn stays_in(&mut self, group: &Group<'_>) {
        self.progress.wave_begun &= self.at == self.stored;
        self.progress.wave = Some(group.name.to_string());
    }
}

impl Evaluation<'_> {
    /// Nodes that a wave does not wait for: those that are put aside, and as many as the policy says of those that are out of
    /// service in another config, for reasons of their own.
    fn allowed_unavailable(&self) -> HashSet<&str> {
        let limit = self.policy.allowed_unavailable(self.nodes.len());
        let mut out: Vec<&NodeView> =
            self.nodes.iter().filter(|(_, f)| f.unrelated).map(|(n, _)| *n).collect();
        out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let quarantined = self.nodes.iter().filter(|(_, f)| f.quarantined).map(|(n, _)| &*n.name);
        out.into_iter().take(limit).map(|n| &*n.name).chain(quarantined).collect()
    }

    /// Nodes that an earlier change left in a config that may be why a gate fails: one that is rejected, or, for nodes of
    /// the first wave, any that is neither the pool's nor proved. They go first, and until they have left it, gates say
    /// nothing about this change. All other nodes go by wave, whatever config they are in.
    pub(super) fn left_by_earlier_changes(
        &self,
        groups: &[Group<'_>],
        at: usize,
    ) -> impl Iterator<Item = &(&NodeView, Flags)> {
        let old = &self.facts.progress;
        let proved = old.proved.as_deref();
        let first = groups.first().filter(|_| at == 0 && proved.is_some());
        let odd = move |name: &str| ![EMPTY_CONFIG, self.config].contains(&name) && proved != Some(name);
        let leaves = move |node: &NodeView, name: &str| {
            // Of thousands of nodes, hardly any gets beyond this.
            if !odd(name) {
                return false;
            }
            let rejected = || old.rejected.iter().any(|r| r.config == name);
            let is_first = || first.is_some_and(|g| g.nodes.contains(&node.name));
            // A node that comes from another pool was left by no change of this one.
            let is_of_pool = || {
                let pools = RenderedName::parse(name).zip(RenderedName::parse(self.config));
                pools.is_none_or(|(its, ours)| its.pool == ours.pool)
            };
            rejected() || is_first() && is_of_pool()
        };
        let dead = |f: &Flags| f.unrelated;
        self.nodes.iter().filter(move |(n, f)| {
            let mut configs = [&n.current_config, &n.desired_config].into_iter().flatten();
            !dead(f) && configs.any(|name| leaves(n, name))
        })
    }

    /// A wave that selects nodes, and has none: it would prove nothing.
    fn empty_wave(&self, group: &Group<'_>) -> Option<Hold> {
        let selects = group.wave.is_some_and(|w| matches!(w.members, Members::Selected(_)));
        (selects && group.nodes.is_empty()).then(|| Hold::EmptyWave { wave: group.name.clone() })
    }
}
