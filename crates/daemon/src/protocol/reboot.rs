//! The reboot that a change owes, as steps of the protocol: announced on the Node, recognised afterwards, and given up
//! after a few that had no effect.
//!
//! What it is not: the record of a pending reboot (see `host`).

use super::action::{Action, Cordon, Note, Waiting, write};
use super::drain::{drain_of, drain_request, overdue, wait_for_drain};
use super::facts::{Phase, RebootFact, View};
use api::events::AgentEvent;
use api::names::topology::SINGLE_REPLICA;
use api::names::{annotation, state};
use jiff::{SignedDuration, Timestamp};

/// How long a pending reboot waits for an API server that accepts no writes. Outages that pass by themselves (a leader
/// election, a fail-over, an upgrade of the control plane) are over by then. It is also how long Kubernetes waits by
/// default before it evicts the pods of an unreachable node. It should not be shorter: on a machine that boots while
/// the API server is away, the pods of DaemonSets do not start. It should not be longer: the change itself may be what
/// cuts the node off, and the reboot completes the change.
const ANNOUNCE_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// After this many reboots that did not lead to a new boot, no further one is started.
const MOST_REBOOTS: u32 = 3;

/// How often to check something that sends no notification.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// How long the kubelet may take after a reboot before the node reports the delay. A slow disk and a long image check
/// fit in.
const KUBELET_LIMIT: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn reboot(view: &View, config: String) -> Action {
    match &view.disk.reboot {
        RebootFact::Rebooted { boot_id, began, .. } => returned(view, config, boot_id, *began),
        RebootFact::Owed { tries, .. } if *tries >= MOST_REBOOTS => too_many_reboots(view, &config),
        RebootFact::Owed { cleared, .. } => reboot_owed(view, config, *cleared),
        RebootFact::None => Action::Reboot { config, announced: true },
    }
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
    let since_then = began.is_some_and(|began| node.heard.is_some_and(|heard| heard > began));
    let back = node.boot_id.is_empty() || node.boot_id != boot_id || since_then;
    // Another config may repair a kubelet that this config has broken, so do not wait for the kubelet then.
    let superseded = !node.desired.is_empty() && node.desired != config;
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
            *until = Some(until.map_or(view.now + LOOK_AGAIN, |end| end.min(view.now + LOOK_AGAIN)));
        }
        return action;
    }
    // A reboot that was not announced is reported now. For a node that never had a config this is not needed.
    if node.post_action != state::REBOOTING && !node.current.is_empty() {
        let text = format!("Node has rebooted into config {config} without announcing it");
        return write(rebooting(), [Note::new(AgentEvent::Reboot, text)]);
    }
    Action::ForgetReboot { config }
}

fn rebooting() -> [(&'static str, String); 1] {
    [(annotation::POST_CONFIG_ACTION, state::REBOOTING.to_owned())]
}

/// A reboot is pending: the pods must have left, and the Node must announce the reboot. If the API server accepts no
/// writes, the recorded state has to suffice.
fn reboot_owed(view: &View, config: String, cleared: bool) -> Action {
    let node = &view.node;
    let announced = node.post_action == state::REBOOTING;
    let drains = node.topology != SINGLE_REPLICA;
    let answered = node.last_applied_drain == drain_of(&config);
    let away = if node.seen { !drains || node.unschedulable && (cleared || answered) } else { cleared };
    let applied = view.disk.current.as_deref() == Some(&*config);
    let limit = view.silent_since.map(|since| since + ANNOUNCE_LIMIT).filter(|_| away && applied);
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
    let note = Note::new(AgentEvent::Reboot, format!("Node will reboot into config {config}"));
    let changes = rebooting().into();
    // Conditional, because the node must still be cordoned as it was seen.
    Action::Write { changes, notes: vec![note], cordon: None, conditional: drains }
}

/// Whether a node whose reboots had no effect should move to another config, which it may be able to reach.
pub(super) fn abandons_reboot(view: &View, config: &str) -> bool {
    let RebootFact::Owed { tries, .. } = &view.disk.reboot else { return false };
    let desired = &view.node.desired;
    *tries >= MOST_REBOOTS && !desired.is_empty() && desired != config && view.config_on_disk() == config
}

/// Reports that reboots have no effect: the machine comes back with what looks like the same boot, or does not go down
/// at all.
fn too_many_reboots(view: &View, config: &str) -> Action {
    let why = format!(
        "this machine was told {MOST_REBOOTS} times to reboot into config {config} but has not rebooted: \
         neither its boot ID nor the token in /run has changed. Reboot it by hand (journalctl says why it \
         does not shut down). If the message stays after that, /run is not emptied at boot, as systemd \
         requires: correct that, or remove {} after the reboot",
        host::paths::REBOOT_PENDING
    );
    if view.node.seen && (view.node.state != state::DEGRADED || view.node.reason != why) {
        let changes = [(annotation::STATE, state::DEGRADED.to_owned()), (annotation::REASON, why)];
        return write(changes, []);
    }
    Action::Wait { why: Waiting::Boot, until: Some(view.now + LOOK_AGAIN) }
}
