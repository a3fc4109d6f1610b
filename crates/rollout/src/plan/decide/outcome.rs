//! The plan of a pool once its nodes are chosen: their patches and steps, the pool's status, and its events.
//!
//! What it is not: the choice (see `plan::choice`), or what holds the pool (see `pool_state`).

use super::{Eval, goal};
use crate::drain::Outlook;
use crate::facts::TroubleOf;
use crate::hold::{Hold, Reason, Wait};
use crate::inputs::Inputs;
use crate::node::control_plane::{self, ControlPlaneTurn};
use crate::node::{Desired, Flags, Goal, first_boot, flags, joining, why_unavailable};
use crate::patch::{Change, NodePatch};
use crate::plan::choice::choose;
use crate::plan::{NodeStep, PoolPlan, Step};
use crate::policy::{self, PolicyInput};
use crate::status;
use crate::target::Target;
use crate::view::roles::is_control_plane;
use crate::view::{NodeView, own};
use api::events::ControllerEvent;
use api::names::annotation;
use api::v1::MachineConfigPool;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

impl<'a> Eval<'a> {
    /// Whether the pool's config has proved itself.
    fn proof(&self) -> status::ConfigProof<'_> {
        let (policy, facts) = match self.input.policy {
            None => return status::ConfigProof::Given,
            Some(PolicyInput::Unusable(_)) => return status::ConfigProof::Unknown,
            Some(PolicyInput::InForce { policy, facts }) => (policy, facts),
        };
        let progress = self.policy.as_ref().map_or(&facts.progress, |plan| &plan.progress);
        let proved = progress.proved.as_deref() == Some(&self.input.pool.spec.configuration.name);
        match proved || !policy.has_progress() || self.nodes.is_empty() {
            true => status::ConfigProof::Given,
            false => status::ConfigProof::Missing(&policy.name),
        }
    }

    /// Whether nodes whose drains were given up are called back. None of their pods is evicted until then, so they are
    /// also while the pool is paused.
    fn recalls(&self) -> bool {
        let frees = self.tends && self.frees;
        (self.tends || self.hold == Some(Hold::Paused)) && self.back.is_none() && !frees
    }

    /// Whether it counts how long nodes are on their way.
    fn has_deadline(&self) -> bool {
        match self.input.policy {
            Some(PolicyInput::InForce { policy, .. }) => policy.node_deadline.is_some(),
            _ => false,
        }
    }

    /// Whether a node carries the update taint: if it waits for its update. Under a policy with waves only once its wave has begun,
    /// which may be days later: until then, new pods would be kept away from most of the pool, and land on the canaries. While
    /// something holds such a pool, the taint stays as it is.
    fn has_update_taint(&self, node: &NodeView, before: Flags, after: Flags) -> bool {
        let has_waves = match self.input.policy {
            None => false,
            Some(PolicyInput::InForce { policy, .. }) => !policy.waves.is_empty(),
            // It may have some.
            Some(PolicyInput::Unusable(_)) => true,
        };
        match (after.at_target, has_waves && before.candidate) {
            (true, _) => false,
            (false, false) => true,
            (false, true) if self.hold.is_some() => node.has_update_taint(),
            (false, true) => self.leave.allows(&node.name),
        }
    }

    /// The mark of a node that takes what waits if somebody reboots it: all that it waits for is a window. One that shuts down
    /// keeps it.
    fn waiting(&self, node: &NodeView, before: Flags, is_sent: bool, config: &str) -> Change<Arc<str>> {
        let may = self.tends && self.leave.only_window && self.hold == self.leave.hold && !is_sent;
        let takes = before.candidate && before.done && !before.quarantined && self.leave.allows(&node.name);
        match (may && takes, node.waiting.as_deref()) {
            (true, had) if had != Some(config) => Change::Set(config.into()),
            // Whether it may pass the window is not known yet.
            (false, Some(had)) if takes && !is_sent && self.leave.costs_unknown && had == config => {
                Change::Keep
            }
            (false, Some(_)) => Change::Remove,
            _ => Change::Keep,
        }
    }

    /// The nodes that could be sent now.
    pub(super) fn candidates(&self) -> impl Iterator<Item = (&'a NodeView, Flags)> + '_ {
        self.nodes.iter().copied().filter(|(_, f)| f.can_be_asked())
    }

    pub(super) fn plan(
        &self,
        inputs: &Inputs<'_>,
        pools: &HashMap<&str, &MachineConfigPool>,
        conflicts: &[String],
        labelled: &HashSet<&str>,
        turn: &mut ControlPlaneTurn,
    ) -> PoolPlan {
        let wanted = goal(self.input);
        let goal = Goal { config: self.back.as_ref().map_or(wanted.config, |b| b.to), ..wanted };
        let target = Target::of(goal.config.into(), &self.input.layering);
        let only_excepted = match self.hold {
            None => Some(false),
            // A policy that holds its pool still lets nodes join, and nodes that reboot anyway take what waits.
            Some(_) => {
                let excepts = self.leave.joins.is_some() || !self.leave.along.is_empty();
                let waits = self.hold == self.leave.hold || self.hold == self.prefetch.hold;
                (self.tends && waits && excepts).then_some(true)
            }
        };
        let choice = only_excepted.map(|only| {
            let leave = (&self.leave, only, &self.prefetch);
            choose(self.input.name(), &self.nodes, &self.capacity, leave, inputs.facts, pools, turn)
        });
        let choice = choice.unwrap_or_default();
        let mut plan = PoolPlan {
            pool: self.input.name().into(),
            hold: self.hold.clone(),
            capacity: self.capacity.clone(),
            nodes: Vec::with_capacity(self.nodes.len()),
            look_again: self.leave.look_again,
            policy: self.policy.clone(),
            ..PoolPlan::default()
        };
        if let Some(policy) = &mut plan.policy {
            policy.looks.clone_from(&choice.looks);
        }
        let (taken, by_others) = choice.slot_holders(&self.capacity);
        let mut after = Vec::with_capacity(self.nodes.len());
        for (node, before) in &self.nodes {
            let goes = choice.picks.contains(&*node.name);
            // Bound to its node below. Most of the thousands of nodes need no patch.
            let mut patch = NodePatch::default();
            let mut flags_after = *before;
            let recalled = !goes && before.recallable && self.recalls();
            if goes {
                let proved = self.leave.joining(node);
                let proved = proved.map(|config| Target { config: config.clone(), image: None });
                let target = proved.as_ref().unwrap_or(&target);
                let desired = Desired { config: Some(&target.config), image: target.image.as_deref() };
                flags_after = flags(node, desired, goal);
                send(node, target, &mut patch);
                if self.has_deadline() {
                    let at = policy::time(inputs.now.0).0;
                    patch.sent = Change::Set(format!("{} {at}", target.config).into());
                } else if node.sent.is_some() {
                    patch.sent = Change::Remove;
                }
                patch.pool_labels_applied = choice.booted_here.contains(&*node.name);
            } else if recalled {
                let (config, image) = (node.current_config.clone(), node.current_image.clone());
                let stays = Target { config: config.unwrap_or_default(), image };
                let desired = Desired { config: Some(&stays.config), image: stays.image.as_deref() };
                flags_after = flags(node, desired, goal);
                send(node, &stays, &mut patch);
                // It is not on its way any more. If it is sent again, its deadline counts from then.
                if node.sent.is_some() {
                    patch.sent = Change::Remove;
                }
            }
            patch.etcd_before = control_plane::etcd_note(node, flags_after, goes, inputs.facts);
            let quarantined =
                [Some(goal.config), node.desired_config.as_deref()].contains(&node.quarantine.as_deref());
            let is_over = goes || before.updated || !quarantined || self.frees;
            if node.quarantine.is_some() && is_over && self.tends {
                patch.quarantine = Change::Remove;
            }
            patch.waiting = self.waiting(node, *before, goes || recalled, goal.config);
            let labels = choice.labels.get(&*node.name);
            if let Some((_, set)) = labels {
                patch.labels = set.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
                patch.pool_labels_applied = true;
            }
            if self.tends {
                self.prefetch.adjust(node, before.candidate && !goes, &mut patch);
                patch.set_update_taint(node, self.has_update_taint(node, *before, flags_after));
                patch.set_joining_taint(node, joining::is_kept_free(self.input.pool, node, flags_after));
                patch.topology = control_plane::topology(node, inputs.facts);
            } else if !matches!(self.hold, Some(Hold::SelectsAll | Hold::Selector { .. }))
                && (joining::has_joined(node, *before) || is_control_plane(&node.labels))
            {
                patch.set_joining_taint(node, false);
            }
            // If it is not known which nodes belong to the pool, none is touched.
            if !matches!(self.hold, Some(Hold::SelectsAll | Hold::Selector { .. })) {
                patch.drift = copied(self.input.pool, annotation::DRIFT, node.drift.as_deref());
                patch.trial = copied(self.input.pool, own::TRIAL, node.trial.as_deref());
                patch.reboots = copied(self.input.pool, annotation::REBOOTS, node.reboots.as_deref());
                patch.host_packages =
                    copied(self.input.pool, annotation::HOST_PACKAGES, node.host_packages.as_deref());
                patch.live_extensions =
                    copied(self.input.pool, annotation::LIVE_EXTENSIONS, node.live_extensions.as_deref());
                control_plane::adjust(node, inputs.facts, &mut patch);
            }
            let step = if goes {
                Step::Goes
            } else if recalled {
                Step::Waits(Wait::Quarantined { why: node.drain_wait.as_deref().map(str::to_owned) })
            } else if !before.candidate {
                moving(node, *before)
            } else if let Some(how) = self.prefetch.wait(&node.name)
                && (self.hold.is_none() || self.hold == self.prefetch.hold)
            {
                Step::Waits(Wait::Prefetch(how.clone()))
            } else if self.hold.is_some() {
                Step::Waits(Wait::Pool)
            } else if before.unanswered {
                Step::Waits(Wait::Unanswered)
            } else if let Some((pool, _)) = labels {
                Step::Waits(Wait::PoolLabels(pool.clone()))
            } else if let Some(wave) = self.leave.turn.as_ref().map(|(wave, _)| wave)
                && !self.leave.allows(&node.name)
            {
                Step::Waits(Wait::Wave(wave.clone()))
            } else if before.quarantined {
                let why = match inputs.facts.outlooks.get(&node.name) {
                    Some(Outlook::Waits(why)) => Some(why.clone()),
                    _ => None,
                };
                Step::Waits(Wait::Quarantined { why })
            } else if choice.unseen.contains(&*node.name) {
                Step::Waits(Wait::DrainOutlook)
            } else if choice.deferred.as_deref() == Some(&*node.name) {
                Step::Waits(Wait::RunsOperator)
            } else if let Some(wait) = choice.turned.get(&*node.name) {
                Step::Waits(wait.clone())
            } else if let Some((zone, max)) = choice.zones.get(&*node.name) {
                Step::Waits(Wait::Zone { zone: zone.clone(), max: *max })
            } else if before.broken {
                Step::Waits(Wait::Capacity { max: self.capacity.max, by: by_others.clone() })
            } else if before.unavailable || !before.ready {
                Step::Waits(Wait::Node(why_unavailable(node)))
            } else {
                Step::Waits(Wait::Capacity { max: self.capacity.max, by: taken.clone() })
            };
            plan.nodes.push(NodeStep { node: node.name.clone(), step });
            if !patch.is_empty() && !before.unanswered {
                plan.patches.push(patch.bound_to(node));
            }
            after.push((*node, flags_after));
        }
        let unknown_nodes = match &self.hold {
            Some(Hold::SelectsAll) => Some(ControllerEvent::SelectingAll),
            Some(Hold::Selector { .. }) => Some(ControllerEvent::MembershipConflict),
            _ => None,
        };
        if let (Some(reason), Some(hold)) = (unknown_nodes, &self.hold) {
            (plan.status, plan.events) =
                status::conflict_only(self.input.pool, reason, &hold.to_string(), &inputs.now);
            return plan;
        }
        choice.events(self.input, &target, &mut plan.events);
        let late = |n: &NodeView| inputs.facts.unanswered.get(&n.name).is_some_and(|u| u.overdue);
        let overdue: Vec<&str> = self.nodes.iter().filter(|(n, _)| late(n)).map(|(n, _)| &*n.name).collect();
        let troubles = inputs.facts.troubles.iter().filter(|trouble| match &trouble.of {
            TroubleOf::Cluster => true,
            TroubleOf::Pool(pool) => **pool == *self.input.name(),
            TroubleOf::Node(node) => self.nodes.iter().any(|(n, _)| n.name == *node),
        });
        let etcd = choice.turned.values().find(|wait| matches!(wait, Wait::Etcd(_))).map(ToString::to_string);
        let troubles: Vec<&str> = troubles.map(|trouble| &*trouble.text).chain(etcd.as_deref()).collect();
        if self.back.is_some() {
            // The status counts nodes in the pool's own config.
            for (node, flags_of_node) in &mut after {
                *flags_of_node = flags(node, Desired::of(node), wanted);
            }
        }
        let facts = status::PoolFacts {
            input: self.input,
            target: &target,
            hold: self.hold.as_ref(),
            rejected: self.back.as_ref().map(|b| &b.why),
            proof: self.proof(),
            overlap: self.policy.as_ref().and_then(|plan| plan.overlap.as_deref()),
            nodes: &after,
            conflicts,
            certificates: &inputs.facts.certificates,
            overdue: &overdue,
            troubles: &troubles,
            pins: &inputs.facts.pins,
        };
        let served = |name: &str| {
            let at = self.nodes.binary_search_by(|(n, _)| (*n.name).cmp(name));
            at.is_ok() || labelled.contains(name)
        };
        plan.first_boot_nodes = first_boot::without_served(self.input.pool, served);
        plan.unexpected = choice.unexpected;
        let (status, events) = status::of(&facts, &inputs.now);
        plan.status = status;
        plan.events.extend(events);
        plan.target = (!goal.config.is_empty()).then_some(target);
        plan
    }
}

