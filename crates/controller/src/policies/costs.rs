//! What changes cost a node, for windows and freezes that let some pass: computed from the two rendered configs, which are read
//! for that and kept nowhere.
//!
//! A cost that cannot be computed delays no other one: it is not known, so no window allows that change, and it is tried again
//! later.
//!
//! What it is not: the computation (see `host::least_disruption`), or what follows from it (see `rollout::policy`).

use crate::kind;
use crate::shared::Shared;
use api::rendered::RenderedName;
use api::v1::MachineConfig;
use client::{call, call_optional, retry};
use desired::{DesiredHost, DisruptionPolicy, PoolDisruption};
use kube::Api;
use kube::api::DynamicObject;
use rollout::policy::{ChangeAsked, ChangeCost, Costs};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A cost is computed again after this time: the cluster's disruption policy may have changed. Until that is done, the old one
/// counts: else the pool's hold, and the marks of its nodes, would go and come back each time.
const KEPT: Duration = Duration::from_mins(5);
/// A cost that could not be computed is tried again after this time.
const NOT_KNOWN: Duration = Duration::from_mins(1);
/// How long a read is repeated while the API server serves nobody.
const OUTAGE: Duration = Duration::from_mins(1);

/// The costs of changes. A task computes them, as long as some are asked for.
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
    asked: BTreeSet<ChangeAsked>,
    computed: BTreeMap<ChangeAsked, Computed>,
}

/// What became of the computation of a cost.
#[derive(Debug)]
struct Computed {
    /// The cost that was computed last.
    cost: Option<ChangeCost>,
    /// Why the last computation failed.
    failure: Option<String>,
    /// When it is computed again.
    again: Instant,
}

impl State {
    /// Asks for these costs, and forgets all others.
    fn ask(&mut self, asked: BTreeSet<ChangeAsked>) {
        self.computed.retain(|change, _| asked.contains(change));
        self.asked = asked;
    }

    /// The changes whose cost is to be computed now.
    fn due(&self) -> BTreeSet<ChangeAsked> {
        let now = Instant::now();
        let is_due = |change: &&ChangeAsked| self.computed.get(*change).is_none_or(|c| c.again <= now);
        self.asked.iter().filter(is_due).cloned().collect()
    }

    /// When the first of those is tried again that could not be computed. Old costs are computed again when they are asked for.
    fn next_try(&self) -> Option<Instant> {
        self.computed.values().filter(|c| c.failure.is_some()).map(|c| c.again).min()
    }

    /// Records the outcome of a computation. Returns whether the cost is another one than before. An old cost counts until a newer
    /// one is known.
    fn record(&mut self, change: &ChangeAsked, outcome: Result<ChangeCost, String>) -> bool {
        if !self.asked.contains(change) {
            return false;
        }
        let now = Instant::now();
        let before = self.computed.remove(change);
        let old = before.as_ref().and_then(|c| c.cost);
        let computed = match outcome {
            Ok(cost) => Computed { cost: Some(cost), failure: None, again: now + KEPT },
            Err(why) => {
                // Once for each reason, not once for each try.
                if before.and_then(|c| c.failure).as_ref() != Some(&why) {
                    tell(change, old, &why);
                }
                Computed { cost: old, failure: Some(why), again: now + NOT_KNOWN }
            }
        };
        let is_new = computed.cost != old;
        self.computed.insert(change.clone(), computed);
        is_new
    }

    fn known(&self) -> Costs {
        self.computed.iter().filter_map(|(change, c)| Some((change.clone(), c.cost?))).collect()
    }
}

fn tell(ChangeAsked { from, to }: &ChangeAsked, old: Option<ChangeCost>, why: &str) {
    match old {
        None => tracing::warn!(
            %from, %to, "the cost of the change for a node is not known, so no window allows it: {why}"
        ),
        Some(_) => tracing::warn!(
            %from, %to, "the cost of the change for a node cannot be computed again, so the last one counts: {why}"
        ),
    }
}

impl CostsOfChanges {
    /// What is known.
    pub(super) fn known(&self) -> Costs {
        locked(&self.state).known()
    }

