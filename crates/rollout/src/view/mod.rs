//! What the controller's caches hold of Nodes, Pods and budgets: only the fields that a decision reads.
//!
//! What it is not: a rule. A Node shrinks to a few hundred bytes here. Two views that are [`NodeView::leads_to_same_plan`] lead to
//! the same plan, so that a heartbeat causes no planning.

mod annotation_values;
mod names;
pub(crate) mod roles;
mod workload;

pub use annotation_values::{CordonMark, DaemonState};
pub use api::images::image_builds::{OsBuild, OsConfig};
pub use names::{Labels, Names};
pub use workload::{BudgetView, EtcdMember, Owner, PodPhase, PodView};

pub use api::names::own;

use self::roles::{is_control_plane, is_etcd};
use api::formats::text::{MAX_REASON_CHARS, cut};
use api::k8s::{Node, ObjectMeta, Taint};
use api::names::{JOINING_TAINT, JOINING_TAINT_EFFECT, UPDATE_TAINT, UPDATE_TAINT_EFFECT, annotation, label};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Node conditions that must have this status for the node to be ready, if they are present.
const READINESS: [(&str, &str); 3] =
    [("Ready", "True"), ("DiskPressure", "False"), ("NetworkUnavailable", "False")];

/// A Node as the rules see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeView {
    /// Its name.
    pub name: Arc<str>,
    /// Its identity: a node that is deleted and created again with the same name is another one.
    pub uid: Box<str>,
    /// The version that patches are bound to.
    pub resource_version: Box<str>,
    /// All of its labels, because any of them may be in a pool's selector.
    pub labels: Labels,
    /// When it was created, in seconds since 1970; 0 if unknown.
    pub created: i64,
    /// It is being deleted.
    pub deleting: bool,
    /// Phase `Pending` or `Provisioning`: there is no machine yet.
    pub pending: bool,
    /// `spec.unschedulable`.
    pub unschedulable: bool,
    /// Why its conditions say that it is not ready; `None` if they say that it is.
    pub not_ready: Option<Arc<str>>,
    /// All of its taints, because a merge patch replaces the whole list.
    pub taints: Box<[Taint]>,
    /// [`annotation::CURRENT_CONFIG`].
    pub current_config: Option<Arc<str>>,
    /// [`annotation::DESIRED_CONFIG`].
    pub desired_config: Option<Arc<str>>,
    /// [`annotation::CURRENT_IMAGE`].
    pub current_image: Option<Arc<str>>,
    /// [`annotation::DESIRED_IMAGE`].
    pub desired_image: Option<Arc<str>>,
    /// [`own::PREVIOUS_IMAGE`]. In a box, because few nodes have one: eight bytes in each of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_image: Option<Box<Arc<str>>>,
    /// [`annotation::STATE`].
    pub state: DaemonState,
    /// [`annotation::REASON`], where it is not empty.
    pub reason: Option<Arc<str>>,
    /// [`annotation::POST_CONFIG_ACTION`] says that it reboots.
    pub rebooting: bool,
    /// [`annotation::FIRST_PIVOT_CONFIG`].
    pub first_pivot_config: Option<Arc<str>>,
    /// [`annotation::CUSTOM_POOL_LABELS_APPLIED`] is there.
    pub custom_pool_labels_applied: bool,
    /// [`annotation::DESIRED_DRAIN`].
    pub desired_drain: Option<Arc<str>>,
    /// [`annotation::LAST_APPLIED_DRAIN`].
    pub last_applied_drain: Option<Arc<str>>,
    /// [`annotation::CONTROL_PLANE_TOPOLOGY`].
    pub control_plane_topology: Option<Arc<str>>,
    /// [`annotation::DRIFT`].
    pub drift: Option<Arc<str>>,
    /// [`own::TRIAL`].
    pub trial: Option<Arc<str>>,
    /// [`annotation::REBOOTS`].
    pub reboots: Option<Arc<str>>,
    /// [`annotation::HOST_PACKAGES`].
    pub host_packages: Option<Arc<str>>,
    /// [`annotation::LIVE_EXTENSIONS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_extensions: Option<Arc<str>>,
    /// [`own::CORDON`].
    pub cordon: Option<CordonMark>,
    /// [`own::DRAIN_WAIT`].
    pub drain_wait: Option<Arc<str>>,
    /// [`own::DRAINING`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draining: Option<Arc<str>>,
    /// [`own::QUARANTINE`].
    pub quarantine: Option<Arc<str>>,
    /// [`own::SENT`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Arc<str>>,
    /// [`own::WAITING`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Arc<str>>,
    /// Which boot of its machine it reports, if it can run etcd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot: Option<Arc<str>>,
    /// [`own::ETCD_BEFORE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etcd_before: Option<Arc<str>>,
    /// [`own::PREFETCH`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Arc<str>>,
    /// [`own::PREFETCHED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetched: Option<Arc<str>>,
}

