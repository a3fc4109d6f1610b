//! Plans in words: `Display` of every part, for logs, `mco plan` and `mco status`.
//!
//! What it is not: a format to parse; the values themselves are serialisable for that.

pub(crate) mod estimate;
pub(crate) mod stuck;

use crate::event::{EventObject, EventPlan};
use crate::hold::{GateState, Hold, Prefetching, Reason, UnknownCost, Wait};
use crate::node::membership::{NoPool, Unmanaged};
use crate::plan::{Capacity, NodeStep, PoolPlan, RolloutPlan, Step};
use crate::policy::ChangeAsked;
use crate::target::Target;
use crate::view::own;
use api::names::{JOINING_TAINT, JOINING_TAINT_EFFECT};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// How many names a list shows; for the rest it gives a number.
const SHOWN_NAMES: usize = 5;

struct Names<'a>(&'a [Arc<str>]);

impl Display for Names<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&api::formats::text::names(self.0, SHOWN_NAMES))
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "MachineConfig {}", self.config)?;
        self.image.as_ref().map_or(Ok(()), |image| write!(f, " / Image {image}"))
    }
}

impl Display for Hold {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::SelectsAll => {
                f.write_str("spec.nodeSelector is {}, which would pick every node; give it labels")
            }
            Self::NothingRendered => f.write_str("no MachineConfig is rendered for the pool yet"),
            Self::ConfigMissing(config) => write!(
                f,
                "MachineConfig {config} does not exist; change any MachineConfig of the pool to have it rendered again"
            ),
            Self::Deleting => f.write_str("the pool is being deleted"),
            Self::Paused => f.write_str("the pool is paused"),
            Self::Image(wait) => wait.fmt(f),
            Self::OsImage(wait) => wait.fmt(f),
            Self::MaxUnavailable(text) => write!(
                f,
                "spec.maxUnavailable {text:?} is neither a number from 0 nor a percentage such as \"10%\"; correct it"
            ),
            Self::PrefetchLimit(text) => write!(
                f,
                "the annotation {} {text:?} is neither a number nor a percentage such as \"10%\"; correct it",
                own::PREFETCH
            ),
            Self::Prefetch { left, of, at_once } => write!(
                f,
                "the next OS image is fetched on the nodes before the first one goes, on {at_once} at a time: {left} of {of} are left"
            ),
            Self::Masters(busy) => {
                write!(f, "the masters go first: {} not done or not available", Names(busy))
            }
            Self::Arbiter(out) => write!(f, "the arbiter {} is not available", Names(out)),
            Self::NoMasterPool => f.write_str("there is no pool master beside it"),
            Self::Refused(why) => write!(f, "a node could not be changed, and is tried again: {why}"),
            Self::Frozen { until, reason, unknown } => {
                match until {
                    Some(until) => write!(f, "a freeze is in force until {}: {reason}", until.0)?,
                    None => write!(f, "a freeze is in force: {reason}")?,
                }
                may_begin(f, unknown.as_ref())
            }
            Self::OutsideWindow { opens, unknown } => {
                match opens {
                    Some(opens) => {
                        write!(f, "no maintenance window is open; the next one opens at {}", opens.0)?;
                    }
                    None => f.write_str(
                        "none of the policy's maintenance windows ever opens; correct their cron expressions",
                    )?,
                }
                may_begin(f, unknown.as_ref())
            }
            Self::Gate { gate, state: GateState::Failed(why) } => write!(f, "gate {gate} fails: {why}"),
            Self::Gate { gate, state: GateState::Unknown(why) } => {
                write!(f, "gate {gate} cannot be read, and no node goes without it: {why}")
            }
            Self::Gate { gate, state: GateState::Passed } => write!(f, "gate {gate}"),
            Self::Gate { gate, state: GateState::Failing(why) } => {
                write!(f, "gate {gate} has not passed: {why}")
            }
            Self::Approval { wave, wrong: None } => {
                write!(f, "wave {wave} waits for an approval; give it with `mco approve POOL`")
            }
            Self::Approval { wave, wrong: Some(wrong) } => write!(
                f,
                "wave {wave} waits for an approval; that of {wrong} is for another config or wave; give it with `mco approve POOL`"
            ),
            Self::Policy(why) => f.write_str(why),
            Self::Recording { policy } => {
                write!(f, "the state of the rollout is being written into RolloutPolicy {policy}")
            }
            Self::NodeFailed { node, why, policy } => write!(
                f,
                "node {node} failed: {why}; RolloutPolicy {policy} holds the pool until the node is well or the config changes"
            ),
            Self::Rejected { config, reason, policy, back_to } => {
                write!(f, "MachineConfig {config} is rejected: {reason}")?;
                if let Some(back_to) = back_to {
                    write!(f, "; nodes go back to {back_to}")?;
                }
                write!(
                    f,
                    "; it is tried again when RolloutPolicy {policy} changes, and another config as soon as there is one"
                )
            }
            Self::RejectedElsewhere { wave, pool, config, shared } => {
                let (who, it) = match wave {
                    Some(wave) => (format!("wave {wave} waits"), "the wave"),
                    None => ("no node goes".to_owned(), "it"),
                };
                write!(
                    f,
                    "{who}: pool {pool} has rejected {config}, and this change has MachineConfig {} in common with it; \
                     correct it, or let {it} go with `mco approve POOL`",
                    Names(shared)
                )
            }
            Self::EmptyWave { wave } => write!(
                f,
                "wave {wave} selects no node that is left; correct its nodeSelector, or label a node"
            ),
            Self::Soak { wave, until } => write!(f, "wave {wave} is done and soaks until {}", until.0),
            Self::Selector { pool: _, error } => f.write_str(error),
        }
    }
}

