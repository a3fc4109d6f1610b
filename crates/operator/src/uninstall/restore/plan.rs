//! How far each node is on its way back to its own files, and which nodes go next. Pure.
//!
//! What it is not: requests, or a clock (see `run`).

use api::drain_request::config_of;
use api::formats::text::{names, statements};
use api::names::EMPTY_CONFIG;
use api::names::label::ETCD_ROLE;
use api::v1::MachineConfigPool;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use rollout::view::{DaemonState, EtcdMember, NodeView};
use rollout::{Cluster, Index, is_control_plane, max_unavailable};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// How long an agent may take until it shows that it has begun. It watches its Node and sees a change within a second.
pub(super) const ANSWER: Duration = Duration::from_mins(2);
/// For how long no node may change before the control plane goes, although others are left that cannot.
const CALM: Duration = Duration::from_mins(1);
/// How many of the nodes that are waited for are named.
const MOST_NAMES: usize = 5;
/// The group of the control-plane nodes of all pools.
const CONTROL_PLANE: &str = "the control plane";

/// How far a node is on its way back to its own files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum RestoreState {
    /// It has no agent, so there is nothing to restore.
    Unmanaged,
    /// It is in a pool's config and can be sent.
    Ready,
    /// It is on its way to a pool's config. It can be sent when it is there.
    Busy,
    /// It was sent, and its agent has not begun.
    Asked,
    /// Its agent works on it.
    Going,
    /// It has its own files again.
    Done,
    /// Its agent has reported that it cannot.
    Failed,
}

/// A node before anything is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeToRestore {
    /// The node.
    pub node: String,
    /// Its pool, or "the control plane"; empty if it has no pool.
    pub group: String,
    /// How many nodes of that group go at once.
    pub at_once: usize,
    /// How far it is.
    #[serde(rename = "stand")]
    pub state: RestoreState,
}

impl fmt::Display for NodeToRestore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, group, at_once, state } = self;
        match state {
            RestoreState::Unmanaged => write!(f, "Node {node}: has no agent, and is left alone"),
            RestoreState::Done => write!(f, "Node {node}: has its own files already"),
            _ if group.is_empty() => {
                write!(f, "Node {node}: goes back to its own files (no pool, {at_once} at a time)")
            }
            _ => write!(f, "Node {node}: goes back to its own files ({group}, {at_once} at a time)"),
        }
    }
}

/// What one run remembers of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeMemory {
    /// How long it has been in its present state.
    pub(crate) waited: Duration,
    /// This run has sent it, and its agent had reported no failure before.
    pub(crate) sent_well: bool,
}

/// Everything that a round is decided from.
#[derive(Debug)]
pub(crate) struct RoundInputs<'a> {
    pub(crate) nodes: &'a [NodeView],
    pub(crate) pools: &'a [MachineConfigPool],
    /// The members of etcd that run as static pods.
    pub(crate) etcd: &'a [EtcdMember],
    pub(crate) memory: &'a BTreeMap<Arc<str>, NodeMemory>,
    /// The nodes whose change the API server has refused, with its answer.
    pub(crate) refused: &'a BTreeMap<Arc<str>, String>,
    /// How long a node may take.
    pub(crate) limit: Duration,
    /// Go on with the others although a node fails.
    pub(crate) force: bool,
}

/// All nodes, those that failed, and those that go next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RestoreRound {
    pub(crate) states: BTreeMap<Arc<str>, RestoreState>,
    /// With the reason.
    pub(crate) failed: BTreeMap<Arc<str>, String>,
    pub(crate) send: BTreeSet<Arc<str>>,
    /// The nodes whose member of etcd is not Ready, or not known to be since its node booted: no other control-plane node goes.
    pub(crate) etcd: BTreeSet<Arc<str>>,
    /// The nodes of the control plane and of etcd.
    pub(crate) control_plane: BTreeSet<Arc<str>>,
}

impl RestoreRound {
    /// Whether every node has its own files.
    pub(crate) fn is_over(&self) -> bool {
        self.states.values().all(|s| matches!(s, RestoreState::Unmanaged | RestoreState::Done))
    }

    /// Whether nothing moves and nothing will. `calm`: for how long no node has changed its state.
    pub(crate) fn is_stuck(&self, force: bool, calm: Duration, limit: Duration) -> bool {
        let given_up = !force && !self.failed.is_empty() || calm > ANSWER.min(limit);
        self.send.is_empty() && !self.states.keys().any(|name| self.is_on_its_way(name)) && given_up
    }