    /// Starts the computation of these costs where they are unknown or old, and forgets all others.
    pub(super) fn request(&self, shared: &Arc<Shared>, asked: BTreeSet<ChangeAsked>) {
        let is_asked = !asked.is_empty();
        locked(&self.state).ask(asked);
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

fn locked(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Computes what is due, and again when more is asked for or a failed one is to be tried again.
async fn run(shared: Arc<Shared>, state: Arc<Mutex<State>>, asked: Arc<Notify>) {
    loop {
        let due = locked(&state).due();
        let mut inputs = Inputs::new(&shared);
        for change in due {
            let cost = inputs.cost(&change).await;
            if locked(&state).record(&change, cost) {
                shared.mark_cluster();
            }
        }
        drop(inputs);
        let next = locked(&state).next_try();
        let next_try = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = asked.notified() => {}
            () = next_try => {}
        }
    }
}

/// What costs are computed from: each object is read once.
struct Inputs<'a> {
    shared: &'a Shared,
    policy: Option<Result<DisruptionPolicy, String>>,
    hosts: BTreeMap<Arc<str>, Result<Arc<DesiredHost>, String>>,
}

impl<'a> Inputs<'a> {
    fn new(shared: &'a Shared) -> Self {
        Self { shared, policy: None, hosts: BTreeMap::new() }
    }

    async fn cost(&mut self, change: &ChangeAsked) -> Result<ChangeCost, String> {
        let policy = self.policy().await?;
        let (from, to) = (self.host(&change.from).await?, self.host(&change.to).await?);
        let pools = &self.shared.stores.pools;
        let pool = RenderedName::parse(&change.to).and_then(|name| pools.get(name.pool));
        let notes = pool.as_ref().and_then(|p| p.metadata.annotations.as_ref());
        Ok(lookups::change_cost(&from, &to, &policy.for_pool(&PoolDisruption::of(notes))))
    }

    /// The cluster's disruption policy.
    async fn policy(&mut self) -> Result<DisruptionPolicy, String> {
        if let Some(known) = &self.policy {
            return known.clone();
        }
        let policy = read_policy(self.shared).await;
        self.policy = Some(policy.clone());
        policy
    }

