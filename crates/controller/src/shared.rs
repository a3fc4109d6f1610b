//! The state that all passes share: caches, queues, client, what rendering waits for, events and metrics.
//!
//! What it is not: a decision, or where changes arrive and what they make dirty (see `dirty`).

use crate::cache::settings::{Setting, Settings};
use crate::cache::store::Store;
use crate::cache::stores::{SecretLocation, Stores};
use crate::cache::watch::WatchedKind;
use crate::change::Reaction;
use crate::flight::nodes::Permits;
use crate::flight::pools::OwnPoolWrites;
use crate::flight::refusals::{CurrentFailures, SideProblems};
use crate::flight::stored_configs::StoredConfigs;
use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::queue::Queues;
use crate::render_prerequisites::RenderPrerequisites;
use api::k8s::Node;
use client::lease::TermSignals;
use kube::{Api, Client};
use render::Versions;
use rollout::WaitHistory;
use rollout::drain::DrainLimit;
use rollout::view::{Names, NodeView};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The state that all passes share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) templates: PathBuf,
    pub(crate) stores: Stores,
    pub(crate) queues: Queues,
    pub(crate) events: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) names: Mutex<Names>,
    /// Permits for Node patches.
    pub(crate) permits: Permits,
    /// What the passes and the task that holds the lease tell each other.
    pub(crate) terms: Arc<TermSignals>,
    /// The version of this build.
    pub(crate) versions: Versions,
    /// What rendering waits for.
    pub(crate) prerequisites: RenderPrerequisites,
    /// How each pass answers to a change.
    pub(crate) reactions: &'static [Reaction<Self>],
    /// What currently fails, and since when.
    pub(crate) troubles: CurrentFailures,
    /// The same for writes of the node pass: by node, and by pool for writes to pools.
    pub(crate) node_troubles: CurrentFailures,
    pub(crate) pool_troubles: CurrentFailures,
    /// Problems that delay nothing.
    pub(crate) side_problems: SideProblems,
    /// Whether the template folder is watched. Otherwise it is read from time to time.
    pub(crate) templates_watched: AtomicBool,
    /// Where the pull secret is that templates are rendered with.
    pub(crate) pull_secret: tokio::sync::watch::Sender<SecretLocation>,
    /// The cluster's settings, besides our own kinds.
    pub(crate) settings: Settings,
    /// Our own MachineConfigs that are stored as they should be.
    pub(crate) stored_configs: StoredConfigs,
    /// Every kind that is watched (see [`crate::term::catch_up`]).
    watched_kinds: Mutex<Vec<Arc<WatchedKind>>>,
    /// Incremented whenever a check finds that a gate of a RolloutPolicy does not pass. Patches that were planned before
    /// that are not sent any more.
    pub(crate) setbacks: AtomicU64,
    /// Grows whenever a gate of a RolloutPolicy says something new, and when a rollout's progress was stored: the next plan may
    /// let nodes go, and does not wait for patches that move none.
    pub(crate) advances: AtomicU64,
    /// The config that rendering last wrote into each pool.
    pub(crate) own_writes: OwnPoolWrites,
    /// How long drains may take, by node: of nodes that are on their way, in pools whose policy says it.
    pub(crate) drain_limits: Mutex<BTreeMap<Arc<str>, DrainLimit>>,
    /// The last nodes that waves wait for, by the last plan: their reports are planned at once.
    pub(crate) last_of_waves: Mutex<BTreeSet<Arc<str>>>,
    /// What nodes wait for before they go, since this process leads.
    pub(crate) wait_history: Mutex<WaitHistory>,
}

/// The two counters at one time; a pass compares them to see whether its plan is outdated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PolicyRevision {
    /// [`Shared::setbacks`].
    pub(crate) setbacks: u64,
    /// [`Shared::advances`].
    pub(crate) advances: u64,
}

impl Shared {
    pub(crate) fn new(
        client: Client,
        templates: PathBuf,
        events: Recorder,
        metrics: Metrics,
        reactions: &'static [Reaction<Self>],
        settings: impl IntoIterator<Item = Setting>,
    ) -> Self {
        Self {
            client,
            templates,
            stores: Stores::default(),
            queues: Queues::default(),
            events,
            metrics,
            names: Mutex::default(),
            permits: Permits::default(),
            terms: Arc::default(),
            versions: Versions::of_this_build(),
            prerequisites: RenderPrerequisites::default(),
            reactions,
            troubles: CurrentFailures::default(),
            node_troubles: CurrentFailures::default(),
            pool_troubles: CurrentFailures::default(),
            side_problems: SideProblems::default(),
            templates_watched: AtomicBool::new(false),
            pull_secret: tokio::sync::watch::Sender::new(None),
            settings: Settings::new(settings),
            stored_configs: StoredConfigs::default(),
            watched_kinds: Mutex::default(),
            setbacks: AtomicU64::default(),
            advances: AtomicU64::default(),
            own_writes: OwnPoolWrites::default(),
            drain_limits: Mutex::default(),
            last_of_waves: Mutex::default(),
            wait_history: Mutex::default(),
        }
    }

    /// The two counters now.
    pub(crate) fn policy_revision(&self) -> PolicyRevision {
        let (setbacks, advances) = (&self.setbacks, &self.advances);
        PolicyRevision {
            setbacks: setbacks.load(Ordering::Acquire),
            advances: advances.load(Ordering::Acquire),
        }
    }

    /// The API of a kind. All kinds that are used here are cluster-scoped.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
    {
        Api::all(self.client.clone())
    }

    /// The view of a Node that the cache keeps.
    pub(crate) fn view(&self, node: &Node) -> NodeView {
        NodeView::interned(node, &mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Called by a pass after it has written a pool's metrics. If the pool was deleted while the pass ran, its series
    /// were removed before they were written, and nothing would remove them again.
    pub(crate) fn forget_series_if_gone(&self, pool: &str) {
        if self.stores.pools.get(pool).is_none() {
            self.metrics.forget_pool(pool);
        }
    }

    /// Records a kind that is watched from now on.
    pub(crate) fn add_watched_kind(&self, kind: WatchedKind) {
        self.watched_kinds.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(kind));
    }

    /// The kind whose watch fills this cache. `None`: none does.
    pub(crate) fn watch_of<T>(&self, cache: &Store<T>) -> Option<Arc<WatchedKind>> {
        let all = self.watched_kinds.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|kind| std::ptr::addr_eq(Arc::as_ptr(&kind.cache), cache)).cloned()
    }

    /// Every kind that is watched.
    pub(crate) fn watched_kinds(&self) -> Vec<Arc<WatchedKind>> {
        self.watched_kinds.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
