//! The model: what a state is, and every state that one step can lead to. The controller's side is the real
//! `rollout::plan` and `PoolPlan::nodes_with_late_patches`; the daemon's side is an abstraction of what it can do to its annotations.
//!
//! What it is not: the search through all states, or what must hold in each.

use crate::common::{World, moved, pool};
use crate::state::{Controller, Flight, Node, Pool, St, State, give_up_slots};
use api::v1::MachineConfigPool;
use rollout::view::{CordonMark, DaemonState, NodeView};
use rollout::{Change, Unanswered};
use serde_json::json;
use std::collections::HashMap;

/// Configs: the one where all nodes begin, the first target, and the second one.
const CONFIGS: [&str; 3] = ["rendered-worker-0", "rendered-worker-1", "rendered-worker-2"];

/// Faults that the explorer must find: a test of the test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A patch without an answer is assumed not to have arrived.
    Forgets,
    /// A patch that was sent again and then refused is assumed not to have arrived.
    TrustsRefusal,
    /// One node more than allowed is sent.
    OneTooMany,
    /// A failed node keeps its slot and is never sent elsewhere.
    NeverTriesAgain,
    /// The controller never sees changes of the first node.
    Blind,
    /// A new leader begins with caches that lack another leader's patches.
    StaleStart,
    /// A new leader does not fence nodes before it sends others.
    SealsNothing,
    /// A patch without an answer keeps no slot in the next plan.
    KeepsNoSlot,
    /// A patch that was given up is assumed not to have arrived.
    TrustsSilence,
    /// A cache accepts an old event that comes again.
    TakesOld,
}

/// Which nodes are sent where, and which must be fenced first, according to what a controller believes.
type Plan = (Vec<(u8, u8)>, Vec<u8>);

/// The pool and the nodes in a controller's cache, and for each node whether it waits for a patch's answer.
type Question = (Pool, Vec<Node>, Vec<bool>);

pub(crate) struct Model {
    pub(crate) fault: Option<Fault>,
    pub(crate) max: usize,
    pub(crate) nodes: usize,
    pub(crate) controllers: usize,
    /// Whether nodes may fail.
    pub(crate) failures: bool,
    /// Whether failed nodes may be left under the cordon of their drain. It makes ten times as many states.
    pub(crate) stranded: bool,
    /// The config that no node can reach: every attempt fails.
    pub(crate) broken: Option<u8>,
    /// Whether somebody pauses and resumes the pool.
    pub(crate) pauses: bool,
    /// Whether a second edit may revert the first one.
    pub(crate) reverts: bool,
    /// Whether a patch may outlive its sender and the wait for its answer, for any length of time.
    pub(crate) late: bool,
    /// Whether a controller that gets no answer plans on without it, and gives a patch up when it can no longer arrive.
    pub(crate) goes_on: bool,
    /// How many events a watch may be behind. One means: the present state, or the one that was last seen.
    pub(crate) lag: usize,
    /// Whether events of older versions come again.
    pub(crate) repeats: bool,
    pub(crate) edits: u8,
    pub(crate) outages: u8,
    /// Nodes whose files somebody changes before they reach the pool's target. Nobody repairs them by hand.
    pub(crate) drifts: u8,
    /// Plans by pool and cache: the same question has the same answer.
    pub(crate) plans: HashMap<Question, Plan>,
    views: Vec<NodeView>,
    pool: MachineConfigPool,
}

impl Model {
    pub(crate) fn new(nodes: usize, max: usize, controllers: usize) -> Self {
        let views =
            (0..nodes).map(|i| moved(&format!("n{i}"), CONFIGS[0], CONFIGS[0]).created(i as i64).view());
        Self {
            fault: None,
            max,
            nodes,
            controllers,
            failures: true,
            stranded: true,
            broken: None,
            pauses: false,
            reverts: false,
            late: false,
            goes_on: false,
            lag: 1,
            repeats: false,
            edits: 1,
            outages: 0,
            drifts: 0,
            plans: HashMap::new(),
            views: views.collect(),
            pool: pool("worker", CONFIGS[1], json!(max)),
        }
    }

