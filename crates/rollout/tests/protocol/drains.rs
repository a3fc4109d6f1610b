//! Explores every state of a drain: one node's daemon; a controller that forgets everything between two plans and whose
//! view of the node lags; patches that arrive late, are decided twice, or never arrive; a scheduler that binds pods
//! while it may; evictions that are refused; a pool that gets another config meanwhile; and a person who cordons or
//! uncordons at any moment.
//!
//! The real `rollout::drain::plan` makes the decisions. Checked: a node is reported drained only while it is
//! cordoned and empty; it is cordoned at the end exactly if a person had cordoned it; and the end can be reached from
//! every state.
//!
//! What it is not: time. Back-offs and thresholds are in `drains.rs`.

use crate::common::{at, moved};
use rollout::NodePatch;
use rollout::drain::{Drain, plan};
use rollout::view::{CordonMark, NodeView, PodView};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pod {
    Unborn,
    Alive,
    Deleting,
    Gone,
}

/// What the daemon is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Before,
    WaitsForDrain,
    Applies,
    WaitsForUncordon,
    Finished,
}

/// The contents of the Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    unschedulable: bool,
    desired: Option<Arc<str>>,
    applied: Option<Arc<str>>,
    mark: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    node: Node,
    phase: Phase,
    pods: [Pod; 2],
    cache: Node,
    fresh: bool,
    /// The effect of a patch in flight, and whether the version that it is bound to is still the node's.
    flight: Option<(Node, bool)>,
    /// Whether the daemon cordons the node itself.
    cordons: bool,
    /// Whether a person wants the node cordoned.
    person: bool,
    /// How many times that person still changes their mind.
    moods: u8,
    /// How many times the node is still sent on to another config while its drain waits.
    targets: u8,
}

fn view(node: &Node) -> NodeView {
    NodeView {
        unschedulable: node.unschedulable,
        desired_drain: node.desired.clone(),
        last_applied_drain: node.applied.clone(),
        cordon: [CordonMark::Drain, CordonMark::Daemon, CordonMark::Kept]
            .into_iter()
            .find(|m| Some(m.text()) == node.mark),
        ..moved("n", "v0", "v1").view()
    }
}

fn after(node: &Node, patch: &NodePatch) -> Node {
    let view = patch.applied_to(&view(node));
    Node {
        unschedulable: view.unschedulable,
        desired: view.desired_drain,
        applied: view.last_applied_drain,
        mark: view.cordon.map(CordonMark::text),
    }
}

fn pods(s: &State) -> Vec<PodView> {
    let bound = s.pods.iter().enumerate().filter(|(_, p)| matches!(p, Pod::Alive | Pod::Deleting));
    bound
        .map(|(i, pod)| PodView {
            namespace: "app".into(),
            name: format!("p{i}").into(),
            uid: format!("{i}").into(),
            node: "n".into(),
            deleting: *pod == Pod::Deleting,
            ..PodView::default()
        })
        .collect()
}

/// Changes the Node: what is cached or in flight is then bound to an older version.
fn write(s: &State, change: impl FnOnce(&mut State)) -> State {
    let mut t = s.clone();
    t.fresh = false;
    if let Some(flight) = &mut t.flight {
        flight.1 = false;
    }
    change(&mut t);
    t
}

/// The config that the node is moving to.
fn config(s: &State) -> String {
    format!("v{}", 2 - s.targets)
}

fn daemon(s: &State, out: &mut Vec<State>) {
    let ask = |verb: &str, phase| {
        write(s, |t| {
            t.node.desired = Some(format!("{verb}-{}", config(s)).into());
            t.phase = phase;
        })
    };
    // Also if the answer to the first request exists and was not seen yet.
    if s.phase == Phase::WaitsForDrain && s.targets > 0 {
        out.push(write(s, |t| {
            t.targets -= 1;
            t.node.desired = Some(format!("drain-{}", config(t)).into());
        }));
    }
    let answered = s.node.desired == s.node.applied;
    let go = |phase| State { phase, ..s.clone() };
    match s.phase {
        // Our daemon cordons a schedulable node together with its request, and only if the node is still as it was
        // seen. If its view was out of date the write is refused, and it decides again.
        Phase::Before if s.cordons && !s.node.unschedulable => out.push(write(s, |t| {
            t.node.desired = Some(format!("drain-{}", config(t)).into());
            (t.node.unschedulable, t.node.mark) = (true, Some(CordonMark::Daemon.text()));
            t.phase = Phase::WaitsForDrain;
        })),
        Phase::Before => out.push(ask("drain", Phase::WaitsForDrain)),
        Phase::WaitsForDrain if answered => out.push(go(Phase::Applies)),
        Phase::Applies if s.node.mark == Some(CordonMark::Daemon.text()) => out.push(write(s, |t| {
            t.node.desired = Some(format!("uncordon-{}", config(t)).into());
            t.node.applied = t.node.desired.clone();
            (t.node.unschedulable, t.node.mark) = (false, None);
            t.phase = Phase::Finished;
        })),
        Phase::Applies => out.push(ask("uncordon", Phase::WaitsForUncordon)),
        Phase::WaitsForUncordon if answered => out.push(go(Phase::Finished)),
        _ => {}
    }
}

