//! What changes cost a node, for windows and freezes that let some pass: looked up when a plan asks for them, and kept while it
//! does.
//!
//! A cost that cannot be computed delays no other one. Until it is known, the change waits for an open window as a costly one does,
//! and the cost is tried again. A cost counts for the pool's settings that it was computed with, and no longer.
//!
//! What it is not: the reading and the computation (see `lookups`), or what follows from it (see `rollout::policy`).

use crate::shared::Shared;
use api::v1::MachineConfigPool;
use client::Backoff;
use desired::PoolDisruption;
use futures::StreamExt as _;
use futures::stream::SelectAll;
use lookups::{ConfigSlots, CostKey, CostStream};
use rollout::policy::{ChangeAsked, ChangeCost, Costs};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A cost is computed again after this time: the cluster's disruption policy may have changed. Until that is done, the old one
/// counts: else the pool's hold, and the marks of its nodes, would go and come back each time.
const KEPT: Duration = Duration::from_mins(5);
/// The waits before a cost that could not be computed is tried again.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_mins(1) };

/// The costs of changes. A task looks them up, as long as some are asked for.
#[derive(Debug, Default)]
pub(super) struct CostsOfChanges {
    task: Mutex<Option<Task>>,
    state: Arc<Mutex<State>>,
    asked: Arc<Notify>,
}

#[derive(Debug)]
struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Which costs are asked for, and what is known of them.
#[derive(Debug, Default)]
struct State {
    asked: BTreeSet<CostKey>,
    computed: BTreeMap<CostKey, Computed>,
}

/// Those that a task looks up now. It ends with the task: a task that is stopped may finish the step that it is in, so it must not
/// leave anything behind that keeps the next one from looking them up.
type UnderWay = BTreeSet<CostKey>;

/// What became of the computation of a cost.
#[derive(Debug)]
struct Computed {
    /// The cost that was computed last; if none was, why the last try failed.
    answer: Result<ChangeCost, Arc<str>>,
    /// The last try, if it failed.
    failure: Option<Failure>,
    /// When it is computed again.
    again: Instant,
}

#[derive(Debug)]
struct Failure {
    why: Arc<str>,
    /// How many tries in a row have failed before.
    before: u32,
}

impl State {
    /// Asks for these costs, and forgets all others.
    fn ask(&mut self, asked: BTreeSet<CostKey>) {
        self.computed.retain(|key, _| asked.contains(key));
        self.asked = asked;
    }

    /// The costs that are to be looked up now. They are under way then.
    fn begin(&self, under_way: &mut UnderWay) -> Vec<CostKey> {
        let now = Instant::now();
        let is_due = |key: &&CostKey| {
            !under_way.contains(*key) && self.computed.get(*key).is_none_or(|c| c.again <= now)
        };
        let due: Vec<CostKey> = self.asked.iter().filter(is_due).cloned().collect();
        under_way.extend(due.iter().cloned());
        due
    }

    /// When the first of those is tried again that could not be computed. Old costs are computed again when they are asked for.
    fn next_try(&self, under_way: &UnderWay) -> Option<Instant> {
        let failed = self.computed.iter().filter(|(key, c)| c.failure.is_some() && !under_way.contains(*key));
        failed.map(|(_, c)| c.again).min()
    }

    /// Records the outcome of a lookup. Returns whether something else is known than before. An old cost counts until a newer one
    /// is known.
    fn record(
        &mut self,
        under_way: &mut UnderWay,
        key: &CostKey,
        outcome: Result<ChangeCost, String>,
    ) -> bool {
        under_way.remove(key);
        if !self.asked.contains(key) {
            return false;
        }
        let now = Instant::now();
        let (had, failed) = self.computed.remove(key).map_or((None, None), |c| (Some(c.answer), c.failure));
        let computed = match outcome {
            Ok(cost) => Computed { answer: Ok(cost), failure: None, again: now + KEPT },
            Err(why) => {
                let old = had.as_ref().and_then(|answer| answer.as_ref().ok());
                // Once for each reason, not once for each try.
                if failed.as_ref().is_none_or(|failed| *failed.why != *why) {
                    tell(&key.change, old, &why);
                }
                let before = failed.map_or(0, |failed| failed.before.saturating_add(1));
                let why: Arc<str> = why.into();
                let answer = old.copied().ok_or_else(|| why.clone());
                Computed { answer, failure: Some(Failure { why, before }), again: self.again(before) }
            }
        };
        let is_new = had.as_ref() != Some(&computed.answer);
        self.computed.insert(key.clone(), computed);
        is_new
    }