    pub(crate) fn start(&self) -> State {
        let node = Node { cur: 0, des: 0, st: St::Done, ready: true };
        let pool = Pool { target: 1, paused: false };
        let (at, exposed) = (vec![0; self.nodes], vec![false; self.nodes]);
        let controller = Controller { pool, at, flight: vec![], exposed };
        State {
            pool,
            logs: vec![vec![node]; self.nodes],
            work: vec![0; self.nodes],
            freed: vec![false; self.nodes],
            controllers: vec![controller; self.controllers],
            late: vec![],
            edits: self.edits,
            outages: self.outages,
            drifts: self.drifts,
        }
    }

    /// The real plan for what a controller believes. `waits`: nodes that a patch without an answer may have sent.
    fn plan(&mut self, pool: Pool, cache: &[Node], waits: &[bool]) -> Plan {
        let question = (pool, cache.to_vec(), waits.to_vec());
        if let Some(known) = self.plans.get(&question) {
            return known.clone();
        }
        let nodes = cache.iter().zip(&self.views).map(|(node, view)| NodeView {
            current_config: Some(CONFIGS[node.cur as usize].into()),
            desired_config: Some(CONFIGS[node.des as usize].into()),
            state: match node.st {
                St::Done => DaemonState::Done,
                St::Working => DaemonState::Working,
                St::Degraded | St::Drifted => DaemonState::Degraded,
            },
            not_ready: (!node.ready && node.st != St::Degraded).then(|| "Ready is False".into()),
            // A daemon that failed after its drain has not uncordoned the node.
            unschedulable: !node.ready && node.st == St::Degraded,
            cordon: (!node.ready && node.st == St::Degraded).then_some(CordonMark::Daemon),
            ..view.clone()
        });
        let mut world = World { nodes: nodes.collect(), pools: vec![self.pool.clone()], ..World::default() };
        let unanswered = Unanswered { moves: self.fault != Some(Fault::KeepsNoSlot), overdue: true };
        let waiting = self.views.iter().zip(waits).filter(|(_, waits)| **waits);
        world.facts.unanswered = waiting.map(|(view, _)| (view.name.clone(), unanswered)).collect();
        if self.fault == Some(Fault::OneTooMany) {
            world.pools[0].spec.max_unavailable = serde_json::from_value(json!(self.max + 1)).unwrap();
        }
        world.pools[0].spec.paused = pool.paused;
        world.pools[0].spec.configuration.name = CONFIGS[pool.target as usize].to_owned();
        let plan = world.plan_of("worker");
        let number = |name: &str| self.views.iter().position(|v| *v.name == *name).unwrap() as u8;
        let sent = plan.patches.iter().filter_map(|p| match &p.desired_config {
            Change::Set(config) => {
                let config = CONFIGS.iter().position(|c| **c == **config).unwrap();
                Some((number(&p.node), config as u8))
            }
            _ => None,
        });
        let sent: Vec<_> = sent.collect();
        assert!(!pool.paused || plan.patches.is_empty(), "a paused pool moves nothing: {plan}");
        // Among the nodes that the controller has seen, a lost one counts as out, too.
        let mut after = cache.to_vec();
        sent.iter().for_each(|(node, des)| after[*node as usize].des = *des);
        let free = |n: &Node| n.done() || n.failing() && n.ready && n.des != pool.target;
        let count = |nodes: &[Node]| nodes.iter().zip(waits).filter(|(n, waits)| **waits || !free(n)).count();
        let (before, out) = (count(cache), count(&after));
        let max = self.max;
        assert!(
            self.fault.is_some() || sent.is_empty() || out <= max.max(before),
            "{out} nodes out of service, {max} allowed, by plan: {plan}"
        );
        let exposed = plan.nodes_with_late_patches().iter().map(|name| number(name)).collect();
        self.plans.insert(question.clone(), (sent, exposed));
        self.plans[&question].clone()
    }

