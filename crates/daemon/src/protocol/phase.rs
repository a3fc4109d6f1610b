//! The progress of this process with an update, and what failed in it: plain values.
//!
//! What it is not: when a failure is tried again (see `retry`), or what the node and the disk say (see `facts`).

use crate::protocol::clock::Moment;
use crate::protocol::trial_facts::TrialObservation;

/// The old and the new config of an update, each with its image (see [`desired::with_image`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigPair {
    /// The config of the disk.
    pub from: String,
    /// The config to move to.
    pub to: String,
}

/// The disruption that an update causes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Pods have to leave first.
    pub drain: bool,
    /// The machine reboots after it.
    pub reboot: bool,
}

/// The progress of this process with an update. It is lost at a restart, and determined again.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Phase {
    /// No update in progress.
    #[default]
    Idle,
    /// An update has been checked and planned.
    Prepared {
        /// Between which configs.
        pair: ConfigPair,
        /// What it costs.
        cost: Cost,
        /// Something of the operating system, such as an image, must be fetched before the drain.
        to_fetch: bool,
        /// When the drain was asked for.
        asked: Option<Moment>,
    },
    /// An update is on the disk and in effect.
    Applied {
        /// The config.
        config: String,
        /// When the uncordon was asked for.
        asked: Option<Moment>,
    },
    /// A reboot is pending, and pods have to leave again before it.
    Redraining {
        /// Since when.
        since: Moment,
    },
    /// A change is on trial.
    OnTrial {
        /// The last look at the node.
        last: TrialObservation,
        /// The one before.
        earlier: Option<TrialObservation>,
    },
    /// The machine has rebooted, and the agent waits for its kubelet.
    AwaitingKubelet {
        /// Since when.
        since: Moment,
    },
    /// Something failed.
    Failed(Failure),
}

/// A failure: the job, the kind, and the time of the next try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The job that failed. It does not delay other jobs.
    pub job: Job,
    /// What it means for the node's state.
    pub kind: FailureKind,
    /// The reason for people. It names the object, the path and the remedy.
    pub reason: String,
    /// How often it was tried.
    pub tries: u32,
    /// When to try again.
    pub retry_at: Moment,
}

/// What a failure means for the node's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// `state=Degraded`.
    Degraded,
    /// `state=Unreconcilable`: a retry cannot help, another config can.
    Unreconcilable,
    /// The API server did not answer, or an object does not exist yet: nothing is wrong with this node.
    Transient,
}

/// The job of the agent, without the progress in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job {
    /// Complete or undo an unfinished change.
    Recover,
    /// Confirm a change that is on trial, or undo it.
    Confirm,
    /// Write the first boot's annotations to the Node.
    AdoptFile,
    /// Find out which config a node without one should be in.
    Join,
    /// Compare the disk with the config that it should be in.
    Check {
        /// The config.
        config: String,
    },
    /// Report that the host cannot run the image that the pool wants.
    RefuseImage,
    /// Move from one config to another.
    Update(ConfigPair),
    /// Reboot into a config that is on the disk.
    Reboot {
        /// The config.
        config: String,
    },
    /// Uncordon the node and report that it is done.
    Finish {
        /// The config.
        config: String,
    },
}

impl Job {
    /// Whether a retry needs no API server.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Recover | Self::Reboot { .. } | Self::Confirm)
    }
}

/// A reason, shortened to fit on the Node. A shortened reason says so.
pub fn cut_reason(reason: &str) -> String {
    api::formats::text::cut(reason, api::formats::text::MAX_REASON_CHARS).into_owned()
}
