//! What changes cost a node, for windows and freezes that let some pass: computed from the two rendered configs, which are read
//! for that and kept nowhere.
//!
//! What it is not: the computation (see `host::least_disruption`), or what follows from it (see `rollout::policy`).

use crate::io::backoff;
use crate::kind;
use crate::shared::Shared;
use api::rendered::RenderedName;
use api::v1::MachineConfig;
use client::{call, call_optional};
use desired::{DesiredHost, DisruptionPolicy, PoolDisruption};
use kube::Api;
use kube::api::DynamicObject;
use rollout::policy::{ChangeAsked, ChangeCost, Costs};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// A cost is computed again after this time: the cluster's disruption policy may have changed. Until that is done, the old one
/// counts: else the pool's hold, and the marks of its nodes, would go and come back each time.
const KEPT: Duration = Duration::from_secs(300);

/// The costs that were computed.
#[derive(Debug, Default)]
pub(super) struct CostsOfChanges {
    task: Mutex<Option<Task>>,
    known: Arc<Mutex<Known>>,
}

/// What was computed, and when.
type Known = BTreeMap<ChangeAsked, (ChangeCost, Instant)>;

#[derive(Debug)]
struct Task {
    of: BTreeSet<ChangeAsked>,
    handle: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl CostsOfChanges {
    /// What is known.
    pub(super) fn known(&self) -> Costs {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(change, (cost, _))| (change.clone(), *cost)).collect()
    }

    /// Starts the computation of these costs where they are unknown or old, and forgets all others.
    pub(super) fn request(&self, shared: &Arc<Shared>, mut asked: BTreeSet<ChangeAsked>) {
        asked = to_compute(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner), asked);
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.is_empty() {
            *task = None;
        } else if task.as_ref().is_none_or(|t| !asked.is_subset(&t.of) || t.handle.is_finished()) {
            let run = run(shared.clone(), asked.clone(), self.known.clone());
            *task = Some(Task { of: asked, handle: tokio::spawn(run).abort_handle() });
        }
    }
}

/// Forgets the costs that nobody asks for, and returns the changes whose cost is unknown or old.
fn to_compute(known: &mut Known, mut asked: BTreeSet<ChangeAsked>) -> BTreeSet<ChangeAsked> {
    known.retain(|change, _| asked.contains(change));
    asked.retain(|change| known.get(change).is_none_or(|(_, at)| at.elapsed() > KEPT));
    asked
}

async fn run(shared: Arc<Shared>, asked: BTreeSet<ChangeAsked>, known: Arc<Mutex<Known>>) {
    let mut failures = 0;
    for change in asked {
        let cost = loop {
            match cost(&shared, &change).await {
                Ok(cost) => break cost,
                Err(why) => {
                    let ChangeAsked { from, to } = &change;
                    tracing::warn!(%from, %to, "the cost of the change for a node is not known, so no window allows it: \
                        {why}");
                    failures += 1;
                    tokio::time::sleep(backoff::WORK.delay(failures)).await;
                }
            }
        };
        known.lock().unwrap_or_else(PoisonError::into_inner).insert(change, (cost, Instant::now()));
    }
    shared.mark_cluster();
}

async fn cost(shared: &Shared, change: &ChangeAsked) -> Result<ChangeCost, String> {
    let configs = shared.api::<MachineConfig>();
    let get = async |name: &str| {
        let read =
            call(|| format!("machineconfig {name}"), configs.get(name)).await.map_err(|e| e.chain())?;
        DesiredHost::parse(&read.spec).map_err(|bad| {
            let findings: Vec<String> = bad.iter().map(ToString::to_string).collect();
            format!("machineconfig {name}: {}", findings.join("; "))
        })
    };
    let api: Api<DynamicObject> =
        Api::all_with(shared.client.clone(), &kind::MACHINE_CONFIGURATIONS.resource());
    let what = || "machineconfiguration cluster".to_owned();
    // The kind may not be installed.
    let object = call_optional(what, api.get(api::names::CLUSTER)).await.map_err(|e| e.chain())?;
    let object = object.map(|object| json!(object));
    let pool = RenderedName::parse(&change.to).and_then(|name| shared.stores.pools.get(name.pool));
    let notes = pool.as_ref().and_then(|p| p.metadata.annotations.as_ref());
    let policy = DisruptionPolicy::of_cluster(object.as_ref())?.for_pool(&PoolDisruption::of(notes));
    Ok(lookups::change_cost(&get(&change.from).await?, &get(&change.to).await?, &policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cost_counts_until_a_newer_one_is_known_and_goes_when_nobody_asks() {
        let change = |from: &str| ChangeAsked { from: from.into(), to: "new".into() };
        let asked = |from: &[&str]| -> BTreeSet<ChangeAsked> { from.iter().map(|f| change(f)).collect() };
        let costs = CostsOfChanges::default();
        let put = |from: &str| {
            costs.known.lock().unwrap().insert(change(from), (ChangeCost::default(), Instant::now()));
        };
        let missing = |from: &[&str]| to_compute(&mut costs.known.lock().unwrap(), asked(from));
        assert_eq!(missing(&["a", "b"]), asked(&["a", "b"]));
        put("a");
        assert_eq!(missing(&["a", "b"]), asked(&["b"]));
        put("b");
        tokio::time::advance(KEPT + Duration::from_secs(1)).await;
        put("b");
        // An old one is computed again, and counts meanwhile.
        assert_eq!(missing(&["a", "b"]), asked(&["a"]));
        assert_eq!(costs.known().len(), 2);
        assert_eq!((missing(&["b"]), costs.known().len()), (asked(&[]), 1));
    }
}