    /// Whether a node moves, and has not failed.
    fn is_on_its_way(&self, name: &Arc<str>) -> bool {
        let moves = |state: &RestoreState| {
            matches!(state, RestoreState::Asked | RestoreState::Going | RestoreState::Busy)
        };
        self.states.get(name).is_some_and(moves) && !self.failed.contains_key(name)
    }

    /// Whether a node can be sent, and has not failed.
    fn can_go(&self, name: &Arc<str>) -> bool {
        self.states.get(name) == Some(&RestoreState::Ready) && !self.failed.contains_key(name)
    }

    /// The nodes that could not be restored, with the reason.
    pub(crate) fn not_restored(&self) -> BTreeMap<Arc<str>, String> {
        let mut all = self.failed.clone();
        for name in self.states.keys().filter(|name| self.can_go(name)) {
            let others: Vec<&str> = self.etcd.iter().filter(|m| *m != name).map(|m| &**m).collect();
            let why = if !self.failed.is_empty() {
                "it was not sent back, because others failed".to_owned()
            } else if self.control_plane.contains(name) && !others.is_empty() {
                format!(
                    "it was not sent back: etcd is not Ready again on {}; fix its pod there",
                    others.join(", ")
                )
            } else {
                "it was not sent back: as many nodes as allowed are out of service already".to_owned()
            };
            all.entry(name.clone()).or_insert(why);
        }
        all
    }
}

/// The state of a node, by its annotations.
pub(crate) fn restore_state(node: &NodeView, sent_well: bool) -> RestoreState {
    let current = node.current_config.as_deref().unwrap_or_default();
    let desired = node.desired_config.as_deref().unwrap_or_default();
    let bad = node.state.is_bad();
    match (current, desired) {
        ("", "") => RestoreState::Unmanaged,
        (EMPTY_CONFIG, EMPTY_CONFIG) if node.state == DaemonState::Done => RestoreState::Done,
        (EMPTY_CONFIG, EMPTY_CONFIG) => RestoreState::Asked,
        (_, EMPTY_CONFIG) if bad && sent_well => RestoreState::Failed,
        // An agent that had failed before keeps that state until it has succeeded, so other signs count.
        (_, EMPTY_CONFIG) if node.state == DaemonState::Working || is_moving(node) => RestoreState::Going,
        (_, EMPTY_CONFIG) => RestoreState::Asked,
        // A node that could not get into another config is still in its current one.
        (current, desired) if !current.is_empty() && (current == desired || bad) => RestoreState::Ready,
        _ => RestoreState::Busy,
    }
}

fn is_moving(node: &NodeView) -> bool {
    let drains = node.desired_drain.as_deref().and_then(config_of) == Some(EMPTY_CONFIG);
    drains || node.rebooting || node.not_ready.is_some()
}

/// Why a node has failed, if it has.
fn failure(node: &NodeView, state: RestoreState, waited: Duration, limit: Duration) -> Option<String> {
    let reason = node.reason.as_deref().filter(|_| node.state.is_bad());
    let too_long = || format!("it is not done after {} s", limit.as_secs());
    match state {
        RestoreState::Failed => Some(reason.unwrap_or("its agent gives no reason").to_owned()),
        RestoreState::Asked if waited > ANSWER.min(limit) => Some(match reason {
            Some(reason) => reason.to_owned(),
            None => format!(
                "its agent has not answered for {} s: start it, or delete the Node if the machine is gone",
                ANSWER.min(limit).as_secs()
            ),
        }),
        RestoreState::Going if waited > limit => Some(match (reason, node.drain_wait.as_deref()) {
            (Some(reason), _) => format!("{}: {reason}", too_long()),
            (None, Some(pods)) => format!("{}: its drain waits for {pods}", too_long()),
            (None, None) => format!("{}; see mco status --node {}", too_long(), node.name),
        }),
        RestoreState::Busy if waited > limit => {
            let desired = node.desired_config.as_deref().unwrap_or_default();
            Some(format!("{}: it is still on its way to {desired}", too_long()))
        }
        _ => None,
    }
}

