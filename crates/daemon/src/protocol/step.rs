//! The decision function of the update protocol: [`step`].
//!
//! Not here: its inputs (see `facts`), its result (see `action`), nor the execution (see `agent`).

use super::action::{Action, AgentNote, Changes, Cordon, Waiting, write};
use super::disruption::{
    abandons_reboot, config_of, drain_of, drain_request, overdue, reboot, uncordon_changes, uncordon_of,
    wait_for_drain,
};
use super::facts::{EMPTY_CONFIG, RebootFact, View};
use super::image::refuse_image;
use super::phase::{ConfigPair, Failure, FailureKind, Job, Phase, cut_reason};
use super::prefetch::prefetch;
use super::trial::{confirm, forgets_failure, should_leave_host};
use api::drain_request::DrainVerb;
use api::events::AgentEvent;
use api::names::{annotation, own};
use api::node_state::NodeState;
use desired::config_and_image;
use jiff::SignedDuration;

/// How long the uncordon may take before the node reports the delay.
const UNCORDON_LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// Decides the next action.
pub fn step(view: &View) -> Action {
    let mut action = decide(view);
    if let Action::Write { changes, .. } = &mut action {
        changes.retain(|key, value| view.node.annotation_value(key) != Some(value));
    }
    action
}

fn decide(view: &View) -> Action {
    let wait = |why| Action::Wait { why, until: None };
    let job = job(view);
    let again = match forgets_failure(view) {
        Ok(()) => return Action::ForgetTried,
        Err(again) => again,
    };
    if view.node.deleted && job != Job::Recover {
        return wait(Waiting::Deletion);
    }
    if !view.node.seen && !job.is_local() {
        return Action::Wait { why: Waiting::Node, until: again };
    }
    if should_leave_host(view) {
        return Action::Leave { asked: view.node.leave.clone() };
    }
    if let Phase::Failed(failure) = &view.phase
        && failure.job == job
        && let Some(action) = hold(view, failure)
    {
        return action;
    }
    match job {
        Job::Recover => Action::Recover,
        Job::Confirm => confirm_job(view),
        Job::AdoptFile => Action::AdoptFile,
        Job::Join => Action::Join,
        Job::Check { config } => Action::Check { config, record: view.disk.current.is_none() },
        Job::RefuseImage => refuse_image(view),
        Job::Update(pair) => update(view, pair),
        Job::Reboot { config } => reboot(view, config),
        Job::Finish { config } => finish(view, &config),
    }
}

fn confirm_job(view: &View) -> Action {
    view.disk.trial.as_ref().map_or(Action::ObserveTrial, |trial| confirm(view, trial))
}

/// The current job.
fn job(view: &View) -> Job {
    let (node, disk) = (&view.node, &view.disk);
    if disk.open {
        return Job::Recover;
    }
    // Before anything that waits for the kubelet or the API server: they may never come.
    if disk.trial.as_ref().is_some_and(|trial| trial.begun) {
        return Job::Confirm;
    }
    if let RebootFact::Owed { config, .. } | RebootFact::Rebooted { config, .. } = &disk.reboot
        && !abandons_reboot(view, config)
    {
        return Job::Reboot { config: config.clone() };
    }
    if disk.annotations_file {
        return Job::AdoptFile;
    }
    let blank = node.current.is_empty() && disk.current.is_none();
    if blank && node.desired.is_empty() {
        return Job::Join;
    }
    let base = view.config_on_disk();
    if disk.force && !blank {
        let to = if node.desired.is_empty() { base.clone() } else { node.desired_state() };
        return Job::Update(ConfigPair { from: base, to });
    }
    // A host that has drifted from its config may still move to another one: the update itself checks for drift that
    // it does not repair.
    let drifted = match &view.phase {
        Phase::Failed(Failure { job: Job::Check { config }, .. }) => *config == base,
        Phase::Failed(Failure { job: Job::Update(pair), .. }) => pair.from == base,
        _ => false,
    };
    let leaves = node.wants_other(&base) && disk.current.is_some();
    // A host to which nothing was ever applied has nothing to be compared with.
    let nothing_to_compare = blank || base == EMPTY_CONFIG;
    let settled = view.checked || nothing_to_compare || drifted && leaves;
    if !settled {
        return Job::Check { config: base };
    }
    if node.desired.is_empty() {
        // The disk is right if the Node object was deleted and created again. The new one may have a current config already: a
        // write that was on its way to the old one.
        return Job::Finish { config: base };
    }
    // Do not apply the config alone either: the image was built to contain what the config asks of the system.
    if node.desired_image != config_and_image(&base).1 && !disk.takes_images {
        return Job::RefuseImage;
    }
    if node.wants_other(&base) {
        Job::Update(ConfigPair { from: base, to: node.desired_state() })
    } else {
        Job::Finish { config: base }
    }
}

/// The action for a failure whose job may not be retried yet. `None`: it may be retried.
fn hold(view: &View, failure: &Failure) -> Option<Action> {
    // A job that needs no API server is retried on time, even if the failure could not be reported yet.
    if failure.job.is_local() && failure.retry_at <= view.now {
        return None;
    }
    let state = match failure.kind {
        FailureKind::Degraded => Some(NodeState::Degraded),
        FailureKind::Unreconcilable => Some(NodeState::Unreconcilable),
        FailureKind::Transient => None,
    };
    if let Some(state) = state {
        let reason = cut_reason(&failure.reason);
        if !view.node.says(state, &reason) {
            return Some(write([(annotation::STATE, state.to_string()), (annotation::REASON, reason)], []));
        }
    }
    if view.now < failure.retry_at {
        let why = Waiting::Retry { reason: failure.reason.clone() };
        return Some(Action::Wait { why, until: Some(failure.retry_at) });
    }
    None
}

