//! Explores every state of the protocol between controller and daemons: every order of a few nodes' daemons, and one or
//! two controllers with caches that lag node by node and event by event. Events come again. Patches are delayed,
//! refused, lost, applied without an answer, or sent again, or they outlive their leader. Controllers and daemons crash
//! at any point. Nodes are lost by themselves, drift, or fail under the cordon of their drain. A pool is paused, or
//! gets another target.
//!
//! Checked in every state: `maxUnavailable` holds, nothing moves while the pool is paused, and the end can be reached.
//!
//! The guards of the product are in the model, and each is shown to be needed: patches are bound to a version; a patch
//! is sent until it is answered or can no longer arrive, and keeps its node's slot until then; after a refusal the node
//! is read; a cache never goes back; a new leader begins with caches that are up to date, and fences the nodes that an
//! earlier leader's patches could reach. Two things are taken for granted. A leader sends nothing after its lease has
//! ended (`client::lease` stops four seconds before). And a patch never arrives if it has not arrived
//! within two minutes after that, or was given up after six server faults in a row.
//!
//! The explorer itself is tested too: by faults in the model (`Fault`), and by hand, with these faults in the plan: a
//! node that is not available takes no slot; a failing one takes none, or keeps one for ever; one that is not Ready
//! counts as available; a chosen node takes no slot; a pause is ignored. Each of them fails at least one test here.
//!
//! What it is not: time, or more than a handful of nodes. The ignored tests are wider and take minutes: `cargo test
//! --release -p rollout --test protocol -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on ends")]
#[path = "../common/mod.rs"]
mod common;
mod drains;
mod model;
mod policy;
mod state;

use model::{Fault, Model};
use state::State;
use std::collections::{HashMap, VecDeque};