fn runs_control_plane(node: &NodeView) -> bool {
    is_control_plane(&node.labels) || node.labels.get(ETCD_ROLE).is_some()
}

/// The nodes by the group that they share slots with: the pool, or the control plane of all pools.
fn groups<'a>(nodes: &'a [NodeView], pools: &'a [MachineConfigPool]) -> BTreeMap<&'a str, Vec<&'a NodeView>> {
    let name = |pool: &'a MachineConfigPool| pool.metadata.name.as_deref().unwrap_or_default();
    // The kind of cluster decides about nodes without a pool's label only. Those of no pool go one by one.
    let index = Index::new(Cluster::Plain, pools.iter().map(|p| (name(p), p.spec.node_selector.as_ref())));
    let mut groups: BTreeMap<&str, Vec<&NodeView>> = BTreeMap::new();
    for node in nodes {
        let group = if runs_control_plane(node) {
            CONTROL_PLANE
        } else {
            index.owners(&node.labels).primary.and_then(|i| pools.get(i)).map(name).unwrap_or_default()
        };
        groups.entry(group).or_default().push(node);
    }
    groups
}

/// How many nodes of a group may be out at once. A value that cannot be read counts as one.
fn at_once(group: &str, pools: &[MachineConfigPool], members: usize) -> usize {
    if group == CONTROL_PLANE {
        return 1;
    }
    let pool = pools.iter().find(|p| p.metadata.name.as_deref() == Some(group));
    max_unavailable(group, pool.and_then(|p| p.spec.max_unavailable.as_ref()), members).unwrap_or(1)
}

/// All nodes, before anything is done.
pub(crate) fn members(nodes: &[NodeView], pools: &[MachineConfigPool]) -> Vec<NodeToRestore> {
    let mut all = vec![];
    for (group, members) in groups(nodes, pools) {
        let at_once = at_once(group, pools, members.len());
        all.extend(members.iter().map(|node| NodeToRestore {
            node: node.name.to_string(),
            group: group.to_owned(),
            at_once,
            state: restore_state(node, false),
        }));
    }
    all.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    all
}

/// The pools that are not paused, each with who has written that last.
pub(crate) fn unpaused_pools(pools: &[MachineConfigPool]) -> Vec<String> {
    let open = pools.iter().filter(|pool| !pool.spec.paused);
    let words = open.map(|pool| {
        let wrote = |entry: &&ManagedFieldsEntry| {
            entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:paused").is_some())
        };
        let entries = pool.metadata.managed_fields.iter().flatten().filter(wrote);
        let last = entries.max_by_key(|entry| entry.time.as_ref().map(|time| time.0));
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        match last.and_then(|entry| entry.manager.as_deref()) {
            Some(manager) => format!("MachineConfigPool {name} (resumed by {manager}) is"),
            None => format!("MachineConfigPool {name} is"),
        }
    });
    words.collect()
}

/// Decides which nodes go next.
pub(crate) fn round(seen: &RoundInputs<'_>) -> RestoreRound {
    let mut round = RestoreRound::default();
    for node in seen.nodes {
        let NodeMemory { waited, sent_well } = seen.memory.get(&node.name).copied().unwrap_or_default();
        let state = restore_state(node, sent_well);
        round.states.insert(node.name.clone(), state);
        let refused = seen.refused.get(&node.name).filter(|_| state == RestoreState::Ready);
        if let Some(why) = failure(node, state, waited, seen.limit).or_else(|| refused.cloned()) {
            round.failed.insert(node.name.clone(), why);
        }
        if runs_control_plane(node) {
            round.control_plane.insert(node.name.clone());
        }
        let member = seen.etcd.iter().find(|member| member.node == node.name);
        if member.is_some_and(|member| !member.is_ready_since_boot(node)) {
            round.etcd.insert(node.name.clone());
        }
    }
    // What is wrong with one node may be wrong with all.
    if !seen.force && !round.failed.is_empty() {
        return round;
    }
    let mut groups = groups(seen.nodes, seen.pools);
    let control_plane = groups.remove(CONTROL_PLANE).unwrap_or_default();
    for (group, members) in &groups {
        let goes = next(group, members, seen, &round);
        round.send.extend(goes);
    }
    // It serves the other nodes, and the controller that drains them may run there: it goes when they are back.
    if !waits_for_others(groups.values().flatten(), seen, &round) {
        let goes = next(CONTROL_PLANE, &control_plane, seen, &round);
        round.send.extend(goes);
    }
    round
}

