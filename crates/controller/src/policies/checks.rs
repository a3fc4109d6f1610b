//! The checks of gates: one task for each gate of a pool that has to be checked, all beside each other. A result that
//! says something new has the cluster planned again at once.
//!
//! What it is not: the requests (see `requests` and `jobs`), or what a result means (see `rollout::policy::gates`).

use crate::policies::check_subject::{CheckSubject, PolicyReference};
use crate::policies::jobs::Jobs;
use crate::policies::requests::{self, FirstWorkloads};
use crate::shared::Shared;
use api::k8s::Time;
use api::v1alpha1::RolloutPolicy;
use rollout::policy::gates::{Check, Reading, Record};
use rollout::policy::{Gate, GateState, PolicyObservations, PoolPolicies};
use rollout::{Hold, PoolPlan, RolloutPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// The first pause after a check without an answer. Each further one is twice as long, up to the gate's interval.
const RETRY: Duration = Duration::from_millis(250);

/// A pool and one of its gates.
type Key = (Arc<str>, Arc<str>);

/// A gate that is being checked.
#[derive(Debug)]
struct Task {
    /// The policy that contains it.
    of: PolicyReference,
    wanted: watch::Sender<CheckSubject>,
    handle: AbortHandle,
    /// The check was stopped, so its results are ignored: a running task ends only at its next await.
    over: Arc<AtomicBool>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.handle.abort();
    }
}

/// The gates that are checked, and what they say.
#[derive(Debug, Default)]
pub(super) struct Checks {
    tasks: Mutex<BTreeMap<Key, Task>>,
    /// The workloads that gates found when they were first checked for a change.
    first: Mutex<BTreeMap<Key, (Attempt, FirstWorkloads)>>,
    results: Arc<Results>,
}

/// A try of a change: its config, its begin, and the policy as it is written.
type Attempt = (Arc<str>, Option<Time>, PolicyReference);

#[derive(Debug, Default)]
struct Results {
    observations: Mutex<PolicyObservations>,
    /// Nothing but answers of gates keeps a pool from going on: they are planned at once.
    awaited: AtomicBool,
}

impl Checks {
    pub(super) fn observations(&self) -> PolicyObservations {
        self.results.observations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts and ends checks, so that those run that the plan asks for. What a gate said that is not checked any more
    /// is forgotten.
    pub(super) fn request(
        &self,
        shared: &Arc<Shared>,
        plan: &RolloutPlan,
        policies: &PoolPolicies,
        objects: &[Arc<RolloutPolicy>],
    ) {
        let waits = |pool: &PoolPlan| {
            let of_gates = matches!(pool.hold, Some(Hold::Gate { .. } | Hold::Recording { .. }));
            of_gates && pool.policy.is_some()
        };
        self.results.awaited.store(plan.pools.iter().any(waits), Ordering::Release);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *tasks);
        for pool in &plan.pools {
            let (Some(of_plan), Some(policy), Some(target)) =
                (&pool.policy, policies.policy(&pool.pool), &pool.target)
            else {
                continue;
            };
            let object = objects.iter().find(|o| o.metadata.name.as_deref() == Some(&*policy.name));
            let of = PolicyReference {
                name: policy.name.to_string(),
                uid: object.and_then(|o| o.metadata.uid.clone()).unwrap_or_default(),
                generation: object.and_then(|o| o.metadata.generation),
            };
            for check in &of_plan.checks {
                let Some(gate) = policy.gates.iter().find(|g| g.name == check.gate) else { continue };
                let key = (pool.pool.clone(), gate.name.clone());
                let wanted = CheckSubject {
                    config: target.config.clone(),
                    since: of_plan.progress.since.clone(),
                    policy: of.clone(),
                    baseline: check.baseline.clone(),
                    workloads: check.workloads.clone(),
                    nodes: check.nodes.clone(),
                    away: check.away,
                };
                // What it said of another config says nothing of this one.
                let same = |t: &Task| {
                    let had = t.wanted.borrow();
                    t.of == of && had.config == wanted.config && had.since == wanted.since
                };
                let task = match before.remove(&key).filter(same) {
                    Some(task) => {
                        task.wanted.send_if_modified(|had| {
                            let new = *had != wanted;
                            *had = wanted;
                            new
                        });
                        task
                    }
                    None => {
                        self.results.forget(&key);
                        self.start(shared, key.clone(), gate, of.clone(), wanted)
                    }
                };
                tasks.insert(key, task);
            }
        }
        let under_way = |pool: &str| {
            let of = plan.pools.iter().find(|p| *p.pool == *pool).and_then(|p| p.policy.as_ref());
            of.is_some_and(|of| of.progress.config.is_some())
        };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        first.retain(|(pool, _), _| under_way(pool));
        drop(first);
        for (key, task) in before {
            drop(task);
            if !tasks.contains_key(&key) {
                self.results.forget(&key);
            }
        }
    }

    fn start(
        &self,
        shared: &Arc<Shared>,
        key: Key,
        gate: &Gate,
        of: PolicyReference,
        wanted: CheckSubject,
    ) -> Task {
        let attempt = (wanted.config.clone(), wanted.since.clone(), of.clone());
        let (wanted, is_wanted) = watch::channel(wanted);
        let over = Arc::new(AtomicBool::new(false));
        let asker = requests::GateClient::new(self.first(&key, attempt));
        let with = (gate.clone(), asker);
        let run = run(shared.clone(), key, with, is_wanted, self.results.clone(), over.clone());
        Task { of, wanted, handle: tokio::spawn(run).abort_handle(), over }
    }

