//! A change as passes see it: what changed, what they look at besides, and the keys that they mark.
//!
//! What it is not: which passes a change marks (see `dirty`, and `marked_by` in each pass).

use crate::cache::settings::Setting;
use crate::cache::store::Change;
use crate::cache::stores::Stores;
use crate::cache::trimmed::Config;
use crate::flight::pools::OwnPoolWrites;
use crate::queue::Pass;
use crate::render_prerequisites::TemplatesPrerequisite;
use api::v1::{ControllerConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use rollout::view::NodeView;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    Setting(Setting),
    /// The objects of a kind of setting are now known.
    SettingKnown,
    /// The template folder, or the pull secret, changed.
    TemplateInput,
    /// Something that rendering waits for has changed: the templates, the settings, or the version that the ControllerConfig belongs to.
    RenderPrerequisite,
    /// Rendering has written the name of another config into this pool.
    ConfigNamed(&'a str),
    /// Rendering has found MachineConfigs of templates that are not stored as the templates produce them, and waits for them.
    TemplatesNotStored,
    /// How long the drains of these nodes may take has changed.
    DrainLimits(&'a [Arc<str>]),
    /// This process has become the leader.
    TermBegins,
}

/// What a pass looks at, besides the change, when it marks keys.
#[derive(Clone, Copy)]
pub(crate) struct KnownObjects<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) own_writes: &'a OwnPoolWrites,
    pub(crate) templates: &'a TemplatesPrerequisite,
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

    /// The marked keys of one pass, which are taken out.
    pub(crate) fn take(&mut self, pass: Pass) -> Option<BTreeSet<String>> {
        self.0.remove(&pass)
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
pub(crate) type Marker = fn(&Changed<'_>, KnownObjects<'_>, &mut DirtyKeys);

/// What else a pass does when something changes. `S`: the state that the passes share.
pub(crate) struct Effects<S> {
    /// What it forgets, or writes down, at each change, before any pass is marked.
    pub(crate) on_change: fn(&S, &Changed<'_>),
    /// What happens before one of its keys is marked.
    pub(crate) before_mark: fn(&S),
    /// Whether somebody waits for the keys that this change marks, so that they are not spaced.
    pub(crate) is_urgent: fn(&S, &Changed<'_>) -> bool,
}

impl<S> Effects<S> {
    /// Nothing else.
    pub(crate) const NONE: Self = Self { on_change: |_, _| (), before_mark: |_| (), is_urgent: |_, _| false };
}

/// How a pass answers to a change.
pub(crate) struct Reaction<S> {
    /// The pass.
    pub(crate) pass: Pass,
    /// Which keys it marks.
    pub(crate) marked_by: Marker,
    /// What else it does.
    pub(crate) effects: Effects<S>,
}

// Derived, these would ask the same of the state.
impl<S> Clone for Effects<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Effects<S> {}
impl<S> Clone for Reaction<S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S> Copy for Reaction<S> {}
