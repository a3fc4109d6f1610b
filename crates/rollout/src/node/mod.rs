//! The state of a node, derived from its annotations and conditions: done, failing, available, in the pool's config.
//!
//! What it is not: the choice of nodes. Except where a field says otherwise, each predicate is exactly the reference's,
//! so that both controllers count the same nodes.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/controller/node/status.go>.

pub(crate) mod control_plane;
pub(crate) mod first_boot;
pub(crate) mod joining;
pub(crate) mod membership;

use crate::drain::may_return;
use crate::facts::Unanswered;
use crate::hold::Reason;
use crate::target::Layering;
use crate::view::{CordonMark, DaemonState, NodeView};
use api::drain_request::DrainVerb;
use api::rendered::of_one_pool;

/// The config and the image that the pool wants for its nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal<'a> {
    /// `spec.configuration.name`.
    pub(crate) config: &'a str,
    /// The pool's image builds.
    pub(crate) layering: &'a Layering,
}

/// What the node was asked to be in: its own annotations, or what a plan is about to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Desired<'a> {
    pub(crate) config: Option<&'a str>,
    pub(crate) image: Option<&'a str>,
}

impl<'a> Desired<'a> {
    pub(crate) fn of(node: &'a NodeView) -> Self {
        Self { config: node.desired_config.as_deref(), image: node.desired_image.as_deref() }
    }
}

/// The predicates of one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) ready: bool,
    /// The daemon has reached what it was asked to be in.
    pub(crate) done: bool,
    /// The daemon cannot reach what it was asked to be in.
    pub(crate) failing: bool,
    pub(crate) unavailable: bool,
    pub(crate) degraded: bool,
    /// It is done, and in the pool's config.
    pub(crate) updated: bool,
    /// It was asked to be in the pool's config, so it carries no update taint.
    pub(crate) at_target: bool,
    /// It can be sent.
    pub(crate) candidate: bool,
    /// It failed at something else after its drain, and is still under the cordon of that update; only another config or image
    /// brings it back. It holds its slot until then. The reference leaves such a node alone, because it does not
    /// consider cordoned nodes.
    pub(crate) stranded: bool,
    /// It was sent to another config and has changed nothing yet: it has not begun, or its pods have not left. It may
    /// be sent on in the slot that it holds, which saves it one update. The reference lets it reach the first config
    /// before that.
    pub(crate) waiting: bool,
    /// It has to go and is in service, but counts as out of service: its daemon reports a fault in the present config,
    /// for example a file that somebody changed. It goes in the slot that it holds. The reference does not send it
    /// while that slot is the last one, so neither it nor any other node of the pool moves until a person repairs it.
    pub(crate) broken: bool,
    /// It is out of service in another config than the pool's, for reasons of its own: it was not sent to another config.
    pub(crate) unrelated: bool,
    /// The drain for the config that it was sent to did not end, and it has changed nothing yet: it is called back.
    pub(crate) recallable: bool,
    /// It is put aside: its drain for the pool's config did not end.
    pub(crate) quarantined: bool,
    /// One of its patches has no answer yet, so it is left alone.
    pub(crate) unanswered: bool,
    /// That patch sends it, and is not overdue yet.
    pub(crate) sending: bool,
    /// That patch may have sent it, and it does not hold a slot for another reason.
    pub(crate) maybe_sent: bool,
}

fn both_equal(a: Option<&str>, b: Option<&str>) -> bool {
    matches!((a, b), (Some(a), Some(b)) if !a.is_empty() && a == b)
}

