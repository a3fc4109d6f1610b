//! What a drain reports, and what it writes down on its node: that it has begun, what it waits for, its end.
//!
//! What it is not: the choice of pods (see `pods`), or what happens to a drain that does not end.

use super::{
    Drain, DrainLimit, DrainPlan, DrainReport, LATE_AFTER, REPORT_AFTER, REPORT_INTERVAL, Request, SLOW_AFTER,
};
use crate::event::{EventObject, EventPlan};
use crate::machine_config_nodes::Progress;
use crate::patch::{Change, NodePatch};
use crate::time::time;
use crate::view::{CordonMark, NodeView};
use api::drain_request::DrainVerb;
use api::events::ControllerEvent;
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decides for a node whose pods, or whose disruption budgets, cannot be read: nothing is evicted, and the node reports
/// why. Once they can be read again, [`super::plan`] continues.
pub fn plan_unreadable(node: &NodeView, state: &Drain, why: &str, now: Timestamp) -> DrainPlan {
    let mut plan = DrainPlan { node: node.name.clone(), state: state.clone(), ..DrainPlan::default() };
    let Request::Drain(request) = Request::of(node) else { return plan };
    if !matches!(state, Drain::Draining { request: same, .. } if &**same == request) {
        plan.state = resumed_drain(node, request, now);
    }
    let mut patch = NodePatch::default();
    let Drain::Draining { since, told, reported, .. } = &mut plan.state else { return plan };
    let text = format!("a list of its pods and of the disruption budgets: {why}");
    report_wait(node, now.duration_since(*since), told, &text, &mut plan.events);
    plan.late = *told == DrainReport::Late;
    if node.drain_wait.as_deref() != Some(&text)
        && reported.is_none_or(|at| now.duration_since(at) >= REPORT_INTERVAL)
    {
        *reported = Some(now);
        plan.progress = Some(Progress::draining(&node.name, Some(&text)));
        patch.drain_wait = Change::Set(text.into());
    }
    plan.patch = (!patch.is_empty()).then(|| patch.bound_to(node));
    plan
}

/// Reports what a drain waits for, once for each threshold that it passes.
pub(super) fn report_wait(
    node: &NodeView,
    waited: SignedDuration,
    told: &mut DrainReport,
    text: &str,
    events: &mut Vec<EventPlan>,
) -> DrainReport {
    let due = if waited >= LATE_AFTER {
        DrainReport::Late
    } else if waited >= SLOW_AFTER {
        DrainReport::Slow
    } else if waited >= REPORT_AFTER {
        DrainReport::Waiting
    } else {
        DrainReport::Nothing
    };
    if due > *told {
        *told = due;
        events.push(say(&node.name, due, text));
    }
    due
}

/// Whether this crate reports the drain on the MachineConfigNode. A daemon that cordons its node itself reports the
/// drain's progress together with its other steps; but only this side knows what the drain waits for.
pub(super) fn reports_drain(node: &NodeView) -> bool {
    node.cordon != Some(CordonMark::Daemon)
}

/// The state of a drain that this controller sees for the first time. Its time counts from when an earlier leader began it.
pub(super) fn resumed_drain(node: &NodeView, request: &str, now: Timestamp) -> Drain {
    Drain::Draining {
        request: request.into(),
        // The clock of that leader may have been ahead.
        since: node.drained_since(request).map_or(now, |since| since.min(now)),
        told: DrainReport::Nothing,
        reported: None,
        over: false,
        tries: BTreeMap::new(),
    }
}

/// Records on the node when a drain with a limit has begun, so that the next leader continues to count.
pub(super) fn record_drain_start(
    node: &NodeView,
    (request, limit): (&str, Option<DrainLimit>),
    since: Timestamp,
    patch: &mut NodePatch,
) {
    if limit.is_some() && node.drained_since(request).is_none() {
        patch.draining = Change::Set(format!("{request} {}", time(since).0).into());
    }
}

/// Nothing is drained any more.
pub(super) fn clear_drain_notes(node: &NodeView, patch: &mut NodePatch) {
    if node.drain_wait.is_some() {
        patch.drain_wait = Change::Remove;
    }
    if node.draining.is_some() {
        patch.draining = Change::Remove;
    }
}

/// Answers the request.
pub(super) fn finish(node: &NodeView, request: &str, patch: &mut NodePatch) {
    patch.last_applied_drain = Change::Set(request.into());
    clear_drain_notes(node, patch);
}

fn say(node: &Arc<str>, told: DrainReport, text: &str) -> EventPlan {
    let (reason, prefix) = match told {
        DrainReport::Nothing | DrainReport::Waiting => (ControllerEvent::DrainWaiting, "The drain waits for"),
        DrainReport::Slow => {
            (ControllerEvent::DrainThresholdExceeded, "The drain takes more than 10 minutes; it waits for")
        }
        DrainReport::Late => {
            (ControllerEvent::DrainFailed, "The drain takes more than 1 hour and goes on; it waits for")
        }
    };
    EventPlan::new(reason, EventObject::Node(node.clone()), format!("{prefix} {text}"))
}

impl DrainPlan {
    /// What the MachineConfigNode reports when the plan's patch is refused; `None` if the patch is not about a cordon.
    pub fn progress_when_refused(&self, why: &str) -> Option<Progress> {
        let patch = self.patch.as_ref()?;
        match (&patch.last_applied_drain, patch.unschedulable) {
            (Change::Set(request), _) if DrainVerb::of(request) == DrainVerb::Uncordon => {
                Some(Progress::not_uncordoned(&self.node, why))
            }
            (_, Some(true)) => Some(Progress::not_cordoned(&self.node, why)),
            _ => None,
        }
    }
}
