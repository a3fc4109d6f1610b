//! Policies in relation to a cluster's pools: what a plan needs to know of each pool's policy, and the policies' status
//! from a plan. The controller, `mco status` and the dump reader all come here.
//!
//! What it is not: reading or writing of objects.

use crate::configs::{Configs, config_exists};
use crate::hold::{GateState, Hold};
use crate::policy::{
    ApprovalRequest, Assigned, Costs, JobNodes, NotInForce, Policy, PolicyFacts, PolicyInput, PolicyPlan,
    PolicyPool, RejectedElsewhere, Verdict, assign, holds_without_waves, is_rejected, time,
};
use api::conditions::get_true;
use api::formats::text::{MAX_REASON_CHARS, cut};
use api::k8s::Time;
use api::names::own;
use api::v1::MachineConfigPool;
use api::v1alpha1::{Condition, GateOutcome, PoolProgress, RolloutPolicy, RolloutPolicyStatus};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The condition of a RolloutPolicy that says whether it is in force.
const READY: &str = "Ready";
/// The one that says whether it holds a pool, and why.
const HELD: &str = "Held";
/// The one that says whether waves select the same nodes; it is there once they did.
const WAVES_OVERLAP: &str = "WavesOverlap";

/// What a running controller knows besides objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyObservations {
    /// What gates say, by pool and gate.
    pub gates: BTreeMap<Arc<str>, BTreeMap<Arc<str>, GateState>>,
    /// The nodes on which the Jobs of gates have ended, by pool and gate.
    pub ran_on: BTreeMap<Arc<str>, JobNodes>,
    /// What they found broken when there was no baseline, by pool and gate.
    pub found: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<String>>>,
    /// The workloads that were there when gates were first checked, by pool and gate.
    pub workloads: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Vec<String>>>,
    /// Since when nodes are on their way to their pool's config.
    pub sent: BTreeMap<Arc<str>, Timestamp>,
    /// What changes cost a node.
    pub costs: Costs,
}

/// The policy of one pool.
#[derive(Clone, Debug)]
enum PoolPolicy {
    InForce { policy: Arc<Policy>, facts: Box<PolicyFacts> },
    Unusable(String),
}

/// The policies of all pools.
#[derive(Clone, Debug, Default)]
pub struct PoolPolicies {
    pools: BTreeMap<String, PoolPolicy>,
    verdicts: BTreeMap<String, Verdict>,
    /// Pools that people have paused.
    paused: BTreeSet<String>,
}

/// Whether a policy's status is about the policy as it is now.
fn is_seen(policy: &RolloutPolicy) -> bool {
    policy.status.as_ref().is_some_and(|status| status.observed_generation == policy.metadata.generation)
}

/// The entry of a pool in a policy's status. A policy that has changed since has forgotten what it rejected, and which workloads
/// were there: that is how a rejected config is tried again, and how people say that a workload is to be gone.
fn entry(policy: &RolloutPolicy, pool: &str) -> Option<PoolProgress> {
    let status = policy.status.as_ref()?;
    let mut entry = status.pools.iter().find(|p| p.name == pool)?.clone();
    if !is_seen(policy) {
        entry.rejected.clear();
        entry.baseline.iter_mut().for_each(|baseline| baseline.workloads.clear());
    }
    Some(entry)
}

/// The entry of a pool that people have paused: what held it before does so no longer. What gates said stays, because it
/// counts if the config is replaced meanwhile.
fn paused(known: PoolProgress) -> PoolProgress {
    PoolProgress { held: Some(Hold::Paused.to_string()), ..known }
}

