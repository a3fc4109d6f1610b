//! Pools and nodes as the cluster has them now, kept up to date by watches: the input of a snapshot. Objects are trimmed as in
//! the controller, so thousands of nodes need little memory, and one request for each kind at the API server. Of
//! MachineConfigs, which are megabytes, only the metadata is requested, unless OS image streams are used: a pool's stream
//! follows from the images of its configs.
//!
//! What it is not: the controller's caches. It writes nothing, and ends with its command.

mod kind;
mod snapshots;

use crate::policies;
use crate::status::change_costs::ChangeCosts;
use crate::status::drain_outlooks::DrainOutlooks;
use crate::status::node_progress::{Progress, readiness};
use crate::status::served::{STREAMS_LIMIT, ServedKinds, served};
use crate::status::watch_errors::{FollowError, SILENCE, WatchErrors, refused};
use crate::status::watches::{WatchEvent, WatchMessage, Watches, watches};
use crate::status::{KnownNode, Snapshot};
use api::k8s::ObjectMeta;
use api::rendered::owning_pool;
use api::v1::{ControllerConfig, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use client::{CallError, call_within};
use futures::StreamExt;
use jiff::Timestamp;
use kind::Kind;
use kube::runtime::watcher::Event;
use kube::{Client, ResourceExt};
use rollout::ConfigView;
use rollout::view::{EtcdMember, Names, NodeView, OsBuild, OsConfig};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Changes are gathered for this long before they are shown: a person cannot follow more than four redraws a second.
const REDRAW: Duration = Duration::from_millis(250);

/// How long the first snapshot waits for what its plan asks to have looked up.
const LOOKUPS_LIMIT: Duration = Duration::from_secs(5);

/// How long an API server that has not answered yet is asked for its version.
const VERSION_LIMIT: Duration = Duration::from_secs(5);

/// With fewer interned strings than this, a search for unused ones frees too little to be worth it.
const MANY_NAMES: usize = 10_000;

/// Lists everything once and makes a snapshot of it.
///
/// # Errors
/// The API server does not answer, or refuses.
pub async fn snapshot(client: &Client, only: &[String]) -> Result<Snapshot, FollowError> {
    Ok(ClusterWatch::start(client).await?.snapshot(only))
}

/// The cluster, followed.
pub struct ClusterWatch {
    seen: Watches,
    pools: Kind<MachineConfigPool>,
    nodes: Kind<KnownNode>,
    configs: Kind<ConfigView>,
    /// See [`Self::source_changes`].
    source_changes: u64,
    settings: Kind<ControllerConfig>,
    progress: Kind<Option<Arc<Progress>>>,
    os_configs: Kind<OsConfig>,
    os_builds: Kind<OsBuild>,
    schedulable: Kind<bool>,
    streams: Kind<Value>,
    feature_gates: Kind<Value>,
    /// Which of the optional kinds are installed.
    served: ServedKinds,
    operators: Kind<Option<Arc<str>>>,
    etcd: [Kind<Option<EtcdMember>>; EtcdMember::PLACES.len()],
    /// `None`: one that this version cannot read.
    policies: Kind<Option<RolloutPolicy>>,
    /// The generation of each PinnedImageSet.
    pinned_sets: Kind<i32>,
    drain_outlooks: DrainOutlooks,
    change_costs: ChangeCosts,
    names: Names,
    troubles: WatchErrors,
    /// How many strings are interned when those that are not used any more are dropped.
    prune_at: usize,
}

impl std::fmt::Debug for ClusterWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterWatch").field("nodes", &self.nodes.known.len()).finish_non_exhaustive()
    }
}

impl ClusterWatch {
    /// Starts the watches; returns when every kind was listed once. That may take long where the API server is slow: only its
    /// silence ends the wait. The lists of OSImageStreams and FeatureGates are waited for no longer than [`STREAMS_LIMIT`] after the
    /// others: until both are there, streams are unknown, a pool keeps the stream that its status names, and the next snapshot after
    /// they arrive has them.
    ///
    /// # Errors
    /// The API server does not answer, or refuses.
    pub async fn start(client: &Client) -> Result<Self, FollowError> {
        // On the heap, like the whole below: callers hold this future within their own.
        let served = match Box::pin(served(client)).await {
            Ok(served) => served,
            Err(error) => return Err(Box::pin(unanswered(client, error)).await),
        };
        let mut me = Self::new(client, served);
        me.take_first_lists().await?;
        let streams = async {
            while !me.streams_listed() {
                me.take_next().await?;
            }
            Ok(())
        };
        if let Ok(Err(error)) = tokio::time::timeout(STREAMS_LIMIT, streams).await {
            return Err(error);
        }
        // What is not seen in time comes with a later snapshot.
        drop(tokio::time::timeout(LOOKUPS_LIMIT, me.fetch_lookups(Timestamp::now())).await);
        Ok(me)
    }