    /// When a cost is tried again after one more failure than that. Those that have the same wait go together, with the first that
    /// failed: each try reads the disruption policy and the configs anew, which are mostly the same for all of them.
    fn again(&self, before: u32) -> Instant {
        let (now, wait) = (Instant::now(), AGAIN.longest(before));
        let others = self.computed.values().filter(|c| c.again > now);
        let mut same = others.filter(|c| c.failure.as_ref().is_some_and(|f| AGAIN.longest(f.before) == wait));
        same.next().map_or_else(|| now + AGAIN.delay(before), |c| c.again)
    }

    /// What is known. `now`: what a change is asked for by as things are now; what was found out for other settings of its pool does
    /// not count.
    fn known(&self, now: impl Fn(&ChangeAsked) -> CostKey) -> Costs {
        let current = self.computed.iter().filter(|(key, _)| now(&key.change) == **key);
        current.map(|(key, computed)| (key.change.clone(), computed.answer.clone())).collect()
    }
}

fn tell(ChangeAsked { from, to }: &ChangeAsked, old: Option<&ChangeCost>, why: &str) {
    match old {
        None => tracing::warn!(
            %from, %to,
            "cannot compute what the change costs a node: {why}. This is tried again. Until then the change waits as a costly \
             one does: outside of windows and in a freeze no node takes it"
        ),
        Some(_) => tracing::warn!(
            %from, %to, "the cost of the change for a node cannot be computed again, so the last one counts: {why}"
        ),
    }
}

impl CostsOfChanges {
    /// What is known of changes of these pools, with their present settings.
    pub(super) fn known(&self, pools: &[&MachineConfigPool]) -> Costs {
        let find =
            |name: &str| pools.iter().copied().find(|pool| pool.metadata.name.as_deref() == Some(name));
        locked(&self.state).known(|change| CostKey::of(change, |pool| settings(find(pool))))
    }

    /// Starts the lookup of these costs where they are unknown or old, and forgets all others.
    pub(super) fn request(&self, shared: &Arc<Shared>, asked: BTreeSet<ChangeAsked>) {
        let is_asked = !asked.is_empty();
        let pools = &shared.stores.pools;
        let key = |change: ChangeAsked| CostKey::of(&change, |pool| settings(pools.get(pool).as_deref()));
        locked(&self.state).ask(asked.into_iter().map(key).collect());
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_asked {
            *task = None;
        } else if task.as_ref().is_none_or(|task| task.0.is_finished()) {
            let run = run(shared.clone(), self.state.clone(), self.asked.clone());
            *task = Some(Task(tokio::spawn(run).abort_handle()));
        } else {
            self.asked.notify_one();
        }
    }
}

fn settings(pool: Option<&MachineConfigPool>) -> PoolDisruption {
    PoolDisruption::of(pool.and_then(|pool| pool.metadata.annotations.as_ref()))
}

fn locked(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks up what is due, and again when more is asked for or a failed one is to be tried again.
async fn run(shared: Arc<Shared>, state: Arc<Mutex<State>>, asked: Arc<Notify>) {
    let mut reads: SelectAll<CostStream> = SelectAll::new();
    let (mut under_way, slots) = (UnderWay::new(), ConfigSlots::default());
    loop {
        let (due, next) = {
            let state = locked(&state);
            (state.begin(&mut under_way), state.next_try(&under_way))
        };
        if !due.is_empty() {
            reads.push(lookups::read_costs(&shared.client, &slots, due));
        }
        let next_try = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((key, cost)) = reads.next() => {
                if locked(&state).record(&mut under_way, &key, cost.map_err(|error| error.chain())) {
                    shared.mark_cluster();
                }
            }
            () = asked.notified() => {}
            () = next_try => {}
        }
    }
}

#[cfg(test)]
mod tests;
