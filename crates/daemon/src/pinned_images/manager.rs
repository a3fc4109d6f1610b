//! When rounds are made, and what is said of them: after each change of the sets or of the node's labels, again after a failure
//! with growing waits, and from time to time to see whether somebody has removed an image.
//!
//! Not here: what a round does (see `sync`).

use super::images::{Images, Progress};
use super::plan::{PinnedSet, images};
use super::report::{Outcome, must_be_cleared_first, report};
use crate::cluster::calls::Cluster;
use crate::cluster::own_node::{NodeUpdates, watch_anew};
use api::k8s::{Node, ResourceExt, Time};
use api::v1::{MachineConfigNode, MachineConfigPool, PinnedImageSet};
use client::{Backoff, CallError, jitter, spread};
use futures::StreamExt;
use futures::future::BoxFuture;
use host::Root;
use jiff::Timestamp;
use kube::api::Patch;
use kube::runtime::watcher;
use kube::{Api, Client};
use rollout::view::{Labels, Names};
use rollout::{Index, machine_config_nodes, pinned_images};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The sets of the cluster. `None`: not known yet.
pub(crate) type Sets = watch::Receiver<Option<Vec<PinnedImageSet>>>;

/// After a change, nodes begin within this time, so that a thousand of them do not ask a registry in the same second.
const SPREAD: Duration = Duration::from_secs(3);
/// How often it is looked whether all is still there, and which sets the node's pools have.
const CHECK_PERIOD: Duration = Duration::from_mins(10);
/// How often a node that is not Ready is looked at.
const NOT_READY: Duration = Duration::from_secs(10);
/// The waits after failures.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(10), last: Duration::from_mins(5) };
/// A runtime that restarts is back within so many rounds. Until then it is no failure.
const LOST: u32 = 3;
/// How often progress is written. Each change of it is a write to the API server.
const REPORT_PERIOD: Duration = Duration::from_secs(10);
/// How often a report that ends in a conflict is made again at once.
const TRIES: u32 = 3;
/// How long until a kind that is not installed is looked for again.
const NOT_INSTALLED: Duration = Duration::from_mins(10);

/// Keeps this node's images as the sets say.
#[derive(Debug)]
pub(crate) struct Manager {
    cluster: Cluster,
    images: Images,
    sets: Sets,
    updates: NodeUpdates,
    reports: bool,
    failures: u32,
    /// What was last written while images are pulled.
    last_report: Option<(Vec<PinnedSet>, Outcome)>,
}

impl Manager {
    /// `reports`: whether the MachineConfigNode is told.
    pub(crate) fn new(
        cluster: Cluster,
        (root, root_mount): (Root, PathBuf),
        sets: Sets,
        updates: NodeUpdates,
        reports: bool,
    ) -> Self {
        let images = Images::new(root, root_mount);
        Self { cluster, images, sets, updates, reports, failures: 0, last_report: None }
    }

