//! What the decision function of the update protocol returns: the next [`Action`], as a plain value.
//!
//! Not here: which action is next (see `step`), nor its execution (see `agent`).

use super::phase::ConfigPair;
use crate::protocol::clock::Moment;
use api::events::AgentEvent;
use desired::config_and_image;
use host::Check;
use std::collections::BTreeMap;

/// Annotations to set, all in one patch. An empty name of an image removes its annotation: others ask whether it is there.
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
        notes: Vec<AgentNote>,
        /// The change of the cordon, if there is one.
        cordon: Option<Cordon>,
        /// Patch only if the Node has not changed since it was seen, because others may write one of these fields too.
        conditional: bool,
    },
    /// Complete or undo an unfinished change.
    Recover,
    /// Look at the node whose change is on trial: its units, its Node, the API server.
    ObserveTrial,
    /// Keep the change that is on trial.
    ConfirmTrial,
    /// Undo the change that is on trial.
    FailTrial {
        /// What failed.
        check: Check,
        /// How, for people.
        why: String,
    },
    /// Remove the record of a change that was tried and undone: its config may be tried again.
    ForgetTried,
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
    Prepare(ConfigPair),
    /// Fetch what the plan needs for its change of the operating system, which may take long. Meanwhile the node stays
    /// in service, the host does not change, and there is no journal.
    Fetch(ConfigPair),
    /// Fetch what the next update will need, and answer. The node is in its config and in service, and stays so.
    Prefetch(ConfigPair),
    /// Apply the plan.
    Apply(ConfigPair),
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
    /// The product is removed: take from the host what was brought for trials, then answer on the Node.
    Leave {
        /// The request, which is the answer.
        asked: String,
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
    /// Another desired image, or none: the host cannot run this one.
    Image,
    /// The drain controller, to drain the node.
    Drain,
    /// The drain controller, to uncordon the node.
    Uncordon,
    /// The node, to be as it was before a change that is on trial; or the person who tries it.
    Confirmation,
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
pub struct AgentNote {
    /// Which event.
    pub kind: AgentEvent,
    /// Its message.
    pub text: String,
    /// The rendered config that it is about, where it is about a step of an update.
    pub config: Option<String>,
}

impl AgentNote {
    pub(crate) fn new(kind: AgentEvent, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), config: None }
    }

    /// The same, about a step on the way to a config, whose image may follow it.
    pub(crate) fn on_the_way_to(self, config: &str) -> Self {
        Self { config: Some(config_and_image(config).0.to_owned()), ..self }
    }
}

pub(super) fn write(
    changes: impl IntoIterator<Item = (&'static str, String)>,
    notes: impl IntoIterator<Item = AgentNote>,
) -> Action {
    Action::Write {
        changes: changes.into_iter().collect(),
        notes: notes.into_iter().collect(),
        cordon: None,
        conditional: false,
    }
}