    /// What a rendered config makes of a host.
    async fn host(&mut self, name: &Arc<str>) -> Result<Arc<DesiredHost>, String> {
        if let Some(known) = self.hosts.get(name) {
            return known.clone();
        }
        let host = read_host(self.shared, name).await.map(Arc::new);
        self.hosts.insert(name.clone(), host.clone());
        host
    }
}

async fn read_policy(shared: &Shared) -> Result<DisruptionPolicy, String> {
    let api: Api<DynamicObject> =
        Api::all_with(shared.client.clone(), &kind::MACHINE_CONFIGURATIONS.resource());
    let what = || "machineconfiguration cluster".to_owned();
    // The kind may not be installed.
    let read = || call_optional(what, api.get(api::names::CLUSTER));
    let object = retry::on_outage(OUTAGE, drop, read).await.map_err(|e| e.chain())?;
    DisruptionPolicy::of_cluster(object.map(|object| json!(object)).as_ref())
}

async fn read_host(shared: &Shared, name: &str) -> Result<DesiredHost, String> {
    let configs = shared.api::<MachineConfig>();
    let read = || call(|| format!("machineconfig {name}"), configs.get(name));
    let config = retry::on_outage(OUTAGE, drop, read).await.map_err(|e| e.chain())?;
    DesiredHost::parse(&config.spec).map_err(|bad| {
        let findings: Vec<String> = bad.iter().map(ToString::to_string).collect();
        format!("machineconfig {name}: {}", findings.join("; "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::{answer, shared};

    fn change(from: &str) -> ChangeAsked {
        ChangeAsked { from: from.into(), to: "new".into() }
    }

    fn changes(from: &[&str]) -> BTreeSet<ChangeAsked> {
        from.iter().map(|from| change(from)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_cost_counts_until_a_newer_one_is_known_and_goes_when_nobody_asks() {
        let mut state = State::default();
        let cost = |certificates| Ok(ChangeCost { least: None, certificates });
        state.ask(changes(&["a", "b"]));
        assert_eq!((state.due(), state.next_try()), (changes(&["a", "b"]), None));
        assert!(state.record(&change("a"), cost(false)));
        assert_eq!(state.due(), changes(&["b"]));
        assert!(!state.record(&change("b"), Err("it is gone".to_owned())), "it was not known before either");
        assert_eq!((state.due(), state.known().len()), (changes(&[]), 1));
        assert_eq!(state.next_try(), Some(Instant::now() + NOT_KNOWN));
        tokio::time::advance(NOT_KNOWN).await;
        assert_eq!(state.due(), changes(&["b"]));
        assert!(state.record(&change("b"), cost(false)));
        assert_eq!((state.next_try(), state.known().len()), (None, 2));
        tokio::time::advance(KEPT - NOT_KNOWN).await;
        // An old one is computed again, and counts meanwhile, also when that fails.
        assert_eq!((state.due(), state.known().len()), (changes(&["a"]), 2));
        assert!(!state.record(&change("a"), Err("it is gone".to_owned())));
        assert_eq!((state.due(), state.known().len()), (changes(&[]), 2));
        tokio::time::advance(NOT_KNOWN).await;
        assert!(state.record(&change("a"), cost(true)) && !state.record(&change("a"), cost(true)));
        state.ask(changes(&["b"]));
        assert_eq!((state.due(), state.known().len()), (changes(&["b"]), 1));
        assert!(!state.record(&change("a"), cost(true)), "nobody asks any more");
        assert_eq!(state.known().len(), 1);
    }

    /// What a fake API server has.
    #[derive(Debug, Default)]
    struct World {
        /// Rendered configs, with their Ignition version.
        configs: BTreeMap<String, &'static str>,
        /// How many requests are answered with 503 first.
        away: usize,
        /// The last parts of the paths that were asked for.
        asked: Vec<String>,
    }

    fn world(configs: &[(&str, &'static str)]) -> (Arc<Shared>, Arc<Mutex<World>>) {
        let configs = configs.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
        let world = Arc::new(Mutex::new(World { configs, ..World::default() }));
        let served = world.clone();
        let shared = shared(move |request| {
            let mut world = served.lock().unwrap();
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            world.asked.push(name.clone());
            let failure = |code| json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no"});
            if world.away > 0 {
                world.away -= 1;
                return answer(503, &failure(503));
            }
            match world.configs.get(&name) {
                None => answer(404, &failure(404)),
                Some(version) => answer(
                    200,
                    &json!({"metadata": {"name": name}, "spec": {"config": {"ignition": {"version": version}}}}),
                ),
            }
        });
        (Arc::new(shared), world)
    }

    fn known(costs: &CostsOfChanges) -> Vec<String> {
        costs.known().keys().map(|change| change.from.to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_config_that_is_gone_or_unreadable_delays_no_other_change_and_each_object_is_read_once() {
        let (shared, world) = world(&[("bad", "99.0.0"), ("c", "3.4.0"), ("d", "3.4.0"), ("new", "3.4.0")]);
        let costs = CostsOfChanges::default();
        // In this order.
        costs.request(&shared, changes(&["a-gone", "bad", "c", "d"]));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(known(&costs), ["c", "d"]);
        assert!(
            !shared.queues.of(crate::queue::Pass::Node).take().is_empty(),
            "the cluster is planned again"
        );
        let asked = |world: &Mutex<World>| std::mem::take(&mut world.lock().unwrap().asked);
        assert_eq!(asked(&world), ["cluster", "a-gone", "bad", "c", "new", "d"]);
        // More is asked for, and what was there is tried again later without being asked for.
        costs.request(&shared, changes(&["a-gone", "bad", "c", "d", "new"]));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((known(&costs), asked(&world).len()), (vec!["c".into(), "d".into(), "new".into()], 2));
        world.lock().unwrap().configs.insert("a-gone".to_owned(), "3.4.0");
        tokio::time::sleep(NOT_KNOWN).await;
        assert_eq!(known(&costs), ["a-gone", "c", "d", "new"]);
        assert_eq!(asked(&world), ["cluster", "a-gone", "new", "bad"]);
        costs.request(&shared, changes(&[]));
        tokio::time::sleep(NOT_KNOWN * 3).await;
        assert_eq!((known(&costs), asked(&world)), (vec![], vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_away_is_asked_again() {
        let (shared, world) = world(&[("a", "3.4.0"), ("new", "3.4.0")]);
        for (away, within) in [(4, OUTAGE), (40, Duration::from_mins(10))] {
            world.lock().unwrap().away = away;
            let costs = CostsOfChanges::default();
            costs.request(&shared, changes(&["a"]));
            tokio::time::sleep(within).await;
            assert_eq!(known(&costs), ["a"], "{away} requests fail");
        }
    }
}