    /// Runs until it is stopped. A round that goes on is dropped, and its pulls end.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let token = stop.clone();
        token.run_until_cancelled(Box::pin(self.work())).await;
    }

    async fn work(&mut self) {
        let (mut sets, mut updates) = (self.sets.clone(), self.updates.clone());
        loop {
            let seen = sets.borrow_and_update().clone();
            let labels = updates.borrow_and_update().as_ref().map(|node| node.labels.clone());
            let mut changed = Box::pin(async {
                tokio::select! {
                    changed = sets.changed() => changed.is_ok(),
                    changed = async {
                        while updates.changed().await.is_ok() {
                            if updates.borrow_and_update().as_ref().map(|node| &node.labels) != labels.as_ref() {
                                return true;
                            }
                        }
                        false
                    } => changed,
                }
            });
            let turn = async {
                match &seen {
                    Some(sets) => {
                        let next = self.turn(sets).await;
                        tokio::time::sleep(next).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                more = &mut changed => if !more {
                    // The watches have ended: the agent is stopping.
                    return;
                },
                () = turn => {}
            }
        }
    }

    /// One look, and a round if there is anything to do. Returns how long until the next one.
    fn turn<'a>(&'a mut self, sets: &'a [PinnedImageSet]) -> BoxFuture<'a, Duration> {
        Box::pin(async move {
            if sets.is_empty() && !self.images.has_pins() {
                return CHECK_PERIOD;
            }
            tokio::time::sleep(SPREAD.mul_f64(jitter())).await;
            match self.reconcile(sets).await {
                Ok(next) => spread(next),
                Err(error) => {
                    tracing::warn!(
                        error = error.chain(),
                        "the PinnedImageSets of this node are not known; trying again"
                    );
                    self.failures = self.failures.saturating_add(1);
                    AGAIN.delay(self.failures)
                }
            }
        })
    }

    async fn reconcile(&mut self, sets: &[PinnedImageSet]) -> Result<Duration, CallError> {
        let node = self.cluster.own_node().await?;
        let pools = match sets {
            [] => vec![],
            _ => self.cluster.cached_pools().await?,
        };
        let kind = self.cluster.kind().await?;
        let wanted = match wanted(&node, &pools, kind, sets) {
            Ok(wanted) => wanted,
            Err(why) => {
                // Nothing is unpinned for a mistake elsewhere.
                tracing::warn!(%why, "the PinnedImageSets of this node cannot be determined; pinned images stay pinned");
                return Ok(CHECK_PERIOD);
            }
        };
        if wanted.is_empty() && !self.images.has_pins() {
            return Ok(CHECK_PERIOD);
        }
        if let Err(error) = self.images.note_pins() {
            tracing::warn!(
                error = client::chain(&error),
                "images are not pinned, because the record of pinned images cannot be written"
            );
            return Ok(AGAIN.last);
        }
        let outcome = self.round(&wanted, &node).await;
        let (outcome, next) = match outcome {
            Outcome::Done { .. } => {
                self.failures = 0;
                (outcome, CHECK_PERIOD)
            }
            Outcome::Working { .. } => (outcome, NOT_READY),
            Outcome::Lost(failures) => {
                self.failures = self.failures.saturating_add(1);
                tracing::warn!(?failures, "the container runtime");
                match self.failures {
                    few if few < LOST => return Ok(AGAIN.delay(few)),
                    many => (Outcome::Failed(failures), AGAIN.delay(many)),
                }
            }
            Outcome::Failed(_) => {
                self.failures = self.failures.saturating_add(1);
                (outcome, AGAIN.delay(self.failures))
            }
        };
        let is_done = matches!(outcome, Outcome::Done { .. });
        self.say(&wanted, outcome).await?;
        if wanted.is_empty() && is_done {
            match self.images.forget_pins() {
                Ok(()) => tracing::info!("no image is pinned on this node any more"),
                Err(error) => {
                    tracing::warn!(
                        error = client::chain(&error),
                        "the record of pinned images could not be removed"
                    );
                }
            }
        }
        Ok(next)
    }

    /// A round, with reports while it takes long.
    async fn round(&mut self, wanted: &[PinnedSet], node: &Node) -> Outcome {
        let progress = Progress::default();
        let count = images(wanted).len();
        let host = self.images.clone();
        let mut round = host.round(wanted, node, &progress);
        // A round that finds everything in its place says nothing in between.
        let mut report_due =
            tokio::time::interval_at(tokio::time::Instant::now() + Duration::from_secs(1), REPORT_PERIOD);
        loop {
            tokio::select! {
                outcome = &mut round => return outcome,
                _ = report_due.tick() => {
                    let done = progress.done.load(Ordering::Relaxed).min(count);
                    let all = progress.all.load(Ordering::Relaxed);
                    if let Err(error) = self.say(wanted, Outcome::Working { done, all, waits: None }).await {
                        tracing::debug!(error = error.chain(), "progress is not reported");
                    }
                }
            }
        }
    }

    /// Writes it to the MachineConfigNode, if that says anything else.
    async fn say(&mut self, wanted: &[PinnedSet], outcome: Outcome) -> Result<(), CallError> {
        if !self.reports {
            tracing::info!(?outcome, "PinnedImageSets");
            return Ok(());
        }
        let now = (wanted.to_vec(), outcome);
        if matches!(now.1, Outcome::Working { .. }) && self.last_report.as_ref() == Some(&now) {
            return Ok(());
        }
        self.last_report = None;
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_say(&now.0, &now.1, tries > 1).await {
                Ok(()) => break,
                Err(error) if (error.is_conflict() || error.is_invalid()) && tries < TRIES => {}
                Err(error) => return Err(error),
            }
        }
        self.last_report = Some(now);
        Ok(())
    }

    async fn try_say(&self, wanted: &[PinnedSet], outcome: &Outcome, latest: bool) -> Result<(), CallError> {
        // The controller makes the object. Without it, or without the kind, there is nowhere to report.
        let Some(mut object) = self.cluster.progress(latest).await? else { return Ok(()) };
        let before = object.status.as_ref().and_then(|s| s.pinned_image_sets.clone()).unwrap_or_default();
        let said = report(self.cluster.node_name(), wanted, outcome, &before);
        if must_be_cleared_first(&before, &said.sets) {
            object = self.write(&object, json!({"pinnedImageSets": []})).await?;
        }
        let generation = object.metadata.generation.unwrap_or(1).max(1);
        let at = Timestamp::now();
        // Times in the API have whole seconds.
        let at = Time(Timestamp::from_second(at.as_second()).unwrap_or(at));
        let status = machine_config_nodes::with_pins(
            object.status.as_ref(),
            &said.conditions,
            &said.sets,
            generation,
            &at,
        );
        let Some(status) = status else { return Ok(()) };
        let body = json!({
            "conditions": status.conditions,
            "pinnedImageSets": status.pinned_image_sets,
            "observedGeneration": status.observed_generation,
        });
        self.write(&object, body).await.map(drop)
    }

    /// Writes fields of the status, if the object is still as it was read.
    async fn write(
        &self,
        object: &MachineConfigNode,
        status: serde_json::Value,
    ) -> Result<MachineConfigNode, CallError> {
        let version = object.metadata.resource_version.as_deref();
        let patch = json!({"metadata": {"resourceVersion": version}, "status": status});
        self.cluster.patch_progress_status(&Patch::Merge(patch)).await
    }
}

