//! The choice of the nodes of one pool that go now, within what its capacity and its policy leave free, and the events
//! about it.
//!
//! What it is not: what is free (see `capacity`, `policy`), or the patches (see `decide`).

use crate::drain::Outlook;
use crate::event::{EventObject, EventPlan};
use crate::facts::Facts;
use crate::hold::Wait;
use crate::inputs::PoolInput;
use crate::node::Flags;
use crate::node::control_plane::ControlPlaneTurn;
use crate::node::first_boot::{self, FirstBootPool, LabelSet};
use crate::order::order;
use crate::plan::prefetch::Prefetch;
use crate::plan::{Capacity, PoolPlan};
use crate::policy::{Allowance, ZoneLimit};
use crate::target::Target;
use crate::view::NodeView;
use api::events::ControllerEvent;
use api::names::{EMPTY_CONFIG, MASTER};
use api::v1::MachineConfigPool;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The most nodes of a pool that are looked at before they are cordoned. If all of them would wait, any node may go.
const MOST_LOOKS: usize = 64;

/// Names of nodes, shared by all nodes that wait for them.
type Names = Arc<[Arc<str>]>;

/// The nodes that go, and those that are treated differently.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) picks: HashSet<Arc<str>>,
    pub(super) deferred: Option<Arc<str>>,
    /// Labels of the custom pool that a node booted into, with that pool.
    pub(super) labels: BTreeMap<Arc<str>, (Arc<str>, LabelSet)>,
    /// Nodes that claim to have booted into a pool that does not expect them, with that pool.
    pub(super) unexpected: Vec<(Arc<str>, Arc<str>)>,
    /// Control-plane nodes that have a slot but wait for other control-plane nodes, with what they wait for.
    pub(super) turned: BTreeMap<Arc<str>, Wait>,
    /// Nodes whose zone has no room, with the zone and its limit.
    pub(super) zones: BTreeMap<Arc<str>, (Arc<str>, usize)>,
    /// Nodes to look at before they are cordoned, or as long as they are put aside.
    pub(super) looks: Vec<Arc<str>>,
    /// Those of them that have not been looked at, and do not go for that.
    pub(super) unseen: HashSet<Arc<str>>,
    /// Nodes that booted into the pool that they are in now.
    pub(super) booted_here: HashSet<Arc<str>>,
}

/// Chooses the nodes that go, or of them only those that join. Labels are set regardless of capacity, because they disrupt nothing.
pub(super) fn choose(
    pool: &str,
    nodes: &[(&NodeView, Flags)],
    capacity: &Capacity,
    (leave, only_excepted, prefetch): (&Allowance, bool, &Prefetch),
    facts: &Facts,
    pools: &HashMap<&str, &MachineConfigPool>,
    turn: &mut ControlPlaneTurn,
) -> Choice {
    let mut choice = Choice::default();
    let mut candidates = vec![];
    for (node, flags) in nodes.iter().copied().filter(|(_, f)| !f.unanswered) {
        let joins = leave.joining(node);
        // It is on its way to the config that others had before.
        let joined = joins.is_some() && node.desired_config.as_ref() == joins;
        let excepted = joins.is_some() || leave.along.contains(&node.name);
        if only_excepted && !excepted || joined || !excepted && prefetch.wait(&node.name).is_some() {
            continue;
        }
        match first_boot::booted_into(node, facts, pools, pool) {
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
        // A node that needs another config to come back holds its slot until then, whatever its wave.
        let allowed = leave.allows(&node.name) || flags.stranded || joins.is_some();
        // On the way back a node may be out of service because of the config that it leaves.
        let asked = leave.back && flags.candidate;
        let returns = flags.quarantined && flags.ready && !flags.waiting;
        if (flags.can_be_asked() || asked || returns) && allowed {
            candidates.push((node, flags));
        }
    }
    if pool == MASTER && candidates.len() > 1 {
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
    let out = nodes.iter().filter(|(_, f)| out(f)).count();
    let mut free = capacity.free;
    let mut for_broken = capacity.max.saturating_sub(out);
    let mut zones = leave.zones.as_ref().map(|limit| ZoneRoom::of(limit, nodes));
    if free < candidates.len() || zones.is_some() {
        candidates.sort_unstable_by(|a, b| order(a.0, b.0));
    }
    if leave.back {
        // What went last comes back first.
        candidates.reverse();
    }
    if leave.joins.is_some() {
        candidates.sort_by_key(|(node, _)| leave.joining(node).is_none());
    }
    if leave.looks && !leave.back {
        candidates = choice.order_by_outlook(candidates, capacity.free, &facts.outlooks);
    } else {
        candidates.retain(|(_, f)| !f.quarantined || leave.back);
    }
    for (node, flags) in candidates {
        let has_slot = flags.stranded || flags.waiting || leave.back && flags.unavailable && !flags.broken;
        if !has_slot {
            let takes_slot = flags.broken || !flags.unavailable;
            let zones = zones.as_mut().filter(|_| takes_slot);
            if let Some(full) = zones.as_ref().and_then(|zones| zones.full(node)) {
                choice.zones.insert(node.name.clone(), full);
                continue;
            }
            let slots = if flags.broken { &mut for_broken } else { &mut free };
            if *slots == 0 {
                continue;
            }
            if let Err(by) = turn.take(node, flags) {
                choice.turned.insert(node.name.clone(), by);
                continue;
            }
            *slots -= usize::from(takes_slot);
            // Last, so that a node that waits for something else takes no room.
            if let Some(zones) = zones {
                zones.take(node);
            }
        }
        choice.picks.insert(node.name.clone());
    }
    choice
}

/// The room that is left in each zone.
struct ZoneRoom<'a> {
    limit: &'a ZoneLimit,
    out: HashMap<&'a str, usize>,
}

impl<'a> ZoneRoom<'a> {
    fn of(limit: &'a ZoneLimit, nodes: &[(&'a NodeView, Flags)]) -> Self {
        let mut out: HashMap<&str, usize> = HashMap::new();
        let away = |f: &Flags| f.unavailable && !f.broken || f.failing && !f.candidate || f.maybe_sent;
        for (node, _) in nodes.iter().filter(|(_, f)| away(f)) {
            *out.entry(node.labels.get(&limit.key).unwrap_or_default()).or_default() += 1;
        }
        Self { limit, out }
    }

    fn zone(&self, node: &'a NodeView) -> &'a str {
        node.labels.get(&self.limit.key).unwrap_or_default()
    }

    /// The zone of a node and its limit, if no room is left there.
    fn full(&self, node: &'a NodeView) -> Option<(Arc<str>, usize)> {
        let zone = self.zone(node);
        let out = self.out.get(zone).copied().unwrap_or_default();
        (out >= self.limit.max).then(|| (zone.into(), self.limit.max))
    }

    /// Takes room for a node.
    fn take(&mut self, node: &'a NodeView) {
        *self.out.entry(self.zone(node)).or_default() += 1;
    }
}