fn controller(s: &State, out: &mut Vec<State>) {
    if !s.fresh {
        out.push(State { cache: s.node.clone(), fresh: true, ..s.clone() });
    }
    if let Some((node, valid)) = &s.flight {
        let lost = State { flight: None, ..s.clone() };
        if *valid {
            let newly_drained = node.applied != s.node.applied
                && node.applied.as_deref().is_some_and(|a| a.starts_with("drain-"));
            assert!(
                !newly_drained || (node.unschedulable && pods(s).is_empty()),
                "the node is reported drained: {s:#?}"
            );
            out.push(write(&lost, |t| t.node.clone_from(node)));
        }
        out.push(lost);
        return;
    }
    // Pods are listed after the node was seen cordoned, so the list is current.
    let pods = pods(s);
    let plan = plan(&view(&s.cache), &pods.iter().collect::<Vec<_>>(), &[], &Drain::Idle, at(0));
    assert!(plan.evict.is_empty() || s.cache.unschedulable, "evicted before it was cordoned: {s:#?}");
    if let Some(patch) = &plan.patch {
        out.push(State { flight: Some((after(&s.cache, patch), s.fresh)), ..s.clone() });
    }
    for pod in &plan.evict {
        let mut t = s.clone();
        t.pods[pod.uid.parse::<usize>().unwrap()] = Pod::Deleting;
        out.push(t);
    }
}

fn steps(s: &State) -> Vec<State> {
    let mut out = vec![];
    daemon(s, &mut out);
    controller(s, &mut out);
    for i in 0..s.pods.len() {
        let mut pod = |to| {
            let mut t = s.clone();
            t.pods[i] = to;
            out.push(t);
        };
        match s.pods[i] {
            Pod::Unborn if !s.node.unschedulable => pod(Pod::Alive),
            Pod::Deleting => pod(Pod::Gone),
            _ => {}
        }
    }
    if s.moods > 0 {
        let wants = !s.node.unschedulable;
        out.push(write(s, |t| {
            t.moods -= 1;
            (t.node.unschedulable, t.person) = (wants, wants);
        }));
    }
    out
}

fn explore(start: State) -> usize {
    let mut index = HashMap::from([(start.clone(), 0_usize)]);
    let mut before = vec![vec![]];
    let mut queue = VecDeque::from([start]);
    let mut ends = vec![];
    while let Some(s) = queue.pop_front() {
        let id = index[&s];
        if s.phase == Phase::Finished {
            // A person who changes their mind twice within one update looks the same as one who does nothing.
            assert!(s.node.unschedulable == s.person, "{s:#?}");
            ends.push(id);
        }
        for t in steps(&s) {
            let to = *index.entry(t.clone()).or_insert_with(|| {
                before.push(vec![]);
                queue.push_back(t);
                before.len() - 1
            });
            before[to].push(id);
        }
    }
    let mut can_end = vec![false; before.len()];
    while let Some(id) = ends.pop() {
        if !std::mem::replace(&mut can_end[id], true) {
            ends.extend(&before[id]);
        }
    }
    assert!(can_end.iter().all(|can| *can), "states with no way to the end");
    before.len()
}

#[test]
fn a_drain_ends_with_no_pods_and_respects_a_persons_cordon() {
    let rows = [(false, 0), (true, 0), (false, 1), (true, 1)];
    let rows = [0, 1].into_iter().flat_map(|targets| rows.map(|(person, moods)| (person, moods, targets)));
    let rows: Vec<_> = rows.collect();
    for (cordons, (person, moods, targets)) in
        [true, false].into_iter().flat_map(|c| rows.iter().map(move |row| (c, *row)))
    {
        let node = Node {
            unschedulable: person,
            desired: Some("uncordon-v0".into()),
            applied: Some("uncordon-v0".into()),
            mark: None,
        };
        let start = State {
            cache: node.clone(),
            node,
            phase: Phase::Before,
            pods: [Pod::Alive, Pod::Unborn],
            fresh: true,
            flight: None,
            cordons,
            person,
            moods,
            targets,
        };
        let states = explore(start);
        println!(
            "daemon cordons {cordons}, person {person}, {moods} changes of mind, {targets} of the target: {states} states"
        );
        assert!(states > 15, "{states}");
    }
}
