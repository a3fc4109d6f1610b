//! A change on trial, as steps of the protocol: what is looked at, when the change is confirmed, and when it is undone.
//! Pure.
//!
//! A change that can cut the node off is kept only if afterwards the units that ran before run again, the API server
//! answers on a new connection, and the Node is Ready again if it was before. What was broken before the change is not
//! asked for.
//!
//! An API server that is away for everybody looks from here like one that the change has cut off. So the change is
//! undone as well when the time is up; but if the API server does not answer in the old config either, the change is
//! not to blame, and may be tried again when the API server is back. The host's own watch sees to that too, because an agent
//! in a pod does not start without an API server. At most as many nodes go back in an outage as are
//! on trial: those that are being updated, never those that are done.
//!
//! What it is not: the undo and the clock (see `host`), nor what puts a change on trial (see `desired`).

use super::action::{Action, Waiting};
use super::disruption::kubelet_reports;
use super::facts::{RebootFact, View};
use super::phase::Phase;
use super::trial_facts::{TrialFacts, TrialObservation};
use crate::protocol::clock::Moment;
use desired::KUBELET_UNITS;
use host::{Check, UnitState};
use jiff::SignedDuration;

/// How often a node on trial is looked at. A service that does not start is down again by the second look, and the
/// longest pause that an update pays for its trial is this one.
const RECHECK_INTERVAL: SignedDuration = SignedDuration::from_secs(5);
/// How long a change may go on with its trial when the node is to be in another config: a boot fits in.
const SUPERSEDED_PATIENCE: SignedDuration = SignedDuration::from_mins(2);
/// How long the API server must not answer in the old config until a change that was undone because it did not answer
/// counts as not to blame. A network that comes up late answers by then.
pub(crate) const NOT_TO_BLAME_AFTER: SignedDuration = SignedDuration::from_mins(2);

/// Why a change cannot be confirmed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnmetCheck {
    /// What failed.
    check: Check,
    /// How, for people.
    why: String,
    /// It may only be that there was no second look yet.
    unsteady: bool,
}

impl UnmetCheck {
    fn new(check: Check, why: String) -> Self {
        Self { check, why, unsteady: false }
    }
}

/// The next action for a change on trial.
pub(super) fn confirm(view: &View, trial: &TrialFacts) -> Action {
    if trial.before.person {
        let until = (!trial.left.is_zero()).then(|| view.now + trial.left);
        return Action::Wait {
            why: Waiting::Confirmation,
            until: until.or(Some(view.now + RECHECK_INTERVAL)),
        };
    }
    let Phase::OnTrial { last, earlier } = &view.phase else { return Action::ObserveTrial };
    let Err(unmet) = check_as_before(view, trial, last, earlier.as_ref()) else {
        return Action::ConfirmTrial;
    };
    let superseded = view.node.wants_other(&trial.config);
    let given_up = superseded && !unmet.unsteady && trial.within - trial.left >= SUPERSEDED_PATIENCE;
    if trial.left.is_zero() || given_up {
        return Action::FailTrial { check: unmet.check, why: unmet.why };
    }
    let next = last.at + RECHECK_INTERVAL.min(trial.left);
    if view.now < next {
        return Action::Wait { why: Waiting::Confirmation, until: Some(next) };
    }
    Action::ObserveTrial
}

/// Whether the node is as it was before the change, as far as that is looked at.
fn check_as_before(
    view: &View,
    trial: &TrialFacts,
    last: &TrialObservation,
    earlier: Option<&TrialObservation>,
) -> Result<(), UnmetCheck> {
    for (unit, state) in &last.units {
        if !state.runs() {
            let why = format!(
                "{unit} ran before the change and is {} now; see journalctl -u {unit} on the node",
                state.active
            );
            return Err(UnmetCheck::new(Check::Unit, why));
        }
    }
    // A restart that was seen says more than what may have another cause, or needs more time. Between two starts such a
    // unit is active for a moment.
    if let Some(unit) = earlier.and_then(|earlier| restarted(&earlier.units, &last.units)) {
        return Err(UnmetCheck::new(Check::Unit, restarts(unit)));
    }
    if let Some(why) = &last.logins {
        return Err(UnmetCheck::new(Check::Unit, why.clone()));
    }
    if let Err(why) = &last.api {
        return Err(UnmetCheck::new(Check::Api, format!("the API server does not answer this node: {why}")));
    }
    let node = &view.node;
    if trial.before.ready {
        if !node.seen || !reports(view, trial, last) {
            let kubelet = kubelet_of(trial);
            let why = format!(
                "{kubelet} has not reported since the change; see journalctl -u {kubelet} on the node"
            );
            return Err(UnmetCheck::new(Check::Node, why));
        }
        if !node.ready {
            let why = "the Node was Ready before the change and is not now; its conditions say why";
            return Err(UnmetCheck::new(Check::Node, why.to_owned()));
        }
    }
    for at in &last.units {
        if !earlier.is_some_and(|earlier| earlier.units.contains(at)) {
            let why = format!("{} has passed only one of two checks since the change", at.0);
            return Err(UnmetCheck { unsteady: true, ..UnmetCheck::new(Check::Unit, why) });
        }
    }
    Ok(())
}