    /// Every state that one step leads to.
    pub(crate) fn steps(&mut self, s: &State) -> Vec<State> {
        let mut out = vec![];
        for i in 0..self.nodes {
            self.daemon_steps(s, i, &mut out);
            if s.outages > 0 && s.node(i).done() {
                let mut t = s.clone();
                t.outages -= 1;
                t.write(i, Node { ready: false, ..s.node(i) });
                out.push(t);
            }
            if s.drifts > 0 && s.node(i).done() && s.node(i).cur != s.pool.target {
                let mut t = s.clone();
                t.drifts -= 1;
                t.write(i, Node { st: St::Drifted, ..s.node(i) });
                out.push(t);
            }
        }
        for c in 0..self.controllers {
            self.watch_steps(s, c, &mut out);
            self.controller_steps(s, c, &mut out);
        }
        for k in 0..s.late.len() {
            let mut t = s.clone();
            let flight = t.late.remove(k);
            t.arrive(flight);
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
            } else if self.reverts {
                out.push(edit(|p| p.target = 1));
            }
            if self.pauses {
                out.push(edit(|p| p.paused = !p.paused));
            }
        }
        for t in &mut out {
            give_up_slots(t);
            self.tidy(t);
        }
        out
    }

    fn daemon_steps(&self, s: &State, i: usize, out: &mut Vec<State>) {
        let node = s.node(i);
        let mut push = |next: Node, work: u8| {
            let mut t = s.clone();
            t.work[i] = work;
            if next != node {
                t.write(i, next);
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
            // It failed at a config that is no longer desired.
            St::Degraded => push(Node { st: St::Done, ready: true, ..node }, node.des),
            St::Drifted if node.des != node.cur => push(Node { st: St::Working, ..node }, node.des),
            St::Drifted => {}
            // It was lost, and comes back.
            St::Done if !node.ready => push(Node { ready: true, ..node }, s.work[i]),
            St::Done => {}
            St::Working => {
                let broken = self.broken == Some(s.work[i]);
                if self.failures || broken {
                    push(Node { st: St::Degraded, ready: true, ..node }, s.work[i]);
                }
                if self.stranded && (self.failures || broken) {
                    // It fails after its drain, and stays cordoned.
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
                    // It crashed half-way, rolled back, and reads its Node again.
                    push(Node { ready: true, ..node }, node.des);
                }
            }
        }
    }

    /// What a watch delivers: the next event of a node, several at once (a list), or an event that was delivered
    /// before.
    fn watch_steps(&self, s: &State, c: usize, out: &mut Vec<State>) {
        let own = &s.controllers[c];
        let blind = self.fault == Some(Fault::Blind);
        for i in (0..self.nodes).filter(|i| !blind || *i > 0) {
            let versions = if self.repeats { 0 } else { own.at[i] + 1 }..=s.newest(i);
            for version in versions {
                // The store compares versions: an older event changes nothing.
                let news = version > own.at[i];
                if news || version < own.at[i] && self.fault == Some(Fault::TakesOld) {
                    let mut t = s.clone();
                    t.see(c, i, version);
                    out.push(t);
                }
            }
        }
        if own.pool != s.pool {
            let mut t = s.clone();
            t.controllers[c].pool = s.pool;
            out.push(t);
        }
    }

    fn controller_steps(&mut self, s: &State, c: usize, out: &mut Vec<State>) {
        let own = &s.controllers[c];
        if own.flight.iter().all(|f| f.again && self.goes_on) {
            let cache: Vec<Node> = (0..self.nodes).map(|i| s.cached(c, i)).collect();
            let waits: Vec<bool> =
                (0..self.nodes).map(|i| own.flight.iter().any(|f| f.node as usize == i)).collect();
            let (sent, exposed) = self.plan(own.pool, &cache, &waits);
            let seal = |i: &u8| own.exposed[*i as usize] && self.fault != Some(Fault::SealsNothing);
            let seals: Vec<usize> = exposed.into_iter().filter(seal).map(usize::from).collect();
            if !sent.is_empty() && seals.is_empty() {
                let mut t = s.clone();
                let flight = |(node, des): &(u8, u8)| {
                    let valid = own.at[*node as usize] == s.newest(*node as usize);
                    Flight { node: *node, des: *des, valid, again: false }
                };
                let flights = &mut t.controllers[c].flight;
                flights.extend(sent.iter().map(flight));
                flights.sort_unstable();
                out.push(t);
            }
            // One node at a time covers every order; a lost answer makes the controller write to the node again.
            for i in seals {
                let mut t = s.clone();
                t.write(i, s.node(i));
                t.read(c, i);
                out.push(t);
            }
        }
        for k in 0..own.flight.len() {
            self.answers(s, c, k, out);
            let flight = own.flight[k];
            let may_arrive = s.late.iter().any(|f| f.node == flight.node && f.valid);
            if self.goes_on && flight.again && !may_arrive {
                let mut t = s.clone();
                t.controllers[c].flight.remove(k);
                if self.fault != Some(Fault::TrustsSilence) {
                    t.read(c, flight.node as usize);
                }
                out.push(t);
            }
        }
        if self.fault == Some(Fault::Blind) {
            return;
        }
        // A crash, or a lost lease. Another instance takes over and lists everything. Any subset of the patches has
        // arrived; if patches may be late, the others arrive under the next leader.
        for arrived in 0..1_usize << own.flight.len() {
            let mut t = s.clone();
            for (k, flight) in own.flight.iter().enumerate() {
                if arrived & 1 << k != 0 {
                    // Its version may be void by now.
                    let valid = t.controllers[c].flight[k].valid;
                    t.arrive(Flight { valid, ..*flight });
                } else if self.late {
                    let late = Flight { again: false, ..t.controllers[c].flight[k] };
                    t.late.push(late);
                }
            }
            let mut at = (0..self.nodes).map(|i| t.newest(i)).collect();
            if self.fault == Some(Fault::StaleStart) {
                at = s.controllers[c].at.clone();
            }
            let exposed = vec![self.late; self.nodes];
            t.controllers[c] = Controller { pool: s.pool, at, flight: vec![], exposed };
            out.push(t);
        }
    }

    /// The possible outcomes of one patch for a controller that waits for its answer.
    fn answers(&self, s: &State, c: usize, k: usize, out: &mut Vec<State>) {
        let flight = s.controllers[c].flight[k];
        let i = flight.node as usize;
        // Applied, and the answer is the node; or refused.
        let mut answered = s.clone();
        answered.controllers[c].flight.remove(k);
        answered.arrive(flight);
        if flight.valid || flight.again && self.fault != Some(Fault::TrustsRefusal) {
            // If it is refused, an earlier copy may have been applied: the node is read.
            answered.read(c, i);
        }
        // Applied or refused without anybody hearing of it; or not arrived. It is sent again until it is answered.
        let mut unanswered = s.clone();
        unanswered.arrive(flight);
        let mut lost = s.clone();
        for t in [&mut unanswered, &mut lost] {
            if self.fault == Some(Fault::Forgets) {
                t.controllers[c].flight.remove(k);
            } else {
                t.controllers[c].flight[k].again = true;
            }
        }
        if self.late {
            // Not lost, but still in flight.
            lost.late.push(Flight { again: false, ..flight });
        }
        out.extend([answered, unanswered, lost]);
    }

    /// Patches that would be refused anyway, and versions that nothing can see any more, do not make another state.
    fn tidy(&self, s: &mut State) {
        s.late.retain(|f| f.valid);
        s.late.sort_unstable();
        s.late.dedup();
        for i in 0..self.nodes {
            let oldest = s.controllers.iter().map(|c| c.at[i]).min().unwrap_or_default();
            let first = if self.repeats { oldest.saturating_sub(1) } else { oldest };
            let drop = |s: &mut State, version: u8| {
                s.logs[i].remove(version as usize);
                let later = s.controllers.iter_mut().filter(|c| c.at[i] > version);
                later.for_each(|c| c.at[i] -= 1);
            };
            (0..first).for_each(|_| drop(s, 0));
            let seen = oldest - first;
            // A watch that falls far behind is brought up to date by a list: it never sees the versions in between.
            loop {
                let newest = s.newest(i);
                let unseen = |v: &u8| s.controllers.iter().all(|c| c.at[i] != *v);
                let between: Vec<u8> = (seen + 1..newest).filter(unseen).collect();
                match between.as_slice() {
                    [first, ..] if between.len() >= self.lag => drop(s, *first),
                    _ => break,
                }
            }
        }
    }
}