fn send(node: &NodeView, target: &Target, patch: &mut NodePatch) {
    if node.desired_config.as_ref() != Some(&target.config) {
        patch.desired_config = Change::Set(target.config.clone());
    }
    if node.desired_image != target.image {
        patch.desired_image = target.image.clone().map_or(Change::Remove, Change::Set);
    }
}

/// A setting that a pool's nodes get from its annotation `key`, for a node that has another one. It is set in a paused
/// pool too, because it is no update.
fn copied(pool: &MachineConfigPool, key: &str, has: Option<&str>) -> Change<Arc<str>> {
    let rules = pool.metadata.annotations.as_ref().and_then(|a| a.get(key));
    match (rules.filter(|r| !r.is_empty()), has) {
        (Some(want), has) if has != Some(want.as_str()) => Change::Set(want.as_str().into()),
        (None, Some(_)) => Change::Remove,
        _ => Change::Keep,
    }
}

/// The step of a node that was already sent to the pool's config.
fn moving(node: &NodeView, f: Flags) -> Step {
    if f.updated && f.ready {
        Step::Done
    } else if f.failing {
        Step::Failing(Reason::Daemon(node.state.clone(), node.reason.clone()))
    } else if f.updated || node.current_config == node.desired_config && node.state.is_bad() {
        Step::Unavailable(why_unavailable(node))
    } else {
        Step::Moving { state: node.state.clone(), rebooting: node.rebooting, drain: node.drain_wait.clone() }
    }
}
