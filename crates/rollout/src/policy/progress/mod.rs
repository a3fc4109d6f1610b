//! How far a pool's rollout is under its policy: the stored progress, and what is true of the nodes, give the wave whose
//! turn it is, the gates that have to be checked, and the progress from here.
//!
//! States of a pool's entry: no config is on its way (`config` is absent) → the config is recorded → the baselines of
//! all gates are → its waves move and soak, one after the other → it is proved, and `config` is absent again. From any
//! state with a config it may become rejected; it stays so until the policy or the pool's config changes.
//!
//! What it is not: the writing of the status, or the choice of nodes.

mod approvals;
mod current_wave;
mod gates;
#[cfg(test)]
mod tests;
mod windows;

pub use approvals::ApprovalRequest;

use crate::hold::{GateState, Hold};
use crate::node::Flags;
use crate::policy::rejected_elsewhere::RejectedElsewhere;
use crate::policy::waves::groups;
use crate::policy::{Allowance, ChangeAsked, GateCheck, Policy, PolicyFacts, PolicyInput, earlier, time};
use crate::view::NodeView;
use api::formats::text::cut;
use api::v1::MachineConfigPool;
use api::v1alpha1::{GateOutcome, PoolProgress, RejectedConfig};
use jiff::Timestamp;

/// How many rejected configs a pool's entry holds; the schema allows no more.
const REJECTED: usize = 16;
/// Characters of a reason or a hold in status.
const WORDS: usize = 1500;

/// What follows from a policy.
#[derive(Debug, Default)]
pub(crate) struct PolicyOutcome {
    pub(crate) allowance: Allowance,
    pub(crate) progress: PoolProgress,
    pub(crate) checks: Vec<GateCheck>,
    /// Changes whose cost has to be known.
    pub(crate) changes: Vec<ChangeAsked>,
}

/// The pool that a policy is for.
#[derive(Clone, Copy)]
pub(crate) struct PolicySubject<'a> {
    pub(crate) pool: &'a MachineConfigPool,
    /// Its config; for a pool with an image build, the one of the build.
    pub(crate) config: &'a str,
    /// It has no image build: of an earlier one, the image is not known.
    pub(crate) plain: bool,
    /// What other pools have rejected.
    pub(crate) elsewhere: &'a [RejectedElsewhere<'a>],
}

/// Whether the pool's own config is rejected.
pub(crate) fn is_rejected(input: Option<PolicyInput<'_>>, config: &str) -> bool {
    let Some(PolicyInput::InForce { facts, .. }) = input else { return false };
    facts.progress.rejected.iter().any(|r| r.config == config)
}

/// The config that a pool's nodes go back to, and what was rejected, as it is stored.
pub(crate) fn rollback_target<'a>(
    input: Option<PolicyInput<'a>>,
    config: &str,
) -> Option<(&'a str, &'a RejectedConfig)> {
    let Some(PolicyInput::InForce { policy, facts }) = input else { return None };
    let rejected = facts.progress.rejected.iter().find(|r| r.config == config)?;
    let proved = facts.progress.proved.as_deref().filter(|proved| *proved != config && policy.rolls_back)?;
    Some((proved, rejected))
}

/// One evaluation of a pool's policy: what it decides from.
struct Evaluation<'a> {
    policy: &'a Policy,
    facts: &'a PolicyFacts,
    about: PolicySubject<'a>,
    config: &'a str,
    nodes: &'a [(&'a NodeView, Flags)],
    now: Timestamp,
}

/// What the policy allows for a pool's nodes now, and the progress from here. The flags are those for the pool's own
/// config.
pub(crate) fn next(
    (policy, facts): (&Policy, &PolicyFacts),
    about: PolicySubject<'_>,
    nodes: &[(&NodeView, Flags)],
    now: Timestamp,
) -> PolicyOutcome {
    let evaluation = Evaluation { policy, facts, about, config: about.config, nodes, now };
    let pool = about.pool.metadata.name.as_deref().unwrap_or_default();
    let mut next = evaluation.next(pool, about.plain);
    next.progress.name = pool.to_owned();
    let words = next.allowance.hold.as_ref().filter(|h| !matches!(h, Hold::Recording { .. }));
    next.progress.held = words.map(|h| cut(&h.to_string(), WORDS).into_owned());
    next
}

