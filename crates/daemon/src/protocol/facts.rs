//! The inputs of [`step`](super::step): plain values, gathered by `agent`.

use crate::protocol::clock::Moment;
use crate::protocol::phase::Phase;
use crate::protocol::trial_facts::{TrialFacts, TriedFacts};
use api::conditions::StatusCondition;
use api::k8s::Node;
use api::names::annotation;
use api::node_state::NodeState;
use api::topology::ControlPlaneTopology;
use desired::{PoolDisruption, with_image};
use jiff::Timestamp;
use rollout::view::{CordonMark, own};
use std::collections::BTreeMap;

pub use api::names::EMPTY_CONFIG;

/// All inputs of a decision.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The time, by the monotonic clock.
    pub now: Moment,
    /// The Node object.
    pub node: NodeFacts,
    /// The state of the disk.
    pub disk: DiskFacts,
    /// Whether the disk was compared with its config since the process started or since it last failed.
    pub checked: bool,
    /// The progress of this process.
    pub phase: Phase,
    /// What is wrong on this host other than its config, such as a certificate that cannot be written; with path and
    /// remedy. It does not delay an update, but the node is reported as degraded instead of done.
    pub trouble: Option<String>,
    /// Since when no write of this process has succeeded, or the API server has not returned its Node. `None`: the API
    /// server answers.
    pub silent_since: Option<Moment>,
    /// When a host is asked again that could not be left. `None`: at once.
    pub leave_again: Option<Moment>,
    /// The config whose OS image could not be fetched ahead, and until when that is not tried again.
    pub prefetch_failed: Option<(String, Moment)>,
}

impl View {
    /// The config of the disk, with its image: by the disk's own record, else by the Node, else the empty config.
    pub(super) fn config_on_disk(&self) -> String {
        let node = || Some(self.node.current_state()).filter(|c| !c.is_empty());
        self.disk.current.clone().or_else(node).unwrap_or_else(|| EMPTY_CONFIG.to_owned())
    }
}

/// The fields of the Node that are used. An absent annotation is an empty string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Whether this process has seen the Node. Until then everything else here is empty.
    pub seen: bool,
    /// `currentConfig`.
    pub current: String,
    /// `desiredConfig`.
    pub desired: String,
    /// `currentImage`: the image that the host runs, if it is not that of the config.
    pub current_image: String,
    /// `desiredImage`: the image that the pool wants the host to run, if it is not that of the config.
    pub desired_image: String,
    /// `previous-image`: the image that the host ran before, if it was not that of a config.
    pub previous_image: String,
    /// `state`.
    pub state: String,
    /// `reason`.
    pub reason: String,
    /// `post-config-action`.
    pub post_action: String,
    /// `desiredDrain`.
    pub desired_drain: String,
    /// `lastAppliedDrain`.
    pub last_applied_drain: String,
    /// `controlPlaneTopology`. `None`: there is none, or it is one of another version.
    pub topology: Option<ControlPlaneTopology>,
    /// `retry`: a changed text asks for another try at once.
    pub retry: String,
    /// `trial`: the pool's settings for changes that can cut the node off.
    pub trial: String,
    /// `reboots`, `host-packages`, `live-extensions`: what the pool says for itself about the disruption of its nodes.
    pub disruption: PoolDisruption,
    /// `drift`: the pool's rules for paths that have drifted.
    pub drift: String,
    /// `waiting`: the config that waits for a window.
    pub waiting: String,
    /// `leave`: a person removes the product, and asks the agent to leave the host.
    pub leave: String,
    /// `left`: which request to leave was answered.
    pub left: String,
    /// `prefetch`: what the controller asks to have fetched ahead.
    pub prefetch: String,
    /// `prefetched`: what was answered to that.
    pub prefetched: String,
    /// `spec.unschedulable`: cordoned, by this agent, the drain controller or a person.
    pub unschedulable: bool,
    /// The cordon was made by this agent, together with its request for a drain.
    pub own_cordon: bool,
    /// The `Ready` condition; a node without conditions counts as ready.
    pub ready: bool,
    /// The boot id that the kubelet last reported. Empty: none yet.
    pub boot_id: String,
    /// When the kubelet last reported: the heartbeat of the `Ready` condition.
    pub heard: Option<Timestamp>,
    /// The labels, to find the node's pool.
    pub labels: BTreeMap<String, String>,
    /// The object's UID, for events, and for writes that no other Node of the same name may get.
    pub uid: String,
    /// The object's resource version, for conditional writes.
    pub resource_version: String,
    /// The Node is being deleted: the agent does nothing more.
    pub deleted: bool,
}

impl NodeFacts {
    /// The config that the Node says the host is in, with the image that it says the host runs instead of the config's.
    pub fn current_state(&self) -> String {
        with_image(&self.current, &self.current_image)
    }

    /// The config to move to, with the image that the pool wants instead of the config's. Empty: none is wanted yet.
    pub fn desired_state(&self) -> String {
        with_image(&self.desired, &self.desired_image)
    }

    /// Whether the Node asks for another state than this one.
    pub(super) fn wants_other(&self, state: &str) -> bool {
        !self.desired.is_empty() && self.desired_state() != state
    }

    /// What the agent has said of itself. `None`: nothing, or a word of another version.
    pub fn said_state(&self) -> Option<NodeState> {
        NodeState::parse(&self.state)
    }

    /// Whether the Node says this state already, and this reason.
    pub(super) fn says(&self, state: NodeState, reason: &str) -> bool {
        self.said_state() == Some(state) && self.reason == reason
    }

    /// Whether the node announces that it reboots.
    pub(super) fn announces_reboot(&self) -> bool {
        self.post_action == annotation::REBOOTING
    }