impl Choice {
    /// Puts nodes first whose drains end, as far as they were looked at, and leaves out those that were not, and those that
    /// are put aside and would wait again. As many are looked at as may go.
    fn order_by_outlook<'a>(
        &mut self,
        candidates: Vec<(&'a NodeView, Flags)>,
        free: usize,
        known: &BTreeMap<Arc<str>, Outlook>,
    ) -> Vec<(&'a NodeView, Flags)> {
        let (mut now, mut late, mut found) = (vec![], vec![], 0);
        for (node, flags) in candidates {
            // It is out of service, on its way already, or has no workload yet.
            let has_slot = flags.stranded || flags.waiting || flags.unavailable;
            let joins = node.current_config.as_deref() == Some(EMPTY_CONFIG);
            if (has_slot || joins) && !flags.quarantined {
                now.push((0, node, flags));
                continue;
            }
            let may_look = self.looks.len() < MOST_LOOKS;
            match known.get(&node.name) {
                seen if flags.quarantined => {
                    self.looks.extend(may_look.then(|| node.name.clone()));
                    if let Some(Outlook::Ends | Outlook::Loses(_)) = seen {
                        now.push((3, node, flags));
                    }
                }
                Some(Outlook::Waits(_)) => {
                    // It goes first again as soon as it can.
                    self.looks.extend((may_look && found < free).then(|| node.name.clone()));
                    late.push((node, flags));
                }
                Some(outlook) => {
                    found += 1;
                    now.push((if *outlook == Outlook::Ends { 1 } else { 2 }, node, flags));
                }
                None if found >= free => {}
                None if may_look => {
                    found += 1;
                    self.looks.push(node.name.clone());
                    self.unseen.insert(node.name.clone());
                }
                // So many wait that it makes no difference.
                None => late.push((node, flags)),
            }
        }
        now.sort_by_key(|(rank, ..)| *rank);
        // Nodes whose drains would wait go only where nobody else can.
        if found > 0 {
            late.clear();
        }
        now.into_iter().map(|(_, node, flags)| (node, flags)).chain(late).collect()
    }

    /// The nodes that hold the slots once the choice is carried out: one list for all nodes that wait, and one for
    /// waiting broken nodes, which do not block each other.
    pub(super) fn slot_holders(&self, capacity: &Capacity) -> (Names, Names) {
        let Capacity { max: _, unavailable, broken, failing, unanswered, free: _ } = capacity;
        let slots = unavailable.iter().chain(failing).chain(unanswered);
        let mut all: Vec<_> = slots.chain(&self.picks).cloned().collect();
        all.sort_unstable();
        all.dedup();
        let broken: HashSet<_> = broken.iter().collect();
        let others = all.iter().filter(|n| self.picks.contains(*n) || !broken.contains(n)).cloned();
        let others: Vec<_> = others.collect();
        (all.into(), others.into())
    }

    /// The events about it.
    pub(super) fn events(&self, pool: &PoolInput<'_>, target: &Target, events: &mut Vec<EventPlan>) {
        let mut say = |reason, message| {
            events.push(EventPlan::new(reason, EventObject::Pool(pool.name().into()), message));
        };
        if self.picks.is_empty() {
            return;
        }
        if let Some(node) = &self.deferred {
            say(
                ControllerEvent::DeferringOperatorNodeUpdate,
                format!("Node {node} runs the operator and goes last"),
            );
        }
        let reason = match pool.layering.is_layered() {
            true => ControllerEvent::SetDesiredConfigAndOSImage,
            false => ControllerEvent::SetDesiredConfig,
        };
        let names: Vec<&str> = self.picks.iter().map(|n| &**n).collect();
        say(reason, sent_message(&names, target));
    }
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
    pub fn events_of_sent(&self, sent: &[&str]) -> Vec<EventPlan> {
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
    pub fn events_of_status(&self) -> impl Iterator<Item = &EventPlan> {
        self.events.iter().filter(|e| !is_of_sent(e.reason))
    }
}