    /// Takes events until every kind that the first view needs was listed. What other watches report meanwhile is no sign that the
    /// missing lists go on.
    async fn take_first_lists(&mut self) -> Result<(), FollowError> {
        let mut heard = Instant::now();
        loop {
            let missing = self.missing();
            if missing.is_empty() {
                return Ok(());
            }
            let next = tokio::time::timeout_at(heard + SILENCE, self.take_next()).await;
            if next.map_err(|_| FollowError::Slow { missing })?? {
                heard = Instant::now();
            }
        }
    }

    /// Before anything is listed.
    fn new(client: &Client, served: ServedKinds) -> Self {
        Self {
            seen: watches(client, served),
            pools: Kind::new(),
            nodes: Kind::new(),
            configs: Kind::new(),
            source_changes: 0,
            settings: Kind::new(),
            progress: Kind::expected(served.progress.is_there()),
            os_configs: Kind::expected(served.os_configs.is_there()),
            os_builds: Kind::expected(served.os_builds.is_there()),
            schedulable: Kind::expected(served.scheduler.is_there()),
            streams: Kind::expected(served.streams.is_there()),
            feature_gates: Kind::expected(served.feature_gates.is_there()),
            served,
            operators: Kind::expected(served.operators.is_there()),
            etcd: served.etcd.map(|there| Kind::expected(there.is_there())),
            policies: Kind::expected(served.policies.is_there()),
            pinned_sets: Kind::expected(served.pinned_sets.is_there()),
            drain_outlooks: DrainOutlooks::new(client.clone()),
            change_costs: ChangeCosts::new(client.clone()),
            names: Names::default(),
            troubles: WatchErrors::default(),
            prune_at: MANY_NAMES,
        }
    }

    /// Asks whether kinds that could not be read at the start can be read by now: a right was given, a kind was installed, or the
    /// API server is less busy. If so, everything is started anew, and the answer takes the place of this one. `None`: there is
    /// no more to know, or the API server does not say.
    pub fn restart_if_more_readable(
        &self,
        client: &Client,
    ) -> impl Future<Output = Option<Self>> + Send + use<> {
        let (before, client) = (self.served, client.clone());
        async move {
            let now = Box::pin(served(&client)).await.ok()?;
            if now.has_more_than(&before) { Box::pin(Self::start(&client)).await.ok() } else { None }
        }
    }

    /// Takes the next event of the first lists. Returns whether it is a part of a list. A failure in them ends everything.
    async fn take_next(&mut self) -> Result<bool, FollowError> {
        match self.seen.next().await {
            Some(WatchMessage { event: Ok(seen), lists, .. }) => {
                self.take(seen);
                Ok(lists)
            }
            Some(WatchMessage { event: Err(error), .. }) => Err(refused(error)),
            None => Err(FollowError::Ended),
        }
    }

    /// Waits for a change, and then for [`REDRAW`] for those that come with it. A watch that fails is started again; until
    /// it answers, what was known stays, and the failure is logged once.
    pub async fn changed(&mut self) {
        self.changed_until(|now| now + REDRAW).await;
    }

    /// The same. `until` is called at the first change, and says until when further changes are collected. If the caller is
    /// dropped meanwhile, nothing is lost: changes that were taken are kept.
    pub async fn changed_until(&mut self, until: impl Fn(Instant) -> Instant) {
        let mut end: Option<Instant> = None;
        let mut told = false;
        loop {
            let next = async {
                tokio::select! {
                    seen = self.seen.next() => Some(seen),
                    () = self.drain_outlooks.changed() => None,
                    () = self.change_costs.changed() => None,
                }
            };
            let next = match end {
                None => next.await,
                Some(end) => match tokio::time::timeout_at(end, next).await {
                    Ok(next) => next,
                    Err(_) => return,
                },
            };
            let Some(seen) = next else {
                end = end.or_else(|| Some(until(Instant::now())));
                continue;
            };
            // Watches do not end.
            let Some(WatchMessage { watch, kind, answered, event, lists: _ }) = seen else { return };
            let recovered = answered && self.troubles.clear(watch);
            match event {
                // Nothing has changed but that it can be read again.
                Ok(WatchEvent::Accepted) if !recovered => {}
                Ok(seen) => {
                    self.take(seen);
                    end = end.or_else(|| Some(until(Instant::now())));
                }
                Err(error) => {
                    let why = client::chain(&error);
                    if !std::mem::replace(&mut told, true) {
                        tracing::warn!(
                            "what is shown may be out of date; asking the API server again: {why}"
                        );
                    }
                    self.troubles.note(watch, kind, why);
                    end = end.or_else(|| Some(until(Instant::now())));
                }
            }
        }
    }