impl Evaluation<'_> {
    fn next(&self, pool: &str, may_go_back: bool) -> PolicyOutcome {
        let (policy, old, config) = (self.policy, &self.facts.progress, self.config);
        let mut progress = old.clone();
        progress.gates = vec![];
        progress.approval_needed = false;
        let held = |hold, look_again, progress| PolicyOutcome {
            allowance: Allowance { hold: Some(hold), look_again, ..Allowance::default() },
            progress,
            ..PolicyOutcome::default()
        };
        if self.nodes.is_empty() {
            return PolicyOutcome { progress, ..PolicyOutcome::default() };
        }
        let on_its_way = old.config.as_deref() == Some(config);
        let all_updated = self.nodes.iter().all(|(_, f)| f.updated);
        let has_candidates = self.nodes.iter().any(|(_, f)| f.candidate);
        // An OS image may change while the rendered config keeps its name, so of a layered pool the name proves nothing.
        let proved = old.proved.as_deref() == Some(config) && may_go_back;
        // A node that has drifted, or is out of service, starts no rollout of an image that the others are in.
        let rests = !on_its_way && !may_go_back && !has_candidates && old.proved.as_deref() == Some(config);
        if all_updated && !on_its_way || proved || rests {
            // Nodes that join a pool whose config is proved take it without waves. While some have not come back to it, what was
            // broken before the change that they leave is not forgotten.
            let progress = match all_updated {
                true => settled(old, pool, config),
                false => PoolProgress {
                    baseline: old.baseline.clone(),
                    rejected: self.with_abandoned(),
                    ..idle(old)
                },
            };
            let mut next = PolicyOutcome { progress, ..PolicyOutcome::default() };
            if has_candidates {
                self.hold_outside_windows(&mut next);
            }
            return next;
        }
        if policy.has_progress() && !on_its_way {
            // A change that replaces an unproved one keeps that one's baseline, from before both changes.
            let mut baseline = old.baseline.clone();
            // Workloads that people took away between the two are not missed.
            baseline.iter_mut().for_each(|known| known.workloads.clear());
            let rejected = self.with_abandoned();
            let (name, proved) = (pool.to_owned(), old.proved.clone());
            let first = groups(&policy.waves, self.nodes).into_iter().next().map(|g| g.name.to_string());
            let config = Some(config.to_owned());
            let progress = PoolProgress {
                name,
                config,
                proved,
                since: Some(time(self.now)),
                wave: first,
                rejected,
                baseline,
                ..PoolProgress::default()
            };
            let checks = self.first_checks(&progress);
            return PolicyOutcome { checks, ..held(self.recording(), None, progress) };
        }
        if let Some(rejected) = old.rejected.iter().find(|r| r.config == config) {
            let hold = Hold::Rejected {
                config: config.into(),
                reason: rejected.reason.clone(),
                policy: policy.name.clone(),
                back_to: None,
            };
            let progress = PoolProgress { wave: None, wave_begun: false, soak_until: None, ..progress };
            return held(hold, None, progress);
        }
        let groups = groups(&policy.waves, self.nodes);
        // Until a node has gone, the first wave counts: the policy may have other waves by now, one of the same name among them.
        let has_begun = old.wave_begun || self.nodes.iter().any(|(_, f)| f.at_target);
        let stored = old.wave.as_deref().filter(|_| has_begun);
        let at = stored.and_then(|w| groups.iter().position(|g| *g.name == *w)).unwrap_or(0);
        let (failure, mut look_again) = self.failure(&groups, at);
        let mut next = self.wave(&groups, at, progress);
        look_again = earlier(look_again, next.allowance.look_again);
        next.allowance.look_again = look_again;
        // Those that were never checked are left out: it would be one more write before their first answer.
        let checked = next.checks.iter().filter(|check| self.facts.gates.contains_key(&check.gate));
        next.progress.gates = checked.map(|check| self.result(&check.gate)).collect();
        // For readers, who do not know where Jobs have ended: a gate that passed for some of the nodes only has not passed.
        if let Some(Hold::Gate { gate, state: GateState::Unknown(why) }) = &next.allowance.hold
            && let Some(said) = next.progress.gates.iter_mut().find(|g| *g.gate == **gate)
        {
            (said.outcome, said.message) = (GateOutcome::NoAnswer, cut(why, WORDS).into_owned());
        }
        if let Some((hold, reason)) = failure {
            let begun = self.nodes.iter().any(|(_, f)| f.at_target);
            let proved = old.proved.is_some() && may_go_back;
            // A rejected config must reach no further node, so patches that are being sent are answered before it is
            // rejected. For the same reason, nodes that would take it along with a reboot are told first not to.
            let takes = |n: &NodeView, f: &Flags| n.waiting.is_some() && !f.unanswered;
            let sends = self.nodes.iter().any(|(n, f)| f.sending || takes(n, f));
            if policy.rolls_back && begun && proved && !sends {
                let rejected = RejectedConfig {
                    config: config.to_owned(),
                    reason: cut(&reason, WORDS).into_owned(),
                    at: time(self.now),
                };
                next.progress.rejected.insert(0, rejected);
                next.progress.rejected.truncate(REJECTED);
                (next.progress.wave, next.progress.soak_until) = (None, None);
                next.progress.wave_begun = false;
            } else {
                // A wave does not end, and its soak does not go on, while something fails.
                next.progress.wave = old.wave.clone();
                next.progress.wave_begun = old.wave_begun;
                next.progress.soak_until = None;
            }
            next.allowance =
                Allowance { turn: next.allowance.turn, hold: Some(hold), look_again, ..Allowance::default() };
            return next;
        }
        // A wave begins within a window: its gates are asked then, not hours before.
        let begins = next.progress.wave_begun && !old.wave_begun;
        if has_candidates && (begins || next.allowance.hold.is_none()) {
            let records = next.allowance.hold.take();
            self.hold_outside_windows(&mut next);
            if next.allowance.hold.is_some() {
                next.progress.wave_begun = old.wave_begun;
                // The wave's gates are asked when the window opens.
                next.allowance.only_window &= !begins;
            } else {
                next.allowance.hold = records;
            }
        }
        next
    }

    fn recording(&self) -> Hold {
        Hold::Recording { policy: self.policy.name.clone() }
    }

    /// What was rejected before, and the config that this one replaces, if a gate failed while it was on its way: the
    /// nodes in it are to leave it, and may be why the gate fails.
    fn with_abandoned(&self) -> Vec<RejectedConfig> {
        let old = &self.facts.progress;
        let mut all = old.rejected.clone();
        let failed = old.gates.iter().find(|g| g.outcome == GateOutcome::Failed);
        if let (Some(config), Some(gate)) = (&old.config, failed)
            && !all.iter().any(|r| r.config == *config)
        {
            let reason = format!("it was replaced while gate {} failed: {}", gate.gate, gate.message);
            let reason = cut(&reason, WORDS).into_owned();
            all.insert(0, RejectedConfig { config: config.clone(), reason, at: time(self.now) });
            all.truncate(REJECTED);
        }
        all
    }
}

/// No config is on its way.
fn idle(old: &PoolProgress) -> PoolProgress {
    PoolProgress {
        name: old.name.clone(),
        proved: old.proved.clone(),
        rejected: old.rejected.clone(),
        ..PoolProgress::default()
    }
}

/// All nodes are in the config, and nothing speaks against it.
fn settled(old: &PoolProgress, pool: &str, config: &str) -> PoolProgress {
    PoolProgress { name: pool.to_owned(), proved: Some(config.to_owned()), ..idle(old) }
}
