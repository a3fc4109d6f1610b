//! Where pools and nodes stand, who waits for what, and why: [`Snapshot`], a plain value. Pure.
//!
//! The answers are those of `rollout::plan`, the same value that the controller acts on. What it is not: the watches that
//! fill it (see `follow`).

pub(crate) mod change_costs;
pub(crate) mod drain_outlooks;
pub(crate) mod findings;
pub(crate) mod follow;
mod looked_up;
pub(crate) mod node_progress;
pub(crate) mod policy;
pub(crate) mod rows;
pub(crate) mod served;
pub(crate) mod until_updated;
pub(crate) mod watch_errors;
pub(crate) mod watches;

use crate::status::findings::Finding;
use crate::status::node_progress::Progress;
use crate::status::rows::{NodeRow, Phase, PoolRow};
use crate::status::served::UnreadKind;
use api::conditions::{self, StatusCondition as _};
use api::names::pool_condition::{RENDER_DEGRADED, UPDATED, UPDATING};
use api::v1::MachineConfigPool;
use jiff::Timestamp;
use rollout::pinned_images::PinFacts;
use rollout::policy::PoolPolicies;
use rollout::view::NodeView;
use rollout::{Estimate, Finished, Hold, NodeStep, RolloutPlan, RolloutProgress, Step, Wait, estimate};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The pools, by name.
    pub pools: Vec<PoolRow>,
    /// Nodes that no pool owns, and why.
    pub unmanaged: Vec<String>,
    /// What needs attention; `--exit-code` reports this.
    pub findings: Vec<Finding>,
    /// Nodes that a filter leaves out.
    #[serde(skip_serializing_if = "is_zero")]
    pub hidden_nodes: usize,
    /// What is not known, and what is shown instead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<UnreadKind>,
    /// Why what is shown may be out of date.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Which nodes are shown; the default: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Nodes in one of these phases; empty: in any.
    pub phases: Vec<Phase>,
    /// Nodes with one of these names; empty: with any.
    pub nodes: Vec<String>,
}

impl Filter {
    fn keeps(&self, node: &NodeRow) -> bool {
        let phase = self.phases.is_empty() || self.phases.contains(&node.phase);
        phase && (self.nodes.is_empty() || self.nodes.contains(&node.name))
    }
}

/// A Node: what the plan reads of it, and what is only shown.
#[derive(Debug)]
pub struct KnownNode {
    /// As the plan sees it.
    pub view: NodeView,
    /// When its readiness last changed.
    pub readiness: Option<Timestamp>,
}

/// What a snapshot is made from: the plan, and what is only shown.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// What the controller does now.
    pub plan: &'a RolloutPlan,
    /// The pools, by name.
    pub pools: &'a BTreeMap<String, MachineConfigPool>,
    /// The nodes, by name.
    pub nodes: &'a BTreeMap<String, KnownNode>,
    /// The policies that the plan follows; `None`: they are not known.
    pub policies: Option<&'a PoolPolicies>,
    /// What MachineConfigNodes say, by node.
    pub progress: &'a BTreeMap<String, Option<Arc<Progress>>>,
    /// PinnedImageSets, and how far nodes are with them.
    pub pins: &'a PinFacts,
}

/// Whether a node cannot continue before something on it has changed.
fn is_stuck(step: &Step) -> bool {
    matches!(step, Step::Failing(_) | Step::Unavailable(_) | Step::Waits(Wait::Node(_)))
}

