//! The inputs of [`step`](super::step): plain values, gathered by `agent`.

use crate::protocol::clock::Moment;
use api::k8s::Node;
use api::names::annotation;
use jiff::{SignedDuration, Timestamp};
use rollout::view::{CordonMark, own};
use std::collections::BTreeMap;

/// The config of a host that no config was ever applied to. It has no object in the cluster.
pub const EMPTY_CONFIG: &str = "mco-empty-mc";

/// The first wait after a failure.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(1);
/// The longest wait between two tries: a host that was repaired by hand is back within a minute.
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(60);

/// The same for tries that restart services each time.
const FIRST_DISTURBING_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// Nobody's service is restarted more than four times an hour for a config that it does not start with.
const LONGEST_DISTURBING_RETRY: SignedDuration = SignedDuration::from_mins(15);

/// All that a decision needs.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The time, by a clock that nobody sets.
    pub now: Moment,
    /// This node's Node.
    pub node: NodeFacts,
    /// This node's disk.
    pub disk: DiskFacts,
    /// Was the disk compared with its config since the process started or since it last failed?
    pub checked: bool,
    /// How far this process has come.
    pub phase: Phase,
    /// What is wrong on this host beside its config, such as a certificate that cannot be written; with path and remedy.
    /// Holds no update up: the node is called degraded instead of done.
    pub trouble: Option<String>,
    /// Since when no write of this process has succeeded, or the API server has not shown it its Node. `None`: it
    /// answers.
    pub silent_since: Option<Moment>,
}

/// What of the Node counts. An absent annotation is an empty string.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// This process has seen the Node. Until then everything else here is empty.
    pub seen: bool,
    /// `currentConfig`.
    pub current: String,
    /// `desiredConfig`.
    pub desired: String,
    /// `currentImage`: the image, beside that of the config, that the host runs.
    pub current_image: String,
    /// `desiredImage`: the image, beside that of the config, that the pool wants it to run.
    pub desired_image: String,
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
    /// `controlPlaneTopology`.
    pub topology: String,
    /// `retry`: another text than before asks for another try at once.
    pub retry: String,
    /// `drift`: the pool's rules for paths that are changed by hand.
    pub drift: String,
    /// `spec.unschedulable`: cordoned, by this agent, the drain controller or a person.
    pub unschedulable: bool,
    /// The cordon is this agent's own, made together with its request for a drain.
    pub own_cordon: bool,
    /// The `Ready` condition; a node without conditions counts as ready.
    pub ready: bool,
    /// The boot that the kubelet last reported; empty where none has.
    pub boot_id: String,
    /// When the kubelet last reported, as `Ready` says.
    pub heard: Option<Timestamp>,
    /// The labels, for finding the node's pool.
    pub labels: BTreeMap<String, String>,
    /// The object's UID, for events.
    pub uid: String,
    /// The object's resource version, for conditional writes.
    pub resource_version: String,
    /// Being deleted: nothing is done any more.
    pub deleted: bool,
}

impl NodeFacts {
    /// What stands in an annotation of the protocol; `None` for any other.
    pub fn says(&self, key: &str) -> Option<&String> {
        Some(match key {
            annotation::CURRENT_CONFIG => &self.current,
            annotation::DESIRED_CONFIG => &self.desired,
            annotation::STATE => &self.state,
            annotation::REASON => &self.reason,
            annotation::POST_CONFIG_ACTION => &self.post_action,
            annotation::DESIRED_DRAIN => &self.desired_drain,
            annotation::LAST_APPLIED_DRAIN => &self.last_applied_drain,
            _ => return None,
        })
    }

    /// Does somebody ask for another try who did not before? A process that has just begun has seen nothing before.
    pub fn asks_again(&self, before: &Self) -> bool {
        !self.retry.is_empty() && self.uid == before.uid && self.retry != before.retry
    }

    /// Reads them from a Node.
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
            state: note(annotation::STATE),
            reason: note(annotation::REASON),
            post_action: note(annotation::POST_CONFIG_ACTION),
            desired_drain: note(annotation::DESIRED_DRAIN),
            last_applied_drain: note(annotation::LAST_APPLIED_DRAIN),
            topology: note(annotation::CONTROL_PLANE_TOPOLOGY),
            retry: note(own::RETRY),
            drift: note(annotation::DRIFT),
            unschedulable: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or_default(),
            own_cordon: notes
                .and_then(|a| a.get(own::CORDON))
                .is_some_and(|m| m == CordonMark::Daemon.text()),
            ready: ready.is_none_or(|c| c.status == "True"),
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

/// What of the disk counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// A change of this host is neither through nor taken back, or nobody has looked whether one is.
    pub open: bool,
    /// The name of the config that was last applied, if any was.
    pub current: Option<String>,
    /// The first boot left `node-annotations.json` for the Node.
    pub annotations_file: bool,
    /// A person asks, by a file, for everything to be written again.
    pub force: bool,
    /// Whether a reboot is owed, as the host's own record says.
    pub reboot: RebootFact,
    /// The host's back end of the operating system can be told an image that is not its config's. None can, yet.
    pub takes_images: bool,
}