/// The first of these units that is in another run than at an earlier look.
pub(crate) fn restarted<'l>(
    earlier: &[(String, UnitState)],
    last: &'l [(String, UnitState)],
) -> Option<&'l String> {
    last.iter().find_map(|(unit, state)| {
        let mut then = earlier.iter().filter(|(u, _)| u == unit).map(|(_, then)| &then.invocation);
        then.any(|then| !then.is_empty() && *then != state.invocation).then_some(unit)
    })
}

/// How a unit fails that is started again and again.
pub(crate) fn restarts(unit: &str) -> String {
    format!("{unit} is started again and again; see journalctl -u {unit} on the node")
}

/// The kubelet of this node, as its unit is called.
fn kubelet_of(trial: &TrialFacts) -> &str {
    let ran = trial.units.iter().map(|run| run.unit.as_str()).find(|unit| KUBELET_UNITS.contains(unit));
    ran.unwrap_or("kubelet.service")
}

/// Whether the Node's Ready condition is from after the change. Its value may be most of a minute old otherwise: so
/// long the cluster takes to notice that a kubelet is gone.
fn reports(view: &View, trial: &TrialFacts, last: &TrialObservation) -> bool {
    let node = &view.node;
    if let RebootFact::Rebooted { boot_id, began, .. } = &view.disk.reboot {
        return kubelet_reports(node, boot_id, *began);
    }
    let restarted = trial.units.iter().filter(|run| KUBELET_UNITS.contains(&run.unit.as_str())).any(|run| {
        let now = last.units.iter().find(|(unit, _)| *unit == run.unit);
        now.is_some_and(|(_, state)| state.invocation != run.invocation)
    });
    !restarted || node.heard.is_none() || node.heard != trial.before.heard
}

/// Whether the record of a failed trial is removed now: the node is to be in another config, a person asks
/// for another try, or the API server does not answer in the old config either. Otherwise, when to decide again.
pub(super) fn forgets_failure(view: &View) -> Result<(), Option<Moment>> {
    let Some(tried) = &view.disk.tried else { return Err(None) };
    if view.disk.open || view.disk.trial.is_some() || view.disk.reboot != RebootFact::None {
        return Err(None);
    }
    if tried.retry || view.node.seen && view.node.wants_other(&tried.config) {
        return Ok(());
    }
    // Nobody may have confirmed it because the API server was away: an agent in a pod does not start then.
    if !tried.in_doubt || !matches!(tried.check, Check::Api | Check::Confirmation) {
        return Err(None);
    }
    match view.silent_since.map(|since| since + NOT_TO_BLAME_AFTER) {
        Some(then) if then <= view.now => Ok(()),
        then => Err(then),
    }
}

/// Whether the agent is asked to leave the host, and nothing is under way there that ends by itself: an update ends first, because
/// it may bring a trial, and a change on trial is confirmed or undone first, because later nobody is there to confirm it. The agent
/// goes on as usual afterwards, so a removal that is given up leaves nothing behind; so does one whose host cannot be left now.
pub(super) fn should_leave_host(view: &View) -> bool {
    let (node, disk) = (&view.node, &view.disk);
    let is_asked = node.seen && !node.leave.is_empty() && node.leave != node.left;
    let is_due = view.leave_again.is_none_or(|at| at <= view.now);
    let updates = match &view.phase {
        // What was prepared may not be wanted any more.
        Phase::Prepared { .. } => node.desired_state() != view.config_on_disk(),
        phase => matches!(phase, Phase::AwaitingKubelet { .. }),
    };
    is_asked && is_due && !updates && !disk.open && disk.trial.is_none() && disk.reboot == RebootFact::None
}

/// The state of the host after a change was undone, as the trial's watch sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateAfterUndo {
    /// What had failed.
    pub(crate) check: Check,
    /// The API server answers, or its address is not known.
    pub(crate) api: bool,
    /// The units that ran before the change run.
    pub(crate) units: bool,
    /// This is still the boot in which the change was undone.
    pub(crate) same_boot: bool,
    /// For how long one of them has failed, as far as this process knows.
    pub(crate) unwell: SignedDuration,
}

/// What the watch does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterUndo {
    /// The node is well in the old config, or what fails has nothing to do with the verdict: the config stays refused.
    Settled,
    /// Look again.
    LookAgain,
    /// An effect of the change may have stayed: reboot.
    Reboot,
    /// The API server is away in the old config too: the config may be tried again.
    NotToBlame,
}

/// Decides that. What a change leaves behind in the running system (rules of a firewall, an address) goes with a reboot,
/// so one is made before anything else is concluded.
pub(crate) fn after_undo(after: StateAfterUndo) -> AfterUndo {
    let StateAfterUndo { check, api, units, same_boot, unwell } = after;
    if api && units {
        return AfterUndo::Settled;
    }
    if unwell < NOT_TO_BLAME_AFTER {
        return AfterUndo::LookAgain;
    }
    if same_boot {
        return AfterUndo::Reboot;
    }
    match check {
        Check::Api | Check::Confirmation if !api => AfterUndo::NotToBlame,
        _ => AfterUndo::Settled,
    }
}
