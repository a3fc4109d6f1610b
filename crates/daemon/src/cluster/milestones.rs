//! The milestones of an update that are reported, and the MachineConfigNode conditions that each of them sets.
//!
//! Not here: writing them (see `report`), nor the rules of that object (`rollout::mcn`).

use crate::protocol::{Cost, NodeFacts, cut_reason};
use api::names::node_condition as c;
use rollout::mcn::Progress;

/// A milestone of an update that is reported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Milestone {
    /// The node is in the desired config.
    Updated,
    /// Another config is desired.
    Wanted,
    /// The update cannot be done.
    Refused(String),
    /// The update was checked and planned.
    Prepared(Cost),
    /// The agent has cordoned the node and asked for its drain.
    Cordoned,
    /// The API server refused the agent's cordon or uncordon.
    NotCordoned {
        /// True for an uncordon.
        back: bool,
        /// The API server's message.
        why: String,
    },
    /// The pods have left a node that the agent cordoned.
    Drained,
    /// The agent has uncordoned a node that it had cordoned.
    Uncordoned,
    /// The host is being changed.
    Applying,
    /// The host is changed.
    Applied {
        /// A reboot follows.
        reboots: bool,
        /// The services that were reloaded or restarted for it, as text.
        services: Vec<String>,
    },
    /// The reboot was started.
    Rebooting,
    /// The machine is back.
    Rebooted,
    /// The update failed. The reason is on the Node.
    Degraded,
    /// The node is in the desired config, but something else is wrong on it. The reason is on the Node.
    Troubled,
}

impl Milestone {
    /// Whether no other milestone follows soon: it is then written at once, with all that was collected before it.
    pub(super) fn is_last(&self) -> bool {
        matches!(self, Self::Updated | Self::Refused(_) | Self::Degraded | Self::Troubled)
    }

    pub(super) fn says(&self, name: &str, node: &NodeFacts) -> Vec<Progress> {
        let to = &node.desired;
        match self {
            // This also resets the conditions of earlier steps and of a failure.
            Self::Updated | Self::Troubled => {
                let config = &node.current;
                let degraded = match self {
                    Self::Troubled => Progress::of(c::NODE_DEGRADED, "True", node.reason.clone()),
                    _ => Progress::of(c::NODE_DEGRADED, "False", format!("Node {name} is not degraded")),
                };
                vec![
                    Progress::of(c::RESUMED, "True", format!("Node is in config {config} and runs as usual")),
                    Progress::of(c::UPDATED, "True", format!("Node is in config {config}")),
                    degraded,
                ]
            }
            Self::Cordoned => vec![Progress::cordoned(name), Progress::draining(name, None)],
            Self::NotCordoned { back: false, why } => vec![Progress::not_cordoned(name, &cut_reason(why))],
            Self::NotCordoned { back: true, why } => vec![Progress::not_uncordoned(name, &cut_reason(why))],
            Self::Drained => vec![Progress::drained(name)],
            Self::Uncordoned => vec![Progress::uncordoned(name, false)],
            Self::Wanted => vec![Progress::of(c::UPDATED, "False", format!("Node needs an update to {to}"))],
            Self::Refused(why) => vec![Progress::of(c::UPDATE_PREPARED, "Unknown", cut_reason(why))],
            Self::Prepared(Cost { drain, reboot }) => {
                let text = format!("Update to {to} is possible; drain: {drain}, reboot: {reboot}");
                let mut said = vec![Progress::of(c::UPDATE_PREPARED, "True", text)];
                if !drain {
                    let text = "Node needs no drain for this update";
                    said.push(Progress::part((c::UPDATE_EXECUTED, "Unknown"), (c::DRAINED, "False"), text));
                }
                said
            }
            Self::Applying => vec![applied("Unknown", format!("Applying {to}"))],
            Self::Applied { reboots, services } => {
                let mut said = vec![applied("True", format!("Applied {to}"))];
                let done = |text: String| Progress::of(c::UPDATE_POST_ACTION_COMPLETE, "True", text);
                match services.as_slice() {
                    _ if *reboots => {}
                    [] => {
                        let mut none = done("Node needs no reboot".to_owned());
                        "None".clone_into(&mut none.parent.reason);
                        said.push(none);
                    }
                    some => said.push(done(some.join(" "))),
                }
                said
            }
            Self::Rebooting => {
                vec![Progress::of(c::REBOOTED_NODE, "Unknown", format!("Rebooting into {to}"))]
            }
            Self::Rebooted => vec![
                Progress::of(c::REBOOTED_NODE, "True", "Node has rebooted"),
                Progress::of(c::UPDATE_POST_ACTION_COMPLETE, "True", "Node has rebooted"),
            ],
            Self::Degraded => vec![Progress::of(c::NODE_DEGRADED, "True", node.reason.clone())],
        }
    }
}

fn applied(status: &str, text: String) -> Progress {
    Progress::part((c::UPDATE_EXECUTED, status), (c::APPLIED_FILES_AND_OS, status), text)
}