/// The sets of all pools of this node, each once, by name.
///
/// # Errors
/// It cannot be told, and nothing may be unpinned.
fn wanted(
    node: &Node,
    pools: &[MachineConfigPool],
    cluster: rollout::Cluster,
    sets: &[PinnedImageSet],
) -> Result<Vec<PinnedSet>, String> {
    let named =
        pools.iter().map(|p| (p.metadata.name.as_deref().unwrap_or_default(), p.spec.node_selector.as_ref()));
    let index = Index::new(cluster, named);
    let labels = Labels::new(node.metadata.labels.as_ref(), &mut Names::default());
    let owners = index.owners(&labels);
    if let Some(broken) = index.possible_owner(&labels, &owners, &[]).and_then(|i| index.broken(i)) {
        return Err(broken.to_string());
    }
    if !owners.several.is_empty() {
        return Err("several custom pools select the node".to_owned());
    }
    let mine = [owners.primary, owners.secondary];
    let mut all = BTreeMap::new();
    for pool in mine.into_iter().flatten().filter_map(|i| pools.get(i)) {
        let found = pinned_images::selected(pool, sets)
            .map_err(|e| format!("pool {}: spec.machineConfigSelector.{e}", pool.name_any()))?;
        all.extend(found.into_iter().map(|set| (set.name_any(), PinnedSet::of(set))));
    }
    Ok(all.into_values().collect())
}

/// Watches the sets of the cluster until the receivers are gone.
pub(crate) async fn follow_sets(client: Client, sender: watch::Sender<Option<Vec<PinnedImageSet>>>) {
    loop {
        let mut events = std::pin::pin!(watch_anew(
            Api::<PinnedImageSet>::all(client.clone()),
            watcher::Config::default()
        ));
        let (mut sets, mut listing) = (BTreeMap::new(), BTreeMap::new());
        let why = loop {
            match events.next().await {
                None => return,
                Some(Ok(event)) => match event {
                    watcher::Event::Init => listing.clear(),
                    watcher::Event::InitApply(set) => drop(listing.insert(set.name_any(), set)),
                    watcher::Event::InitDone => {
                        sets = std::mem::take(&mut listing);
                        publish(&sender, &sets);
                    }
                    watcher::Event::Apply(set) => {
                        sets.insert(set.name_any(), set);
                        publish(&sender, &sets);
                    }
                    watcher::Event::Delete(set) => {
                        sets.remove(&set.name_any());
                        publish(&sender, &sets);
                    }
                },
                Some(Err(error)) => match client::watch_code(&error) {
                    // The API server says so only once it knows all of its definitions.
                    Some(404) => {
                        publish(&sender, &BTreeMap::new());
                        break "they are not installed";
                    }
                    Some(403) => break "this agent may not read them",
                    _ => tracing::debug!(
                        error = client::chain(&error),
                        "watching PinnedImageSets; trying again"
                    ),
                },
            }
        };
        tracing::debug!(why, "PinnedImageSets");
        tokio::time::sleep(spread(NOT_INSTALLED)).await;
    }
}

/// Publishes the sets if they differ in anything that is read.
fn publish(sender: &watch::Sender<Option<Vec<PinnedImageSet>>>, sets: &BTreeMap<String, PinnedImageSet>) {
    let kept = |set: &PinnedImageSet| {
        let mut set = set.clone();
        (set.metadata.managed_fields, set.metadata.resource_version, set.metadata.annotations) =
            (None, None, None);
        set
    };
    let new = Some(sets.values().map(kept).collect());
    sender.send_if_modified(|old| {
        let differs = *old != new;
        if differs {
            *old = new;
        }
        differs
    });
}

#[cfg(test)]
mod tests;