fn of_view(view: View<'_>, only: &[String], now: Timestamp) -> Snapshot {
    let View { plan, pools, nodes, policies, progress, pins } = view;
    let mut rows = vec![];
    for p in &plan.pools {
        if !only.is_empty() && !only.iter().any(|o| **o == *p.pool) {
            continue;
        }
        let pool = pools.get(&*p.pool);
        let conditions = pool.and_then(|x| x.status.as_ref()).and_then(|s| s.conditions.as_deref());
        let count = |f: fn(&Step) -> bool| p.nodes.iter().filter(|n| f(&n.step)).count();
        let updating = conditions.and_then(|list| conditions::get(list, UPDATING));
        let behind = conditions.and_then(|list| conditions::get(list, UPDATED));
        let behind = behind.filter(|c| c.is_false()).and_then(|c| c.last_transition_time.as_ref());
        let row = |n: &NodeStep| {
            let known = nodes.get(&*n.node);
            let view = known.map(|k| &k.view);
            let progress = progress.get(&*n.node).and_then(Option::as_deref);
            let text = |s: Option<&str>| s.unwrap_or_default().to_owned();
            NodeRow {
                name: n.node.to_string(),
                state: view.map(|v| v.state.to_string()).unwrap_or_default(),
                current: text(view.and_then(|v| v.current_config.as_deref())),
                desired: text(view.and_then(|v| v.desired_config.as_deref())),
                phase: Phase::from(&n.step),
                since: node_progress::since(
                    &n.step,
                    progress,
                    known.and_then(|k| k.readiness),
                    behind.map(|t| t.0),
                ),
                why: node_progress::node_state_text(&n.step, progress),
                stuck: is_stuck(&n.step),
            }
        };
        let target = p.target.as_ref().map(|t| &*t.config).unwrap_or_default();
        let finished = p.nodes.iter().filter(|n| n.step == Step::Done).filter_map(|n| {
            let done = progress.get(&*n.node)?.as_ref().filter(|d| d.config == target)?;
            done.done.map(Finished)
        });
        let updated = count(|s| matches!(s, Step::Done));
        let pace = RolloutProgress {
            began: updating
                .filter(|c| c.is_true())
                .and_then(|c| c.last_transition_time.as_ref().map(|t| t.0)),
            finished: finished.collect(),
            left: p.nodes.len() - updated,
            stuck: count(is_stuck),
            held: p.hold.is_some(),
        };
        rows.push(PoolRow {
            name: p.pool.to_string(),
            config: p.target.as_ref().map(|t| t.config.to_string()).unwrap_or_default(),
            machines: p.nodes.len(),
            updated,
            moving: count(|s| matches!(s, Step::Goes | Step::Moving { .. })),
            degraded: count(|s| matches!(s, Step::Failing(_))),
            max_unavailable: p.capacity.max,
            conditions: conditions
                .into_iter()
                .flatten()
                .filter(|c| c.is_true())
                .map(|c| (c.type_.clone(), c.message.clone()))
                .collect(),
            paused: pool.is_some_and(|pool| pool.spec.paused),
            held: p.hold.as_ref().map(Hold::to_string),
            needs_approval: p.hold.as_ref().is_some_and(Hold::needs_approval),
            policy: policy::row(p, policies.and_then(|all| all.policy(&p.pool)).map(AsRef::as_ref), now),
            pinned: pool.and_then(|p| Some(rollout::pinned_text(p, rollout::pinned_config(p)?))),
            images: pool.and_then(|pool| images(pool, p.nodes.iter().map(|n| &*n.node), pins)),
            stuck: conditions
                .and_then(|list| conditions::get_true(list, RENDER_DEGRADED))
                .map(|c| format!("it cannot be rendered: {}", c.message))
                .or_else(|| p.stuck())
                .or_else(|| pool.and_then(|p| Some(rollout::pinned_text(p, rollout::pinned_config(p)?)))),
            percent: (updated * 100).checked_div(p.nodes.len()).unwrap_or(100),
            estimate: estimate(&pace, now),
            nodes: p.nodes.iter().map(row).collect(),
        });
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    let findings = findings::of(&rows, plan, only);
    let unmanaged = plan.unmanaged.iter().map(ToString::to_string).collect();
    Snapshot { pools: rows, unmanaged, findings, ..Snapshot::default() }
}

/// How far the nodes of a pool are with its PinnedImageSets, in words; `None`: it has none.
fn images<'a>(
    pool: &MachineConfigPool,
    nodes: impl Iterator<Item = &'a str>,
    pins: &PinFacts,
) -> Option<String> {
    let sets: Vec<&str> = pool.spec.pinned_image_sets.iter().flatten().map(|set| &*set.name).collect();
    if sets.is_empty() {
        return None;
    }
    let (mut all, mut have, mut failing) = (0, 0, vec![]);
    for node in nodes {
        all += 1;
        have += usize::from(pins.has_current_sets(node, sets.iter().copied()));
        let states = pins.nodes.get(node).map(Vec::as_slice).unwrap_or_default();
        let failed =
            states.iter().find_map(|s| Some((s.name.as_str(), s.last_failed_generation_error.as_deref()?)));
        failing.extend(failed.map(|(set, why)| format!("node {node}: PinnedImageSet {set}: {why}")));
    }
    let mut text = format!("{have} of {all} nodes have the images of {}", sets.join(", "));
    for why in failing.iter().take(1) {
        text.push_str(&format!("; {why}"));
    }
    if failing.len() > 1 {
        text.push_str(&match failing.len() - 1 {
            1 => "; 1 more node fails".to_owned(),
            more => format!("; {more} more nodes fail"),
        });
    }
    Some(text)
}