pub(crate) fn flags(node: &NodeView, desired: Desired<'_>, goal: Goal<'_>) -> Flags {
    let (current, image) = (node.current_config.as_deref(), node.current_image.as_deref());
    let config_done = both_equal(current, desired.config);
    let image_done = (image.is_none() && desired.image.is_none()) || both_equal(image, desired.image);
    let ready = node.ready();
    let done = config_done && image_done && node.state == DaemonState::Done;
    // An absent annotation and an empty one mean the same here.
    let failing = current.unwrap_or_default() != desired.config.unwrap_or_default() && node.state.is_bad();
    let wanted = desired.config == Some(goal.config);
    let (updated, at_target, candidate) = if goal.layering.is_layered() {
        let equals = equals_build(desired, goal.layering);
        (done && wanted && equals, equals, !equals)
    } else {
        let plain = desired.image.is_none();
        (done && wanted && plain, wanted && !(desired.image.is_some() && image.is_some()), !wanted || !plain)
    };
    let ours = matches!(node.cordon, Some(CordonMark::Daemon | CordonMark::Drain));
    // The reference counts a node as failing by its config alone. One that failed at an image of the same config is stranded, too.
    let failed = failing || node.state.is_bad() && !image_done;
    let stranded = failed && candidate && node.not_ready.is_none() && node.unschedulable && ours;
    let waiting =
        candidate && !config_done && waits(node, ready, ours) && of_one_pool(desired.config, goal.config);
    // This includes nodes on their way to a config that the pool has left: they would hold their slots for ever.
    let given_up = desired.config.is_some() && node.quarantine.as_deref() == desired.config;
    let recallable = given_up
        && waits(node, ready, ours)
        && desired.config.is_some_and(|desired| may_return(current, desired));
    let quarantined = node.quarantine.as_deref() == Some(goal.config);
    let unavailable = !ready || (!done && !failing);
    Flags {
        ready,
        done,
        failing,
        unavailable,
        degraded: node.state.is_bad(),
        updated,
        at_target,
        candidate,
        stranded,
        waiting,
        broken: candidate && ready && unavailable && node.state.is_bad(),
        unrelated: candidate && !ready && !failing && config_done,
        recallable,
        quarantined: quarantined && candidate,
        unanswered: false,
        sending: false,
        maybe_sent: false,
    }
}

impl Flags {
    /// Whether it can be sent now, if there is a slot. One that is put aside is not asked with the others.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.candidate
            && !self.unanswered
            && !self.quarantined
            && (self.ready || self.stranded || self.waiting)
    }

    /// The same flags for a node with an unanswered patch.
    pub(crate) fn without_answer(self, patch: Option<&Unanswered>) -> Self {
        let Some(patch) = patch else { return self };
        let holds_slot = self.unavailable || self.failing && !self.candidate;
        // The patch may have sent it on its way, so it does not count as in service.
        let broken = self.broken && !patch.moves;
        let sending = patch.moves && !patch.overdue;
        Self { unanswered: true, sending, maybe_sent: patch.moves && !holds_slot, broken, ..self }
    }
}

/// Whether the node was sent but nothing was changed for it yet: its daemon has not begun, or has asked for a drain
/// that is not done.
fn waits(node: &NodeView, ready: bool, ours: bool) -> bool {
    let in_service = ready || node.not_ready.is_none() && ours;
    let sent = node.current_config.is_some() && node.desired_config.is_some();
    let asked = node.desired_drain.as_deref().is_some_and(|asked| DrainVerb::of(asked) == DrainVerb::Drain);
    let answered = node.desired_drain == node.last_applied_drain;
    let begins = node.state == DaemonState::Done && answered;
    in_service && sent && (begins || node.state == DaemonState::Working && asked && !answered)
}

fn equals_build(desired: Desired<'_>, layering: &Layering) -> bool {
    let (Some(config), Some(build)) = (&layering.config, &layering.build) else { return false };
    both_equal(desired.image, Some(&config.image)) && desired.config == Some(&*build.machine_config)
}

/// Why a node is not available.
pub(crate) fn why_unavailable(node: &NodeView) -> Reason {
    if let Some(why) = &node.not_ready {
        Reason::NotReady(why.clone())
    } else if node.unschedulable {
        Reason::Cordoned
    } else if node.state.is_bad() {
        Reason::Daemon(node.state.clone(), node.reason.clone())
    } else {
        Reason::NotDone(node.state.clone())
    }
}

#[cfg(test)]
mod tests;
