//! [`plan`]: which nodes of which pools move now.
//!
//! Data flow: membership → predicates of each node → holds → capacity → choice → one patch for each node → status and
//! events as they are after the patches.
//!
//! What it is not: I/O or a clock. The executor decides nothing again.

use crate::drain::Outlook;
use crate::facts::TroubleOf;
use crate::hold::{Hold, Reason, Wait};
use crate::inputs::{Inputs, PoolInput};
use crate::layered::Target;
use crate::node::control_plane::{self, ControlPlaneTurn};
use crate::node::membership::{self, BrokenSelector, Membership, NoPool, Unmanaged};
use crate::node::{Desired, Flags, Goal, first_boot, flags, joining, why_unavailable};
use crate::os_image::OsImageWait;
use crate::patch::{Change, NodePatch};
use crate::plan::capacity::{max_unavailable, measure};
use crate::plan::choice::choose;
use crate::plan::prefetch::{self, Prefetch};
use crate::plan::{Capacity, NodeStep, PoolPlan, RolloutPlan, Step};
use crate::policy::{self, About, Allowance, Elsewhere, PolicyInput, PolicyPlan};
use crate::status;
use crate::view::roles::is_control_plane;
use crate::view::{NodeView, own};
use api::events::ControllerEvent;
use api::names::{ARBITER, MASTER, annotation};
use api::text::{MAX_REASON_CHARS, cut};
use api::v1::MachineConfigPool;
use api::v1alpha1::{DrainEnd, PoolProgress};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Decides for all pools at once.
///
/// # Guarantees
/// - No pool has more nodes on their way after the plan than `maxUnavailable`, unless it had before.
/// - No control-plane node goes while another, of whatever pool, is out of service or on its way, or its member of etcd is
///   not Ready.
/// - A held pool's nodes keep their annotations, taints and labels, but for the mark of nodes that take what waits for a window
///   ([`api::names::own::WAITING`]), for what OpenShift's Scheduler says of masters, for
///   the joining taint of nodes that are in a config or of the control plane, and, while it is paused, for nodes whose
///   drains were given up: they are called back.
/// - Of a node that no pool owns only the joining taint and the mark of a config that waits are removed.
/// - Applied to the inputs, the plan leads to inputs whose plan has no patches. Two cases take one more round: labels
///   that change a node's pool, and a node that is back in service by being told to stay where it is.
///
/// # Assumes
/// - The caller sees its own writes: a patch's answer is in the views before the next plan is made, or the patch is in
///   [`crate::Facts::unanswered`].
///
/// # Example
/// ```
/// use api::k8s::{Node, Time};
/// use api::v1::MachineConfigPool;
/// use rollout::view::{Names, NodeView};
/// use rollout::{Cluster, Facts, Inputs, PoolInput, plan};
/// use serde_json::json;
///
/// let pool: MachineConfigPool = serde_json::from_value(json!({
///     "metadata": {"name": "worker"},
///     "spec": {
///         "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
///         "configuration": {"name": "rendered-worker-2"},
///         "maxUnavailable": 1,
///     },
/// }))?;
/// let nodes = ["n1", "n2"].map(|name| {
///     let node: Node = serde_json::from_value(json!({
///         "metadata": {
///             "name": name, "resourceVersion": "7",
///             "labels": {"node-role.kubernetes.io/worker": ""},
///             "annotations": {
///                 "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
///                 "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
///                 "machineconfiguration.openshift.io/state": "Done",
///             },
///         },
///         "status": {"conditions": [{"type": "Ready", "status": "True"}]},
///     }))?;
///     Ok::<_, serde_json::Error>(NodeView::interned(&node, &mut Names::default()))
/// });
/// let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let facts = Facts { cluster: Cluster::Plain, ..Facts::default() };
/// let plan = plan(&Inputs {
///     pools: vec![PoolInput::of(&pool)],
///     nodes: nodes.iter().collect(),
///     facts: &facts,
///     now: Time("2026-07-01T12:00:00Z".parse()?),
/// });
/// // One node goes, and the plan says why the other one waits.
/// let words: Vec<String> = plan.pools[0].nodes.iter().map(|n| n.to_string()).collect();
/// assert_eq!(words, ["n1: goes now", "n2: waits: one at a time, and the slot is taken by n1"]);
/// // What is sent to the API server for it is bound to the version that was looked at.
/// let patch = plan.pools[0].patches.iter().find(|p| &*p.node == "n1").ok_or("a patch")?;
/// assert_eq!(patch.merge_patch()["metadata"]["resourceVersion"], "7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(inputs: &Inputs<'_>) -> RolloutPlan {
    let pools: Vec<_> = inputs.pools.iter().map(|p| p.pool).collect();
    let Membership { members, mut unmanaged, unowned, alerts, broken } =
        membership::resolve(&pools, &inputs.nodes, inputs.facts.cluster);
    let members = members.iter().zip(&broken);
    let rejects = |p: &&PoolInput<'_>| policy::is_rejected(p.policy, &p.pool.spec.configuration.name);
    let elsewhere: Vec<Elsewhere<'_>> =
        inputs.pools.iter().filter(rejects).map(|p| Elsewhere::of(p.pool)).collect();
    let mut evals: Vec<Eval<'_>> = inputs
        .pools
        .iter()
        .zip(members)
        .map(|(pool, (nodes, broken))| Eval::new(pool, nodes, broken.as_ref(), (inputs, &elsewhere)))
        .collect();
    if inputs.facts.has_arbiter() {
        hold_control_plane(&mut evals);
    }
    let mut conflicts: HashMap<&str, Vec<String>> = HashMap::new();
    for node in &unmanaged {
        if let NoPool::SeveralCustom(pools) = &node.why {
            for pool in pools {
                conflicts.entry(pool).or_default().push(node.to_string());
            }
        }
    }
    let by_name: HashMap<&str, &MachineConfigPool> =
        inputs.pools.iter().map(|p| (p.name(), p.pool)).collect();
    let labelled = inputs.nodes.iter().filter(|n| n.custom_pool_labels_applied).map(|n| &*n.name).collect();
    let mut turn = ControlPlaneTurn::new(inputs.facts);
    evals.iter().flat_map(|e| &e.nodes).for_each(|(node, flags)| turn.record(node, *flags));
    unowned.iter().for_each(|node| turn.record_unmanaged(node));
    let pools: Vec<PoolPlan> = evals
        .iter()
        .map(|eval| {
            let conflicts = conflicts.get(eval.input.name()).map(Vec::as_slice).unwrap_or_default();
            eval.plan(inputs, &by_name, conflicts, &labelled, &mut turn)
        })
        .collect();
    let unmanaged_patches = unmanaged
        .iter_mut()
        .zip(&unowned)
        .filter_map(|(of, node)| free_unmanaged(of, node, inputs))
        .collect();
    let ends = unmanaged.iter().filter_map(|node| node.tainted_until);
    let look_again = pools.iter().filter_map(|pool| pool.look_again).chain(ends).min();
    RolloutPlan { pools, unmanaged, unmanaged_patches, pool_alerts: alerts, look_again }
}

