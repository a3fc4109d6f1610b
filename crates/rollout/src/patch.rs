//! One change to one Node: its content, its merge patch, and what the Node looks like after it.
//!
//! What it is not: the reason for the change, which is in the plan.

use crate::view::{CordonMark, NodeView, is_joining_taint, is_update_taint, own};
use api::k8s::Taint;
use api::names::{JOINING_TAINT, JOINING_TAINT_EFFECT, UPDATE_TAINT, UPDATE_TAINT_EFFECT, annotation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A change of one optional value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change<T> {
    /// No change.
    #[default]
    Keep,
    /// Set to this value.
    Set(T),
    /// Removed.
    Remove,
}

impl<T: Clone> Change<T> {
    /// Whether nothing changes.
    pub fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    fn apply(&self, to: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Set(value) => *to = Some(value.clone()),
            Self::Remove => *to = None,
        }
    }

    fn json(&self, text: impl FnOnce(&T) -> Value) -> Option<Value> {
        match self {
            Self::Keep => None,
            Self::Set(value) => Some(text(value)),
            Self::Remove => Some(Value::Null),
        }
    }
}

/// One merge patch for one Node, bound to the version that it was decided on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePatch {
    /// The node.
    pub node: Arc<str>,
    /// The version that it was decided on. If the node has changed since, the API server answers 409 and the next plan
    /// decides again.
    pub resource_version: Box<str>,
    /// The config to move to.
    pub desired_config: Change<Arc<str>>,
    /// The layered OS image to move to.
    pub desired_image: Change<Arc<str>>,
    /// A copy of the control plane's topology.
    pub topology: Change<Arc<str>>,
    /// A copy of the pool's drift policy.
    pub drift: Change<Arc<str>>,
    /// A copy of the pool's settings for changes that can cut a node off.
    pub trial: Change<Arc<str>>,
    /// What a change without a disruption policy costs, if the pool says that for itself.
    pub reboots: Change<Arc<str>>,
    /// Whether packages of the distribution may be installed, if the pool says that for itself.
    pub host_packages: Change<Arc<str>>,
    /// Whether extensions take effect without a reboot, if the pool says that for itself.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub live_extensions: Change<Arc<str>>,
    /// The last drain request that was completed.
    pub last_applied_drain: Change<Arc<str>>,
    /// Who cordoned it.
    pub cordon: Change<CordonMark>,
    /// What a drain waits for.
    pub drain_wait: Change<Arc<str>>,
    /// The drain that is under way, and since when, [`own::DRAINING`].
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub draining: Change<Arc<str>>,
    /// The config that the node is not sent to again for now.
    pub quarantine: Change<Arc<str>>,
    /// The config that it is sent to, and when, [`own::SENT`].
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub sent: Change<Arc<str>>,
    /// The config that it takes if somebody reboots it, [`own::WAITING`].
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub waiting: Change<Arc<str>>,
    /// The boot and the container of etcd that it leaves, [`own::ETCD_BEFORE`].
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub etcd_before: Change<Arc<str>>,
    /// What its agent fetches while it is in service, [`own::PREFETCH`].
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub prefetch: Change<Arc<str>>,
    /// What its agent has fetched, [`own::PREFETCHED`]. It is only removed.
    #[serde(skip_serializing_if = "Change::is_keep")]
    pub prefetched: Change<Arc<str>>,
    /// Whether this patch applies the labels of the custom pool that the machine booted into.
    pub pool_labels_applied: bool,
    /// Labels to set; `None` removes.
    pub labels: BTreeMap<Arc<str>, Option<Arc<str>>>,
    /// All taints of the node after the patch, if they change.
    pub taints: Option<Vec<Taint>>,
    /// `spec.unschedulable`, if it changes.
    pub unschedulable: Option<bool>,
}

