//! [`plan`]: which nodes of which pools move now.
//!
//! Data flow: membership → predicates of each node → holds → capacity → choice → one patch for each node → status and
//! events as they are after the patches.
//!
//! What it is not: I/O or a clock. The executor decides nothing again.

use crate::capacity::{max_unavailable, measure, order};
use crate::control_plane::{self, ControlPlaneTurn};
use crate::first_boot::{self, FirstBootPool, LabelSet};
use crate::membership::{self, BrokenSelector, Membership};
use crate::node::{Desired, Flags, Goal, flags, why_unavailable};
use crate::patch::{Change, NodePatch};
use crate::plan::{
    Capacity, EventObject, EventPlan, Facts, Hold, Inputs, NoPool, NodeStep, PoolInput, PoolPlan,
    RolloutPlan, Step, Target, TroubleOf, Wait,
};
use crate::policy::{self, Allowance};
use crate::status;
use crate::view::NodeView;
use api::events::ControllerEvent;
use api::names::{ARBITER, MASTER, annotation};
use api::v1::MachineConfigPool;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Names of nodes, shared by all nodes that wait for them.
type Names = Arc<[Arc<str>]>;

/// Decides for all pools at once.
///
/// # Guarantees
/// - No pool has more nodes on their way after the plan than `maxUnavailable`, unless it had before.
/// - No control-plane node goes while another, of whatever pool, is out of service or on its way.
/// - A held pool's nodes keep their annotations, taints and labels, but for what OpenShift's Scheduler says of masters.
/// - Applied to the inputs, the plan leads to inputs whose plan has no patches. Two cases take one more round: labels
///   that change a node's pool, and a node that is back in service by being told to stay where it is.
///
/// # Assumes
/// - The caller sees its own writes: a patch's answer is in the views before the next plan is made, or the patch is in
///   [`Facts::unanswered`].
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
    let Membership { members, unmanaged, unowned, alerts, broken } =
        membership::resolve(&inputs.pools, &inputs.nodes, inputs.facts.cluster);
    let members = members.iter().zip(&broken);
    let mut evals: Vec<Eval<'_>> = inputs
        .pools
        .iter()
        .zip(members)
        .map(|(pool, (nodes, broken))| Eval::new(pool, nodes, broken.as_ref(), inputs))
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
    let mut turn = ControlPlaneTurn::default();
    evals.iter().flat_map(|e| &e.nodes).for_each(|(node, flags)| turn.record(node, *flags));
    unowned.iter().for_each(|node| turn.record_unmanaged(node));
    let pools: Vec<PoolPlan> = evals
        .iter()
        .map(|eval| {
            let conflicts = conflicts.get(eval.input.name()).map(Vec::as_slice).unwrap_or_default();
            eval.plan(inputs, &by_name, conflicts, &labelled, &mut turn)
        })
        .collect();
    let look_again = pools.iter().filter_map(|pool| pool.look_again).min();
    RolloutPlan { pools, unmanaged, pool_alerts: alerts, look_again }
}

/// A pool, its nodes with their predicates, and what holds it.
struct Eval<'a> {
    input: &'a PoolInput<'a>,
    nodes: Vec<(&'a NodeView, Flags)>,
    hold: Option<Hold>,
    /// Whether taints and topology are still maintained: the pool is held only until its turn comes, or not at all.
    tends: bool,
    capacity: Capacity,
    /// What the pool's policy allows.
    leave: Allowance,
}