impl Model {
    /// Explores all states; returns how many there are.
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
            let out = s.out_of_service();
            assert!(out <= self.max, "{out} nodes out of service, {} allowed: {s:#?}", self.max);
            if s.nodes().all(|n| n.done() && n.des == s.pool.target) {
                ends.push(id);
            }
            // A paused pool, or one whose config cannot be reached, has no end while nobody edits it.
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

#[test]
fn one_controller_with_a_stale_cache_keeps_max_unavailable() {
    let states = Model::new(3, 1, 1).explore();
    assert!(states > 1_000, "{states}");
}

#[test]
fn max_unavailable_two_allows_two_nodes() {
    for (nodes, failures, edits) in [(3, false, 1), (3, true, 0), (4, false, 0)] {
        let mut model = Model::new(nodes, 2, 1);
        (model.failures, model.edits, model.stranded) = (failures, edits, false);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

/// The same with all events combined, as far as memory allows.
#[test]
#[ignore = "minutes, and gigabytes"]
fn all_events_combined_keep_max_unavailable() {
    let with = |nodes, max, change: fn(&mut Model)| {
        let mut model = Model::new(nodes, max, 1);
        model.stranded = false;
        change(&mut model);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    };
    with(3, 2, |_| ());
    with(3, 1, |m| (m.late, m.edits) = (true, 1));
    with(3, 1, |m| (m.late, m.failures, m.edits, m.reverts) = (true, false, 2, true));
    with(3, 2, |m| (m.late, m.failures, m.edits) = (true, false, 1));
    with(3, 1, |m| (m.repeats, m.lag, m.edits) = (true, 2, 1));
    with(2, 1, |m| (m.late, m.repeats, m.lag, m.stranded) = (true, true, 2, true));
}

/// While two controllers believe that they lead, the fixed order of nodes and the versions on patches keep their nodes
/// from adding up, as long as nobody gives the pool another target at that moment. The lease makes sure that there are
/// not two.
#[test]
fn two_controllers_at_once_keep_max_unavailable() {
    for nodes in [2, 3] {
        let mut model = Model::new(nodes, 1, 2);
        (model.failures, model.edits) = (nodes == 2, 0);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

/// Patches of an earlier leader arrive under the next one, and so do copies of patches that were sent again: at the
/// worst moment, and while somebody gives the pool another target.
#[test]
fn late_patches_of_a_former_leader_keep_max_unavailable() {
    for (nodes, max, failures, edits, reverts) in
        [(2, 1, true, 1, false), (2, 1, false, 2, true), (3, 1, false, 1, false), (3, 2, false, 0, false)]
    {
        let mut model = Model::new(nodes, max, 1);
        (model.late, model.failures, model.edits, model.reverts) = (true, failures, edits, reverts);
        let states = model.explore();
        assert!(states > 100, "{states}");
    }
}

/// Events in order, delayed by several, and old ones repeated.
#[test]
fn late_and_repeated_events_keep_max_unavailable() {
    for (nodes, failures, lag) in [(2, true, 2), (3, false, 2)] {
        let mut model = Model::new(nodes, 1, 1);
        (model.repeats, model.lag, model.failures, model.stranded) = (true, lag, failures, false);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

/// A node that is not being updated is lost during the rollout, and comes back.
#[test]
fn a_node_that_is_lost_takes_a_slot() {
    for (nodes, max, outages) in [(3, 1, 2), (3, 2, 1)] {
        let mut model = Model::new(nodes, max, 1);
        (model.outages, model.failures, model.edits) = (outages, false, 0);
        let states = model.explore();
        assert!(states > 1_000, "{states}");
    }
}

/// A controller that gets no answer for one node continues with the others, keeps a slot for that node, and gives the
/// patch up in the end.
#[test]
fn a_node_with_an_unanswered_patch_holds_exactly_one_slot() {
    for (nodes, max, failures, edits, late) in
        [(2, 1, true, 1, false), (2, 1, false, 1, true), (3, 2, false, 0, false), (3, 1, false, 1, false)]
    {
        let mut model = Model::new(nodes, max, 1);
        (model.goes_on, model.failures, model.edits, model.late) = (true, failures, edits, late);
        model.stranded = nodes == 2;
        let states = model.explore();
        assert!(states > 100, "{states}");
    }
}

/// Drifted nodes are repaired by the next config, with one slot as well as with two, even if all have drifted; and
/// never is one node too many out.
#[test]
fn drifted_nodes_are_updated_in_the_slot_that_they_hold() {
    for (nodes, max, drifts, failures, late) in
        [(2, 1, 2, true, false), (2, 1, 2, false, true), (3, 1, 2, false, false), (3, 2, 2, false, false)]
    {
        let mut model = Model::new(nodes, max, 1);
        (model.drifts, model.failures, model.late) = (drifts, failures, late);
        model.edits = u8::from(nodes == 2);
        let states = model.explore();
        assert!(states > 100, "{states}");
    }
}

#[test]
fn a_config_that_breaks_nodes_stops_at_max_unavailable_and_a_good_one_recovers_them() {
    let mut model = Model::new(3, 1, 1);
    (model.failures, model.broken) = (false, Some(1));
    let states = model.explore();
    assert!(states > 50, "{states}");
}

#[test]
fn a_paused_pool_continues_when_resumed() {
    let mut model = Model::new(2, 1, 1);
    (model.pauses, model.edits) = (true, 3);
    let states = model.explore();
    assert!(states > 1_000, "{states}");
}

/// What a fault leads to, in the explorer's words.
fn found(fault: Fault) -> String {
    let explored = std::panic::catch_unwind(|| {
        let mut model = Model::new(2, 1, 1);
        (model.fault, model.failures) = (Some(fault), fault == Fault::NeverTriesAgain);
        model.late = matches!(fault, Fault::SealsNothing | Fault::TrustsRefusal);
        model.repeats = fault == Fault::TakesOld;
        model.goes_on = matches!(fault, Fault::KeepsNoSlot | Fault::TrustsSilence);
        model.explore()
    });
    let Err(panic) = explored else { panic!("{fault:?}: the explorer does not find this fault") };
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn the_explorer_finds_injected_bugs() {
    for (fault, want) in [
        (Fault::Forgets, "nodes out of service, 1 allowed"),
        (Fault::TrustsRefusal, "nodes out of service, 1 allowed"),
        (Fault::OneTooMany, "nodes out of service, 1 allowed"),
        (Fault::NeverTriesAgain, "states with no way to the end"),
        (Fault::Blind, "states with no way to the end"),
        (Fault::StaleStart, "nodes out of service, 1 allowed"),
        (Fault::SealsNothing, "nodes out of service, 1 allowed"),
        (Fault::KeepsNoSlot, "nodes out of service, 1 allowed"),
        (Fault::TrustsSilence, "nodes out of service, 1 allowed"),
        (Fault::TakesOld, "nodes out of service, 1 allowed"),
    ] {
        let said = found(fault);
        assert!(said.contains(want), "{fault:?}: {said}");
    }
}