impl NodePatch {
    /// Binds the patch to this node in this version.
    #[must_use]
    pub(crate) fn bound_to(mut self, node: &NodeView) -> Self {
        self.node = node.name.clone();
        self.resource_version = node.resource_version.clone();
        self
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        let Self {
            node: _,
            resource_version: _,
            desired_config,
            desired_image,
            topology,
            drift,
            trial,
            reboots,
            host_packages,
            live_extensions,
            last_applied_drain,
            cordon,
            drain_wait,
            draining,
            quarantine,
            sent,
            waiting,
            etcd_before,
            prefetch,
            prefetched,
            pool_labels_applied,
            labels,
            taints,
            unschedulable,
        } = self;
        desired_config.is_keep()
            && desired_image.is_keep()
            && topology.is_keep()
            && drift.is_keep()
            && trial.is_keep()
            && reboots.is_keep()
            && host_packages.is_keep()
            && live_extensions.is_keep()
            && last_applied_drain.is_keep()
            && cordon.is_keep()
            && drain_wait.is_keep()
            && draining.is_keep()
            && quarantine.is_keep()
            && sent.is_keep()
            && waiting.is_keep()
            && etcd_before.is_keep()
            && prefetch.is_keep()
            && prefetched.is_keep()
            && !pool_labels_applied
            && labels.is_empty()
            && taints.is_none()
            && unschedulable.is_none()
    }

    /// Adds or removes the update taint if needed; all other taints stay.
    pub(crate) fn set_update_taint(&mut self, node: &NodeView, wanted: bool) {
        if node.has_update_taint() == wanted {
            return;
        }
        let taint = Taint {
            key: UPDATE_TAINT.to_owned(),
            effect: UPDATE_TAINT_EFFECT.to_owned(),
            ..Taint::default()
        };
        self.edit_taints(node, is_update_taint, wanted.then_some(taint));
    }

    /// Adds or removes the taint of nodes that have joined; all other taints stay.
    pub(crate) fn set_joining_taint(&mut self, node: &NodeView, wanted: bool) {
        if node.has_joining_taint() == wanted {
            return;
        }
        let taint = Taint {
            key: JOINING_TAINT.to_owned(),
            effect: JOINING_TAINT_EFFECT.to_owned(),
            ..Taint::default()
        };
        self.edit_taints(node, is_joining_taint, wanted.then_some(taint));
    }

    /// Removes the taints that `away` selects and adds one, on top of the changes that the patch already has.
    pub(crate) fn edit_taints(&mut self, node: &NodeView, away: fn(&Taint) -> bool, add: Option<Taint>) {
        let list = self.taints.get_or_insert_with(|| node.taints.to_vec());
        list.retain(|t| !away(t));
        list.extend(add);
    }