/// The host records a reboot together with the update that needs it, and with the boot that it was applied in: no
/// crash can lose it, and a restart of the daemon alone is not one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum RebootFact {
    /// None is owed.
    #[default]
    None,
    /// This is still the boot that the update was applied in.
    Owed {
        /// The config that needs it.
        config: String,
        /// How often a reboot was begun for it.
        tries: u32,
        /// The pods have left and were kept away since, as far as is known, or this machine is not drained.
        cleared: bool,
    },
    /// The machine has rebooted since.
    Rebooted {
        /// The config that needed it.
        config: String,
        /// The boot that the update was applied in, as the kernel calls it.
        boot_id: String,
        /// Where the kernel calls today's boot the same (a container): when today's began. The kubelet's boot id says
        /// nothing there, and what it has reported since does.
        began: Option<Timestamp>,
    },
}

/// From which config to which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The config that the disk is in.
    pub from: String,
    /// The config to move to.
    pub to: String,
}

/// What an update costs the node's users.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Pods have to leave first.
    pub drain: bool,
    /// The machine reboots after it.
    pub reboot: bool,
}

/// How far this process has come with an update. Lost at a restart, and worked out again.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// An update that was checked and planned.
    Prepared {
        /// Between which configs.
        pair: Pair,
        /// What it costs.
        cost: Cost,
        /// Something of the operating system, such as an image, has to be brought to the host before the drain.
        to_fetch: bool,
        /// When the drain was asked for.
        asked: Option<Moment>,
    },
    /// An update that is on the disk and in effect.
    Applied {
        /// The config.
        config: String,
        /// When the uncordon was asked for.
        asked: Option<Moment>,
    },
    /// A reboot is owed, and pods have to leave once more before it.
    Redraining {
        /// Since when.
        since: Moment,
    },
    /// The machine is back from a reboot; its kubelet is waited for.
    AwaitingKubelet {
        /// Since when.
        since: Moment,
    },
    /// Something did not work.
    Failed(Failure),
}

/// A failure: of what, how, and when it is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What was tried. Another job is not held up by it.
    pub job: Job,
    /// What it makes of the node.
    pub kind: FailureKind,
    /// For people; names the object, the path and the remedy.
    pub reason: String,
    /// How often it was tried.
    pub tries: u32,
    /// When to try again.
    pub retry_at: Moment,
}

/// What a failure makes of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// `state=Degraded`.
    Degraded,
    /// `state=Unreconcilable`: trying again cannot help, another config can.
    Unreconcilable,
    /// The API server did not answer, or an object is not there yet: nothing is wrong with this node.
    Transient,
}

impl Job {
    /// Needs no API server to be tried again.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Recover | Self::Reboot { .. })
    }
}

/// What there is to do, apart from where in it the node stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Finish or undo a change that is half made.
    Recover,
    /// Put the first boot's annotations on the Node.
    AdoptFile,
    /// Find out which config a node without any is to be in.
    Join,
    /// Compare the disk with the config that it should be in.
    Check {
        /// The config.
        config: String,
    },
    /// Say that the host cannot run the image that the pool wants.
    RefuseImage,
    /// Move from one config to another.
    Update(Pair),
    /// Reboot into a config that is on the disk.
    Reboot {
        /// The config.
        config: String,
    },
    /// Give the node back and say so.
    Finish {
        /// The config.
        config: String,
    },
}

/// How long to wait after the nth failure (n from 1). `jitter` is a random number from 0 to 1: half of the wait is
/// random, so that a pool of nodes that failed together does not come back together.
pub fn backoff(tries: u32, jitter: f64) -> SignedDuration {
    let doubled = FIRST_RETRY.as_secs().saturating_mul(1 << tries.saturating_sub(1).min(16));
    let most = SignedDuration::from_secs(doubled).min(LONGEST_RETRY);
    most.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// The same for an API server that does not answer: 8 s at most, so that a node goes on soon after an outage, however
/// long that was.
pub fn outage_backoff(tries: u32, jitter: f64) -> SignedDuration {
    const DOUBLINGS: u32 = 4;
    backoff(tries.min(DOUBLINGS), jitter)
}

/// The same for a try that disturbs the node's services and then takes everything back: soon once, as it may have been a
/// hiccup, then ever more rarely. Another config, or a restart of the agent, is tried at once.
pub fn disturbing_backoff(tries: u32, jitter: f64) -> SignedDuration {
    let doubled = FIRST_DISTURBING_RETRY.as_secs().saturating_mul(1 << (2 * tries.saturating_sub(1).min(8)));
    let most = SignedDuration::from_secs(doubled).min(LONGEST_DISTURBING_RETRY);
    most.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// A reason as it fits on the Node; one that is cut says so.
pub fn cut_reason(reason: &str) -> String {
    api::text::cut(reason, api::text::MAX_REASON_CHARS).into_owned()
}