fn name_of(policy: &RolloutPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

/// Whether a policy's status changes in words for people alone: what holds its pools, and what gates say that have not failed.
/// Nothing is decided by them, and most last for a moment.
pub fn changes_words_only(old: &RolloutPolicyStatus, new: &RolloutPolicyStatus) -> bool {
    let pools = |status: &RolloutPolicyStatus| -> Vec<PoolProgress> {
        let failed = |progress: &PoolProgress| {
            let gates = progress.gates.iter().filter(|g| g.outcome == GateOutcome::Failed);
            gates.cloned().collect()
        };
        let one = |p: &PoolProgress| PoolProgress { held: None, gates: failed(p), ..p.clone() };
        status.pools.iter().map(one).collect()
    };
    let others = |status: &RolloutPolicyStatus| -> Vec<Condition> {
        status.conditions.iter().filter(|c| c.type_ != HELD).cloned().collect()
    };
    let of_plan = |status: &RolloutPolicyStatus| (status.observed_generation, status.current_wave.clone());
    of_plan(old) == of_plan(new) && others(old) == others(new) && pools(old) == pools(new)
}

impl PoolPolicies {
    /// Finds the policy of each pool. `configs`: all MachineConfigs; `None` if they are not known. `live`: what gates said;
    /// without it, what the policies' status says.
    pub fn of(
        policies: &[&RolloutPolicy],
        pools: &[&MachineConfigPool],
        configs: Option<&dyn Configs>,
        live: Option<&PolicyObservations>,
    ) -> Self {
        let policies: Vec<&RolloutPolicy> =
            policies.iter().copied().filter(|p| p.metadata.deletion_timestamp.is_none()).collect();
        if policies.is_empty() {
            return Self::default();
        }
        let views: Vec<PolicyPool<'_>> = pools
            .iter()
            .map(|p| PolicyPool {
                name: p.metadata.name.as_deref().unwrap_or_default(),
                labels: p.metadata.labels.as_ref(),
            })
            .collect();
        let assigned = assign(policies.iter().copied(), &views);
        let paused = pools.iter().filter(|p| p.spec.paused).filter_map(|p| p.metadata.name.clone()).collect();
        let mut all = Self { verdicts: assigned.policies, paused, ..Self::default() };
        for pool in pools {
            let name = pool.metadata.name.as_deref().unwrap_or_default();
            let of_pool = match assigned.pools.get(name) {
                None => continue,
                Some(Assigned::Unusable(why)) => PoolPolicy::Unusable(why.clone()),
                Some(Assigned::Policy(policy)) => {
                    let object = policies.iter().copied().find(|p| name_of(p) == &*policy.name);
                    let mut progress = object.and_then(|p| entry(p, name)).unwrap_or_default();
                    // It may have been deleted as unused; then there is nothing to go back to.
                    progress.proved = progress.proved.filter(|proved| config_exists(configs, proved));
                    let stored = || progress.gates.iter().map(|g| (g.gate.as_str().into(), GateState::of(g)));
                    let gates = match live {
                        Some(live) => live.gates.get(name).cloned().unwrap_or_default(),
                        None => stored().collect(),
                    };
                    let let_go = live.is_none() && !progress.name.is_empty() && progress.held.is_none();
                    let notes = pool.metadata.annotations.as_ref();
                    let note = |key: &str| notes.and_then(|a| a.get(key)).map(String::as_str);
                    let facts = PolicyFacts {
                        gates,
                        ran_on: live.and_then(|l| l.ran_on.get(name).cloned()).unwrap_or_default(),
                        baselines: live.and_then(|l| l.found.get(name).cloned()).unwrap_or_default(),
                        // What was found under the policy as it was before, says nothing of the present one.
                        workloads: live
                            .filter(|_| object.is_some_and(is_seen))
                            .and_then(|l| l.workloads.get(name).cloned())
                            .unwrap_or_default(),
                        approval: note(own::APPROVED)
                            .filter(|v| !v.trim().is_empty())
                            .map(|v| ApprovalRequest::parse(v, note(own::APPROVED_BY))),
                        sent: live.map(|l| l.sent.clone()).unwrap_or_default(),
                        let_go,
                        costs: live.map(|l| l.costs.clone()).unwrap_or_default(),
                        progress,
                    };
                    PoolPolicy::InForce { policy: policy.clone(), facts: Box::new(facts) }
                }
            };
            all.pools.insert(name.to_owned(), of_pool);
        }
        all
    }

    /// The policy of a pool, for a plan.
    pub fn input(&self, pool: &str) -> Option<PolicyInput<'_>> {
        Some(match self.pools.get(pool)? {
            PoolPolicy::InForce { policy, facts } => PolicyInput::InForce { policy, facts },
            PoolPolicy::Unusable(why) => PolicyInput::Unusable(why),
        })
    }

    /// The policy of a pool, if it is in force.
    pub fn policy(&self, pool: &str) -> Option<&Arc<Policy>> {
        match self.pools.get(pool)? {
            PoolPolicy::InForce { policy, .. } => Some(policy),
            PoolPolicy::Unusable(_) => None,
        }
    }

    /// Why no node of a pool goes that has no waves: another one has rejected the same change. `pools`: all of them. A pool
    /// whose policy stores its progress waits by wave instead.
    pub fn held_by_others(&self, pool: &MachineConfigPool, pools: &[&MachineConfigPool]) -> Option<Hold> {
        let name = |pool: &MachineConfigPool| pool.metadata.name.clone().unwrap_or_default();
        let rejects = |p: &&&MachineConfigPool| is_rejected(self.input(&name(p)), &p.spec.configuration.name);
        let all: Vec<RejectedElsewhere<'_>> =
            pools.iter().filter(rejects).map(|p| RejectedElsewhere::of(p)).collect();
        holds_without_waves(&all, pool).filter(|_| self.policy(&name(pool)).is_none_or(|p| !p.has_progress()))
    }

    /// Adds what changes cost a node.
    pub fn add_costs(&mut self, costs: &Costs) {
        for pool in self.pools.values_mut() {
            if let PoolPolicy::InForce { facts, .. } = pool {
                facts.costs.extend(costs.iter().map(|(change, cost)| (change.clone(), cost.clone())));
            }
        }
    }

    /// Applies a plan's progress of pools as if it were stored, with all gates open and no waits. Used for forecasts.
    /// Returns whether anything changed.
    pub fn advance(&mut self, plans: &[(&str, &PolicyPlan)]) -> bool {
        let mut changed = false;
        for (pool, next) in plans {
            let Some(PoolPolicy::InForce { facts, .. }) = self.pools.get_mut(*pool) else { continue };
            changed |= facts.progress != next.progress;
            facts.progress.clone_from(&next.progress);
        }
        changed
    }

    /// A policy's status after a plan, if it differs from the present one.
    pub fn status(
        &self,
        policy: &RolloutPolicy,
        plans: &[(&str, &PolicyPlan)],
        now: &Time,
    ) -> Option<RolloutPolicyStatus> {
        let name = name_of(policy);
        let verdict = self.verdicts.get(name)?;
        let old = policy.status.clone().unwrap_or_default();
        let of_plan = |pool: &str| {
            let (_, of_it) = plans.iter().find(|(of, plan)| *of == pool && &*plan.policy == name)?;
            Some(of_it.progress.clone())
        };
        let (status, reason, message, pools): (_, _, _, Vec<PoolProgress>) = match verdict {
            Verdict::InForce { pools, missing } => {
                let stored = |pool: &str| {
                    let known = entry(policy, pool)?;
                    Some(if self.paused.contains(pool) { paused(known) } else { known })
                };
                let entries = pools.iter().filter_map(|pool| of_plan(pool).or_else(|| stored(pool)));
                let mut message = format!("in force for {}", pools.join(", "));
                if !missing.is_empty() {
                    let missing = missing.join(", ");
                    message +=
                        &format!("; there is no MachineConfigPool {missing}: correct spec.pools.names");
                }
                ("True", "InForce", message, entries.collect())
            }
            // What is known of its pools is kept, until it is clear which policy is theirs.
            Verdict::NotInForce { reason, message } => {
                let known = old.pools.iter().map(|p| of_plan(&p.name).unwrap_or_else(|| p.clone()));
                // It may be in force for others of them.
                let others = plans.iter().filter(|(pool, _)| old.pools.iter().all(|o| o.name != *pool));
                let others = others.filter_map(|(pool, _)| of_plan(pool));
                ("False", reason.text(), message.clone(), known.chain(others).collect())
            }
        };
        let generation = policy.metadata.generation;
        let mut conditions = old.conditions.clone();
        let mut set = |type_: &str, status: &str, reason: &str, message: &str| {
            let before = old.conditions.iter().find(|c| c.type_ == type_);
            let since = before.filter(|c| c.status == status).map(|c| c.last_transition_time.clone());
            let new = Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                observed_generation: generation,
                last_transition_time: since.unwrap_or_else(|| time(now.0)),
                reason: reason.to_owned(),
                message: cut(message, MAX_REASON_CHARS).into_owned(),
            };
            match conditions.iter_mut().find(|c| c.type_ == type_) {
                Some(known) => *known = new,
                None => conditions.push(new),
            }
        };
        set(READY, status, reason, &message);
        let mine = || plans.iter().filter(|(_, plan)| &*plan.policy == name);
        let held: Vec<(&str, &str)> =
            pools.iter().filter_map(|p| Some((p.name.as_str(), p.held.as_deref()?))).collect();
        match held.first() {
            // A policy that is not in force holds its pools for that.
            _ if matches!(verdict, Verdict::NotInForce { reason, .. } if *reason != NotInForce::NoPool) => {
                set(HELD, "True", reason, &message);
            }
            None => set(HELD, "False", "NotHeld", "no pool is held by this policy"),
            Some((first, _)) => {
                let word =
                    mine().find(|(pool, _)| pool == first).and_then(|(_, plan)| plan.held_for.as_deref());
                let paused = self.paused.contains(*first).then_some("Paused");
                let stored = get_true(&old.conditions, HELD);
                let word = word.or(paused).or(stored.map(|c| c.reason.as_str())).unwrap_or("Held");
                let words = held.iter().map(|(pool, why)| format!("pool {pool}: {why}"));
                set(HELD, "True", word, &words.collect::<Vec<_>>().join("; "));
            }
        }
        // A pool without a plan says nothing about its nodes.
        let overlaps =
            mine().filter_map(|(pool, plan)| Some(format!("pool {pool}: {}", plan.overlap.as_deref()?)));
        let overlaps = overlaps.collect::<Vec<_>>().join("; ");
        let told = old.conditions.iter().any(|c| c.type_ == WAVES_OVERLAP);
        match (overlaps.is_empty(), mine().next().is_some()) {
            (false, _) => set(WAVES_OVERLAP, "True", "SameNodes", &overlaps),
            (true, true) if told => set(WAVES_OVERLAP, "False", "Distinct", "each node is in one wave"),
            (true, _) => {}
        }
        // The nodes that no wave takes go last.
        let place = |wave: &String| policy.spec.waves.iter().position(|w| w.name == *wave);
        let waves = pools.iter().filter_map(|p| p.wave.clone());
        let current_wave = waves.min_by_key(|wave| place(wave).unwrap_or(usize::MAX));
        let new = RolloutPolicyStatus { observed_generation: generation, conditions, current_wave, pools };
        (new != old).then_some(new)
    }
}