/// Removes the joining taint from a node that no pool owns, or notes until when the node keeps it; and the mark of a config that
/// waits, because no pool says any more that the node may take it.
fn free_unmanaged(of: &mut Unmanaged, node: &NodeView, inputs: &Inputs<'_>) -> Option<NodePatch> {
    of.tainted_until = joining::unowned_until(node, &of.why, inputs.now.0);
    if inputs.facts.unanswered.contains_key(&node.name) {
        return None;
    }
    let mut patch = NodePatch::default();
    if of.tainted_until.is_none() {
        patch.set_joining_taint(node, false);
    }
    if node.waiting.is_some() {
        patch.waiting = Change::Remove;
    }
    (!patch.is_empty()).then(|| patch.bound_to(node))
}

/// A pool, its nodes with their predicates, and what holds it.
struct Eval<'a> {
    input: &'a PoolInput<'a>,
    nodes: Vec<(&'a NodeView, Flags)>,
    hold: Option<Hold>,
    /// Whether taints and topology are still maintained: the pool is held only until its turn comes, or not at all.
    tends: bool,
    /// Whether marks of nodes that are put aside are removed: no policy asks for them any more.
    frees: bool,
    capacity: Capacity,
    /// What the pool's policy allows.
    leave: Allowance,
    /// What its nodes fetch before they go.
    prefetch: Prefetch,
    /// What follows for the policy itself.
    policy: Option<PolicyPlan>,
    /// The pool's config is rejected, and its nodes go back to this one.
    back: Option<Back<'a>>,
}

