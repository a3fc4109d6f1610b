//! The output of [`step`](super::step): the single next action, as a plain value.
//!
//! What it is not: the decision (see `step`), or the carrying out (see `agent`).

use super::facts::Pair;
use crate::protocol::clock::Moment;
use api::events::AgentEvent;
use std::collections::BTreeMap;

/// Annotations to set, all in one patch.
pub type Changes = BTreeMap<&'static str, String>;

/// A change of the Node's cordon, in the same patch as the annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cordon {
    /// Cordon the node, marked as this agent's own cordon.
    Begin,
    /// Uncordon the node and remove the mark.
    End,
}

/// The next action.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Everything is done and the Node says so. Wait for a change.
    Idle,
    /// Somebody else has to act, or time has to pass. Wait for a change, at most until the given time.
    Wait {
        /// What the agent waits for.
        why: Waiting,
        /// Decide again at this time even if nothing has changed.
        until: Option<Moment>,
    },
    /// Patch the Node.
    Write {
        /// The annotations.
        changes: Changes,
        /// The events to write after the patch.
        notes: Vec<Note>,
        /// The change of the cordon, if there is one.
        cordon: Option<Cordon>,
        /// Patch only if the Node has not changed since it was seen, because others may write one of these fields too.
        conditional: bool,
    },
    /// Complete or undo an unfinished change.
    Recover,
    /// Write the annotations in `node-annotations.json` to the Node, then rename the file.
    AdoptFile,
    /// Find the node's pool and the config that it should be in.
    Join,
    /// Compare the disk with `config`. If no config was ever recorded on the disk, record it.
    Check {
        /// The config.
        config: String,
        /// The disk has no record of a config yet.
        record: bool,
    },
    /// Fetch the config to move to, refuse what cannot be done, check the disk, and plan.
    Prepare(Pair),
    /// Fetch what the plan needs for its change of the operating system, which may take long. Meanwhile the node stays
    /// in service, the host does not change, and there is no journal.
    Fetch(Pair),
    /// Apply the plan.
    Apply(Pair),
    /// Reboot.
    Reboot {
        /// The config that needs it.
        config: String,
        /// The Node says so. `false`: the API server accepted no write for too long, so the reboot is only logged.
        announced: bool,
    },
    /// Record with the pending reboot whether the pods have left. A later process relies on it while it cannot read
    /// the Node.
    RecordCleared {
        /// The config that needs the reboot.
        config: String,
        /// The pods have left.
        cleared: bool,
    },
    /// The machine has rebooted: remove the record.
    ForgetReboot {
        /// The config that needed it.
        config: String,
    },
}

/// What a node waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// The Node object, which this process has not seen yet.
    Node,
    /// A reboot that leads to a new boot of this machine.
    Boot,
    /// The deletion of the Node.
    Deletion,
    /// The controller, to set the desired config.
    Desired,
    /// Another desired image, or none: the host cannot run this one.
    Image,
    /// The drain controller, to drain the node.
    Drain,
    /// The drain controller, to uncordon the node.
    Uncordon,
    /// The kubelet, to report with the new boot id.
    Kubelet,
    /// The time of the next try.
    Retry {
        /// What failed.
        reason: String,
    },
}

/// An event for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Which event.
    pub kind: AgentEvent,
    /// Its message.
    pub text: String,
}

impl Note {
    pub(super) fn new(kind: AgentEvent, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

pub(super) fn write(
    changes: impl IntoIterator<Item = (&'static str, String)>,
    notes: impl IntoIterator<Item = Note>,
) -> Action {
    Action::Write {
        changes: changes.into_iter().collect(),
        notes: notes.into_iter().collect(),
        cordon: None,
        conditional: false,
    }
}
