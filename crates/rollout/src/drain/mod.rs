//! Cordon, eviction and uncordon of one node, as its daemon asks for them by annotation.
//!
//! Data flow: `desiredDrain` ≠ `lastAppliedDrain` → [`plan`] with the node, its pods and all budgets → one patch,
//! evictions, and what is waited for → the answers go into the state with [`Drain::record`] → plan again, on every
//! change of node, pods or budgets, and after [`DrainPlan::recheck`] at the latest.
//!
//! What it is not: a client, or a limit on how many nodes drain at once: the rollout plan limits that by giving out
//! desired configs. The state in memory is only a convenience: after a restart of the controller, everything is read back from
//! the cluster; the time at which a drain began only if its pool's policy limits drains.
//!
//! Source: <https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/>.

mod outlook;
mod pods;
mod report;

pub use outlook::{OUTLOOK_INTERVAL, OUTLOOK_MAX_AGE, Outlook, outlook};
pub use pods::{
    Answer, Attempt, Blocker, EVICTION_VISIBLE_WITHIN, Evict, RETRY_ALLOWED, RETRY_MAX, RETRY_MIN, Skip,
    Skipped, Waiting,
};
pub use report::plan_unreadable;

use crate::event::{EventObject, EventPlan};
use crate::machine_config_nodes::Progress;
use crate::patch::{Change, NodePatch};
use crate::view::{BudgetView, CordonMark, NodeView, PodView};
use api::drain_request::DrainVerb;
use api::events::ControllerEvent;
use api::rendered::of_one_pool;
use api::v1alpha1::DrainEnd;
use jiff::{SignedDuration, Timestamp};
use report::{clear_drain_notes, finish, record_drain_start, report_wait, reports_drain, resumed_drain};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// How long a drain may wait before the node reports what for. Most pods are gone by then, and people ask within a
/// minute.
pub const REPORT_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// How often that text may change, since each change costs a write to the node.
pub const REPORT_INTERVAL: SignedDuration = SignedDuration::from_secs(15);
/// After this time a drain is slow: event `DrainThresholdExceeded`. Same value as the reference.
pub const SLOW_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// After this time the daemon stops waiting and treats the drain as failed: event `DrainFailed`, and a metric. The
/// drain itself goes on.
pub const LATE_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// What the daemon asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// Nothing, or something that was already done.
    None,
    /// `drain-CONFIG`.
    Drain(&'a str),
    /// `uncordon-CONFIG`.
    Uncordon(&'a str),
    /// Anything else.
    Unknown(&'a str),
}

impl<'a> Request<'a> {
    /// The open request of a node.
    pub fn of(node: &'a NodeView) -> Self {
        let text = node.desired_drain.as_deref().unwrap_or_default();
        if text == node.last_applied_drain.as_deref().unwrap_or_default() {
            return Self::None;
        }
        match DrainVerb::of(text) {
            DrainVerb::Drain => Self::Drain(text),
            DrainVerb::Uncordon => Self::Uncordon(text),
            DrainVerb::Unknown => Self::Unknown(text),
        }
    }
}

/// What happens to a drain that does not end, as the policy of the node's pool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainLimit {
    /// How long a drain may take.
    pub after: SignedDuration,
    /// What happens then.
    pub then: DrainEnd,
}

/// The progress of a node's drain. The controller holds one in memory for each node that has a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum Drain {
    /// No drain is under way.
    #[default]
    Idle,
    /// Pods are leaving.
    Draining {
        /// The request.
        request: Arc<str>,
        /// When the node was cordoned for it, or first seen cordoned; that an earlier leader did or saw, if it is written down
        /// ([`own::DRAINING`](api::names::own::DRAINING)).
        since: Timestamp,
        /// What was reported.
        told: DrainReport,
        /// When the report on the node was last written.
        reported: Option<Timestamp>,
        /// It was reported that it takes longer than its [`DrainLimit`].
        #[serde(default)]
        over: bool,
        /// Evictions, by pod UID.
        tries: BTreeMap<Box<str>, Attempt>,
    },
}

/// What was reported about a drain that does not end. Each is reported once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DrainReport {
    /// Nothing yet.
    #[default]
    Nothing,
    /// What it waits for, after [`REPORT_AFTER`].
    Waiting,
    /// That it is slow, after [`SLOW_AFTER`].
    Slow,
    /// That the daemon has given up, after [`LATE_AFTER`].
    Late,
}

impl Drain {
    /// Records the answer to an eviction.
    pub fn record(&mut self, pod_uid: &str, answer: Answer, now: Timestamp) {
        let Self::Draining { tries, .. } = self else { return };
        let count = tries.get(pod_uid).map_or(0, |t| t.count).saturating_add(1);
        tries.insert(pod_uid.into(), Attempt { count, at: now, answer });
    }
}