/// Why nodes do not go to the image of the pool's config.
fn os_image_wait(input: &PoolInput<'_>, nodes: &[(&NodeView, Flags)]) -> Option<OsImageWait> {
    let image = input.os_image.as_ref().filter(|_| !input.layering.is_layered())?;
    image.wait(nodes.iter().filter(|(_, flags)| flags.candidate).map(|(node, _)| *node))
}

/// A rejected config, as nodes leave it.
#[derive(Clone)]
struct Back<'a> {
    to: &'a str,
    why: Hold,
}

impl<'a> Eval<'a> {
    fn new(
        input: &'a PoolInput<'a>,
        nodes: &[&'a NodeView],
        broken: Option<&BrokenSelector>,
        (inputs, elsewhere): (&Inputs<'_>, &[Elsewhere<'_>]),
    ) -> Self {
        let facts = inputs.facts;
        let spec = &input.pool.spec;
        let wanted = goal(input);
        let back = going_back(input, wanted);
        let goal = Goal { config: back.as_ref().map_or(wanted.config, |b| b.to), ..wanted };
        let look = |n: &&'a NodeView| {
            let flags = flags(n, Desired::of(n), goal);
            (*n, flags.without_answer(facts.unanswered.get(&n.name)))
        };
        let mut nodes: Vec<_> = nodes.iter().map(look).collect();
        let frees = !puts_aside(input.policy);
        if frees {
            nodes.iter_mut().for_each(|(_, flags)| flags.aside = false);
        }
        let max = max_unavailable(input.name(), spec.max_unavailable.as_ref(), nodes.len());
        let prefetch = prefetch::limit(input, nodes.len());
        let mut hold = if let Some(broken) = broken {
            Some(Hold::Selector { pool: broken.pool.clone(), error: broken.to_string() })
        } else if spec.node_selector.as_ref().is_some_and(api::selector::is_empty) {
            Some(Hold::SelectsAll)
        } else if goal.config.is_empty() {
            Some(Hold::NothingRendered)
        } else if input.pool.metadata.deletion_timestamp.is_some() {
            Some(Hold::Deleting)
        } else if spec.paused {
            Some(Hold::Paused)
        } else if let Err(wait) = input.layering.ready() {
            Some(Hold::Image(wait))
        } else if !input.config_exists {
            Some(Hold::ConfigMissing(goal.config.into()))
        } else if let Some(wait) = os_image_wait(input, &nodes).filter(|_| back.is_none()) {
            Some(Hold::OsImage(wait))
        } else if let Err(text) = &max {
            Some(Hold::MaxUnavailable(text.clone()))
        } else if let Err(text) = &prefetch {
            Some(Hold::PrefetchLimit(text.clone()))
        } else {
            input.refused.map(|why| Hold::Refused(why.to_owned()))
        };
        let mut followed = None;
        let mut excused = 0;
        let leave = match (&hold, input.policy) {
            (None, Some(PolicyInput::Unusable(why))) => {
                Allowance { hold: Some(Hold::Policy(why.to_owned())), ..Allowance::default() }
            }
            (None, Some(PolicyInput::InForce { policy, facts })) => {
                excused = policy.excused(nodes.len());
                let name = policy.name.clone();
                let is_back = back.is_some();
                let plan = |progress, checks, changes, held: Option<&Hold>| PolicyPlan {
                    policy: name,
                    progress,
                    checks,
                    changes,
                    back: is_back,
                    held_for: held.map(|hold| hold.word().to_owned()),
                    overlap: policy::overlap(&policy.waves, &nodes),
                    looks: vec![],
                };
                if let Some(back) = &back {
                    let held = Some(cut(&back.why.to_string(), MAX_REASON_CHARS).into_owned());
                    let progress = PoolProgress { held, gates: vec![], ..facts.progress.clone() };
                    followed = Some(plan(progress, vec![], vec![], Some(&back.why)));
                    // All are back.
                    let hold = nodes.iter().all(|(_, f)| !f.candidate).then(|| back.why.clone());
                    // What is out of service may be so because of the config that it leaves.
                    excused = 0;
                    Allowance { hold, back: true, zones: policy.zones.clone(), ..Allowance::default() }
                } else if policy.is_default() {
                    without_waves(input, elsewhere)
                } else {
                    let plain = !input.layering.is_layered();
                    let about = About { pool: input.pool, config: goal.config, plain, elsewhere };
                    let next = policy::next((policy, facts), about, &nodes, inputs.now.0);
                    let held = next.allowance.hold.as_ref().filter(|h| !matches!(h, Hold::Recording { .. }));
                    followed = Some(plan(next.progress, next.checks, next.changes, held));
                    let proved = facts.progress.proved.as_deref().filter(|_| !input.layering.is_layered());
                    let looks = policy.drain.is_some() && inputs.facts.looks;
                    Allowance {
                        zones: policy.zones.clone(),
                        joins: proved.map(Arc::from),
                        looks,
                        ..next.allowance
                    }
                }
            }
            (None, None) => without_waves(input, elsewhere),
            (Some(_), _) => Allowance::default(),
        };
        let mut max = max.unwrap_or(0);
        if let Some(own) = &leave.max_unavailable {
            match max_unavailable(input.name(), Some(own), nodes.len()) {
                Ok(own) => max = max.min(own),
                Err(text) => hold = Some(Hold::MaxUnavailable(text)),
            }
        }
        let capacity = measure(max, excused, &nodes);
        // Updates under way finish even while a policy holds the pool, and taints are removed from nodes that are done.
        let tends = hold.is_none();
        let fetches = tends && back.is_none() && prefetch::goes_on_while(leave.hold.as_ref());
        let prefetch = match prefetch {
            Ok(Some(at_once)) if fetches => {
                let target = Target::of(goal.config.into(), &input.layering);
                Prefetch::of(input, target, at_once, &nodes)
            }
            _ => Prefetch::default(),
        };
        let hold = hold.or_else(|| leave.hold.clone()).or_else(|| prefetch.hold.clone());
        Self { input, tends, frees, hold, capacity, nodes, leave, prefetch, policy: followed, back }
    }

    /// Whether the pool's config has proved itself.
    fn proof(&self) -> status::Proof<'_> {
        let (policy, facts) = match self.input.policy {
            None => return status::Proof::Given,
            Some(PolicyInput::Unusable(_)) => return status::Proof::Unknown,
            Some(PolicyInput::InForce { policy, facts }) => (policy, facts),
        };
        let progress = self.policy.as_ref().map_or(&facts.progress, |plan| &plan.progress);
        let proved = progress.proved.as_deref() == Some(&self.input.pool.spec.configuration.name);
        match proved || !policy.has_progress() || self.nodes.is_empty() {
            true => status::Proof::Given,
            false => status::Proof::Missing(&policy.name),
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

    /// The mark of a node that takes what waits if somebody reboots it: all that it waits for is a window. One that shuts down
    /// keeps it.
    fn waiting(&self, node: &NodeView, before: Flags, is_sent: bool, config: &str) -> Change<Arc<str>> {
        let may = self.tends && self.leave.only_window && self.hold == self.leave.hold && !is_sent;
        let takes = before.candidate && before.done && !before.aside && self.leave.allows(&node.name);
        match (may && takes, node.waiting.as_deref()) {
            (true, had) if had != Some(config) => Change::Set(config.into()),
            (false, Some(_)) => Change::Remove,
            _ => Change::Keep,
        }
    }

    /// The nodes that could be sent now.
    fn candidates(&self) -> impl Iterator<Item = (&'a NodeView, Flags)> + '_ {
        self.nodes.iter().copied().filter(|(_, f)| f.can_be_asked())
    }

    fn plan(
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
        let (taken, by_others) = choice.taken(&self.capacity);
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
            }
            patch.etcd_before = control_plane::leaves(node, flags_after, goes, inputs.facts);
            let aside =
                [Some(goal.config), node.desired_config.as_deref()].contains(&node.quarantine.as_deref());
            let is_over = goes || before.updated || !aside || self.frees;
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
                patch.set_update_taint(node, !flags_after.at_target);
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
                control_plane::adjust(node, inputs.facts, &mut patch);
            }
            let step = if goes {
                Step::Goes
            } else if recalled {
                Step::Waits(Wait::Aside { why: node.drain_wait.as_deref().map(str::to_owned) })
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
            } else if before.aside {
                let why = match inputs.facts.outlooks.get(&node.name) {
                    Some(Outlook::Waits(why)) => Some(why.clone()),
                    _ => None,
                };
                Step::Waits(Wait::Aside { why })
            } else if choice.unseen.contains(&*node.name) {
                Step::Waits(Wait::Look)
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

/// Whether nodes whose drains do not end are put aside; of a policy that cannot be used, it is not known that they are not.
fn puts_aside(policy: Option<PolicyInput<'_>>) -> bool {
    match policy {
        None => false,
        Some(PolicyInput::Unusable(_)) => true,
        Some(PolicyInput::InForce { policy, .. }) => {
            policy.drain.is_some_and(|drain| drain.then == DrainEnd::Quarantine)
        }
    }
}

/// What a pool may do that has no policy, or one that asks for nothing: all, unless another pool has rejected its change.
fn without_waves(input: &PoolInput<'_>, elsewhere: &[Elsewhere<'_>]) -> Allowance {
    Allowance { hold: policy::holds_without_waves(elsewhere, input.pool), ..Allowance::default() }
}

/// What the pool's policy says about a config that it has rejected.
fn going_back<'a>(input: &PoolInput<'a>, wanted: Goal<'_>) -> Option<Back<'a>> {
    // The image of an earlier build is not known.
    if wanted.layering.is_layered() {
        return None;
    }
    let (to, rejected) = policy::rollback_target(input.policy, wanted.config)?;
    let Some(PolicyInput::InForce { policy, .. }) = input.policy else { return None };
    let why = Hold::Rejected {
        config: wanted.config.into(),
        reason: rejected.reason.clone(),
        policy: policy.name.clone(),
        back_to: Some(to.into()),
    };
    Some(Back { to, why })
}

fn goal<'a>(input: &'a PoolInput<'a>) -> Goal<'a> {
    Goal { config: &input.pool.spec.configuration.name, layering: &input.layering }
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

/// Where a node stands that was asked to be in the pool's config before.
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

/// Two masters and an arbiter form one quorum. The arbiter moves when all masters are done, or when they stay where
/// they are and are available. Masters do not move while the arbiter is unavailable. A broken arbiter, which keeps the
/// masters where they are, goes first: it is in service, and so are they.
fn hold_control_plane(evals: &mut [Eval<'_>]) {
    let at = |evals: &[Eval<'_>], name: &str| evals.iter().position(|e| e.input.name() == name);
    let Some(arbiter) = at(evals, ARBITER) else { return };
    let Some(master) = at(evals, MASTER) else {
        if let Some(eval) = evals.get_mut(arbiter).filter(|e| e.hold.is_none()) {
            (eval.hold, eval.tends) = (Some(Hold::NoMasterPool), false);
        }
        return;
    };
    let out = |f: &Flags| f.unavailable || f.maybe_sent;
    let all_out =
        |e: &Eval<'_>| e.nodes.iter().filter(|(_, f)| out(f)).map(|(n, _)| n.name.clone()).collect();
    let arbiters_out: Vec<_> = evals.get(arbiter).map(all_out).unwrap_or_default();
    let broken = |e: &Eval<'_>| e.nodes.iter().all(|(_, f)| f.broken || !out(f));
    let first = !arbiters_out.is_empty() && evals.get(arbiter).is_some_and(broken);
    let Some(eval) = evals.get_mut(master) else { return };
    let held = eval.hold.is_some();
    let away = eval.nodes.iter().filter(|(_, f)| out(f) && !(first && f.broken));
    let mut busy: Vec<_> = away.map(|(n, _)| n.name.clone()).collect();
    if !held {
        if !first {
            busy.extend(eval.candidates().map(|(n, _)| n.name.clone()));
        }
        if !arbiters_out.is_empty() {
            eval.hold = Some(Hold::Arbiter(arbiters_out));
        }
    }
    busy.sort_unstable();
    busy.dedup();
    if let Some(eval) = evals.get_mut(arbiter).filter(|e| e.hold.is_none() && !busy.is_empty()) {
        (eval.hold, eval.tends) = (Some(Hold::Masters(busy)), !held);
    }
}