impl Snapshot {
    /// Where everything stands at `now`. `only`: the pools that are wanted; empty: all. What is not known, the caller adds.
    pub fn of(view: View<'_>, only: &[String], now: Timestamp) -> Self {
        of_view(view, only, now)
    }

    /// Every pool shown is updated.
    pub fn is_updated(&self) -> bool {
        self.pools.iter().all(PoolRow::is_updated)
    }

    /// Whether a node of this name is in one of the pools shown.
    pub fn has_node(&self, name: &str) -> bool {
        self.pools.iter().any(|p| p.nodes.iter().any(|n| n.name == name))
    }

    /// Whether both show the same, apart from the estimates, which change every second.
    pub fn is_like(&self, other: &Self) -> bool {
        let without = |s: &Self| {
            let mut s = s.clone();
            s.pools.iter_mut().for_each(|p| p.estimate = Estimate::Done);
            s
        };
        without(self) == without(other)
    }

    /// The same for a table: what is not known, and what may be out of date, is not in it.
    pub fn has_like_table(&self, other: &Self) -> bool {
        let without = |s: &Self| Self { unread: vec![], trouble: None, ..s.clone() };
        without(self).is_like(&without(other))
    }

    /// Why a pool shown cannot get to its config unless a person changes something.
    pub fn stuck(&self) -> Option<String> {
        let pools = self.pools.iter().filter(|p| !p.is_updated());
        let lines: Vec<String> =
            pools.filter_map(|p| Some(format!("pool {}: {}", p.name, p.stuck.as_ref()?))).collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// What the pools shown wait for: printed when a time limit ends the wait for them.
    pub fn waits_for(&self) -> String {
        let of_pool = |p: &PoolRow| {
            let node = p.nodes.iter().find(|n| !matches!(n.phase, Phase::Done | Phase::Waits));
            let node = node.or_else(|| p.nodes.iter().find(|n| n.phase != Phase::Done));
            let why = match (&p.stuck, &p.held, node) {
                (Some(why), ..) | (None, Some(why), _) => why.clone(),
                (None, None, Some(node)) => format!("node {}: {}", node.name, node.why),
                (None, None, None) => "its status is not written yet; is the controller running?".to_owned(),
            };
            format!("pool {}, {} of {} nodes updated: {why}", p.name, p.updated, p.machines)
        };
        let behind: Vec<String> = self.pools.iter().filter(|p| !p.is_updated()).map(of_pool).collect();
        behind.join("; ")
    }

    /// The same without the nodes that a filter leaves out.
    #[must_use]
    pub fn filtered(mut self, filter: &Filter) -> Self {
        for pool in &mut self.pools {
            let all = pool.nodes.len();
            pool.nodes.retain(|node| filter.keeps(node));
            self.hidden_nodes += all - pool.nodes.len();
        }
        self
    }
}

#[cfg(test)]
mod tests;
