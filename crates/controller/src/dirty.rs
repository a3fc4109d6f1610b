//! What a change makes dirty: which passes must run again, and for which keys. A pure function of the change and the
//! caches; each pass declares which changes mark it (`marked_by`).
//!
//! What it is not: a decision. A mark too many costs a pass that finds nothing to do; a missing mark loses a change. So
//! marks are generous.

use crate::cache::settings::Kind;
use crate::cache::store::Change;
use crate::cache::stores::{Config, Stores};
use crate::flight::echoes::Named;
use crate::gates::TemplateGate;
use crate::passes::queue::Pass;
use api::v1::{ControllerConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use rollout::view::NodeView;
use std::collections::{BTreeMap, BTreeSet};

/// A change of something that passes read.
#[derive(Debug)]
pub(crate) enum Changed<'a> {
    /// A pool.
    Pool(&'a Change<MachineConfigPool>),
    /// A MachineConfig, written by people or made by us.
    Config(&'a Change<Config>),
    /// A ControllerConfig.
    ControllerConfig(&'a Change<ControllerConfig>),
    /// A RolloutPolicy.
    RolloutPolicy(&'a Change<RolloutPolicy>),
    /// A node.
    Node(&'a Change<NodeView>),
    /// A MachineConfigNode.
    MachineConfigNode(&'a Change<MachineConfigNode>),
    /// A PinnedImageSet.
    PinnedImageSet(&'a Change<PinnedImageSet>),
    /// Something about the image builds of this pool: its MachineOSConfig, a build or a Job.
    ImageBuild(&'a str),
    /// Another input of node plans changed: an image build, the Scheduler, the operator's pod, or the outcome of a
    /// write.
    PlanInput,
    /// A setting of the cluster was added, removed or changed.
    Setting(Kind),
    /// The objects of a kind of setting are now known.
    SettingKnown,
    /// The template folder, or the pull secret, changed.
    TemplateInput,
    /// This process has become the leader.
    TermBegins,
}

/// What a pass looks at, besides the change, when it marks keys.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) named: &'a Named,
    pub(crate) templates: &'a TemplateGate,
}

/// The keys that need a pass, for each pass.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DirtyKeys(BTreeMap<Pass, BTreeSet<String>>);

impl DirtyKeys {
    /// Marks one key.
    pub(crate) fn mark(&mut self, pass: Pass, key: &str) {
        self.mark_all(pass, [key.to_owned()]);
    }

    /// Marks many keys. Each is marked only once for this change: passes are spaced by the number of changes.
    pub(crate) fn mark_all(&mut self, pass: Pass, keys: impl IntoIterator<Item = String>) {
        let mut keys = keys.into_iter().peekable();
        if keys.peek().is_some() {
            self.0.entry(pass).or_default().extend(keys);
        }
    }

    /// Whether any key of this pass is marked.
    pub(crate) fn has(&self, pass: Pass) -> bool {
        self.0.contains_key(&pass)
    }
}

impl IntoIterator for DirtyKeys {
    type Item = (Pass, BTreeSet<String>);
    type IntoIter = std::collections::btree_map::IntoIter<Pass, BTreeSet<String>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Adds the keys that one pass marks for a change.
pub(crate) type Marker = fn(&Changed<'_>, Known<'_>, &mut DirtyKeys);

/// The keys that a change makes dirty.
pub(crate) fn dirty(markers: &[Marker], changed: &Changed<'_>, known: Known<'_>) -> DirtyKeys {
    let mut marks = DirtyKeys::default();
    if !is_irrelevant(changed) {
        markers.iter().for_each(|mark| mark(changed, known, &mut marks));
    }
    marks
}

/// Whether nothing can follow from the change: a heartbeat of a node, or a ControllerConfig other than the one that is
/// read.
fn is_irrelevant(changed: &Changed<'_>) -> bool {
    match changed {
        Changed::Node(change) => match (change.old.as_deref(), change.new.as_deref()) {
            (Some(old), Some(new)) => old.alike(new),
            _ => false,
        },
        Changed::ControllerConfig(change) => change.name != api::names::CONTROLLER_CONFIG,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