/// Whether some of these nodes are on their way, or will soon be. One that failed, or that cannot go for long, keeps nobody.
fn waits_for_others<'a>(
    mut others: impl Iterator<Item = &'a &'a NodeView>,
    seen: &RoundInputs<'_>,
    round: &RestoreRound,
) -> bool {
    let calm = seen.memory.values().map(|memory| memory.waited).min().unwrap_or_default();
    others.any(|node| {
        round.is_on_its_way(&node.name)
            || round.can_go(&node.name) && (round.send.contains(&node.name) || calm < CALM)
    })
}

/// What a round waits for, for people: how many nodes are done, and which are on their way, for how long, and why. `unsent`: what is
/// said of those that could not be sent.
pub(crate) fn how_far(
    nodes: &[NodeView],
    round: &RestoreRound,
    memory: &BTreeMap<Arc<str>, NodeMemory>,
    unsent: &[String],
) -> String {
    let state = |node: &NodeView| round.states.get(&node.name).copied();
    let managed = nodes.iter().filter(|node| state(node) != Some(RestoreState::Unmanaged)).count();
    let done = nodes.iter().filter(|node| state(node) == Some(RestoreState::Done)).count();
    let moving: Vec<String> = nodes
        .iter()
        .filter(|node| round.is_on_its_way(&node.name))
        .map(|node| {
            let seconds = memory.get(&node.name).map_or(0, |memory| memory.waited.as_secs());
            let why = match (state(node), node.drain_wait.as_deref()) {
                (Some(RestoreState::Asked), _) => "its agent has not begun".to_owned(),
                (Some(RestoreState::Busy), _) => "it is still on its way to a config of its pool".to_owned(),
                (_, Some(pods)) => format!("its drain waits for {pods}"),
                _ if node.rebooting => "it reboots".to_owned(),
                _ if node.not_ready.is_some() => "it is not Ready".to_owned(),
                _ => "its agent restores files".to_owned(),
            };
            format!("{} ({seconds} s: {why})", node.name)
        })
        .collect();
    let of_nodes = [&moving[..], unsent].into_iter().filter(|all| !all.is_empty());
    let mut waits: Vec<String> = of_nodes.map(|all| statements(all, MOST_NAMES)).collect();
    if waits.is_empty() {
        waits.push(match round.etcd.is_empty() {
            false => format!("etcd is not Ready on {}", names(&round.etcd, MOST_NAMES)),
            true => "no other node can go yet".to_owned(),
        });
    }
    format!("{done} of {managed} nodes have their own files; {}", waits.join("; "))
}

/// The nodes of a group that go now.
fn next(group: &str, members: &[&NodeView], seen: &RoundInputs<'_>, round: &RestoreRound) -> Vec<Arc<str>> {
    let is = |node: &NodeView, state: RestoreState| round.states.get(&node.name) == Some(&state);
    let moving = members.iter().filter(|node| round.is_on_its_way(&node.name)).count();
    let (up, down): (Vec<&NodeView>, Vec<&NodeView>) =
        members.iter().copied().filter(|n| round.can_go(&n.name)).partition(|n| n.ready());
    if group == CONTROL_PLANE {
        let well = |n: &NodeView| n.not_ready.is_none() && !round.etcd.contains(&n.name);
        let others_well = |node: &NodeView| members.iter().all(|n| n.name == node.name || well(n));
        let one = down.into_iter().chain(up).find(|node| moving == 0 && others_well(node));
        return one.map(|n| n.name.clone()).into_iter().collect();
    }
    let max = at_once(group, seen.pools, members.len());
    // A node that is out of service already takes no one's place, but no more of them go at once either.
    let of_down = max.saturating_sub(moving).min(down.len());
    let out = |node: &&&NodeView| {
        !node.ready()
            && !is(node, RestoreState::Unmanaged)
            && !is(node, RestoreState::Asked)
            && !is(node, RestoreState::Going)
            && !is(node, RestoreState::Busy)
    };
    let out = members.iter().filter(out).count();
    let of_up = max.saturating_sub(moving + out);
    let goes = down.into_iter().take(of_down).chain(up.into_iter().take(of_up));
    goes.map(|n| n.name.clone()).collect()
}

#[cfg(test)]
mod tests;