/// What is not known about a change that may begin all the same.
fn may_begin(f: &mut Formatter<'_>, unknown: Option<&UnknownCost>) -> fmt::Result {
    let Some(UnknownCost { change: ChangeAsked { from, to }, why }) = unknown else { return Ok(()) };
    write!(
        f,
        ". Some changes may begin all the same, but it is not known whether the one from {from} to {to} is among them, because its \
         cost for a node is not known: "
    )?;
    match why {
        Some(why) => f.write_str(why),
        None => f.write_str("it is not computed yet"),
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(why) => write!(f, "not ready: {why}"),
            Self::Cordoned => f.write_str("cordoned"),
            Self::Daemon(state, None) => write!(f, "{state}"),
            Self::Daemon(state, Some(why)) => write!(f, "{state}: {why}"),
            Self::NotDone(crate::view::DaemonState::Absent) => f.write_str("no daemon has reported there"),
            Self::NotDone(state) => write!(f, "its daemon is {state}"),
        }
    }
}

impl Display for Wait {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool => f.write_str("its pool is held"),
            Self::Capacity { max: 1, by } => {
                write!(f, "one at a time, and the slot is taken by {}", Names(by))
            }
            Self::Capacity { max, by } => write!(f, "all {max} slots are taken by {}", Names(by)),
            Self::Node(why) => why.fmt(f),
            Self::ControlPlane(by) => {
                write!(f, "control-plane nodes go one at a time, and the turn is taken by {}", Names(by))
            }
            Self::Etcd(by) => {
                let name = by.first().map(|n| &**n).unwrap_or_default();
                write!(
                    f,
                    "the next control-plane node goes when etcd is Ready again on {}; see kubectl get pods -A \
                     --field-selector spec.nodeName={name}",
                    Names(by)
                )
            }
            Self::Unanswered => f.write_str("the API server has not answered its last patch"),
            Self::RunsOperator => f.write_str("it runs the operator and goes last"),
            Self::PoolLabels(pool) => write!(f, "it booted into pool {pool} and gets its labels first"),
            Self::Prefetch(how) => how.fmt(f),
            Self::Wave(wave) => write!(f, "wave {wave} goes first"),
            Self::DrainOutlook => f.write_str("the controller is finding out what its drain would wait for"),
            Self::Quarantined { why } => {
                f.write_str("put aside, because its drain did not end; ")?;
                if let Some(why) = why {
                    write!(f, "it would wait for {why}; ")?;
                }
                write!(
                    f,
                    "it goes when its pods can leave, or when its annotation {} is removed",
                    own::QUARANTINE
                )
            }
            Self::Zone { zone, max } if zone.is_empty() => {
                write!(f, "{max} of the nodes without a zone may be out at once, and are")
            }
            Self::Zone { zone, max } => {
                write!(f, "{max} of the nodes of zone {zone} may be out at once, and are")
            }
        }
    }
}

impl Display for Prefetching {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("it fetches the next OS image first"),
            Self::Later => f.write_str("it fetches the next OS image when other nodes have it"),
            Self::Failed { why } => write!(f, "it cannot fetch the next OS image, and tries again: {why}"),
        }
    }
}

impl Reason {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::NotReady(_) => "NotReady",
            Self::Cordoned => "Cordoned",
            Self::Daemon(crate::view::DaemonState::Unreconcilable, _) => "Unreconcilable",
            Self::Daemon(..) => "Degraded",
            Self::NotDone(_) => "NotDone",
        }
    }
}

