//! The image that a Node names besides its config, as a step of the protocol: a host that cannot run it says so.
//!
//! Not here: the images of configs, which the host's plan refuses or stages.

use super::action::{Action, AgentNote, Waiting};
use super::disruption::uncordon_changes;
use super::facts::View;
use super::phase::cut_reason;
use api::events::AgentEvent;
use api::names::annotation;
use api::node_state::NodeState;
use desired::config_and_image;

/// Reports that the pool has an image of its own that this host cannot run, or that the host runs one that it cannot
/// leave. Waiting silently would occupy the node's slot forever. An unreconcilable node is moved on as soon as its
/// pool wants something else.
pub(super) fn refuse_image(view: &View) -> Action {
    let node = &view.node;
    let disk = view.config_on_disk();
    const NOBODY: &str = "this agent cannot apply images to this host's operating system";
    let why = cut_reason(&match node.desired_image.as_str() {
        "" => format!(
            "the node should change from the image {} to its config's own, but {NOBODY}; reinstall the machine",
            config_and_image(&disk).1
        ),
        wanted => format!(
            "the pool wants the image {wanted} on this node, but {NOBODY}; remove the pool's \
             MachineOSConfig, or move the node to a pool without one"
        ),
    });
    // If it was drained for an update, uncordon it: the host is complete in its config and cannot take another one.
    let (mut changes, cordon) = uncordon_changes(node, &disk);
    let mut notes = vec![];
    if !node.says(NodeState::Unreconcilable, &why) {
        changes.insert(annotation::STATE, NodeState::Unreconcilable.to_string());
        changes.insert(annotation::REASON, why.clone());
        notes.push(AgentNote::new(AgentEvent::FailedToReconcile, why));
    }
    if changes.is_empty() {
        return Action::Wait { why: Waiting::Image, until: None };
    }
    Action::Write { changes, notes, cordon, conditional: cordon.is_some() }
}
