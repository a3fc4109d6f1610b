//! The milestones of an update, and what each of them changes on the node's MachineConfigNode: the conditions that it sets,
//! the status after several of them, and the patch from one status to the next. Pure.
//!
//! Not here: when it is written (see `report`), nor the rules of those conditions (`rollout::machine_config_nodes`).
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types_machineconfignode.go>.

use crate::protocol::{Cost, NodeFacts, cut_reason};
use api::conditions::StatusCondition as _;
use api::k8s::Time;
use api::names::node_condition as c;
use api::v1::MachineConfigNodeStatus;
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, TestOperation};
use rollout::PastUpdate;
use rollout::machine_config_nodes::{self, Progress};
use rollout::view::NodeView;
use serde_json::{Value, json};

/// A milestone of an update that is reported.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Milestone {
    /// The node is in the desired config.
    Updated,
    /// Another config is desired.
    UpdateNeeded,
    /// The update cannot be done.
    Refused(String),
    /// The update was checked and planned.
    Prepared {
        /// What it costs.
        cost: Cost,
        /// Why extensions need a reboot although they were allowed to take effect without. Empty: that is not so.
        not_live: String,
    },
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
    /// The image of the operating system is being pulled: how far it is.
    Pulling(String),
    /// It is on the host.
    Pulled,
    /// It cannot be pulled.
    NotPulled(String),
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

    pub(super) fn progress(&self, name: &str, node: &NodeFacts) -> Vec<Progress> {
        let to = &node.desired_state();
        match self {
            // This also resets the conditions of earlier steps and of a failure.
            Self::Updated | Self::Troubled => {
                let config = &node.current_state();
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
            Self::UpdateNeeded => {
                vec![Progress::of(c::UPDATED, "False", format!("Node needs an update to {to}"))]
            }
            Self::Refused(why) => vec![Progress::of(c::UPDATE_PREPARED, "Unknown", cut_reason(why))],
            Self::Prepared { cost: Cost { drain, reboot }, not_live } => {
                let mut text = format!("Update to {to} is possible; drain: {drain}, reboot: {reboot}");
                if !not_live.is_empty() {
                    text = format!("{text}; {}", cut_reason(not_live));
                }
                let mut said = vec![Progress::of(c::UPDATE_PREPARED, "True", text)];
                if !drain {
                    let text = "Node needs no drain for this update";
                    said.push(Progress::part((c::UPDATE_EXECUTED, "Unknown"), (c::DRAINED, "False"), text));
                }
                said
            }
            Self::Pulling(text) => vec![Progress::pulling(text)],
            Self::Pulled => vec![Progress::of(c::IMAGE_PULLED, "True", "The OS image is on the node")],
            Self::NotPulled(why) => vec![Progress::of(c::IMAGE_PULLED, "False", cut_reason(why))],
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

/// A milestone and its time.
pub(super) type TimedProgress = (Timestamp, Progress);

/// The status after some milestones. `None`: nothing but times would change, for example because one undoes another.
pub(super) fn after(
    old: Option<&MachineConfigNodeStatus>,
    said: &[TimedProgress],
    node: &NodeView,
    generation: i64,
) -> Option<MachineConfigNodeStatus> {
    let mut new: Option<MachineConfigNodeStatus> = None;
    for (at, progress) in said {
        let base = new.as_ref().or(old);
        // Times in the API have whole seconds: with a fraction, every report would look different from what is stored.
        let at = Time(Timestamp::from_second(at.as_second()).unwrap_or(*at));
        if let Some(next) = machine_config_nodes::advance(base, progress, node, generation, &at) {
            new = Some(next);
        }
    }
    new.filter(|new| old.is_none_or(|old| timeless(old) != timeless(new)))
}

/// The update that ends with these milestones, as it is written down; see [`PastUpdate`].
pub(super) fn finished_update(
    old: Option<&MachineConfigNodeStatus>,
    said: &[TimedProgress],
    node: &NodeView,
    generation: i64,
) -> Option<PastUpdate> {
    let ends =
        |(_, progress): &TimedProgress| progress.parent.type_ == c::UPDATED && progress.parent.is_true();
    let end = said.iter().position(ends)?;
    let (before, (at, _)) = (said.get(..end)?, said.get(end)?);
    let reached = after(old, before, node, generation);
    let config = node.current_config.as_deref()?;
    PastUpdate::of(reached.as_ref().or(old)?, config, Timestamp::from_second(at.as_second()).unwrap_or(*at))
}

fn timeless(status: &MachineConfigNodeStatus) -> MachineConfigNodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    status
}

/// The fields of a Node that the object shows.
pub(super) fn node_view(name: &str, node: &NodeFacts) -> NodeView {
    let note = |text: &str| Some(text).filter(|t| !t.is_empty()).map(Into::into);
    NodeView {
        name: name.into(),
        uid: node.uid.as_str().into(),
        current_config: note(&node.current),
        desired_config: note(&node.desired),
        ..NodeView::default()
    }
}

/// A JSON patch (RFC 6902) from `old` to `new`. It addresses each condition by its index and tests that the condition is
/// still the one that was there when the patch was computed. Writes of others to other fields (the spec, other conditions)
/// cause no conflict.
///
/// `None`: `old` has no conditions to test, or `new` does not have all of
/// them at the same indexes. Then the whole status must be written, bound to the object's resource version.
pub(super) fn patch(old: &MachineConfigNodeStatus, new: &MachineConfigNodeStatus) -> Option<Patch> {
    let before = old.conditions.as_ref().filter(|list| !list.is_empty())?;
    let after = new.conditions.as_ref()?;
    let mut steps = vec![];
    for (place, old) in before.iter().enumerate() {
        let new = after.get(place).filter(|new| new.type_ == old.type_)?;
        if new != old {
            let path = at(["status", "conditions", &place.to_string()]);
            steps.push(PatchOperation::Test(TestOperation { path: path.clone(), value: json!(old) }));
            steps.push(PatchOperation::Replace(ReplaceOperation { path, value: json!(new) }));
        }
    }
    // The list has one condition of each type. If somebody else adds the same type meanwhile, the result is invalid
    // and the patch is refused.
    for new in &after[before.len()..] {
        steps.push(add(["status", "conditions", "-"], json!(new)));
    }
    if new.config_version != old.config_version {
        steps.push(add(["status", "configVersion"], json!(new.config_version)));
    }
    if new.observed_generation != old.observed_generation {
        steps.push(add(["status", "observedGeneration"], json!(new.observed_generation)));
    }
    Some(Patch(steps))
}

fn add<const N: usize>(path: [&str; N], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: at(path), value })
}

fn at<const N: usize>(path: [&str; N]) -> PointerBuf {
    PointerBuf::from_tokens(path)
}

#[cfg(test)]
mod tests;
