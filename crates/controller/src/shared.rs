//! What all passes share: caches, queues, client, gates, events and metrics, and the entry points for changes and for
//! the answers to our writes.
//!
//! What it is not: a decision, or what a change makes dirty (see `dirty`).

use crate::cache::settings::Settings;
use crate::cache::store::{Change, Item, Store};
use crate::cache::stores::{
    Config, ImageBuild, ImageConfig, Place, Stores, TrimmedMachineConfigNode, place, whole,
};
use crate::cache::watch::{WatchedKind, version_of};
use crate::dirty::{Changed, Known, Marker, dirty};
use crate::flight::echoes::Named;
use crate::flight::own_config::Kept;
use crate::flight::permits::Permits;
use crate::flight::refusals::{SideProblems, Topic, Troubles};
use crate::gates::Gates;
use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::passes::queue::{ALL_NODES, Pass, Queues};
use crate::term::leader::TermSignals;
use api::k8s::{Node, ResourceExt};
use api::names::CONTROLLER_CONFIG;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use api::v1alpha1::RolloutPolicy;
use kube::{Api, Client};
use render::Versions;
use rollout::drain::DrainLimit;
use rollout::view::{DaemonState, Names, NodeView};
use rollout::{TroubleOf, WaitHistory};
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
    /// The one node whose pass checks whether MachineConfigNodes have been installed, as long as they are not. With
    /// thousands of nodes, one check from time to time is enough.
    pub(crate) progress_absent: Mutex<Option<String>>,
    /// The version of this build.
    pub(crate) versions: Versions,
    /// What rendering waits for.
    pub(crate) gates: Gates,
    /// The marker of each pass.
    markers: &'static [Marker],
    /// What currently fails, and since when.
    pub(crate) troubles: Troubles,
    /// The same for writes of the node pass: by node, and by pool for writes to pools.
    pub(crate) node_troubles: Troubles,
    pub(crate) pool_troubles: Troubles,
    /// Problems that delay nothing.
    pub(crate) side_problems: SideProblems,
    /// Whether the template folder is watched. Otherwise it is read from time to time.
    pub(crate) templates_watched: AtomicBool,
    /// Where the pull secret is that templates are rendered with.
    pub(crate) pull_secret: tokio::sync::watch::Sender<Place>,
    /// The cluster's settings, besides our own kinds.
    pub(crate) settings: Settings,
    /// Our own MachineConfigs that are stored as they should be.
    pub(crate) kept: Kept,
    /// Every kind that is watched (see [`crate::term::catch_up`]).
    followed: Mutex<Vec<Arc<WatchedKind>>>,
    /// Grows whenever a check finds that a gate of a RolloutPolicy does not pass: what was planned before is not sent
    /// after.
    pub(crate) setbacks: AtomicU64,
    /// Grows whenever a gate of a RolloutPolicy says something new, and when a rollout's progress was stored: the next plan may
    /// let nodes go, and does not wait for patches that move none.
    pub(crate) advances: AtomicU64,
    /// The config that rendering last wrote into each pool.
    pub(crate) named: Named,
    /// How long drains may take, by node: of nodes that are on their way, in pools whose policy says it.
    pub(crate) drain_limits: Mutex<BTreeMap<Arc<str>, DrainLimit>>,
    /// The last nodes that waves wait for, as the last plan says it: what they report is planned at once.
    pub(crate) last_of_waves: Mutex<BTreeSet<Arc<str>>>,
    /// What nodes wait for before they go, since this process leads.
    pub(crate) wait_history: Mutex<WaitHistory>,
}

