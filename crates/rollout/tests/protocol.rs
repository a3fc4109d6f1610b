//! The two-sided protocol, explored to the end: every order of a few nodes' daemons, one or two controllers with
//! caches that lag node by node, patches that are delayed, refused, lost, applied without an answer, or that outlive
//! their leader, crashes of controllers and of daemons at any point, nodes that are lost by themselves or that fail under
//! the cordon of their drain, a pool that is paused and re-targeted.
//!
//! The controller's side is the real `rollout::plan`; the daemon's side is an abstraction of what its annotations
//! can do. What is checked in every state: the bound is held, nothing moves while paused, and from every state there
//! is a way to the end. 220,000 states, 25 s on one core in a debug build. An event that comes twice changes nothing of
//! a cache, so it makes no state of its own; a list never takes a cache back, since the store compares versions.
//!
//! The explorer is itself tested: by faults in the model (`Fault`), and by hand, by putting these into the plan: a node
//! that is not available takes no slot; a failing one takes none, or keeps one for ever; one that is not Ready counts as
//! available; a pick takes no slot; a pause is not looked at. Each fails at least one test here.
//!
//! What it is not: time, or more than a handful of nodes.
#![allow(clippy::unwrap_used, clippy::panic)] // A test that cannot go on ends.
mod common;

use api::v1::MachineConfigPool;
use common::{World, moved, pool};
use rollout::Change;
use rollout::view::{CordonMark, DaemonState, NodeView};
use serde_json::json;
use std::collections::{HashMap, VecDeque};

/// Configs: where all nodes begin, the first target, and a second one.
const CONFIGS: [&str; 3] = ["v0", "v1", "v2"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum St {
    Done,
    Working,
    Degraded,
}

/// What stands on a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Node {
    cur: u8,
    des: u8,
    st: St,
    ready: bool,
}

impl Node {
    fn done(self) -> bool {
        self.cur == self.des && self.st == St::Done && self.ready
    }

    fn failing(self) -> bool {
        self.cur != self.des && self.st == St::Degraded
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Pool {
    target: u8,
    paused: bool,
}

/// Who is sent where, by what a controller believes.
type Plans = HashMap<(Pool, Vec<Node>), Vec<(u8, u8)>>;

/// A patch on its way: node, desired config, and whether the version that it is bound to is still the node's.
type Flight = (u8, u8, bool);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Controller {
    pool: Pool,
    cache: Vec<Node>,
    /// Whether the cached version is the node's.
    fresh: Vec<bool>,
    flight: Vec<Flight>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    pool: Pool,
    nodes: Vec<Node>,
    /// What each daemon is applying.
    work: Vec<u8>,
    /// Nodes that were seen failing at what was not the target: they gave up their slot.
    freed: Vec<bool>,
    controllers: Vec<Controller>,
    /// Patches that whoever sent them knows nothing of any more: they arrive at some time, or never.
    late: Vec<Flight>,
    /// How many more times people change the pool.
    edits: u8,
    /// How many more nodes are lost for a while although nobody asked anything of them.
    outages: u8,
}

/// Faults that the explorer must find: a test of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A patch without an answer is taken for one that did not arrive.
    Forgets,
    /// One node more than allowed is sent.
    OneTooMany,
    /// A failed node keeps its slot and is never sent elsewhere.
    NeverTriesAgain,
    /// The controller never sees what becomes of the first node.
    Blind,
    /// A new leader begins with caches that another one's patches are not in.
    StaleStart,
}

struct Model {
    fault: Option<Fault>,
    max: usize,
    nodes: usize,
    controllers: usize,
    /// Whether nodes may fail.
    failures: bool,
    /// Whether those that fail may be left under the cordon of their drain. It makes ten times as many states.
    stranded: bool,
    /// Nothing gets to this config: every attempt fails.
    broken: Option<u8>,
    /// Whether somebody pauses and resumes the pool.
    pauses: bool,
    /// Whether a patch may outlive its sender and the wait for its answer, for as long as it likes.
    late: bool,
    edits: u8,
    outages: u8,
    /// Plans by pool and cache: the same question has the same answer.
    plans: Plans,
    views: Vec<NodeView>,
    pool: MachineConfigPool,
}

impl Model {
    fn new(nodes: usize, max: usize, controllers: usize) -> Self {
        let views = (0..nodes).map(|i| moved(&format!("n{i}"), "v0", "v0").created(i as i64).view());
        Self {
            fault: None,
            max,
            nodes,
            controllers,
            failures: true,
            stranded: true,
            broken: None,
            pauses: false,
            late: false,
            edits: 1,
            outages: 0,
            plans: HashMap::new(),
            views: views.collect(),
            pool: pool("worker", "v1", json!(max)),
        }
    }