impl<'a> Eval<'a> {
    fn new(
        input: &'a PoolInput<'a>,
        nodes: &[&'a NodeView],
        broken: Option<&BrokenSelector>,
        inputs: &Inputs<'_>,
    ) -> Self {
        let facts = inputs.facts;
        let spec = &input.pool.spec;
        let goal = goal(input);
        let look = |n: &&'a NodeView| {
            let flags = flags(n, Desired::of(n), goal);
            (*n, flags.without_answer(facts.unanswered.get(&n.name)))
        };
        let nodes: Vec<_> = nodes.iter().map(look).collect();
        let max = max_unavailable(input.name(), spec.max_unavailable.as_ref(), nodes.len());
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
        } else if let Err(text) = &max {
            Some(Hold::MaxUnavailable(text.clone()))
        } else {
            input.refused.map(|why| Hold::Refused(why.to_owned()))
        };
        let leave = match (&hold, input.policy) {
            (None, Some(policed)) => policy::allowance(policed, goal.config, &nodes, inputs.now.0),
            _ => Allowance::default(),
        };
        let mut max = max.unwrap_or(0);
        if let Some(own) = &leave.max_unavailable {
            match max_unavailable(input.name(), Some(own), nodes.len()) {
                Ok(own) => max = max.min(own),
                Err(text) => hold = Some(Hold::MaxUnavailable(text)),
            }
        }
        let capacity = measure(max, &nodes);
        // Updates under way finish even while a policy holds the pool, and taints are removed from nodes that are done.
        let tends = hold.is_none();
        let hold = hold.or_else(|| leave.hold.clone());
        Self { input, tends, hold, capacity, nodes, leave }
    }

    /// The nodes that could be sent now.
    fn candidates(&self) -> impl Iterator<Item = (&'a NodeView, Flags)> + '_ {
        self.nodes.iter().copied().filter(|(_, f)| can_be_asked(f))
    }

    fn plan(
        &self,
        inputs: &Inputs<'_>,
        pools: &HashMap<&str, &MachineConfigPool>,
        conflicts: &[String],
        labelled: &HashSet<&str>,
        turn: &mut ControlPlaneTurn,
    ) -> PoolPlan {
        let goal = goal(self.input);
        let target = Target::of(goal.config.into(), &self.input.layering);
        let choice = match self.hold {
            None => self.choose(inputs.facts, pools, turn),
            Some(_) => Choice::default(),
        };
        let mut plan = PoolPlan {
            pool: self.input.name().into(),
            hold: self.hold.clone(),
            capacity: self.capacity.clone(),
            nodes: Vec::with_capacity(self.nodes.len()),
            look_again: self.leave.look_again,
            ..PoolPlan::default()
        };
        let (taken, by_others) = self.taken(&choice);
        let mut after = Vec::with_capacity(self.nodes.len());
        for (node, before) in &self.nodes {
            let goes = choice.picks.contains(&*node.name);
            // Bound to its node below. Most of the thousands of nodes need no patch.
            let mut patch = NodePatch::default();
            let mut flags_after = *before;
            if goes {
                let desired = Desired { config: Some(&target.config), image: target.image.as_deref() };
                flags_after = flags(node, desired, goal);
                send(node, &target, &mut patch);
                patch.pool_labels_applied = choice.booted_here.contains(&*node.name);
            }
            let labels = choice.labels.get(&*node.name);
            if let Some((_, set)) = labels {
                patch.labels = set.iter().map(|(k, v)| (k.clone(), Some(v.clone()))).collect();
                patch.pool_labels_applied = true;
            }
            if self.tends {
                patch.set_update_taint(node, !flags_after.at_target);
                patch.topology = control_plane::topology(node, inputs.facts);
            }
            // If it is not known which nodes belong to the pool, none is touched.
            if !matches!(self.hold, Some(Hold::SelectsAll | Hold::Selector { .. })) {
                patch.drift = drift_rules(self.input.pool, node);
                control_plane::adjust(node, inputs.facts, &mut patch);
            }
            let step = if goes {
                Step::Goes
            } else if !before.candidate {
                moving(node, *before)
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
            } else if choice.deferred.as_deref() == Some(&*node.name) {
                Step::Waits(Wait::RunsOperator)
            } else if let Some(by) = choice.turned.get(&*node.name) {
                Step::Waits(Wait::ControlPlane(by.clone()))
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
        self.choice_events(&choice, &target, &mut plan.events);
        let late = |n: &NodeView| inputs.facts.unanswered.get(&n.name).is_some_and(|u| u.overdue);
        let overdue: Vec<&str> = self.nodes.iter().filter(|(n, _)| late(n)).map(|(n, _)| &*n.name).collect();
        let troubles = inputs.facts.troubles.iter().filter(|trouble| match &trouble.of {
            TroubleOf::Cluster => true,
            TroubleOf::Pool(pool) => **pool == *self.input.name(),
            TroubleOf::Node(node) => self.nodes.iter().any(|(n, _)| n.name == *node),
        });
        let troubles: Vec<&str> = troubles.map(|trouble| &*trouble.text).collect();
        let facts = status::PoolFacts {
            input: self.input,
            target: &target,
            hold: self.hold.as_ref(),
            nodes: &after,
            conflicts,
            certificates: &inputs.facts.certificates,
            overdue: &overdue,
            troubles: &troubles,
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

    /// Chooses the nodes that go. Labels are set regardless of capacity, because they disrupt nothing.
    fn choose(
        &self,
        facts: &Facts,
        pools: &HashMap<&str, &MachineConfigPool>,
        turn: &mut ControlPlaneTurn,
    ) -> Choice {
        let mut choice = Choice::default();
        let mut candidates = vec![];
        for (node, flags) in self.nodes.iter().copied().filter(|(_, f)| !f.unanswered) {
            match first_boot::booted_into(node, facts, pools, self.input.name()) {
                FirstBootPool::Elsewhere { pool, labels } => {
                    choice.labels.insert(node.name.clone(), (pool, labels));
                    continue;
                }
                FirstBootPool::Unexpected { pool } => choice.unexpected.push((node.name.clone(), pool)),
                FirstBootPool::Here => {
                    choice.booted_here.insert(node.name.clone());
                }
                FirstBootPool::Ordinary => {}
            }
            // A node that was sent before is sent on to the pool's present target.
            let allowed = self.leave.allows(&node.name) || flags.stranded || flags.waiting;
            if can_be_asked(&flags) && allowed {
                candidates.push((node, flags));
            }
        }
        if self.input.name() == MASTER && candidates.len() > 1 {
            // A broken node already holds the slot that the others wait for.
            let runs_operator =
                |(n, f): &(&NodeView, Flags)| facts.operator_node.as_ref() == Some(&n.name) && !f.broken;
            choice.deferred = candidates.iter().find(|c| runs_operator(c)).map(|(n, _)| n.name.clone());
            candidates.retain(|c| !runs_operator(c));
        }
        // A node that is out of service anyway takes no further slot; every other node takes one. If a patch brings a
        // node back into service, its slot becomes free only once that is seen, because the patch may be refused.
        // Broken nodes are still in service: no more of them go than there are slots left by the nodes that are really
        // out. While one of them waits, there is no slot for any other node.
        let out = |f: &Flags| f.unavailable && !f.broken || f.failing && !f.candidate || f.maybe_sent;
        let out = self.nodes.iter().filter(|(_, f)| out(f)).count();
        let mut free = self.capacity.free;
        let mut for_broken = self.capacity.max.saturating_sub(out);
        if free < candidates.len() {
            candidates.sort_unstable_by(|a, b| order(a.0, b.0));
        }
        for (node, flags) in candidates {
            // It has a slot already.
            if !flags.stranded && !flags.waiting {
                let slots = if flags.broken { &mut for_broken } else { &mut free };
                if *slots == 0 {
                    continue;
                }
                if let Err(by) = turn.take(node, flags) {
                    choice.turned.insert(node.name.clone(), by);
                    continue;
                }
                *slots -= usize::from(flags.broken || !flags.unavailable);
            }
            choice.picks.insert(node.name.clone());
        }
        choice
    }

    /// The nodes that hold the slots once the choice is carried out: one list for all nodes that wait, and one for
    /// waiting broken nodes, which do not block each other.
    fn taken(&self, choice: &Choice) -> (Names, Names) {
        let Capacity { max: _, unavailable, broken, failing, unanswered, free: _ } = &self.capacity;
        let slots = unavailable.iter().chain(failing).chain(unanswered);
        let mut all: Vec<_> = slots.chain(&choice.picks).cloned().collect();
        all.sort_unstable();
        all.dedup();
        let broken: HashSet<_> = broken.iter().collect();
        let others = all.iter().filter(|n| choice.picks.contains(*n) || !broken.contains(n)).cloned();
        let others: Vec<_> = others.collect();
        (all.into(), others.into())
    }

    fn choice_events(&self, choice: &Choice, target: &Target, events: &mut Vec<EventPlan>) {
        let mut say = |reason, message| {
            events.push(EventPlan::new(reason, EventObject::Pool(self.input.name().into()), message));
        };
        if choice.picks.is_empty() {
            return;
        }
        if let Some(node) = &choice.deferred {
            say(
                ControllerEvent::DeferringOperatorNodeUpdate,
                format!("Node {node} runs the operator and goes last"),
            );
        }
        let reason = match self.input.layering.is_layered() {
            true => ControllerEvent::SetDesiredConfigAndOSImage,
            false => ControllerEvent::SetDesiredConfig,
        };
        let names: Vec<&str> = choice.picks.iter().map(|n| &**n).collect();
        say(reason, sent_message(&names, target));
    }
}

fn can_be_asked(f: &Flags) -> bool {
    f.candidate && !f.unanswered && (f.ready || f.stranded || f.waiting)
}

/// Whether an event is about nodes that were sent on their way.
fn is_of_sent(reason: ControllerEvent) -> bool {
    use ControllerEvent::{DeferringOperatorNodeUpdate, SetDesiredConfig, SetDesiredConfigAndOSImage};
    matches!(reason, SetDesiredConfig | SetDesiredConfigAndOSImage | DeferringOperatorNodeUpdate)
}

fn sent_message(names: &[&str], target: &Target) -> String {
    match names {
        [one] => format!("Targeted node {one} to {target}"),
        more => format!("Set target for {} nodes to {target}", more.len()),
    }
}

impl PoolPlan {
    /// The events about the nodes that were really sent; some patches may have been refused. They are true even if the
    /// status is not written.
    pub fn told_of_sent(&self, sent: &[&str]) -> Vec<EventPlan> {
        let Some(target) = self.target.as_ref().filter(|_| !sent.is_empty()) else { return vec![] };
        let about_sent = self.events.iter().filter(|e| is_of_sent(e.reason));
        about_sent
            .map(|e| match e.reason {
                ControllerEvent::DeferringOperatorNodeUpdate => e.clone(),
                _ => EventPlan { message: sent_message(sent, target), ..e.clone() },
            })
            .collect()
    }

    /// The events to record once the status is written.
    pub fn told_of_status(&self) -> impl Iterator<Item = &EventPlan> {
        self.events.iter().filter(|e| !is_of_sent(e.reason))
    }
}

/// The nodes that go, and those that are treated differently.
#[derive(Default)]
struct Choice {
    picks: HashSet<Arc<str>>,
    deferred: Option<Arc<str>>,
    /// Labels of the custom pool that a node booted into, with that pool.
    labels: BTreeMap<Arc<str>, (Arc<str>, LabelSet)>,
    /// Nodes that claim to have booted into a pool that does not expect them, with that pool.
    unexpected: Vec<(Arc<str>, Arc<str>)>,
    /// Control-plane nodes that have a slot but wait for other control-plane nodes, with the nodes that they wait for.
    turned: BTreeMap<Arc<str>, Arc<[Arc<str>]>>,
    /// Nodes that booted into the pool that they are in now.
    booted_here: HashSet<Arc<str>>,
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

/// Where a node stands that was asked to be in the pool's config before.
/// The pool's drift policy, for a node that has another one. It is set in a paused pool too, because it is no update.
fn drift_rules(pool: &MachineConfigPool, node: &NodeView) -> Change<Arc<str>> {
    let rules = pool.metadata.annotations.as_ref().and_then(|a| a.get(annotation::DRIFT));
    match (rules.filter(|r| !r.is_empty()), &node.drift) {
        (Some(want), has) if has.as_deref() != Some(want.as_str()) => Change::Set(want.as_str().into()),
        (None, Some(_)) => Change::Remove,
        _ => Change::Keep,
    }
}

fn moving(node: &NodeView, f: Flags) -> Step {
    if f.updated && f.ready {
        Step::Done
    } else if f.failing {
        Step::Failing(crate::plan::Reason::Daemon(node.state.clone(), node.reason.clone()))
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