/// What is to be done for one node now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainPlan {
    /// The node.
    pub node: Arc<str>,
    /// The state to keep for the next plan.
    pub state: Drain,
    /// The change of the node, if there is one. The evictions below continue only in a plan that is made after it was
    /// applied.
    pub patch: Option<NodePatch>,
    /// Pods to evict now, all at once, each with a precondition on its UID.
    pub evict: Vec<Evict>,
    /// Pods that stay, and why.
    pub skipped: Vec<Skipped>,
    /// Pods that are waited for, and why they still exist.
    pub waiting: Vec<Waiting>,
    /// Transitions to report to people.
    pub events: Vec<EventPlan>,
    /// The progress of the MachineConfigNode, if it changed.
    pub progress: Option<Progress>,
    /// Plan again after this long, even if no change is seen.
    pub recheck: Option<SignedDuration>,
    /// The drain takes more than [`LATE_AFTER`] (metric `mcc_drain_err`).
    pub late: bool,
    /// The drain takes longer than its limit: what its pool reports, in words.
    pub over: Option<String>,
    /// What is wrong with the request, if it cannot be served.
    pub refused: Option<String>,
}

/// Decides for one node. `pods` may contain pods of other nodes; `budgets` must contain all budgets.
///
/// # Guarantees
/// - No pod is evicted before the node is seen cordoned, and `lastAppliedDrain` is written only while it is and no
///   pod that must go is left.
/// - A cordon that was there before the drain stays after it.
///
/// # Assumes
/// - The views are not older than the node's: a pod bound before the cordon is among them.
pub fn plan(
    node: &NodeView,
    pods: &[&PodView],
    budgets: &[&BudgetView],
    state: &Drain,
    now: Timestamp,
) -> DrainPlan {
    plan_within(None, node, pods, budgets, state, now)
}

/// As [`plan`], with the limit that the policy of the node's pool sets.
pub fn plan_within(
    limit: Option<DrainLimit>,
    node: &NodeView,
    pods: &[&PodView],
    budgets: &[&BudgetView],
    state: &Drain,
    now: Timestamp,
) -> DrainPlan {
    let mut plan = DrainPlan { node: node.name.clone(), ..DrainPlan::default() };
    let mut patch = NodePatch::default();
    match Request::of(node) {
        Request::None => clear_drain_notes(node, &mut patch),
        Request::Unknown(text) => {
            plan.refused = Some(format!(
                "node {}: annotation desiredDrain {text:?} is neither drain-CONFIG nor uncordon-CONFIG; \
                 the node's daemon writes it",
                node.name
            ));
        }
        Request::Uncordon(request) => {
            if node.unschedulable && node.cordon != Some(CordonMark::Kept) {
                patch.unschedulable = Some(false);
            }
            finish(node, request, &mut patch);
            if node.cordon.is_some() {
                patch.cordon = Change::Remove;
            }
            plan.progress = Some(Progress::uncordoned(&node.name, node.cordon == Some(CordonMark::Kept)));
        }
        Request::Drain(request) if !node.unschedulable => {
            patch.unschedulable = Some(true);
            if !matches!(node.cordon, Some(CordonMark::Drain | CordonMark::Daemon)) {
                patch.cordon = Change::Set(CordonMark::Drain);
            }
            plan.state = resumed_drain(node, request, now);
            record_drain_start(node, (request, limit), now, &mut patch);
            plan.progress = Some(Progress::cordoned(&node.name));
        }
        Request::Drain(request) => {
            plan.state = match state {
                Drain::Draining { request: same, .. } if &**same == request => state.clone(),
                _ => {
                    plan.progress = reports_drain(node).then(|| Progress::draining(&node.name, None));
                    resumed_drain(node, request, now)
                }
            };
            drain(node, (request, limit), pods, budgets, now, &mut plan, &mut patch);
        }
    }
    plan.patch = (!patch.is_empty()).then(|| patch.bound_to(node));
    plan
}

