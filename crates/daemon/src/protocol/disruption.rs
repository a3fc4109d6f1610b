//! How an update disturbs its node, as steps of the protocol: the drain, which is asked for together with the cordon and
//! taken back with the uncordon; and the reboot, which is announced on the Node, recognised afterwards, and given up after a
//! few that had no effect. A reboot of a node whose pods came back begins with another drain.
//!
//! What it is not: the drain itself, which the controller does (see `rollout::drain`); the record of a pending reboot (see
//! `host`).

use super::action::{Action, AgentNote, Changes, Cordon, Waiting, write};
use super::facts::{NodeFacts, RebootFact, View};
use super::phase::{Phase, cut_reason};
use crate::protocol::clock::Moment;
use api::drain_request::DrainVerb;
use api::events::AgentEvent;
use api::names::annotation;
use api::node_state::NodeState;
use desired::config_and_image;
use host::MOST_REBOOTS;
use jiff::{SignedDuration, Timestamp};

/// How long a drain may take before the node reports the delay. The request stays: a drain that completes later is
/// used.
const DRAIN_LIMIT: SignedDuration = SignedDuration::from_hours(1);

/// The changes that uncordon a node after an update: the agent does it if the cordon is its own, otherwise it asks the
/// controller. Nothing if the node was not cordoned or drained for an update.
pub(super) fn uncordon_changes(node: &NodeFacts, config: &str) -> (Changes, Option<Cordon>) {
    let uncordon = uncordon_of(config);
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

/// The config of a state. Drains are asked for by it alone: the pods have left whatever the image will be.
pub(super) fn config_of(state: &str) -> &str {
    config_and_image(state).0
}

pub(super) fn drain_of(state: &str) -> String {
    api::drain_request::drain(config_of(state))
}

pub(super) fn uncordon_of(state: &str) -> String {
    api::drain_request::uncordon(config_of(state))
}

/// The request for a drain, if one must be made. If the drain was completed and the node is schedulable all the same,
/// a person has uncordoned it since. Pods may have been scheduled, so the completed drain is no longer valid.
pub(super) fn drain_request(node: &NodeFacts, config: &str) -> Option<(Changes, Vec<AgentNote>)> {
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
    let cordoned = AgentNote::new(AgentEvent::Cordon, "Cordoned node to apply update");
    let notes = [cordoned, AgentNote::new(AgentEvent::Drain, why)];
    Some((changes, notes.map(|note| note.on_the_way_to(config)).into()))
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
    if late && !view.node.says(NodeState::Degraded, &why) {
        let changes =
            [(annotation::STATE, NodeState::Degraded.to_string()), (annotation::REASON, why.clone())];
        return write(changes, event.map(|kind| AgentNote::new(kind, why)));
    }
    Action::Wait { why: waiting, until: end.filter(|_| !late) }
}

/// How long a pending reboot waits for an API server that accepts no writes. Outages that pass by themselves (a leader
/// election, a fail-over, an upgrade of the control plane) are over by then. It is also how long Kubernetes waits by
/// default before it evicts the pods of an unreachable node. It should not be shorter: on a machine that boots while
/// the API server is away, the pods of DaemonSets do not start. It should not be longer: the change itself may be what
/// cuts the node off, and the reboot completes the change.
const ANNOUNCE_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// The same for a reboot back out of a change that was tried. Silence is then more probably the change's doing. Not for the
/// reboot into one: while the API server is away for everybody, nothing could confirm the change.
const ANNOUNCE_LIMIT_BACK: SignedDuration = SignedDuration::from_mins(1);

/// How often to check something that sends no notification.
const RECHECK_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// How long the kubelet may take after a reboot before the node reports the delay. A slow disk and a long image check
/// fit in.
const KUBELET_LIMIT: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn reboot(view: &View, config: String) -> Action {
    match &view.disk.reboot {
        RebootFact::Rebooted { boot_id, began, .. } => returned(view, config, boot_id, *began),
        RebootFact::Owed { tries, .. } if *tries >= MOST_REBOOTS || view.disk.returns >= MOST_REBOOTS => {
            too_many_reboots(view, &config)
        }
        RebootFact::Owed { cleared, .. } => reboot_owed(view, config, *cleared),
        RebootFact::None => Action::Reboot { config, announced: true },
    }
}

/// Whether the kubelet has reported since the boot that followed the one with this id. `began`: when that boot began, if
/// the kernel's id cannot tell.
pub(super) fn kubelet_reports(node: &NodeFacts, boot_id: &str, began: Option<Timestamp>) -> bool {
    // Heartbeats have whole seconds. One of the second in which the boot began may be the last of the kubelet before the
    // reboot, so it does not count. If it was the new kubelet's, its next one does, which comes within
    // nodeStatusReportFrequency (five minutes) if nothing changes.
    let since_then =
        began.is_some_and(|began| node.heard.is_some_and(|heard| heard.as_second() > began.as_second()));
    node.boot_id.is_empty() || node.boot_id != boot_id || since_then
}

/// After a reboot: waits for the kubelet.
fn returned(view: &View, config: String, boot_id: &str, began: Option<Timestamp>) -> Action {
    let node = &view.node;
    if !node.seen {
        return Action::Wait { why: Waiting::Node, until: None };
    }
    // The Node's Ready condition may still be from before the reboot, because the cluster takes most of a minute to
    // notice a missing machine. Reporting Done now would start the next node while this one is still down. Once the
    // kubelet reports with the new boot id, its Ready condition is current, whatever its value.
    let back = kubelet_reports(node, boot_id, began);
    // Another config may repair a kubelet that this config has broken, so do not wait for the kubelet then.
    let superseded = node.wants_other(&config);
    if !back && !superseded {
        let since = match &view.phase {
            Phase::AwaitingKubelet { since } => Some(*since),
            _ => None,
        };
        let why = format!(
            "the kubelet has not reported within {} minutes of the reboot into {config}; look at its unit on the host, or move the pool to another config",
            KUBELET_LIMIT.as_mins()
        );
        let mut action = overdue(view, since, KUBELET_LIMIT, Waiting::Kubelet, None, &why);
        // Heartbeats do not wake the agent, so it has to look again by itself.
        if let (Action::Wait { until, .. }, Some(_)) = (&mut action, began) {
            *until =
                Some(until.map_or(view.now + RECHECK_INTERVAL, |end| end.min(view.now + RECHECK_INTERVAL)));
        }
        return action;
    }
    // A reboot that was not announced is reported now. For a node that never had a config this is not needed.
    if !node.announces_reboot() && !node.current.is_empty() {
        let text = format!("Node has rebooted into config {config} without announcing it");
        return write(rebooting(), [AgentNote::new(AgentEvent::Reboot, text).on_the_way_to(&config)]);
    }
    Action::ForgetReboot { config }
}

/// What is said of a reboot that begins. Which config the record of one that leads back names depends on the change that is undone.
pub(crate) fn announcement(view: &View, config: &str) -> String {
    match view.disk.reboot_of_trial {
        true => "Node will reboot to go back to the state before a change that failed its trial".to_owned(),
        false => format!("Node will reboot into config {config}"),
    }
}

fn rebooting() -> [(&'static str, String); 1] {
    [(annotation::POST_CONFIG_ACTION, annotation::REBOOTING.to_owned())]
}

/// A reboot is pending: the pods must have left, and the Node must announce the reboot. If the API server accepts no
/// writes, the recorded state has to suffice.
fn reboot_owed(view: &View, config: String, cleared: bool) -> Action {
    let node = &view.node;
    let announced = node.announces_reboot();
    let drains = node.drains();
    let answered = node.last_applied_drain == drain_of(&config);
    let away = if node.seen { !drains || node.unschedulable && (cleared || answered) } else { cleared };
    let applied = view.disk.current.as_deref() == Some(&*config);
    let patience = if view.disk.reboot_of_trial { ANNOUNCE_LIMIT_BACK } else { ANNOUNCE_LIMIT };
    let limit = view.silent_since.map(|since| since + patience).filter(|_| away && applied);
    if limit.is_some_and(|limit| limit <= view.now) {
        return Action::Reboot { config, announced };
    }
    if !node.seen {
        return Action::Wait { why: Waiting::Node, until: limit };
    }
    if drains && let Some((changes, notes)) = drain_request(node, &config) {
        // First record it for a later process: the request may be the last write that the API server accepts.
        if cleared {
            return Action::RecordCleared { config, cleared: false };
        }
        let cordon = (!node.unschedulable).then_some(Cordon::Begin);
        return Action::Write { changes, notes, cordon, conditional: cordon.is_some() };
    }
    if drains && !answered {
        let asked = match &view.phase {
            Phase::Redraining { since } => Some(*since),
            _ => None,
        };
        return wait_for_drain(view, asked);
    }
    if drains && !cleared {
        return Action::RecordCleared { config, cleared: true };
    }
    if announced {
        return Action::Reboot { config, announced };
    }
    let note = AgentNote::new(AgentEvent::Reboot, announcement(view, &config));
    let note = note.on_the_way_to(&config);
    let changes = rebooting().into();
    // Conditional, because the node must still be cordoned as it was seen.
    Action::Write { changes, notes: vec![note], cordon: None, conditional: drains }
}

/// Whether a node whose reboots had no effect should move to another config, which it may be able to reach. Not while a change is being
/// undone: no other one can be applied before that has ended.
pub(super) fn abandons_reboot(view: &View, config: &str) -> bool {
    let RebootFact::Owed { tries, .. } = &view.disk.reboot else { return false };
    let goes_back = view.disk.reboot_of_trial || view.disk.returns > 0;
    !goes_back && *tries >= MOST_REBOOTS && view.node.wants_other(config) && view.config_on_disk() == config
}

/// Reports that reboots have no effect: the machine comes back with what looks like the same boot, does not go down at all, or boots
/// an operating system that it should leave.
fn too_many_reboots(view: &View, config: &str) -> Action {
    let why = cut_reason(&format!(
        "this machine was told {MOST_REBOOTS} times to reboot because of config {config}, and it is not where it should be. If it has \
         not rebooted (neither its boot ID nor the token in /run has changed), reboot it by hand; journalctl says why it does not \
         shut down. If it has, and a change of its operating system is being undone, it boots the new one each time: choose the one \
         from before in the boot menu, or repair the boot loader. If the message stays after that, /run is not emptied at boot, as \
         systemd requires: correct that, or remove {} after the reboot",
        host::paths::REBOOT_PENDING
    ));
    if view.node.seen && !view.node.says(NodeState::Degraded, &why) {
        let changes = [(annotation::STATE, NodeState::Degraded.to_string()), (annotation::REASON, why)];
        return write(changes, []);
    }
    Action::Wait { why: Waiting::Boot, until: Some(view.now + RECHECK_INTERVAL) }
}
