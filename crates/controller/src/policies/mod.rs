//! RolloutPolicies as the node pass uses them: what gates say, since when nodes are on their way, and the writing of the
//! policies' status.
//!
//! What it is not: a decision. `rollout::policy` says which gates have to be checked and what follows from them.

mod check_subject;
mod checks;
mod costs;
mod drain_outlooks;
mod job_watch;
mod jobs;
mod requests;

use crate::change::Changed;
use crate::shared::Shared;
use api::k8s::{ResourceExt, Time};
use api::v1::MachineConfigPool;
use api::v1alpha1::{DrainEnd, RolloutPolicy, RolloutPolicyStatus};
use checks::Checks;
use client::merge_patch::{bound_to_version, difference};
use client::{CallError, call};
use costs::CostsOfChanges;
use drain_outlooks::DrainOutlooks;
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use rollout::drain::Outlook;
use rollout::policy::{PolicyObservations, PoolPolicies, changes_words_only};
use rollout::{RolloutPlan, Step};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a pass waits for the answer to a write of a policy's status. One that comes later has the cluster planned again.
const WAITS: Duration = Duration::from_millis(500);

/// How long a change of only the texts in a status must have lasted before it is written.
const WORDS_LAST: Duration = Duration::from_millis(250);

/// If at most this many nodes of a pool are on their way, they count as the last ones of its wave, and the cluster is planned again
/// when one of them is done.
const LAST: usize = 16;

/// The config that a node is on its way to, and since when.
type OnTheWay = (Arc<str>, Timestamp);

/// What one term's node pass remembers about policies.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    checks: Checks,
    costs: CostsOfChanges,
    drains: DrainOutlooks,
    sent: Mutex<Sent>,
    writes: WriteOutcomes,
    /// Policies whose status is out of date in words for people alone, and since when.
    words: Mutex<BTreeMap<String, Instant>>,
}

/// What became of the writes of policies' status.
#[derive(Debug)]
pub(crate) struct StatusWrites {
    /// Whether anything was written, or the first error; `None`: there is none, and not all are answered.
    pub(crate) outcome: Option<Result<bool, CallError>>,
    /// After how long the texts that were held back may be written; by then they may have changed again.
    pub(crate) later: Option<Duration>,
}

impl Policies {
    /// What is known besides objects. `pools`: those that the plan is made for.
    pub(crate) fn observations(&self, pools: &[&MachineConfigPool]) -> PolicyObservations {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        PolicyObservations {
            sent: sent.iter().map(|(node, (_, since))| (node.clone(), *since)).collect(),
            costs: self.costs.known(pools),
            ..self.checks.observations()
        }
    }

    /// What drains of nodes would do, as far as they were looked at.
    pub(crate) fn outlooks(&self) -> BTreeMap<Arc<str>, Outlook> {
        self.drains.known()
    }

    /// Starts exactly the work that a plan asks for, and stops all other: checks of gates, costs of changes, inspections of
    /// nodes. Remembers which nodes are being updated.
    pub(crate) fn follow(
        &self,
        shared: &Arc<Shared>,
        plan: &RolloutPlan,
        policies: &PoolPolicies,
        objects: &[Arc<RolloutPolicy>],
        now: &Time,
    ) {
        self.checks.request(shared, plan, policies, objects);
        let of_policies = || plan.pools.iter().filter_map(|pool| pool.policy.as_ref());
        self.costs.request(shared, of_policies().flat_map(|p| p.changes.iter().cloned()).collect());
        self.drains.request(shared, of_policies().flat_map(|p| p.looks.iter().cloned()).collect());
        limit_drains(shared, plan, policies);
        *shared.last_of_waves.lock().unwrap_or_else(PoisonError::into_inner) = last_of_waves(plan);
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let limited = |pool: &str| policies.policy(pool).is_some_and(|p| p.node_deadline.is_some());
        if follow_sent(&mut sent, plan, &limited, now.0) {
            // This plan was made without these times, so it does not say when their deadlines end.
            shared.mark_cluster();
        }
    }

    /// Writes the status of each policy that a plan changes, and waits a moment for the answers. A write without one
    /// continues on its own, and holds up only the policy that it is for. Words for people alone are written when they have lasted:
    /// between two waves they change several times a second, and the next wave would wait for each write.
    pub(crate) async fn write(
        &self,
        shared: &Arc<Shared>,
        plan: &RolloutPlan,
        policies: &PoolPolicies,
        objects: &[Arc<RolloutPolicy>],
        now: &Time,
    ) -> StatusWrites {
        let (writes, later) = self.begin_writes(shared, plan, policies, objects, now);
        let late = self.writes.take_late();
        let in_time = writes.into_iter().map(async |answer| {
            let answer = tokio::time::timeout(WAITS, answer?).await;
            answer.ok()?.ok()
        });
        let answers = join_all(in_time).await;
        let wrote = answers.iter().flatten().any(|answer| matches!(answer, Ok(true)));
        let known = answers.iter().all(Option::is_some);
        let answers = answers.into_iter().flatten().map(|answer| answer.map(|_| ()));
        let all: Result<(), CallError> = late.into_iter().chain(answers).collect();
        StatusWrites { outcome: (known || all.is_err()).then_some(all.map(|()| wrote)), later }
    }