/// The node is cordoned: its pods leave, or have left.
fn drain(
    node: &NodeView,
    (request, limit): (&str, Option<DrainLimit>),
    pods: &[&PodView],
    budgets: &[&BudgetView],
    now: Timestamp,
    plan: &mut DrainPlan,
    patch: &mut NodePatch,
) {
    let Drain::Draining { since, told, reported, tries, over, .. } = &mut plan.state else { return };
    let limit_in = limit.map(|limit| (limit, limit.after - now.duration_since(*since)));
    let ended = limit_in.filter(|(_, left)| *left <= SignedDuration::ZERO).map(|(limit, _)| limit);
    let deletes = ended.is_some_and(|limit| limit.then == DrainEnd::DeletePods);
    let found = pods::sort(node, pods, budgets, (tries, deletes), now);
    tries.retain(|uid, _| found.waiting.iter().any(|w| w.uid == *uid));
    // After a change of the leader the time may be over before anything was asked: no pod is blamed that was not asked to go.
    let ended = ended.filter(|_| found.waiting.iter().all(|w| w.why != Blocker::Asked));
    plan.skipped = found.skipped;
    let waited = now.duration_since(*since);
    if found.waiting.is_empty() {
        finish(node, request, patch);
        // The node is unschedulable, and neither we nor an earlier drain of this update did that: a person did.
        let earlier =
            node.last_applied_drain.as_deref().is_some_and(|text| DrainVerb::of(text) == DrainVerb::Drain);
        if node.cordon.is_none() && !earlier {
            patch.cordon = Change::Set(CordonMark::Kept);
        }
        plan.state = Drain::Idle;
        plan.progress = reports_drain(node).then(|| Progress::drained(&node.name));
        return;
    }
    record_drain_start(node, (request, limit), *since, patch);
    let text = pods::in_words(&found.waiting);
    let due = report_wait(node, waited, told, &text, &mut plan.events);
    plan.late = *told == DrainReport::Late;
    let mut next = found.next;
    if due >= DrainReport::Waiting && node.drain_wait.as_deref() != Some(&text) {
        let wait = reported.map_or(SignedDuration::ZERO, |at| REPORT_INTERVAL - now.duration_since(at));
        if wait <= SignedDuration::ZERO {
            *reported = Some(now);
            plan.progress = Some(Progress::draining(&node.name, Some(&text)));
            patch.drain_wait = Change::Set(text.as_str().into());
        } else {
            next = next.min(wait);
        }
    }
    let config = request.split_once('-').map(|(_, config)| config).filter(|c| !c.is_empty());
    // A node that is not called back is not put aside either: it would stay cordoned, and its pods would never be evicted.
    let may_return = config.is_some_and(|config| may_return(node.current_config.as_deref(), config));
    let is_quarantined = may_return && node.quarantine.as_deref() == config;
    if let Some(limit) = ended {
        let DrainLimit { after, then } = limit;
        let then = if then == DrainEnd::Quarantine && !may_return { DrainEnd::Report } else { then };
        let and = match then {
            DrainEnd::Report => "goes on",
            DrainEnd::Quarantine => "is given up; the node is put aside, and another one is updated",
            DrainEnd::DeletePods => "goes on; pods are deleted although their budgets do not allow it",
        };
        let words = format!("The drain takes more than {after:#} and {and}; it waits for {text}");
        if !std::mem::replace(over, true) {
            let (about, reason) =
                (EventObject::Node(node.name.clone()), ControllerEvent::DrainThresholdExceeded);
            plan.events.push(EventPlan::new(reason, about, words));
        }
        plan.over = Some(format!("the drain of node {} takes more than {after:#} and {and}", node.name));
        if then == DrainEnd::Quarantine && !is_quarantined {
            patch.quarantine = config.map_or(Change::Keep, |config| Change::Set(config.into()));
        }
    }
    if let Some((_, left)) = limit_in.filter(|(_, left)| *left > SignedDuration::ZERO) {
        next = next.min(left);
    }
    for limit in [REPORT_AFTER, SLOW_AFTER, LATE_AFTER] {
        if waited < limit {
            next = next.min(limit - waited);
        }
    }
    plan.recheck = Some(next);
    // Its pods stay: it is called back.
    plan.evict = if is_quarantined { vec![] } else { found.evict };
    plan.waiting = found.waiting;
}

/// Whether a node that was sent to `config` can be called back to `current`: both are its pool's, and not the same one. A
/// node that came from another pool first reaches what that pool sent it to.
pub(crate) fn may_return(current: Option<&str>, config: &str) -> bool {
    current != Some(config) && of_one_pool(current, config)
}

impl fmt::Display for DrainPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "drain of {}:", self.node)?;
        if let Some(text) = &self.refused {
            writeln!(f, "  refused: {text}")?;
        }
        if let Some(patch) = &self.patch {
            writeln!(f, "  patch {patch}")?;
        }
        self.evict.iter().try_for_each(|e| writeln!(f, "  evict {e}"))?;
        self.skipped.iter().try_for_each(|s| writeln!(f, "  skip {s}"))?;
        self.waiting.iter().try_for_each(|w| writeln!(f, "  waits for {w}"))?;
        self.events.iter().try_for_each(|e| writeln!(f, "  event {e}"))
    }
}
