//! What a change makes dirty: which passes must run again, and for which keys. Every change of a cache arrives here, at
//! [`Shared::changed`], from a watch or as the answer to our own write. Which passes it marks is a pure function of the change and
//! the caches ([`dirty`]); each pass declares which changes mark it (`marked_by`), and what else it does then (`effects`).
//!
//! What it is not: a decision. A mark too many costs a pass that finds nothing to do; a missing mark loses a change. So
//! marks are generous.

use crate::cache::store::{Change, Item, Store};
use crate::cache::stores::untrimmed;
use crate::cache::trimmed::{Config, ImageBuild, ImageConfig, TrimmedMachineConfigNode};
use crate::cache::watch::version_of;
use crate::change::{Changed, DirtyKeys, KnownObjects, Reaction};
use crate::flight::WriteContext;
use crate::flight::refusals::Topic;
use crate::queue::{ALL_NODES, Pass};
use crate::shared::Shared;
use api::k8s::{Node, ResourceExt};
use api::names::CONTROLLER_CONFIG;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use api::v1alpha1::RolloutPolicy;
use kube::Client;
use rollout::TroubleOf;
use std::sync::Arc;

/// The keys that a change makes dirty.
pub(crate) fn dirty<S>(
    reactions: &[Reaction<S>],
    changed: &Changed<'_>,
    known: KnownObjects<'_>,
) -> DirtyKeys {
    let mut marks = DirtyKeys::default();
    if !is_irrelevant(changed) {
        reactions.iter().for_each(|reaction| (reaction.marked_by)(changed, known, &mut marks));
    }
    marks
}

/// Whether nothing can follow from the change: a heartbeat of a node, or a ControllerConfig other than the one that is
/// read.
fn is_irrelevant(changed: &Changed<'_>) -> bool {
    match changed {
        Changed::Node(change) => match (change.old.as_deref(), change.new.as_deref()) {
            (Some(old), Some(new)) => old.leads_to_same_plan(new),
            _ => false,
        },
        Changed::ControllerConfig(change) => change.name != CONTROLLER_CONFIG,
        _ => false,
    }
}

impl Shared {
    /// Handles a change: marks what it makes dirty.
    pub(crate) fn changed(&self, changed: &Changed<'_>) {
        self.forget_outdated(changed);
        self.reactions.iter().for_each(|reaction| (reaction.effects.on_change)(self, changed));
        let known = KnownObjects {
            stores: &self.stores,
            own_writes: &self.own_writes,
            templates: &self.prerequisites.templates,
        };
        let mut marks = dirty(self.reactions, changed, known);
        let marked: Vec<_> = self
            .reactions
            .iter()
            .filter_map(|reaction| Some((reaction, marks.take(reaction.pass)?)))
            .collect();
        // Of all passes, before any of them runs.
        marked.iter().for_each(|(reaction, _)| (reaction.effects.before_mark)(self));
        for (reaction, keys) in marked {
            let queue = self.queues.of(reaction.pass);
            if (reaction.effects.is_urgent)(self, changed) {
                keys.iter().for_each(|key| queue.mark_urgent(key.clone()));
            }
            queue.mark_all(keys);
        }
    }

    /// Forgets what all passes share and no longer counts. What one pass remembers, its descriptor forgets.
    fn forget_outdated(&self, changed: &Changed<'_>) {
        match changed {
            Changed::Pool(change) if change.new.is_none() => self.metrics.forget_pool(&change.name),
            Changed::Node(change) if change.new.is_none() => self.metrics.forget_node(&change.name),
            // Another leader may have left its work half done.
            Changed::TermBegins => {
                self.stored_configs.forget();
                self.troubles.forget();
                self.side_problems.forget();
            }
            _ => {}
        }
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
    pub(crate) fn machine_config_node_answer(&self, object: TrimmedMachineConfigNode) {
        let item = untrimmed(object.0);
        if let Some(change) = self.stores.machine_config_nodes.created(&item.value.name_any(), item) {
            self.changed(&Changed::MachineConfigNode(&change));
        }
    }

    /// Puts the answer to our own write of an object that is kept whole into its cache.
    pub(crate) fn answer<K: ResourceExt>(
        &self,
        store: &Store<K>,
        object: K,
        of: for<'a> fn(&'a Change<K>) -> Changed<'a>,
    ) {
        let item = untrimmed(object);
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

impl WriteContext for Shared {
    fn client(&self) -> Client {
        self.client.clone()
    }

    fn node_version(&self, node: &str) -> Option<u64> {
        self.stores.nodes.version(node)
    }

    fn node_answer(&self, node: &Node) {
        let item = Item {
            version: version_of(node),
            uid: node.uid().unwrap_or_default(),
            value: Arc::new(self.view(node)),
        };
        if let Some(change) = self.stores.nodes.answer(&node.name_any(), item) {
            self.changed(&Changed::Node(&change));
        }
    }

    fn pool_answer(&self, pool: MachineConfigPool) {
        self.answer(&self.stores.pools, pool, |change| Changed::Pool(change));
    }
}

fn os_build_item(build: &MachineOSBuild) -> Item<ImageBuild> {
    let (version, uid) = (version_of(build), build.uid().unwrap_or_default());
    Item { version, uid, value: Arc::new(ImageBuild::new(serde_json::json!(build))) }
}

#[cfg(test)]
mod tests;