impl Step {
    /// State and reason in one word each, out of a small set, as labels of metrics.
    pub fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Done => ("Updated", ""),
            Self::Unavailable(why) => ("Unavailable", why.word()),
            Self::Goes => ("Updating", ""),
            Self::Moving { drain: Some(_), .. } => ("Updating", "DrainBlocked"),
            Self::Moving { rebooting: true, .. } => ("Updating", "Rebooting"),
            Self::Moving { .. } => ("Updating", ""),
            Self::Failing(why) => ("Degraded", why.word()),
            Self::Waits(Wait::Pool) => ("Waiting", "PoolHeld"),
            Self::Waits(Wait::Capacity { .. }) => ("Waiting", "MaxUnavailable"),
            Self::Waits(Wait::Node(why)) => ("Waiting", why.word()),
            Self::Waits(Wait::Unanswered) => ("Waiting", "Unanswered"),
            Self::Waits(Wait::RunsOperator) => ("Waiting", "RunsOperator"),
            Self::Waits(Wait::ControlPlane(_)) => ("Waiting", "ControlPlane"),
            Self::Waits(Wait::Etcd(_)) => ("Waiting", "Etcd"),
            Self::Waits(Wait::PoolLabels(_)) => ("Waiting", "PoolLabels"),
            Self::Waits(Wait::Prefetch(_)) => ("Waiting", "Prefetch"),
            Self::Waits(Wait::Wave(_)) => ("Waiting", "Wave"),
            Self::Waits(Wait::Zone { .. }) => ("Waiting", "Zone"),
            Self::Waits(Wait::DrainOutlook) => ("Waiting", "Look"),
            Self::Waits(Wait::Quarantined { .. }) => ("Waiting", "Quarantine"),
        }
    }

    /// Every state of [`Step::words`].
    pub const STATES: [&str; 5] = ["Updated", "Unavailable", "Updating", "Degraded", "Waiting"];
}

impl Display for Step {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Unavailable(why) => write!(f, "in its config, unavailable ({why})"),
            Self::Goes => f.write_str("goes now"),
            Self::Moving { drain: Some(wait), .. } => write!(f, "moving: draining, {wait}"),
            Self::Moving { rebooting: true, .. } => f.write_str("moving: rebooting"),
            Self::Moving { state, .. } => write!(f, "moving: {state}"),
            Self::Failing(why) => write!(f, "failing ({why}); it tries again"),
            Self::Waits(why) => write!(f, "waits: {why}"),
        }
    }
}

impl Display for NodeStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.step)
    }
}

impl Display for Unmanaged {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.why {
            NoPool::NoMatch => write!(f, "node {}: no pool's nodeSelector matches its labels", self.node),
            NoPool::NoDaemon => write!(
                f,
                "node {}: it has no role label and no agent has reported from it yet; label it node-role.kubernetes.io/worker= \
                 to make it a worker now",
                self.node
            ),
            NoPool::SeveralCustom(pools) => write!(
                f,
                "node {} matches {} custom pools: {}; remove labels from the node until one of them is left",
                self.node,
                pools.len(),
                pools.join(", ")
            ),
        }?;
        match self.tainted_until {
            Some(until) => write!(
                f,
                "; the taint {JOINING_TAINT}:{JOINING_TAINT_EFFECT} keeps workload away until {until}, or until a pool owns it \
                 and it is in that pool's config"
            ),
            None => Ok(()),
        }
    }
}

impl Display for Capacity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} may go", self.free, self.max)?;
        if !self.unavailable.is_empty() {
            write!(f, "; unavailable: {}", Names(&self.unavailable))?;
        }
        if !self.failing.is_empty() {
            write!(f, "; failing: {}", Names(&self.failing))?;
        }
        if !self.unanswered.is_empty() {
            write!(f, "; without an answer: {}", Names(&self.unanswered))?;
        }
        Ok(())
    }
}

impl Display for EventPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.about {
            EventObject::Pool(name) => ("MachineConfigPool", name),
            EventObject::Node(name) => ("Node", name),
        };
        write!(f, "{} {} {kind}/{name}: {}", self.kind.text(), self.reason, self.message)
    }
}

impl Display for PoolPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}", self.pool)?;
        if let Some(target) = &self.target {
            write!(f, " → {target}")?;
        }
        match &self.hold {
            Some(hold) => writeln!(f, ": held, {hold}")?,
            None => writeln!(f, ": {}", self.capacity)?,
        }
        for node in &self.nodes {
            writeln!(f, "  {node}")?;
        }
        for patch in &self.patches {
            writeln!(f, "  patch {patch}")?;
        }
        for event in &self.events {
            writeln!(f, "  event {event}")?;
        }
        Ok(())
    }
}

impl Display for RolloutPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.pools.iter().try_for_each(|pool| pool.fmt(f))?;
        self.unmanaged.iter().try_for_each(|node| writeln!(f, "{node}"))?;
        self.unmanaged_patches.iter().try_for_each(|patch| writeln!(f, "patch {patch}"))
    }
}