    fn take(&mut self, seen: WatchEvent) {
        let changes_sources = match &seen {
            WatchEvent::Config(event) => changes_sources(event),
            WatchEvent::ConfigImage(event) => changes_sources(event),
            _ => false,
        };
        self.source_changes += u64::from(changes_sources);
        match seen {
            WatchEvent::Accepted => {}
            WatchEvent::Policy(event) => self.policies.take(event, policies::decode),
            WatchEvent::PinnedImageSet(event) => {
                self.pinned_sets.take(event, |set| PinnedImageSet::generation_in(&set.metadata));
            }
            WatchEvent::Pool(event) => self.pools.take(event, Clone::clone),
            WatchEvent::Node(event) => self.nodes.take(event, |n| KnownNode {
                view: NodeView::interned(n, &mut self.names),
                readiness: readiness(n),
            }),
            WatchEvent::Config(event) => self.configs.take(event, |c| {
                // Of its image only what the controller has found out is known here.
                let url = api::images::os_image::OsImage::url(c.metadata.annotations.as_ref());
                config_view(&c.metadata, &url)
            }),
            WatchEvent::ConfigImage(event) => self.configs.take(event, |c| {
                let image = c.spec.as_ref().map(|spec| &*spec.os_image_url);
                config_view(&c.metadata, image.unwrap_or_default())
            }),
            WatchEvent::Streams(event) => self.streams.take(event, |o| json!(o)),
            WatchEvent::FeatureGate(event) => self.feature_gates.take(event, |o| json!(o)),
            WatchEvent::Settings(event) => self.settings.take(event, Clone::clone),
            WatchEvent::Progress(event) => self.progress.take(event, |o| Progress::of(o).map(Arc::new)),
            WatchEvent::OsConfig(event) => self.os_configs.take(event, |o| OsConfig::new(&json!(o))),
            WatchEvent::OsBuild(event) => self.os_builds.take(event, |o| OsBuild::new(&json!(o))),
            WatchEvent::Scheduler(event) => {
                self.schedulable
                    .take(event, |o| o.data.pointer("/spec/mastersSchedulable") == Some(&json!(true)));
            }
            WatchEvent::Etcd(place, event) => {
                if let Some(kind) = self.etcd.get_mut(place) {
                    kind.take(event, EtcdMember::from_pod);
                }
            }
            WatchEvent::Operator(event) => self.operators.take(event, |p| {
                let stays = p.metadata.deletion_timestamp.is_none();
                let node = p.spec.as_ref().and_then(|s| s.node_name.as_deref());
                node.filter(|n| stays && !n.is_empty()).map(Arc::from)
            }),
        }
        if self.names.len() >= self.prune_at {
            self.names.prune();
            self.prune_at = self.names.len().saturating_mul(2).max(MANY_NAMES);
        }
    }

    /// Takes a pool from the answer to a write, before the watch reports it.
    pub fn put_pool(&mut self, pool: MachineConfigPool) {
        self.pools.known.insert(pool.name_any(), pool);
    }

    /// How often a MachineConfig has changed of which pools' configs are rendered.
    pub(crate) fn source_changes(&self) -> u64 {
        self.source_changes
    }

    /// What the first view needs and was not listed yet.
    fn missing(&self) -> Vec<&'static str> {
        let Self {
            pools,
            nodes,
            configs,
            settings,
            progress,
            os_configs,
            os_builds,
            schedulable,
            operators,
            etcd,
            policies,
            pinned_sets,
            ..
        } = self;
        let all = [
            (pools.listed, "MachineConfigPools"),
            (nodes.listed, "Nodes"),
            (configs.listed, "MachineConfigs"),
            (settings.listed, "ControllerConfigs"),
            (progress.listed, "MachineConfigNodes"),
            (os_configs.listed, "MachineOSConfigs"),
            (os_builds.listed, "MachineOSBuilds"),
            (schedulable.listed, "Schedulers"),
            (operators.listed, "operator pods"),
            (etcd.iter().all(|place| place.listed), "etcd pods"),
            (policies.listed, "RolloutPolicies"),
            (pinned_sets.listed, "PinnedImageSets"),
        ];
        all.into_iter().filter(|(listed, _)| !listed).map(|(_, kind)| kind).collect()
    }

    fn streams_listed(&self) -> bool {
        self.streams.listed && self.feature_gates.listed
    }
}

/// Why the first requests failed. Where one of them has no answer, a small question tells an API server that is slow from an
/// address at which there is none.
async fn unanswered(client: &Client, error: CallError) -> FollowError {
    if !matches!(error, CallError::Timeout { .. }) {
        return FollowError::Call(error);
    }
    let version = client.apiserver_version();
    match call_within(VERSION_LIMIT, || "ask the API server for its version".to_owned(), version).await {
        Err(none) if none.code().is_none() => FollowError::Late,
        Ok(_) | Err(_) => FollowError::Call(error),
    }
}

/// Whether an event shows, or may show, that a MachineConfig has changed of which pools' configs are rendered. A pool owns what was
/// rendered for it.
fn changes_sources<K: kube::Resource>(event: &Event<K>) -> bool {
    match event {
        Event::Apply(config) | Event::Delete(config) => {
            owning_pool(config.meta().owner_references.as_deref()).is_none()
        }
        Event::InitDone => true,
        Event::Init | Event::InitApply(_) => false,
    }
}

/// A MachineConfig: the pool that owns it, and its image, where that is read.
fn config_view(metadata: &ObjectMeta, os_image_url: &str) -> ConfigView {
    let pool = owning_pool(metadata.owner_references.as_deref());
    let looked = rollout::ImageLookup::of(metadata.annotations.as_ref(), os_image_url);
    ConfigView { pool: pool.map(Into::into), os_image_url: os_image_url.into(), looked }
}

#[cfg(test)]
mod tests;