    fn start(&self) -> State {
        let node = Node { cur: 0, des: 0, st: St::Done, ready: true };
        let pool = Pool { target: 1, paused: false };
        let nodes = vec![node; self.nodes];
        let controller =
            Controller { pool, cache: nodes.clone(), fresh: vec![true; self.nodes], flight: vec![] };
        State {
            pool,
            nodes,
            work: vec![0; self.nodes],
            freed: vec![false; self.nodes],
            controllers: vec![controller; self.controllers],
            late: vec![],
            edits: self.edits,
            outages: self.outages,
        }
    }

    /// The real plan for what a controller believes.
    fn plan(&mut self, pool: Pool, cache: &[Node]) -> Vec<(u8, u8)> {
        if let Some(known) = self.plans.get(&(pool, cache.to_vec())) {
            return known.clone();
        }
        let nodes = cache.iter().zip(&self.views).map(|(node, view)| NodeView {
            current_config: Some(CONFIGS[node.cur as usize].into()),
            desired_config: Some(CONFIGS[node.des as usize].into()),
            state: match node.st {
                St::Done => DaemonState::Done,
                St::Working => DaemonState::Working,
                St::Degraded => DaemonState::Degraded,
            },
            not_ready: (!node.ready && node.st != St::Degraded).then(|| "Ready is False".into()),
            // A daemon that failed after its drain has not given the node back.
            unschedulable: !node.ready && node.st == St::Degraded,
            cordon: (!node.ready && node.st == St::Degraded).then_some(CordonMark::Daemon),
            ..view.clone()
        });
        let mut world = World { nodes: nodes.collect(), pools: vec![self.pool.clone()], ..World::default() };
        if self.fault == Some(Fault::OneTooMany) {
            world.pools[0].spec.max_unavailable = serde_json::from_value(json!(self.max + 1)).unwrap();
        }
        world.pools[0].spec.paused = pool.paused;
        world.pools[0].spec.configuration.name = CONFIGS[pool.target as usize].to_owned();
        let plan = world.plan_of("worker");
        let sent = plan.patches.iter().filter_map(|p| match &p.desired_config {
            Change::Set(config) => {
                let node = self.views.iter().position(|v| v.name == p.node).unwrap();
                let config = CONFIGS.iter().position(|c| **c == **config).unwrap();
                Some((node as u8, config as u8))
            }
            _ => None,
        });
        let sent: Vec<_> = sent.collect();
        assert!(!pool.paused || plan.patches.is_empty(), "a paused pool moves nothing: {plan}");
        // Of those that it knows of, a node that was lost counts as well.
        let mut after = cache.to_vec();
        sent.iter().for_each(|(node, des)| after[*node as usize].des = *des);
        let free = |n: &Node| n.done() || n.failing() && n.ready && n.des != pool.target;
        let before = cache.iter().filter(|n| !free(n)).count();
        let out = after.iter().filter(|n| !free(n)).count();
        let max = self.max;
        assert!(
            sent.is_empty() || out <= max.max(before),
            "{out} nodes out of service, {max} allowed, by plan: {plan}"
        );
        self.plans.insert((pool, cache.to_vec()), sent.clone());
        sent
    }