    /// Begins the writes of a plan. Returns their answers, and when to look at words that have not lasted yet.
    fn begin_writes(
        &self,
        shared: &Arc<Shared>,
        plan: &RolloutPlan,
        policies: &PoolPolicies,
        objects: &[Arc<RolloutPolicy>],
        now: &Time,
    ) -> (Vec<Option<Answer>>, Option<Duration>) {
        let of_policies = plan.of_policies();
        let mut known = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::take(&mut *known);
        let (mut writes, mut later) = (vec![], None);
        for object in objects {
            let Some(status) = policies.status(object, &of_policies, now) else { continue };
            let name = object.name_any();
            if object.status.as_ref().is_some_and(|old| changes_words_only(old, &status)) {
                let since = before.get(&name).copied().unwrap_or_else(Instant::now);
                let left = WORDS_LAST.saturating_sub(since.elapsed());
                if !left.is_zero() {
                    later = later.into_iter().chain([left]).min();
                    known.insert(name, since);
                    continue;
                }
            }
            writes.push(self.writes.begin(shared, object, status));
        }
        (writes, later)
    }
}

/// The answer to a write of a policy's status, when it comes: whether the write changed anything.
type Answer = oneshot::Receiver<Result<bool, CallError>>;

/// The writes of policies' status that have no answer yet. Dropping it drops the requests.
#[derive(Debug, Default)]
struct WriteOutcomes {
    tasks: Mutex<JoinSet<()>>,
    state: Arc<Mutex<Writing>>,
}

#[derive(Debug, Default)]
struct Writing {
    /// The policies.
    of: BTreeSet<String>,
    /// Outcomes that came when no pass waited any more.
    late: Vec<Result<(), CallError>>,
}

impl WriteOutcomes {
    /// Begins to write the status of a policy, unless an earlier write is without an answer.
    fn begin(
        &self,
        shared: &Arc<Shared>,
        policy: &Arc<RolloutPolicy>,
        status: RolloutPolicyStatus,
    ) -> Option<Answer> {
        let name = policy.name_any();
        if !self.state.lock().unwrap_or_else(PoisonError::into_inner).of.insert(name.clone()) {
            return None;
        }
        let (waits, answer) = oneshot::channel();
        let (shared, policy, state) = (shared.clone(), policy.clone(), self.state.clone());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let done = write_status(&shared, &policy, &status).await;
            if matches!(done, Ok(true)) {
                shared.advances.fetch_add(1, Ordering::AcqRel);
            }
            state.lock().unwrap_or_else(PoisonError::into_inner).of.remove(&name);
            if let Err(late) = waits.send(done) {
                state.lock().unwrap_or_else(PoisonError::into_inner).late.push(late.map(|_| ()));
                shared.mark_cluster();
            }
        });
        Some(answer)
    }

    fn take_late(&self) -> Vec<Result<(), CallError>> {
        std::mem::take(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).late)
    }
}

/// Whether a node is on its way to its pool's config, or should be in it.
fn is_away(step: &Step) -> bool {
    matches!(step, Step::Goes | Step::Moving { .. } | Step::Failing(_) | Step::Unavailable(_))
}

/// The nodes on their way of pools with a policy, if they are few: what comes next waits for them alone. Of many, the last ones
/// will be named by a later plan.
fn last_of_waves(plan: &RolloutPlan) -> BTreeSet<Arc<str>> {
    let with_policy = plan.pools.iter().filter(|pool| pool.policy.is_some());
    let moving = with_policy.map(|pool| pool.nodes.iter().filter(|n| is_away(&n.step)).map(|n| &n.node));
    let few =
        moving.map(|nodes| nodes.take(LAST + 1).collect::<Vec<_>>()).filter(|nodes| nodes.len() <= LAST);
    few.flatten().cloned().collect()
}

