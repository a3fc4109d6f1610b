//! The wave whose turn it is, and what keeps the next one from beginning.
//!
//! What it is not: which nodes a wave has (see `policy::waves`).

use super::{Look, Next, settled};
use crate::hold::Hold;
use crate::node::Flags;
use crate::policy::waves::{Group, Members};
use crate::policy::{Allowance, GateCheck, time};
use crate::view::NodeView;
use api::names::EMPTY_CONFIG;
use api::v1alpha1::{GateBaseline, PoolProgress};
use std::collections::HashSet;
use std::sync::Arc;

impl Look<'_> {
    /// The wave whose turn it is, from the one that is stored on.
    pub(super) fn wave(&self, groups: &[Group<'_>], at: usize, mut progress: PoolProgress) -> Next {
        let (policy, old) = (self.policy, &self.facts.progress);
        // A node that is out of service for good does not keep the others from going.
        let moves = |f: &Flags| f.can_be_asked() || f.unanswered || f.at_target && !f.updated;
        let ahead: HashSet<Arc<str>> = self
            .left_by_earlier_changes(groups, at)
            .filter(|(_, f)| moves(f))
            .map(|(n, _)| n.name.clone())
            .collect();
        if !ahead.is_empty() {
            progress.soak_until = None;
            let first = groups.first();
            let wave = first.map(|g| g.name.clone()).unwrap_or_default();
            let allowance = Allowance {
                hold: first.and_then(|g| self.approval(g, &mut progress)),
                turn: Some((wave, ahead)),
                max_unavailable: first.and_then(|g| g.wave?.max_unavailable.clone()),
                ..Allowance::default()
            };
            return Next { allowance, progress, ..Next::default() };
        }
        let mut checks: Vec<GateCheck> = vec![];
        // Baselines first: whatever a gate says later is compared with them.
        let mut hold = None;
        for gate in policy.gates.iter().filter(|g| g.has_baseline()) {
            if old.baseline.iter().any(|b| *b.gate == *gate.name) {
                continue;
            }
            match self.facts.baselines.get(&gate.name) {
                Some(broken) => {
                    let broken = broken.clone();
                    progress.baseline.push(GateBaseline { gate: gate.name.to_string(), broken });
                    hold.get_or_insert(self.recording());
                }
                None => {
                    checks.push(self.check(gate, old, None));
                    hold = self.first_closed_gate(std::iter::once(gate)).or(hold);
                    // It passed, but what it compares with is not known: the check was one of before.
                    hold.get_or_insert_with(|| self.recording());
                }
            }
        }
        if let Some(hold) = hold {
            return Next {
                allowance: Allowance { hold: Some(hold), ..Allowance::default() },
                progress,
                checks,
                ..Next::default()
            };
        }
        let always = || policy.gates.iter().filter(|g| g.always);
        checks.extend(always().map(|g| self.check(g, old, None)));
        let excused = self.excused();
        let is_done = |group: &Group<'_>, last: bool| {
            let mut of_it = self.nodes.iter().filter(|(n, _)| group.nodes.contains(&n.name)).peekable();
            // Nodes that are excused prove nothing. After the last wave nothing comes that relies on it.
            let (mut proves, mut all) = (last || of_it.peek().is_none(), true);
            for (node, flags) in of_it {
                let updated = flags.updated && flags.ready;
                proves |= updated;
                all &= updated || excused.contains(&*node.name);
            }
            proves && all
        };
        let mut now_at = at;
        while let Some(group) = groups.get(now_at) {
            if let Some(hold) = self.empty_wave(group) {
                progress.soak_until = None;
                let allowance = Allowance { hold: Some(hold), ..Allowance::default() };
                return Next { allowance, progress, checks, ..Next::default() };
            }
            let is_last = now_at + 1 == groups.len();
            if !is_done(group, is_last && now_at > 0) {
                progress.soak_until = None;
                if policy.has_progress() && (now_at != at || old.wave.as_deref() != Some(&*group.name)) {
                    (progress.wave, progress.wave_begun) = (Some(group.name.to_string()), false);
                    let hold = Some(self.recording());
                    let allowance = Allowance { hold, ..Allowance::default() };
                    return Next { allowance, progress, checks, ..Next::default() };
                }
                let mut hold = self.approval(group, &mut progress);
                let first = policy.gates.iter().filter(|g| g.before_wave);
                // Whether it has begun is stored, not seen from its nodes: one may have booted into the config.
                if !old.wave_begun && first.clone().next().is_some() {
                    let last = now_at.checked_sub(1).and_then(|i| groups.get(i));
                    checks.extend(first.clone().map(|g| self.check(g, old, last)));
                    hold = hold
                        .or_else(|| self.first_closed_gate(first))
                        .or_else(|| self.first_closed_gate(always()));
                    if hold.is_none() {
                        progress.wave_begun = true;
                        hold = Some(self.recording());
                    }
                }
                let hold = hold.or_else(|| self.first_closed_gate(always()));
                let earlier = groups.get(..=at).unwrap_or_default();
                let nodes = earlier.iter().flat_map(|g| g.nodes.iter().cloned()).collect();
                let allowance = Allowance {
                    hold,
                    turn: group.wave.map(|_| (group.name.clone(), nodes)),
                    max_unavailable: group.wave.and_then(|w| w.max_unavailable.clone()),
                    ..Allowance::default()
                };
                return Next { allowance, progress, checks, ..Next::default() };
            }
            if is_last && let Some(late) = groups.iter().take(now_at).find(|g| !is_done(g, false)) {
                // A node of an earlier wave is not there any more, or has come to it since.
                progress.soak_until = None;
                let nodes = self.nodes.iter().map(|(n, _)| n.name.clone()).collect();
                let turn = Some((late.name.clone(), nodes));
                let hold = self.approval(late, &mut progress).or_else(|| self.first_closed_gate(always()));
                return Next {
                    allowance: Allowance { hold, turn, ..Allowance::default() },
                    progress,
                    checks,
                    ..Next::default()
                };
            }
            if group.soak().is_positive() && !group.nodes.is_empty() {
                let soaks = policy.gates.iter().filter(|g| g.soak);
                checks.extend(soaks.clone().map(|g| self.check(g, old, Some(group))));
                let stored = old
                    .soak_until
                    .as_ref()
                    .filter(|_| now_at == at && old.wave.as_deref() == Some(&*group.name));
                progress.wave_begun &= now_at == at;
                progress.wave = Some(group.name.to_string());
                let whole = time(self.now.checked_add(group.soak()).unwrap_or(self.now));
                // The policy may have been given a shorter soak meanwhile.
                let until = stored.filter(|until| until.0 <= whole.0).cloned().unwrap_or(whole);
                progress.soak_until = Some(until.clone());
                let gate = self.first_closed_gate(soaks.chain(always()));
                if stored.is_none() || until.0 > self.now || gate.is_some() {
                    let hold = match gate {
                        Some(gate) if until.0 <= self.now => gate,
                        _ => Hold::Soak { wave: group.name.clone(), until: until.clone() },
                    };
                    let look_again = (until.0 > self.now).then_some(until.0);
                    let allowance = Allowance { hold: Some(hold), look_again, ..Allowance::default() };
                    return Next { allowance, progress, checks, ..Next::default() };
                }
            } else if !group.nodes.is_empty()
                && let Some(hold) = self.first_closed_gate(always())
            {
                progress.wave_begun &= now_at == at;
                progress.wave = Some(group.name.to_string());
                return Next {
                    allowance: Allowance { hold: Some(hold), ..Allowance::default() },
                    progress,
                    checks,
                    ..Next::default()
                };
            }
            progress.soak_until = None;
            // A gate that is checked before the next wave, too, is checked anew.
            checks.truncate(always().count());
            now_at += 1;
        }
        let progress = settled(old, &old.name, self.config);
        Next { progress, ..Next::default() }
    }

    /// Nodes that a wave does not wait for: those that are put aside, and as many as the policy says of those that are out of
    /// service in another config, for reasons of their own.
    fn excused(&self) -> HashSet<&str> {
        let limit = self.policy.excused(self.nodes.len());
        let mut out: Vec<&NodeView> =
            self.nodes.iter().filter(|(_, f)| f.unrelated).map(|(n, _)| *n).collect();
        out.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let aside = self.nodes.iter().filter(|(_, f)| f.aside).map(|(n, _)| &*n.name);
        out.into_iter().take(limit).map(|n| &*n.name).chain(aside).collect()
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
            let rejected = old.rejected.iter().any(|r| r.config == name);
            odd(name) && (rejected || first.is_some_and(|g| g.nodes.contains(&node.name)))
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