    /// The body of a `PATCH` with content type `application/merge-patch+json`.
    pub fn merge_patch(&self) -> Value {
        let text = |t: &Arc<str>| json!(t);
        let mut annotations = Map::new();
        for (key, change) in [
            (annotation::DESIRED_CONFIG, &self.desired_config),
            (annotation::DESIRED_IMAGE, &self.desired_image),
            (annotation::CONTROL_PLANE_TOPOLOGY, &self.topology),
            (annotation::DRIFT, &self.drift),
            (own::TRIAL, &self.trial),
            (annotation::REBOOTS, &self.reboots),
            (annotation::HOST_PACKAGES, &self.host_packages),
            (annotation::LIVE_EXTENSIONS, &self.live_extensions),
            (annotation::LAST_APPLIED_DRAIN, &self.last_applied_drain),
            (own::DRAIN_WAIT, &self.drain_wait),
            (own::DRAINING, &self.draining),
            (own::QUARANTINE, &self.quarantine),
            (own::SENT, &self.sent),
            (own::WAITING, &self.waiting),
            (own::ETCD_BEFORE, &self.etcd_before),
            (own::PREFETCH, &self.prefetch),
            (own::PREFETCHED, &self.prefetched),
        ] {
            annotations.extend(change.json(text).map(|v| (key.to_owned(), v)));
        }
        annotations.extend(self.cordon.json(|m| json!(m.text())).map(|v| (own::CORDON.to_owned(), v)));
        if self.pool_labels_applied {
            annotations.insert(annotation::CUSTOM_POOL_LABELS_APPLIED.to_owned(), json!(""));
        }
        let mut metadata = Map::from_iter([("resourceVersion".to_owned(), json!(self.resource_version))]);
        if !annotations.is_empty() {
            metadata.insert("annotations".to_owned(), annotations.into());
        }
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.labels));
        }
        let mut spec = Map::new();
        if let Some(taints) = &self.taints {
            let list = if taints.is_empty() { Value::Null } else { json!(taints) };
            spec.insert("taints".to_owned(), list);
        }
        if let Some(unschedulable) = self.unschedulable {
            spec.insert("unschedulable".to_owned(), json!(unschedulable));
        }
        let mut patch = Map::from_iter([("metadata".to_owned(), metadata.into())]);
        if !spec.is_empty() {
            patch.insert("spec".to_owned(), spec.into());
        }
        patch.into()
    }

    /// The node after the patch, for callers that continue planning before its echo arrives. It keeps the old resource
    /// version, because only the API server assigns a new one.
    #[must_use]
    pub fn applied_to(&self, node: &NodeView) -> NodeView {
        let mut after = node.clone();
        self.desired_config.apply(&mut after.desired_config);
        self.desired_image.apply(&mut after.desired_image);
        self.topology.apply(&mut after.control_plane_topology);
        self.drift.apply(&mut after.drift);
        self.trial.apply(&mut after.trial);
        self.reboots.apply(&mut after.reboots);
        self.host_packages.apply(&mut after.host_packages);
        self.live_extensions.apply(&mut after.live_extensions);
        self.last_applied_drain.apply(&mut after.last_applied_drain);
        self.cordon.apply(&mut after.cordon);
        self.drain_wait.apply(&mut after.drain_wait);
        self.draining.apply(&mut after.draining);
        self.quarantine.apply(&mut after.quarantine);
        self.sent.apply(&mut after.sent);
        self.waiting.apply(&mut after.waiting);
        self.etcd_before.apply(&mut after.etcd_before);
        self.prefetch.apply(&mut after.prefetch);
        self.prefetched.apply(&mut after.prefetched);
        after.custom_pool_labels_applied |= self.pool_labels_applied;
        if !self.labels.is_empty() {
            after.labels = node.labels.patched(&self.labels);
        }
        if let Some(taints) = &self.taints {
            after.taints = taints.as_slice().into();
        }
        if let Some(unschedulable) = self.unschedulable {
            after.unschedulable = unschedulable;
        }
        after
    }
}

impl fmt::Display for NodePatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.node)?;
        for (what, change) in [
            ("desiredConfig", &self.desired_config),
            ("desiredImage", &self.desired_image),
            ("controlPlaneTopology", &self.topology),
            ("drift", &self.drift),
            ("trial", &self.trial),
            ("reboots", &self.reboots),
            ("hostPackages", &self.host_packages),
            ("liveExtensions", &self.live_extensions),
            ("lastAppliedDrain", &self.last_applied_drain),
            ("drainWaitsFor", &self.drain_wait),
            ("quarantine", &self.quarantine),
            ("waiting", &self.waiting),
            ("prefetch", &self.prefetch),
        ] {
            match change {
                Change::Keep => {}
                Change::Set(value) => write!(f, " {what}={value}")?,
                Change::Remove => write!(f, " {what} removed")?,
            }
        }
        match &self.cordon {
            Change::Keep => {}
            Change::Set(mark) => write!(f, " cordon={}", mark.text())?,
            Change::Remove => write!(f, " cordon removed")?,
        }
        for (label, value) in &self.labels {
            match value {
                Some(value) => write!(f, " label {label}={value}")?,
                None => write!(f, " label {label} removed")?,
            }
        }
        if self.pool_labels_applied {
            write!(f, " customPoolLabelsApplied")?;
        }
        if let Some(taints) = &self.taints {
            let keys: Vec<_> = taints.iter().map(|t| format!("{}:{}", t.key, t.effect)).collect();
            write!(f, " taints=[{}]", keys.join(" "))?;
        }
        match self.unschedulable {
            Some(true) => write!(f, " cordoned"),
            Some(false) => write!(f, " uncordoned"),
            None => Ok(()),
        }
    }
}