impl NodeView {
    /// The view of one Node, for callers with few of them.
    pub fn from_node(node: &Node) -> Self {
        Self::interned(node, &mut Names::default())
    }

    /// The view of one Node. Its strings are shared with all views made with the same `names`.
    pub fn interned(node: &Node, names: &mut Names) -> Self {
        let ObjectMeta { name, uid, resource_version, labels, annotations, .. } = &node.metadata;
        let note = |key: &str| annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str);
        let mut shared = |key: &str| note(key).map(|v| names.get(v));
        let view = Self {
            name: name.as_deref().unwrap_or_default().into(),
            uid: uid.as_deref().unwrap_or_default().into(),
            resource_version: resource_version.as_deref().unwrap_or_default().into(),
            labels: Labels::default(),
            created: node.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
            deleting: node.metadata.deletion_timestamp.is_some(),
            pending: matches!(
                node.status.as_ref().and_then(|s| s.phase.as_deref()),
                Some("Pending" | "Provisioning")
            ),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or_default(),
            not_ready: None,
            taints: node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default().into(),
            current_config: shared(annotation::CURRENT_CONFIG),
            desired_config: shared(annotation::DESIRED_CONFIG),
            current_image: shared(annotation::CURRENT_IMAGE),
            desired_image: shared(annotation::DESIRED_IMAGE),
            previous_image: shared(own::PREVIOUS_IMAGE).map(Box::new),
            state: DaemonState::default(),
            reason: None,
            rebooting: note(annotation::POST_CONFIG_ACTION) == Some(annotation::REBOOTING),
            first_pivot_config: shared(annotation::FIRST_PIVOT_CONFIG),
            custom_pool_labels_applied: note(annotation::CUSTOM_POOL_LABELS_APPLIED).is_some(),
            desired_drain: shared(annotation::DESIRED_DRAIN),
            last_applied_drain: shared(annotation::LAST_APPLIED_DRAIN),
            control_plane_topology: shared(annotation::CONTROL_PLANE_TOPOLOGY),
            drift: shared(annotation::DRIFT),
            trial: shared(own::TRIAL),
            reboots: shared(annotation::REBOOTS),
            waiting: shared(own::WAITING),
            host_packages: shared(annotation::HOST_PACKAGES),
            live_extensions: shared(annotation::LIVE_EXTENSIONS),
            prefetch: shared(own::PREFETCH),
            cordon: note(own::CORDON).and_then(CordonMark::parse),
            drain_wait: note(own::DRAIN_WAIT).map(Arc::from),
            draining: note(own::DRAINING).map(Arc::from),
            quarantine: note(own::QUARANTINE).map(Arc::from),
            sent: note(own::SENT).map(Arc::from),
            boot: None,
            etcd_before: note(own::ETCD_BEFORE).map(Arc::from),
            prefetched: note(own::PREFETCHED).map(|text| Arc::from(&*cut(text, MAX_REASON_CHARS))),
        };
        let labels = Labels::new(labels.as_ref(), names);
        let runs_etcd = is_control_plane(&labels) || is_etcd(&labels);
        let boot = node.status.as_ref().and_then(|s| s.node_info.as_ref()).map(|i| i.boot_id.as_str());
        Self {
            labels,
            boot: boot.filter(|id| runs_etcd && !id.is_empty()).map(Arc::from),
            state: DaemonState::new(note(annotation::STATE), names),
            reason: note(annotation::REASON)
                .filter(|r| !r.is_empty())
                .map(|r| names.get(&cut(r, MAX_REASON_CHARS))),
            not_ready: why_not_ready(node).map(|why| names.get(&why)),
            ..view
        }
    }

    /// Whether a daemon has written its config, or the node was sent somewhere.
    pub fn has_reported(&self) -> bool {
        self.state != DaemonState::Absent || self.current_config.is_some() || self.desired_config.is_some()
    }

    /// When it was sent to this config, if that is recorded.
    pub fn sent_to(&self, config: &str) -> Option<Timestamp> {
        since(self.sent.as_deref(), config)
    }

    /// When this drain of it began, if that is recorded.
    pub fn drained_since(&self, request: &str) -> Option<Timestamp> {
        since(self.draining.as_deref(), request)
    }

    /// Whether its conditions are good and it is not cordoned.
    pub fn ready(&self) -> bool {
        self.not_ready.is_none() && !self.unschedulable
    }

    /// Whether it is a Windows node, which we do not manage.
    pub fn is_windows(&self) -> bool {
        self.labels.get(label::OS) == Some("windows")
    }

    /// Whether it is labelled as OpenShift labels its control plane.
    pub fn is_master(&self) -> bool {
        self.labels.get(label::MASTER_ROLE).is_some()
    }

    /// The node's zone.
    pub fn zone(&self) -> Option<&str> {
        self.labels.get(label::ZONE)
    }

    /// Whether it carries the taint of nodes that wait for an update.
    pub fn has_update_taint(&self) -> bool {
        self.taints.iter().any(is_update_taint)
    }

    /// Whether it carries the taint of nodes that have joined and are not in their pool's config yet.
    pub fn has_joining_taint(&self) -> bool {
        self.taints.iter().any(is_joining_taint)
    }

    /// Whether a daemon manages this node.
    pub fn is_managed(&self) -> bool {
        !self.is_windows() && self.current_config.as_deref().is_some_and(|c| !c.is_empty())
    }

    /// Whether the two lead to the same plan: they differ at most in the resource version, as after a heartbeat.
    pub fn leads_to_same_plan(&self, other: &Self) -> bool {
        // Compared in place: cloning to blank the version would cost more than all the rest.
        let Self {
            name,
            uid,
            resource_version: _,
            labels,
            created,
            deleting,
            pending,
            unschedulable,
            not_ready,
            taints,
            current_config,
            desired_config,
            current_image,
            desired_image,
            previous_image,
            state,
            reason,
            rebooting,
            first_pivot_config,
            custom_pool_labels_applied,
            desired_drain,
            last_applied_drain,
            control_plane_topology,
            drift,
            trial,
            reboots,
            host_packages,
            live_extensions,
            cordon,
            drain_wait,
            draining,
            quarantine,
            sent,
            waiting,
            boot,
            etcd_before,
            prefetch,
            prefetched,
        } = self;
        *name == other.name
            && *uid == other.uid
            && (*created, *deleting, *pending) == (other.created, other.deleting, other.pending)
            && (*unschedulable, *rebooting) == (other.unschedulable, other.rebooting)
            && (not_ready, taints) == (&other.not_ready, &other.taints)
            && (current_config, desired_config) == (&other.current_config, &other.desired_config)
            && (current_image, desired_image) == (&other.current_image, &other.desired_image)
            && *previous_image == other.previous_image
            && (state, reason) == (&other.state, &other.reason)
            && *first_pivot_config == other.first_pivot_config
            && *custom_pool_labels_applied == other.custom_pool_labels_applied
            && (desired_drain, last_applied_drain) == (&other.desired_drain, &other.last_applied_drain)
            && (control_plane_topology, drift) == (&other.control_plane_topology, &other.drift)
            && *trial == other.trial
            && *reboots == other.reboots
            && *host_packages == other.host_packages
            && *live_extensions == other.live_extensions
            && (cordon, drain_wait, draining) == (&other.cordon, &other.drain_wait, &other.draining)
            && (quarantine, sent, waiting) == (&other.quarantine, &other.sent, &other.waiting)
            && (boot, etcd_before) == (&other.boot, &other.etcd_before)
            && (prefetch, prefetched) == (&other.prefetch, &other.prefetched)
            && *labels == other.labels
    }
}