    /// Whether the node is drained for a change. A single control-plane node is not: its pods can run nowhere else.
    pub(super) fn drains(&self) -> bool {
        self.topology != Some(ControlPlaneTopology::SingleReplica)
    }

    /// The value of one of the protocol's annotations. `None`: it is not one of them.
    pub fn annotation_value(&self, key: &str) -> Option<&String> {
        Some(match key {
            annotation::CURRENT_CONFIG => &self.current,
            annotation::DESIRED_CONFIG => &self.desired,
            annotation::CURRENT_IMAGE => &self.current_image,
            annotation::DESIRED_IMAGE => &self.desired_image,
            own::PREVIOUS_IMAGE => &self.previous_image,
            annotation::STATE => &self.state,
            annotation::REASON => &self.reason,
            annotation::POST_CONFIG_ACTION => &self.post_action,
            annotation::DESIRED_DRAIN => &self.desired_drain,
            annotation::LAST_APPLIED_DRAIN => &self.last_applied_drain,
            own::LEFT => &self.left,
            own::PREFETCHED => &self.prefetched,
            _ => return None,
        })
    }

    /// Whether the node may have a member of etcd: it is of the control plane, or runs etcd alone. Such a node reboots as a
    /// whole. The controller knows by the kernel's boot id whether the member's pod is still the one from before; a soft
    /// reboot keeps that id, and the next control-plane node could go while this member is not up yet.
    pub fn keeps_a_quorum(&self) -> bool {
        self.labels.keys().any(|name| rollout::is_role_with_etcd(name))
    }

    /// Whether another try was requested since `before`. A process that has just started has seen no earlier Node.
    pub fn asks_again(&self, before: &Self) -> bool {
        !self.retry.is_empty() && self.uid == before.uid && self.retry != before.retry
    }

    /// Takes them from a Node.
    pub fn of(node: &Node) -> Self {
        let notes = node.metadata.annotations.as_ref();
        let note = |key: &str| notes.and_then(|a| a.get(key)).cloned().unwrap_or_default();
        let conditions = node.status.iter().flat_map(|s| s.conditions.iter().flatten());
        let ready = conditions.into_iter().find(|c| c.type_ == "Ready");
        Self {
            seen: true,
            current: note(annotation::CURRENT_CONFIG),
            desired: note(annotation::DESIRED_CONFIG),
            current_image: note(annotation::CURRENT_IMAGE),
            desired_image: note(annotation::DESIRED_IMAGE),
            previous_image: note(own::PREVIOUS_IMAGE),
            state: note(annotation::STATE),
            reason: note(annotation::REASON),
            post_action: note(annotation::POST_CONFIG_ACTION),
            desired_drain: note(annotation::DESIRED_DRAIN),
            last_applied_drain: note(annotation::LAST_APPLIED_DRAIN),
            topology: ControlPlaneTopology::parse(&note(annotation::CONTROL_PLANE_TOPOLOGY)),
            retry: note(own::RETRY),
            trial: note(own::TRIAL),
            disruption: PoolDisruption::of(notes),
            drift: note(annotation::DRIFT),
            waiting: note(own::WAITING),
            leave: note(own::LEAVE),
            left: note(own::LEFT),
            prefetch: note(own::PREFETCH),
            prefetched: note(own::PREFETCHED),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or_default(),
            own_cordon: notes
                .and_then(|a| a.get(own::CORDON))
                .is_some_and(|m| m == CordonMark::Daemon.text()),
            ready: ready.is_none_or(StatusCondition::is_true),
            heard: ready.and_then(|c| c.last_heartbeat_time.as_ref()).map(|t| t.0),
            boot_id: node
                .status
                .as_ref()
                .and_then(|s| s.node_info.as_ref())
                .map(|i| i.boot_id.clone())
                .unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            uid: node.metadata.uid.clone().unwrap_or_default(),
            resource_version: node.metadata.resource_version.clone().unwrap_or_default(),
            deleted: node.metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The state of the disk that is used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// A change of this host is neither committed nor undone, or that was not checked yet.
    pub open: bool,
    /// The name of the config that was last applied, if there is one; with its image (see [`desired::with_image`]).
    pub current: Option<String>,
    /// The first boot left `node-annotations.json` for the Node.
    pub annotations_file: bool,
    /// The force file exists: a person asks that everything is written again.
    pub force: bool,
    /// Whether a reboot is pending, by the host's own record.
    pub reboot: RebootFact,
    /// The change that is on trial.
    pub trial: Option<TrialFacts>,
    /// The config that was tried and undone.
    pub tried: Option<TriedFacts>,
    /// The pending reboot leads back out of a change that was tried. That change may be what keeps the API server from
    /// answering.
    pub reboot_of_trial: bool,
    /// How often the machine has rebooted to leave an operating system and came up in it again.
    pub returns: u32,
    /// Whether the host can run an image that is not the config's.
    pub takes_images: bool,
}

/// The state of a pending reboot. The host records it together with the update that needs it and the boot in which the
/// update was applied. So no crash can lose it, and a restart of the daemon does not count as a reboot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RebootFact {
    /// No reboot is pending.
    #[default]
    None,
    /// This is still the boot in which the update was applied.
    Owed {
        /// The config that needs it.
        config: String,
        /// How often a reboot was started for it.
        tries: u32,
        /// As far as is known, the pods have left and stayed away, or this machine is not drained.
        cleared: bool,
    },
    /// The machine has rebooted since.
    Rebooted {
        /// The config that needed it.
        config: String,
        /// The kernel's id of the boot in which the update was applied.
        boot_id: String,
        /// When the current boot began, if it has the same boot id (in a container). There the kubelet's boot id
        /// proves nothing, but a later heartbeat does.
        began: Option<Timestamp>,
    },
}