/// Says how long the drains of nodes that are on their way may take.
fn limit_drains(shared: &Shared, plan: &RolloutPlan, policies: &PoolPolicies) {
    let mut limits = BTreeMap::new();
    for pool in &plan.pools {
        let Some(limit) = policies.policy(&pool.pool).and_then(|p| p.drain) else { continue };
        // A node that is put aside would stay in the rejected config.
        if limit.then == DrainEnd::Quarantine && pool.policy.as_ref().is_none_or(|p| p.back) {
            continue;
        }
        limits.extend(pool.nodes.iter().filter(|n| is_away(&n.step)).map(|n| (n.node.clone(), limit)));
    }
    let news: Vec<_> = {
        let mut had = shared.drain_limits.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = limits.iter().filter(|(node, limit)| had.get(*node) != Some(limit));
        let news = changed.map(|(node, _)| node.clone()).collect();
        *had = limits;
        news
    };
    shared.changed(&Changed::DrainLimits(&news));
}

/// What each node is on its way to, by name.
type Sent = BTreeMap<Arc<str>, OnTheWay>;

/// Remembers which nodes of `limited` pools are on their way after a plan, and since when. Returns whether there are new
/// ones.
fn follow_sent(sent: &mut Sent, plan: &RolloutPlan, limited: &dyn Fn(&str) -> bool, now: Timestamp) -> bool {
    let (mut before, mut news) = (std::mem::take(sent), false);
    for pool in &plan.pools {
        let Some(target) = pool.target.as_ref().filter(|_| limited(&pool.pool)) else { continue };
        for node in pool.nodes.iter().filter(|n| is_away(&n.step)) {
            let known = before.remove(&node.node).filter(|(config, _)| *config == target.config);
            news |= known.is_none();
            sent.insert(node.node.clone(), known.unwrap_or_else(|| (target.config.clone(), now)));
        }
    }
    news
}

/// Writes the differences of a policy's status, bound to the version that it was computed from. Returns whether that changed it:
/// an older definition may not have a field.
async fn write_status(
    shared: &Shared,
    policy: &RolloutPolicy,
    status: &RolloutPolicyStatus,
) -> Result<bool, CallError> {
    let name = policy.name_any();
    let old = policy.status.as_ref().map_or(json!({}), |s| json!(s));
    let Some(patch) = difference(&old, &json!(status)) else { return Ok(false) };
    let body = Patch::Merge(bound_to_version("status", &patch, policy.metadata.resource_version.as_deref()));
    let api = shared.api::<RolloutPolicy>();
    let what = || format!("status of rolloutpolicy {name}");
    let answer = call(what, api.patch_status(&name, &PatchParams::default(), &body)).await?;
    let changed = answer.metadata.resource_version != policy.metadata.resource_version;
    shared.rollout_policy_answer(answer);
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollout::policy::PolicyPlan;
    use rollout::{NodeStep, PoolPlan, Target};

    #[test]
    fn the_last_nodes_of_a_wave_are_those_on_their_way_if_they_are_few() {
        let plan = |away: usize, policy: Option<PolicyPlan>| {
            let step = |n: usize| if n < away { Step::Goes } else { Step::Done };
            let nodes = (0..40).map(|n| NodeStep { node: format!("n{n}").into(), step: step(n) }).collect();
            let pools = vec![PoolPlan { nodes, policy, ..PoolPlan::default() }];
            last_of_waves(&RolloutPlan { pools, ..RolloutPlan::default() }).len()
        };
        let policy = || Some(PolicyPlan::default());
        assert_eq!((plan(0, policy()), plan(3, policy()), plan(LAST, policy())), (0, 3, LAST));
        assert_eq!((plan(LAST + 1, policy()), plan(3, None)), (0, 0));
    }

    #[test]
    fn a_node_that_is_newly_on_its_way_is_planned_again_once_so_that_its_deadline_is_known() {
        let plan = |config: &str, step: Step| RolloutPlan {
            pools: vec![PoolPlan {
                pool: "worker".into(),
                target: Some(Target { config: config.into(), image: None }),
                nodes: vec![NodeStep { node: "a".into(), step }],
                ..PoolPlan::default()
            }],
            ..RolloutPlan::default()
        };
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let mut sent = Sent::new();
        let mut follow = |config: &str, step: Step, second: i64| {
            let news = follow_sent(&mut sent, &plan(config, step), &|_| true, at(second));
            (news, sent.get("a").map(|(_, since)| since.as_second()))
        };
        assert_eq!(follow("new", Step::Goes, 1), (true, Some(1)));
        assert_eq!(follow("new", Step::Goes, 2), (false, Some(1)));
        assert_eq!(follow("newer", Step::Goes, 3), (true, Some(3)));
        assert_eq!(follow("newer", Step::Done, 4), (false, None));
        assert!(!follow_sent(&mut Sent::new(), &plan("new", Step::Goes), &|_| false, at(5)));
    }
}