/// The time in a text `WHAT TIME`, if it is about this.
fn since(text: Option<&str>, what: &str) -> Option<Timestamp> {
    let (of, at) = text?.split_once(' ')?;
    at.parse().ok().filter(|_| of == what)
}

/// Whether it is the taint of nodes that wait for an update.
pub fn is_update_taint(taint: &Taint) -> bool {
    taint.key == UPDATE_TAINT && taint.effect == UPDATE_TAINT_EFFECT
}

/// Whether it is the taint of nodes that have joined and are not in their pool's config yet.
pub fn is_joining_taint(taint: &Taint) -> bool {
    taint.key == JOINING_TAINT && taint.effect == JOINING_TAINT_EFFECT
}

/// The first present condition that makes the node not ready, with its reason and message.
fn why_not_ready(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_deref()?;
    let bad = conditions
        .iter()
        .find(|c| READINESS.iter().any(|(type_, want)| c.type_ == *type_ && c.status != *want))?;
    let mut text = format!("{} is {}", bad.type_, bad.status);
    let reason = bad.reason.as_deref().filter(|r| !r.is_empty());
    let message = bad.message.as_deref().filter(|m| !m.is_empty());
    match (reason, message) {
        (Some(r), Some(m)) => text.push_str(&format!(" ({r}: {m})")),
        (Some(x), None) | (None, Some(x)) => text.push_str(&format!(" ({x})")),
        (None, None) => {}
    }
    Some(cut(&text, MAX_REASON_CHARS).into_owned())
}
