//! The decision function of the update protocol.

use super::facts::{
    EMPTY_CONFIG, Failure, FailureKind, Job, NodeFacts, Pair, Phase, RebootFact, View, cut_reason,
};
use crate::protocol::clock::Moment;
use api::events::AgentEvent as EventKind;
use api::names::topology::SINGLE_REPLICA;
use api::names::{annotation, state};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// How long a drain may take before the node reports the delay. The request stays: a drain that completes later is
/// used.
const DRAIN_LIMIT: SignedDuration = SignedDuration::from_hours(1);
/// How long the uncordon may take before the node reports the delay.
const UNCORDON_LIMIT: SignedDuration = SignedDuration::from_mins(10);

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
    pub kind: EventKind,
    /// Its message.
    pub text: String,
}

impl Note {
    fn new(kind: EventKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// Decides the next action.
pub fn step(view: &View) -> Action {
    let mut action = decide(view);
    if let Action::Write { changes, .. } = &mut action {
        changes.retain(|key, value| view.node.says(key) != Some(value));
    }
    action
}

fn decide(view: &View) -> Action {
    let wait = |why| Action::Wait { why, until: None };
    let job = job(view);
    if view.node.deleted && job != Some(Job::Recover) {
        return wait(Waiting::Deletion);
    }
    if !view.node.seen && !job.as_ref().is_some_and(Job::is_local) {
        return wait(Waiting::Node);
    }
    let Some(job) = job else { return wait(Waiting::Desired) };
    if let Phase::Failed(failure) = &view.phase
        && failure.job == job
        && let Some(action) = hold(view, failure)
    {
        return action;
    }
    match job {
        Job::Recover => Action::Recover,
        Job::AdoptFile => Action::AdoptFile,
        Job::Join => Action::Join,
        Job::Check { config } => Action::Check { config, record: view.disk.current.is_none() },
        Job::RefuseImage => refuse_image(view),
        Job::Update(pair) => update(view, pair),
        Job::Reboot { config } => reboot(view, config),
        Job::Finish { config } => finish(view, &config),
    }
}

/// The config of the disk: by the disk's own record, else by the Node, else the empty config.
fn config_on_disk(view: &View) -> String {
    let node = Some(&view.node.current).filter(|c| !c.is_empty());
    view.disk.current.as_ref().or(node).cloned().unwrap_or_else(|| EMPTY_CONFIG.to_owned())
}

/// The current job. `None`: nothing until the controller names a config.
fn job(view: &View) -> Option<Job> {
    let (node, disk) = (&view.node, &view.disk);
    if disk.open {
        return Some(Job::Recover);
    }
    if let RebootFact::Owed { config, .. } | RebootFact::Rebooted { config, .. } = &disk.reboot
        && !abandons_reboot(view, config)
    {
        return Some(Job::Reboot { config: config.clone() });
    }
    if disk.annotations_file {
        return Some(Job::AdoptFile);
    }
    let blank = node.current.is_empty() && disk.current.is_none();
    if blank && node.desired.is_empty() {
        return Some(Job::Join);
    }
    let base = config_on_disk(view);
    if disk.force && !blank {
        let to = Some(&node.desired).filter(|d| !d.is_empty()).unwrap_or(&base).clone();
        return Some(Job::Update(Pair { from: base, to }));
    }
    // A host that has drifted from its config may still move to another one: the update itself checks for drift that
    // it does not repair.
    let drifted = match &view.phase {
        Phase::Failed(Failure { job: Job::Check { config }, .. }) => *config == base,
        Phase::Failed(Failure { job: Job::Update(pair), .. }) => pair.from == base,
        _ => false,
    };
    let leaves = !node.desired.is_empty() && node.desired != base && disk.current.is_some();
    // A host to which nothing was ever applied has nothing to be compared with.
    let nothing_to_compare = blank || base == EMPTY_CONFIG;
    let settled = view.checked || nothing_to_compare || drifted && leaves;
    if !settled {
        return Some(Job::Check { config: base });
    }
    if node.desired.is_empty() && node.current.is_empty() {
        // The disk is right if the Node object was deleted and created again.
        return Some(Job::Finish { config: base });
    }
    if node.desired.is_empty() {
        return None;
    }
    // Do not apply the config alone either: the image was built to contain what the config asks of the system.
    if node.desired_image != node.current_image && !disk.takes_images {
        return Some(Job::RefuseImage);
    }
    Some(if node.desired == base {
        Job::Finish { config: base }
    } else {
        Job::Update(Pair { from: base, to: node.desired.clone() })
    })
}

/// The action for a failure whose job may not be retried yet. `None`: it may be retried.
fn hold(view: &View, failure: &Failure) -> Option<Action> {
    // A job that needs no API server is retried on time, even if the failure could not be reported yet.
    if failure.job.is_local() && failure.retry_at <= view.now {
        return None;
    }
    let state = match failure.kind {
        FailureKind::Degraded => Some(state::DEGRADED),
        FailureKind::Unreconcilable => Some(state::UNRECONCILABLE),
        FailureKind::Transient => None,
    };
    if let Some(state) = state {
        let reason = cut_reason(&failure.reason);
        if view.node.state != state || view.node.reason != reason {
            return Some(write([(annotation::STATE, state.to_owned()), (annotation::REASON, reason)], []));
        }
    }
    if view.now < failure.retry_at {
        let why = Waiting::Retry { reason: failure.reason.clone() };
        return Some(Action::Wait { why, until: Some(failure.retry_at) });
    }
    None
}

fn update(view: &View, pair: Pair) -> Action {
    let (cost, to_fetch, asked) = match &view.phase {
        Phase::Prepared { pair: held, cost, to_fetch, asked } if *held == pair => (*cost, *to_fetch, *asked),
        _ => return Action::Prepare(pair),
    };
    let node = &view.node;
    let mut changes = Changes::new();
    // A failed node keeps its state until an update has succeeded, because its pool counts degraded nodes.
    if ![state::WORKING, state::DEGRADED, state::UNRECONCILABLE].contains(&node.state.as_str()) {
        changes.insert(annotation::STATE, state::WORKING.to_owned());
    }
    if !node.post_action.is_empty() {
        changes.insert(annotation::POST_CONFIG_ACTION, String::new());
    }
    if to_fetch {
        return if changes.is_empty() { Action::Fetch(pair) } else { write(changes, []) };
    }
    let drain = cost.drain && node.topology != SINGLE_REPLICA;
    if drain && let Some((request, notes)) = drain_request(node, &pair.to) {
        changes.extend(request);
        // Cordon in the same patch as the request, so that the controller does not have to. A node that is cordoned
        // already is left to the controller, which knows whose cordon it is.
        let cordon = (!node.unschedulable).then_some(Cordon::Begin);
        return Action::Write { changes, notes, cordon, conditional: cordon.is_some() };
    }
    if !changes.is_empty() {
        return write(changes, []);
    }
    if drain && node.last_applied_drain != drain_of(&pair.to) {
        return wait_for_drain(view, asked);
    }
    Action::Apply(pair)
}

/// Reports that the pool has an image of its own that this host cannot run, or that the host runs one that it cannot
/// leave. Waiting silently would occupy the node's slot forever. An unreconcilable node is moved on as soon as its
/// pool wants something else.
fn refuse_image(view: &View) -> Action {
    let node = &view.node;
    const NOBODY: &str = "this agent cannot apply images to this host's operating system";
    let why = cut_reason(&match node.desired_image.as_str() {
        "" => format!(
            "the node should change from the image {} to its config's own, but {NOBODY}; reinstall the machine",
            node.current_image
        ),
        wanted => format!(
            "the pool wants the image {wanted} on this node, but {NOBODY}; remove the pool's \
             MachineOSConfig, or move the node to a pool without one"
        ),
    });
    // If it was drained for an update, uncordon it: the host is complete in its config and cannot take another one.
    let (mut changes, cordon) = give_back(node, &config_on_disk(view));
    let mut notes = vec![];
    if node.state != state::UNRECONCILABLE || node.reason != why {
        changes.insert(annotation::STATE, state::UNRECONCILABLE.to_owned());
        changes.insert(annotation::REASON, why.clone());
        notes.push(Note::new(EventKind::FailedToReconcile, why));
    }
    if changes.is_empty() {
        return Action::Wait { why: Waiting::Image, until: None };
    }
    Action::Write { changes, notes, cordon, conditional: cordon.is_some() }
}

/// The changes that uncordon a node after an update: the agent does it if the cordon is its own, otherwise it asks the
/// controller. Nothing if the node was not cordoned or drained for an update.
fn give_back(node: &NodeFacts, config: &str) -> (Changes, Option<Cordon>) {
    let uncordon = format!("uncordon-{config}");
    let mut changes = Changes::new();
    if node.own_cordon {
        for key in [annotation::DESIRED_DRAIN, annotation::LAST_APPLIED_DRAIN] {
            changes.insert(key, uncordon.clone());
        }
        return (changes, Some(Cordon::End));
    }
    if node.desired_drain.starts_with("drain-") {
        changes.insert(annotation::DESIRED_DRAIN, uncordon);
    }
    (changes, None)
}

fn drain_of(config: &str) -> String {
    format!("drain-{config}")
}

/// The request for a drain, if one must be made. If the drain was completed and the node is schedulable all the same,
/// a person has uncordoned it since. Pods may have been scheduled, so the completed drain is no longer valid.
fn drain_request(node: &NodeFacts, config: &str) -> Option<(Changes, Vec<Note>)> {
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
    let cordoned = Note::new(EventKind::Cordon, "Cordoned node to apply update");
    Some((changes, vec![cordoned, Note::new(EventKind::Drain, why)]))
}

fn wait_for_drain(view: &View, asked: Option<Moment>) -> Action {
    let why = format!(
        "the node was not drained within {} minutes; its events and `mco status` name the pods that block \
         the drain. The update continues when they are gone",
        DRAIN_LIMIT.as_mins()
    );
    overdue(view, asked, DRAIN_LIMIT, Waiting::Drain, Some(EventKind::FailedToDrain), &why)
}

/// Waits for the drain controller, and reports it on the Node if that takes too long.
fn overdue(
    view: &View,
    asked: Option<Moment>,
    limit: SignedDuration,
    waiting: Waiting,
    event: Option<EventKind>,
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

fn reboot(view: &View, config: String) -> Action {
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
        return write(rebooting(), [Note::new(EventKind::Reboot, text)]);
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
    let note = Note::new(EventKind::Reboot, format!("Node will reboot into config {config}"));
    let changes = rebooting().into();
    // Conditional, because the node must still be cordoned as it was seen.
    Action::Write { changes, notes: vec![note], cordon: None, conditional: drains }
}

/// Whether a node whose reboots had no effect should move to another config, which it may be able to reach.
fn abandons_reboot(view: &View, config: &str) -> bool {
    let RebootFact::Owed { tries, .. } = &view.disk.reboot else { return false };
    let desired = &view.node.desired;
    *tries >= MOST_REBOOTS && !desired.is_empty() && desired != config && config_on_disk(view) == config
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

fn finish(view: &View, config: &str) -> Action {
    let node = &view.node;
    let uncordon = format!("uncordon-{config}");
    let mut changes = Changes::new();
    if !node.post_action.is_empty() {
        changes.insert(annotation::POST_CONFIG_ACTION, String::new());
    }
    let (back, cordon) = give_back(node, config);
    // The cordon is the agent's own: uncordon and report Done in one write, so that the node does not occupy a slot
    // between the two.
    if cordon.is_some() {
        changes.extend(back);
        let mut notes = vec![given_back(config)];
        notes.extend(say_done(view, config, &mut changes));
        return Action::Write { changes, notes, cordon, conditional: true };
    }
    // Cordoned by the controller for this update: the controller uncordons the node before the update is Done.
    if !back.is_empty() {
        changes.extend(back);
        return write(changes, []);
    }
    let ours = node.desired_drain == uncordon;
    if ours && node.last_applied_drain != uncordon && !is_done(view, config) {
        if !changes.is_empty() {
            return write(changes, []);
        }
        let asked = match &view.phase {
            Phase::Applied { config: held, asked } if held == config => *asked,
            _ => None,
        };
        let why = format!(
            "the controller has not uncordoned this node within {} minutes; is it running?",
            UNCORDON_LIMIT.as_mins()
        );
        let event = Some(EventKind::FailedToUncordon);
        return overdue(view, asked, UNCORDON_LIMIT, Waiting::Uncordon, event, &why);
    }
    let mut notes = vec![];
    if !is_done(view, config) {
        if ours && matches!(view.phase, Phase::Applied { asked: Some(_), .. }) {
            notes.push(given_back(config));
        }
        notes.extend(say_done(view, config, &mut changes));
    }
    // Nothing was drained, and the node is schedulable: write the request together with its answer, as other tools
    // expect it. Not if a person has cordoned the node, because completing the request would uncordon it.
    let settled = node.desired_drain.starts_with("uncordon-") || node.unschedulable || config == EMPTY_CONFIG;
    if !ours && (!settled || !changes.is_empty() && !node.unschedulable) {
        for key in [annotation::DESIRED_DRAIN, annotation::LAST_APPLIED_DRAIN] {
            changes.insert(key, uncordon.clone());
        }
    }
    // A Node object that was created again gets its desired config from the disk. The controller may change it
    // afterwards.
    if node.desired.is_empty() {
        changes.insert(annotation::DESIRED_CONFIG, config.to_owned());
        return Action::Write { changes, notes, cordon: None, conditional: true };
    }
    if changes.is_empty() { Action::Idle } else { write(changes, notes) }
}

fn given_back(config: &str) -> Note {
    let text = format!("Update completed for config {config} and node has been uncordoned");
    Note::new(EventKind::Uncordon, text)
}

/// Sets the final state of a node that is in its config: done, or degraded by something other than the config.
fn say_done(view: &View, config: &str, changes: &mut Changes) -> Option<Note> {
    if is_done(view, config) {
        return None;
    }
    let (state, reason) = final_state(view);
    changes.insert(annotation::CURRENT_CONFIG, config.to_owned());
    changes.insert(annotation::STATE, state.to_owned());
    changes.insert(annotation::REASON, reason);
    let done = || Note::new(EventKind::NodeDone, format!("Setting node {config} to Done"));
    view.trouble.is_none().then(done)
}

fn is_done(view: &View, config: &str) -> bool {
    let (state, reason) = final_state(view);
    view.node.current == config && view.node.state == state && view.node.reason == reason
}

/// State and reason of a node with nothing left to do.
fn final_state(view: &View) -> (&'static str, String) {
    match &view.trouble {
        None => (state::DONE, String::new()),
        Some(why) => (state::DEGRADED, cut_reason(why)),
    }
}

fn write(
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