/// How much was known of RolloutPolicies at some time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PolicyNews {
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
        markers: &'static [Marker],
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
            progress_absent: Mutex::default(),
            versions: Versions::of_this_build(),
            gates: Gates::default(),
            markers,
            troubles: Troubles::default(),
            node_troubles: Troubles::default(),
            pool_troubles: Troubles::default(),
            side_problems: SideProblems::default(),
            templates_watched: AtomicBool::new(false),
            pull_secret: tokio::sync::watch::Sender::new(None),
            settings: Settings::default(),
            kept: Kept::default(),
            followed: Mutex::default(),
            setbacks: AtomicU64::default(),
            advances: AtomicU64::default(),
            named: Named::default(),
            drain_limits: Mutex::default(),
            last_of_waves: Mutex::default(),
            wait_history: Mutex::default(),
        }
    }

    /// How much is known of RolloutPolicies now.
    pub(crate) fn policy_news(&self) -> PolicyNews {
        let (setbacks, advances) = (&self.setbacks, &self.advances);
        PolicyNews { setbacks: setbacks.load(Ordering::Acquire), advances: advances.load(Ordering::Acquire) }
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

    /// Handles a change: marks what it makes dirty.
    pub(crate) fn changed(&self, changed: &Changed<'_>) {
        self.note(changed);
        let known = Known { stores: &self.stores, named: &self.named, templates: &self.gates.templates };
        let marks = dirty(self.markers, changed, known);
        if marks.has(Pass::Generated) {
            // This comes first: no pool is rendered until the generated MachineConfigs are up to date.
            self.gates.settings.close();
        }
        for (pass, keys) in marks {
            if pass == Pass::Node && self.is_awaited(changed) {
                self.queues.of(pass).mark_urgent(ALL_NODES.to_owned());
            }
            self.queues.of(pass).mark_all(keys);
        }
    }

    /// Whether a change is that one of the last nodes that a wave waits for is done.
    fn is_awaited(&self, changed: &Changed<'_>) -> bool {
        let Changed::Node(change) = changed else { return false };
        let is_done = |node: &NodeView| {
            node.ready() && node.state == DaemonState::Done && node.current_config == node.desired_config
        };
        change.new.as_deref().is_some_and(is_done)
            && self.last_of_waves.lock().unwrap_or_else(PoisonError::into_inner).contains(&*change.name)
    }

    /// Called by a pass after it has written a pool's metrics. If the pool was deleted while the pass ran, its series
    /// were removed before they were written, and nothing would remove them again.
    pub(crate) fn forget_series_if_gone(&self, pool: &str) {
        if self.stores.pools.get(pool).is_none() {
            self.metrics.forget_pool(pool);
        }
    }

    /// Other effects of a change.
    fn note(&self, changed: &Changed<'_>) {
        match changed {
            Changed::Pool(change) if change.new.is_none() => {
                self.metrics.forget_pool(&change.name);
                self.pool_troubles.over(&change.name);
                self.named.forget(&change.name);
            }
            Changed::Node(change) if change.new.is_none() => self.metrics.forget_node(&change.name),
            Changed::ControllerConfig(change) if change.name == CONTROLLER_CONFIG => {
                let place = change.new.as_deref().and_then(|c| place(c.spec.pull_secret.as_ref()));
                self.pull_secret.send_if_modified(|at| {
                    let moved = *at != place;
                    *at = place;
                    moved
                });
            }
            // Another leader may have left its work half done.
            Changed::TermBegins => {
                self.gates.begin();
                self.kept.forget();
                self.troubles.forget();
                self.node_troubles.forget();
                self.pool_troubles.forget();
                self.side_problems.forget();
                self.named.clear();
            }
            _ => {}
        }
    }

    /// Marks all pools for this pass.
    pub(crate) fn mark_all_pools(&self, pass: Pass) {
        self.queues.of(pass).mark_all(self.stores.pools.names());
    }

    /// Records a kind that is watched from now on.
    pub(crate) fn follows(&self, kind: WatchedKind) {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(kind));
    }

    /// Every kind that is watched.
    pub(crate) fn followed(&self) -> Vec<Arc<WatchedKind>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has everything about nodes planned again.
    pub(crate) fn mark_cluster(&self) {
        self.changed(&Changed::PlanInput);
    }

    /// The same, at once: something waits for this plan.
    pub(crate) fn plan_now(&self) {
        self.mark_cluster();
        self.queues.of(Pass::Node).mark_urgent(ALL_NODES.to_owned());
    }

    /// Has pools report a problem that delays nothing, or stop reporting it.
    pub(crate) fn report_problem(&self, topic: Topic, of: TroubleOf, text: Option<String>) {
        if self.side_problems.set(topic, of, text) {
            self.mark_cluster();
        }
    }

    /// Puts the answer to our own write of a Node into the cache.
    pub(crate) fn node_answer(&self, node: &Node) {
        let item = Item {
            version: version_of(node),
            uid: node.uid().unwrap_or_default(),
            value: Arc::new(self.view(node)),
        };
        if let Some(change) = self.stores.nodes.answer(&node.name_any(), item) {
            self.changed(&Changed::Node(&change));
        }
    }

    /// The same for a pool.
    pub(crate) fn pool_answer(&self, pool: MachineConfigPool) {
        self.answer(&self.stores.pools, pool, |change| Changed::Pool(change));
    }

    /// Handles a change of a MachineOSConfig. A rollout looks at a part of it only.
    pub(crate) fn os_config_changed(&self, change: &Change<ImageConfig>) {
        let view = |c: &Option<Arc<ImageConfig>>| c.as_ref().map(|c| c.view.clone());
        if view(&change.old) != view(&change.new) {
            self.changed(&Changed::PlanInput);
        }
        for config in [&change.old, &change.new].into_iter().flatten() {
            self.changed(&Changed::ImageBuild(config.pool()));
        }
    }

    /// The same for a MachineOSBuild.
    pub(crate) fn os_build_changed(&self, change: &Change<ImageBuild>) {
        let view = |b: &Option<Arc<ImageBuild>>| b.as_ref().map(|b| b.view.clone());
        if view(&change.old) != view(&change.new) {
            self.changed(&Changed::PlanInput);
        }
        for build in [&change.old, &change.new].into_iter().flatten() {
            self.changed(&Changed::ImageBuild(build.pool()));
        }
    }

    /// Puts the answer to our own write of a MachineOSConfig into the cache.
    pub(crate) fn os_config_answer(&self, config: &MachineOSConfig) {
        let (version, uid) = (version_of(config), config.uid().unwrap_or_default());
        let item = Item { version, uid, value: Arc::new(ImageConfig::new(serde_json::json!(config))) };
        if let Some(change) = self.stores.os_configs.answer(&config.name_any(), item) {
            self.os_config_changed(&change);
        }
    }

    /// The same for a MachineOSBuild.
    pub(crate) fn os_build_answer(&self, build: &MachineOSBuild) {
        let change = self.stores.os_builds.answer(&build.name_any(), os_build_item(build));
        change.iter().for_each(|change| self.os_build_changed(change));
    }

    /// The same for a MachineOSBuild that we have just created.
    pub(crate) fn os_build_created(&self, build: &MachineOSBuild) {
        let change = self.stores.os_builds.created(&build.name_any(), os_build_item(build));
        change.iter().for_each(|change| self.os_build_changed(change));
    }

    /// The same for a RolloutPolicy.
    pub(crate) fn rollout_policy_answer(&self, policy: RolloutPolicy) {
        self.answer(&self.stores.rollout_policies, policy, |change| Changed::RolloutPolicy(change));
    }

    /// The same for the ControllerConfig.
    pub(crate) fn controller_config_answer(&self, config: ControllerConfig) {
        self.answer(&self.stores.controller_configs, config, |change| Changed::ControllerConfig(change));
    }

    /// The same for a MachineConfigNode, also one that we have just created.
    pub(crate) fn progress_answer(&self, object: TrimmedMachineConfigNode) {
        let item = whole(object.0);
        if let Some(change) = self.stores.progress.created(&item.value.name_any(), item) {
            self.changed(&Changed::MachineConfigNode(&change));
        }
    }

    fn answer<K: ResourceExt>(
        &self,
        store: &Store<K>,
        object: K,
        of: for<'a> fn(&'a Change<K>) -> Changed<'a>,
    ) {
        let item = whole(object);
        if let Some(change) = store.answer(&item.value.name_any(), item) {
            self.changed(&of(&change));
        }
    }

    /// The same for a MachineConfig, also one that we have just created.
    pub(crate) fn config_answer(&self, config: MachineConfig) {
        let name = config.name_any();
        let (version, uid) = (version_of(&config), config.uid().unwrap_or_default());
        let item = Item { version, uid, value: Arc::new(Config::new(config)) };
        if let Some(change) = self.stores.configs.created(&name, item) {
            self.changed(&Changed::Config(&change));
        }
    }
}

fn os_build_item(build: &MachineOSBuild) -> Item<ImageBuild> {
    let (version, uid) = (version_of(build), build.uid().unwrap_or_default());
    Item { version, uid, value: Arc::new(ImageBuild::new(serde_json::json!(build))) }
}

#[cfg(test)]
mod tests;