    /// The workloads that were there when this change began; those of an earlier one are forgotten.
    fn first(&self, key: &Key, attempt: Attempt) -> FirstWorkloads {
        let mut all = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get(key).filter(|(of, _)| *of == attempt) {
            Some((_, first)) => first.clone(),
            None => {
                let first = FirstWorkloads::default();
                all.insert(key.clone(), (attempt, first.clone()));
                first
            }
        }
    }
}

impl Results {
    fn forget(&self, (pool, gate): &Key) {
        let mut live = self.observations.lock().unwrap_or_else(PoisonError::into_inner);
        live.gates.get_mut(pool).map(|gates| gates.remove(gate));
        live.found.get_mut(pool).map(|gates| gates.remove(gate));
        live.workloads.get_mut(pool).map(|gates| gates.remove(gate));
        live.ran_on.get_mut(pool).map(|gates| gates.remove(gate));
    }

    /// Stores a gate's result, unless its check has been stopped. `ran_on`: the nodes of its Jobs, if it runs any. Returns
    /// whether the result has changed.
    fn put(
        &self,
        (pool, gate): &Key,
        record: &Record,
        ran_on: Option<&BTreeSet<Arc<str>>>,
        over: &AtomicBool,
    ) -> bool {
        let Some(state) = &record.state else { return false };
        let mut live = self.observations.lock().unwrap_or_else(PoisonError::into_inner);
        // Asked under the lock: whoever ends a check says so before it takes the lock to forget what the check said.
        if over.load(Ordering::Acquire) {
            return false;
        }
        if let Some(found) = &record.found {
            live.found.entry(pool.clone()).or_default().insert(gate.clone(), found.clone());
        }
        let mut more = false;
        if !record.workloads.is_empty() {
            let old = live
                .workloads
                .entry(pool.clone())
                .or_default()
                .insert(gate.clone(), record.workloads.clone());
            more = old.as_ref() != Some(&record.workloads);
        }
        if let Some(ran_on) = ran_on {
            let old = live.ran_on.entry(pool.clone()).or_default().insert(gate.clone(), ran_on.clone());
            more |= old.as_ref() != Some(ran_on);
        }
        let old = live.gates.entry(pool.clone()).or_default().insert(gate.clone(), state.clone());
        more || old.as_ref() != Some(state)
    }
}

async fn run(
    shared: Arc<Shared>,
    key: Key,
    (gate, mut asker): (Gate, requests::GateClient),
    mut wanted: watch::Receiver<CheckSubject>,
    results: Arc<Results>,
    over: Arc<AtomicBool>,
) {
    let (mut record, mut jobs) = (Record::default(), Jobs::default());
    let runs_jobs = matches!(gate.check, Check::Job { .. });
    let mut retry = RETRY;
    loop {
        let begin = Instant::now();
        let reading = if runs_jobs {
            jobs.check(&shared, &gate, &mut wanted).await
        } else {
            let about = wanted.borrow_and_update().clone();
            let answer =
                tokio::time::timeout(gate.timeout, requests::check(&shared, &mut asker, &gate, &about));
            answer.await.unwrap_or_else(|_| {
                Reading::NoAnswer(format!("no answer within {} s", gate.timeout.as_secs_f64()))
            })
        };
        let had = record.state.clone();
        // The baseline may have been stored while the check ran.
        let baseline = wanted.borrow().baseline.clone();
        record.record_check(&gate, baseline.as_deref(), reading);
        if record.workloads.is_empty() {
            record.workloads = asker.workloads();
        }
        if had != record.state {
            let (pool, name) = &key;
            match &record.state {
                Some(GateState::Passed) | None => tracing::info!(%pool, gate = %name, "the gate passes"),
                Some(state) => tracing::warn!(%pool, gate = %name, ?state, "the gate does not pass"),
            }
        }
        if results.put(&key, &record, runs_jobs.then(|| jobs.ended()), &over) {
            let fails = record.state != Some(GateState::Passed);
            if fails {
                shared.setbacks.fetch_add(1, Ordering::AcqRel);
            }
            shared.advances.fetch_add(1, Ordering::AcqRel);
            if fails || results.awaited.load(Ordering::Acquire) {
                shared.plan_now();
            } else {
                shared.mark_cluster();
            }
        }
        let mut next = begin + gate.interval;
        if matches!(record.state, Some(GateState::Unknown(_))) {
            // Such a check counts as nothing, so it can be repeated sooner.
            next = next.min(Instant::now() + retry);
            retry = (retry * 2).min(gate.interval);
        } else {
            retry = RETRY;
        }
        let fails = matches!(record.state, Some(GateState::Failing(_) | GateState::Failed(_)));
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            // More nodes are done, and their Jobs can begin. Not after a failure: it would be counted again at once.
            Ok(()) = wanted.changed(), if runs_jobs && !fails => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_check_finds_after_its_end_does_not_count() {
        let (results, key) = (Results::default(), ("worker".into(), "shop".into()));
        let over = Arc::new(AtomicBool::new(false));
        let task = Task {
            of: PolicyReference::default(),
            wanted: watch::channel(CheckSubject {
                config: "old".into(),
                since: None,
                policy: PolicyReference::default(),
                baseline: None,
                workloads: vec![],
                nodes: vec![],
                away: 0,
            })
            .0,
            handle: tokio::spawn(std::future::pending::<()>()).abort_handle(),
            over: over.clone(),
        };
        let mut passed = Record::default();
        passed.state.get_or_insert(GateState::Passed);
        let known = || results.observations.lock().unwrap().gates.get("worker").map_or(0, BTreeMap::len);
        assert!(results.put(&key, &passed, None, &over), "it is news");
        assert_eq!(known(), 1);
        // The pool gets another config, while the check of the old one is about to say that all is well.
        drop(task);
        results.forget(&key);
        assert!(!results.put(&key, &passed, None, &over));
        assert_eq!(known(), 0);
    }
}