fn update(view: &View, pair: ConfigPair) -> Action {
    let (cost, to_fetch, asked) = match &view.phase {
        Phase::Prepared { pair: held, cost, to_fetch, asked } if *held == pair => (*cost, *to_fetch, *asked),
        _ => return Action::Prepare(pair),
    };
    let node = &view.node;
    let mut changes = Changes::new();
    // A failed node keeps its state until an update has succeeded, because its pool counts degraded nodes.
    if matches!(node.said_state(), None | Some(NodeState::Done)) {
        changes.insert(annotation::STATE, NodeState::Working.to_string());
    }
    if !node.post_action.is_empty() {
        changes.insert(annotation::POST_CONFIG_ACTION, String::new());
    }
    if to_fetch {
        return if changes.is_empty() { Action::Fetch(pair) } else { write(changes, []) };
    }
    let drain = cost.drain && node.drains();
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

fn finish(view: &View, config: &str) -> Action {
    let node = &view.node;
    let uncordon = uncordon_of(config);
    let mut changes = Changes::new();
    if !node.post_action.is_empty() {
        changes.insert(annotation::POST_CONFIG_ACTION, String::new());
    }
    let (back, cordon) = uncordon_changes(node, config);
    // The cordon is the agent's own: uncordon and report Done in one write, so that the node does not occupy a slot
    // between the two.
    if cordon.is_some() {
        changes.extend(back);
        let mut notes = vec![uncordon_note(config)];
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
            Phase::Applied { config: held, asked } if config_of(held) == config_of(config) => *asked,
            _ => None,
        };
        let why = format!(
            "the controller has not uncordoned this node within {} minutes; is it running?",
            UNCORDON_LIMIT.as_mins()
        );
        let event = Some(AgentEvent::FailedToUncordon);
        return overdue(view, asked, UNCORDON_LIMIT, Waiting::Uncordon, event, &why);
    }
    let mut notes = vec![];
    if !is_done(view, config) {
        if ours && matches!(view.phase, Phase::Applied { asked: Some(_), .. }) {
            notes.push(uncordon_note(config));
        }
        notes.extend(say_done(view, config, &mut changes));
    }
    // Nothing was drained, and the node is schedulable: write the request together with its answer, as other tools
    // expect it. Not if a person has cordoned the node, because completing the request would uncordon it.
    let uncordoned = DrainVerb::of(&node.desired_drain) == DrainVerb::Uncordon;
    let settled = uncordoned || node.unschedulable || config == EMPTY_CONFIG;
    if !ours && (!settled || !changes.is_empty() && !node.unschedulable) {
        for key in [annotation::DESIRED_DRAIN, annotation::LAST_APPLIED_DRAIN] {
            changes.insert(key, uncordon.clone());
        }
    }
    // A Node object that was created again gets its desired config from the disk. The controller may change it
    // afterwards. A config that was tried and undone stays the desired one: if the node seemed to want another, the refusal would
    // be forgotten, and the controller would send the node to that config once more.
    if node.desired.is_empty() {
        let asked = view.disk.tried.as_ref().map_or(config, |tried| &tried.config);
        let (name, image) = config_and_image(asked);
        changes.insert(annotation::DESIRED_CONFIG, name.to_owned());
        changes.insert(annotation::DESIRED_IMAGE, image.to_owned());
        return Action::Write { changes, notes, cordon: None, conditional: true };
    }
    if !changes.is_empty() {
        return write(changes, notes);
    }
    prefetch(view).unwrap_or(Action::Idle)
}

fn uncordon_note(config: &str) -> AgentNote {
    let text = format!("Update completed for config {config} and node has been uncordoned");
    AgentNote::new(AgentEvent::Uncordon, text).on_the_way_to(config)
}

/// Sets the final state of a node that is in its config: done, or degraded by something other than the config.
fn say_done(view: &View, config: &str, changes: &mut Changes) -> Option<AgentNote> {
    if is_done(view, config) {
        return None;
    }
    let (state, reason) = final_state(view);
    let (name, image) = config_and_image(config);
    changes.insert(annotation::CURRENT_CONFIG, name.to_owned());
    if view.node.current_image != image {
        // The host may still fall back to it, so it stays in its registry.
        changes.insert(own::PREVIOUS_IMAGE, view.node.current_image.clone());
    } else if image.is_empty() && view.node.current != name && !view.node.previous_image.is_empty() {
        // Two configs without an image of a pool, one after the other: the host falls back to none, and the image may go.
        changes.insert(own::PREVIOUS_IMAGE, String::new());
    }
    changes.insert(annotation::CURRENT_IMAGE, image.to_owned());
    changes.insert(annotation::STATE, state.to_string());
    changes.insert(annotation::REASON, reason);
    let text = format!("Node has reached config {config} and is Done");
    let done = || AgentNote::new(AgentEvent::NodeDone, text).on_the_way_to(config);
    view.trouble.is_none().then(done)
}

fn is_done(view: &View, config: &str) -> bool {
    let (state, reason) = final_state(view);
    view.node.current_state() == config && view.node.says(state, &reason)
}

/// State and reason of a node with nothing left to do.
fn final_state(view: &View) -> (NodeState, String) {
    match &view.trouble {
        None => (NodeState::Done, String::new()),
        Some(why) => (NodeState::Degraded, cut_reason(why)),
    }
}