    /// Every state that one step leads to.
    fn steps(&mut self, s: &State) -> Vec<State> {
        let mut out = vec![];
        for i in 0..self.nodes {
            self.daemon_steps(s, i, &mut out);
            if s.outages > 0 && s.nodes[i].done() {
                let mut t = s.clone();
                t.outages -= 1;
                t.nodes[i].ready = false;
                touched(&mut t, i);
                out.push(t);
            }
        }
        for c in 0..self.controllers {
            self.controller_steps(s, c, &mut out);
        }
        for k in 0..s.late.len() {
            let mut t = s.clone();
            let flight = t.late.remove(k);
            arrive(&mut t, flight);
            out.push(t);
        }
        if s.edits > 0 {
            let edit = |change: fn(&mut Pool)| {
                let mut t = s.clone();
                t.edits -= 1;
                change(&mut t.pool);
                t
            };
            if s.pool.target == 1 {
                out.push(edit(|p| p.target = 2));
            }
            if self.pauses {
                out.push(edit(|p| p.paused = !p.paused));
            }
        }
        for t in &mut out {
            self.give_up_slots(t);
            // What would be refused anyway makes no other state.
            t.late.retain(|f| f.2);
            t.late.sort_unstable();
            t.late.dedup();
        }
        out
    }

    fn daemon_steps(&self, s: &State, i: usize, out: &mut Vec<State>) {
        let node = s.nodes[i];
        let mut push = |next: Node, work: u8| {
            let mut t = s.clone();
            t.work[i] = work;
            if next != node {
                t.nodes[i] = next;
                touched(&mut t, i);
            }
            out.push(t);
        };
        match node.st {
            // It sees a new desired config, or tries again.
            St::Degraded if self.fault == Some(Fault::NeverTriesAgain) => {}
            St::Done if node.des != node.cur && node.ready => {
                push(Node { st: St::Working, ..node }, node.des);
            }
            St::Degraded if node.des != node.cur => {
                push(Node { st: St::Working, ready: true, ..node }, node.des);
            }
            // It failed for what it is no longer asked to do.
            St::Degraded => push(Node { st: St::Done, ready: true, ..node }, node.des),
            // It was lost and comes back.
            St::Done if !node.ready => push(Node { ready: true, ..node }, s.work[i]),
            St::Done => {}
            St::Working => {
                let broken = self.broken == Some(s.work[i]);
                if self.failures || broken {
                    push(Node { st: St::Degraded, ready: true, ..node }, s.work[i]);
                }
                if self.stranded && (self.failures || broken) {
                    // After its drain: it stays cordoned.
                    push(Node { st: St::Degraded, ready: false, ..node }, s.work[i]);
                }
                if node.ready && !broken {
                    push(Node { ready: false, ..node }, s.work[i]);
                } else if !node.ready {
                    push(Node { cur: s.work[i], st: St::Done, ready: true, ..node }, s.work[i]);
                }
                if s.work[i] != node.des && node.ready {
                    // It crashed before anything was changed, and reads its Node again.
                    push(node, node.des);
                }
                if !node.ready {
                    // It crashed half-way, undid what it had done, and reads its Node again.
                    push(Node { ready: true, ..node }, node.des);
                }
            }
        }
    }

    fn controller_steps(&mut self, s: &State, c: usize, out: &mut Vec<State>) {
        let own = &s.controllers[c];
        let blind = self.fault == Some(Fault::Blind);
        for i in (0..self.nodes).filter(|i| !own.fresh[*i] && (!blind || *i > 0)) {
            let mut t = s.clone();
            (t.controllers[c].cache[i], t.controllers[c].fresh[i]) = (s.nodes[i], true);
            out.push(t);
        }
        if own.pool != s.pool {
            let mut t = s.clone();
            t.controllers[c].pool = s.pool;
            out.push(t);
        }
        if own.flight.is_empty() {
            let sent = self.plan(own.pool, &own.cache);
            if !sent.is_empty() {
                let mut t = s.clone();
                t.controllers[c].flight =
                    sent.iter().map(|(node, des)| (*node, *des, own.fresh[*node as usize])).collect();
                out.push(t);
            }
        }
        for k in 0..own.flight.len() {
            let mut lost = s.clone();
            let flight = lost.controllers[c].flight.remove(k);
            let i = flight.0 as usize;
            let mut answered = lost.clone();
            arrive(&mut answered, flight);
            let mut unanswered = answered.clone();
            let node = answered.nodes[i];
            let own = &mut answered.controllers[c];
            (own.cache[i], own.fresh[i]) = (node, true);
            // Without an answer the controller takes it that the patch arrived, until it has read the node again.
            for t in [&mut unanswered, &mut lost] {
                let own = &mut t.controllers[c];
                if self.fault != Some(Fault::Forgets) {
                    own.cache[i].des = flight.1;
                }
                own.fresh[i] = false;
            }
            if self.late {
                // Not lost: on its way.
                lost.late.push(flight);
            }
            out.extend([answered, unanswered, lost]);
        }
        if blind {
            return;
        }
        // A crash, or a lease that is lost. Another instance takes over and lists everything. Any part of the patches
        // arrived; where they may be late, the others arrive under the next leader.
        for arrived in 0..1_usize << own.flight.len() {
            let mut t = s.clone();
            let mut late = vec![];
            for (k, flight) in own.flight.iter().enumerate() {
                if arrived & 1 << k != 0 {
                    arrive(&mut t, *flight);
                } else if self.late {
                    late.push(k);
                }
            }
            late.into_iter().for_each(|k| t.late.push(s.controllers[c].flight[k]));
            let fresh = vec![true; self.nodes];
            let mut next = Controller { pool: s.pool, cache: t.nodes.clone(), fresh, flight: vec![] };
            if self.fault == Some(Fault::StaleStart) {
                (next.cache, next.fresh) = (s.controllers[c].cache.clone(), vec![false; self.nodes]);
            }
            t.controllers[c] = next;
            out.push(t);
        }
    }

