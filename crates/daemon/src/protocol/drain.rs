//! The drain of the own node, as steps of the protocol: the request with its cordon, the wait for the answer, and the way
//! back into service.
//!
//! What it is not: the drain itself, which the controller does (see `rollout::drain`).

use super::action::{Action, Changes, Cordon, Note, Waiting, write};
use super::facts::{NodeFacts, View, cut_reason};
use crate::protocol::clock::Moment;
use api::drain_request::DrainVerb;
use api::events::AgentEvent;
use api::names::{annotation, state};
use jiff::SignedDuration;

/// How long a drain may take before the node reports the delay. The request stays: a drain that completes later is
/// used.
const DRAIN_LIMIT: SignedDuration = SignedDuration::from_hours(1);

/// The changes that uncordon a node after an update: the agent does it if the cordon is its own, otherwise it asks the
/// controller. Nothing if the node was not cordoned or drained for an update.
pub(super) fn give_back(node: &NodeFacts, config: &str) -> (Changes, Option<Cordon>) {
    let uncordon = format!("uncordon-{config}");
    let mut changes = Changes::new();
    if node.own_cordon {
        for key in [annotation::DESIRED_DRAIN, annotation::LAST_APPLIED_DRAIN] {
            changes.insert(key, uncordon.clone());
        }
        return (changes, Some(Cordon::End));
    }
    if DrainVerb::of(&node.desired_drain) == DrainVerb::Drain {
        changes.insert(annotation::DESIRED_DRAIN, uncordon);
    }
    (changes, None)
}

pub(super) fn drain_of(config: &str) -> String {
    format!("drain-{config}")
}

/// The request for a drain, if one must be made. If the drain was completed and the node is schedulable all the same,
/// a person has uncordoned it since. Pods may have been scheduled, so the completed drain is no longer valid.
pub(super) fn drain_request(node: &NodeFacts, config: &str) -> Option<(Changes, Vec<Note>)> {
    let wanted = drain_of(config);
    let mut changes = Changes::new();
    let mut why = format!("Draining node to move to {config}");
    if node.desired_drain == wanted {
        if node.unschedulable || node.last_applied_drain != wanted {
            return None;
        }
        changes.insert(annotation::LAST_APPLIED_DRAIN, String::new());
        why = format!("{why} once more: it was uncordoned before the update was complete");
    }
    changes.insert(annotation::DESIRED_DRAIN, wanted);
    let cordoned = Note::new(AgentEvent::Cordon, "Cordoned node to apply update");
    Some((changes, vec![cordoned, Note::new(AgentEvent::Drain, why)]))
}

pub(super) fn wait_for_drain(view: &View, asked: Option<Moment>) -> Action {
    let why = format!(
        "the node was not drained within {} minutes; its events and `mco status` name the pods that block \
         the drain. The update continues when they are gone",
        DRAIN_LIMIT.as_mins()
    );
    overdue(view, asked, DRAIN_LIMIT, Waiting::Drain, Some(AgentEvent::FailedToDrain), &why)
}

/// Waits for the drain controller, and reports it on the Node if that takes too long.
pub(super) fn overdue(
    view: &View,
    asked: Option<Moment>,
    limit: SignedDuration,
    waiting: Waiting,
    event: Option<AgentEvent>,
    why: &str,
) -> Action {
    let why = cut_reason(why);
    let end = asked.map(|t| t + limit);
    let late = end.is_some_and(|end| end <= view.now);
    if late && (view.node.state != state::DEGRADED || view.node.reason != why) {
        let changes = [(annotation::STATE, state::DEGRADED.to_owned()), (annotation::REASON, why.clone())];
        return write(changes, event.map(|kind| Note::new(kind, why)));
    }
    Action::Wait { why: waiting, until: end.filter(|_| !late) }
}