    /// The rule by which a failed node frees its slot: it was seen failing at what the pool, as it was seen, does not
    /// want. It may try again by itself before it is sent elsewhere: then it is one more, as with the reference.
    fn give_up_slots(&self, s: &mut State) {
        for i in 0..self.nodes {
            let unwanted =
                |c: &Controller| c.cache[i].failing() && c.cache[i].ready && c.cache[i].des != c.pool.target;
            if s.nodes[i].done() {
                s.freed[i] = false;
            } else if s.nodes[i].des != s.nodes[i].cur && s.controllers.iter().any(unwanted) {
                s.freed[i] = true;
            }
        }
    }

    /// A node that was lost by itself is nobody's fault: whether plans heed it is looked at in [`Model::plan`].
    fn out_of_service(&self, s: &State) -> usize {
        let lost = |n: &Node| n.st == St::Done && n.cur == n.des;
        s.nodes.iter().zip(&s.freed).filter(|(n, freed)| !n.done() && !lost(n) && !**freed).count()
    }

    /// Explores everything; returns the number of states.
    fn explore(&mut self) -> usize {
        let mut index: HashMap<State, u32> = HashMap::new();
        let mut before: Vec<Vec<u32>> = vec![];
        let mut queue = VecDeque::new();
        let (mut ends, mut may_end) = (vec![], vec![]);
        let mut id_of = |s: State, queue: &mut VecDeque<(u32, State)>, before: &mut Vec<Vec<u32>>| {
            let next = u32::try_from(index.len()).unwrap();
            *index.entry(s.clone()).or_insert_with(|| {
                before.push(vec![]);
                queue.push_back((next, s));
                next
            })
        };
        id_of(self.start(), &mut queue, &mut before);
        while let Some((id, s)) = queue.pop_front() {
            let out = self.out_of_service(&s);
            assert!(out <= self.max, "{out} nodes out of service, {} allowed: {s:#?}", self.max);
            if s.nodes.iter().all(|n| n.done() && n.des == s.pool.target) {
                ends.push(id);
            }
            // A paused pool, or one whose config cannot be reached, has no way to the end while nobody edits it.
            may_end.push(!s.pool.paused && (self.broken != Some(s.pool.target)));
            for t in self.steps(&s) {
                let to = id_of(t, &mut queue, &mut before);
                before[to as usize].push(id);
            }
        }
        let mut can_end = vec![false; before.len()];
        while let Some(id) = ends.pop() {
            if !std::mem::replace(&mut can_end[id as usize], true) {
                ends.extend(&before[id as usize]);
            }
        }
        let stuck = can_end.iter().zip(&may_end).filter(|(can, may)| **may && !**can).count();
        assert_eq!(stuck, 0, "states with no way to the end");
        eprintln!("{} states, {} plans", before.len(), self.plans.len());
        before.len()
    }
}

/// The API server takes a patch, or answers 409.
fn arrive(s: &mut State, (node, des, valid): Flight) {
    let i = node as usize;
    if valid {
        s.nodes[i].des = des;
        // One that failed anew after it had given up its slot is out already: it is sent back without one.
        s.freed[i] &= s.nodes[i].st == St::Degraded && !s.nodes[i].ready;
        touched(s, i);
    }
}

/// A Node changed: whoever has seen an older version has a stale one.
fn touched(s: &mut State, i: usize) {
    for c in &mut s.controllers {
        c.fresh[i] = c.cache[i] == s.nodes[i] && c.fresh[i];
        c.flight.iter_mut().filter(|f| f.0 as usize == i).for_each(|f| f.2 = false);
    }
    s.late.iter_mut().filter(|f| f.0 as usize == i).for_each(|f| f.2 = false);
}

#[test]
fn one_controller_with_a_lagging_cache_holds_the_bound() {
    let states = Model::new(3, 1, 1).explore();
    assert!(states > 1_000, "{states}");
}

#[test]
fn two_slots_are_two_slots() {
    for (nodes, edits) in [(3, 1), (4, 0)] {
        let mut model = Model::new(nodes, 2, 1);
        (model.edits, model.stranded) = (edits, false);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

/// While two believe that they lead, the fixed order of nodes and the versions on patches keep them from adding up, as
/// long as nobody re-targets the pool in that moment. The lease sees to it that there are not two.
#[test]
fn two_controllers_at_once_hold_the_bound() {
    for nodes in [2, 3] {
        let mut model = Model::new(nodes, 1, 2);
        (model.failures, model.edits) = (nodes == 2, 0);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

/// Patches of a leader that is gone, or that were given up, arrive under the next one, at the worst moment: the next
/// leader sends the same node first, so one of the two patches is refused. As above, that is so while nobody re-targets
/// the pool: beyond that, a leader ends its requests 4 s before its lease ends.
#[test]
fn patches_that_outlive_their_leader_hold_the_bound() {
    for (nodes, max, failures) in [(2, 1, true), (3, 1, false), (3, 2, false)] {
        let mut model = Model::new(nodes, max, 1);
        (model.late, model.failures, model.edits) = (true, failures, 0);
        let states = model.explore();
        assert!(states > 100, "{states}");
    }
}

/// A node that nobody asked anything of goes away in the middle, and comes back.
#[test]
fn a_node_that_is_lost_takes_a_slot() {
    for (nodes, max, outages) in [(3, 1, 2), (3, 2, 1)] {
        let mut model = Model::new(nodes, max, 1);
        (model.outages, model.failures, model.edits) = (outages, false, 0);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

#[test]
fn a_config_that_breaks_nodes_stops_at_the_bound_and_a_better_one_frees_them() {
    let mut model = Model::new(3, 1, 1);
    (model.failures, model.broken) = (false, Some(1));
    let states = model.explore();
    assert!(states > 50, "{states}");
}

#[test]
fn a_pool_that_is_paused_and_resumed_goes_on() {
    let mut model = Model::new(2, 1, 1);
    (model.pauses, model.edits) = (true, 3);
    let states = model.explore();
    assert!(states > 1_000, "{states}");
}

/// What a fault leads to, as the explorer says it.
fn found(fault: Fault) -> String {
    let explored = std::panic::catch_unwind(|| {
        let mut model = Model::new(2, 1, 1);
        (model.fault, model.failures) = (Some(fault), fault == Fault::NeverTriesAgain);
        model.explore()
    });
    let Err(panic) = explored else { panic!("{fault:?}: the explorer sees nothing wrong") };
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn the_explorer_finds_faults_that_are_put_in() {
    for (fault, want) in [
        (Fault::Forgets, "nodes out of service, 1 allowed"),
        (Fault::OneTooMany, "nodes out of service, 1 allowed"),
        (Fault::NeverTriesAgain, "states with no way to the end"),
        (Fault::Blind, "states with no way to the end"),
        (Fault::StaleStart, "nodes out of service, 1 allowed"),
    ] {
        let said = found(fault);
        assert!(said.contains(want), "{fault:?}: {said}");
    }
}
