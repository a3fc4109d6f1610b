//! What the controller does next with a [`Situation`], up to the point where it waits for somebody else: a node's
//! daemon, pods that end, or a person. It makes the same plans as in the cluster, and applies each to the views before
//! it makes the next.
//!
//! What it is not: a guess at what daemons and pods do.

pub(crate) mod situation;

use crate::drain::{self, Drain, Request, Skipped, Waiting};
use crate::event::EventPlan;
use crate::forecast::situation::Situation;
use crate::hold::{Hold, Wait};
use crate::plan::decide::plan;
use crate::plan::{Capacity, PoolPlan, RolloutPlan, Step};
use crate::target::Target;
use crate::view::{BudgetView, NodeView, PodView};
use api::conditions::StatusCondition as _;
use api::k8s::Time;
use api::v1::{MachineConfigPool, MachineConfigPoolStatus};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Applying plans must come to rest; the longest way is cordon, drain, labels, move, status. More rounds mean a bug in
/// the plans.
const ROUNDS: usize = 16;

/// What the controller does next.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// By name.
    pub pools: Vec<PoolForecast>,
    /// Nodes that no pool owns.
    pub unmanaged: Vec<NodeForecast>,
    /// Control-plane nodes that a custom pool also selects; the custom pool is ignored.
    pub pool_alerts: Vec<Arc<str>>,
    /// What was not known, and what was assumed instead.
    pub notes: Vec<String>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolForecast {
    /// The pool.
    pub pool: Arc<str>,
    /// Where its nodes are to go.
    pub target: Option<Target>,
    /// Why no node of the pool gets anything new, in words; absent if nodes may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// How many nodes may be on their way, before anything is done.
    pub capacity: Capacity,
    /// The pool's status afterwards.
    pub status: MachineConfigPoolStatus,
    /// The events that are recorded.
    pub events: Vec<EventPlan>,
    /// Its nodes, by name.
    pub nodes: Vec<NodeForecast>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeForecast {
    /// The node.
    pub node: Arc<str>,
    /// What it does or waits for; absent if no pool owns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// The same in words, or why no pool owns it.
    pub why: String,
    /// What is written to the Node, in words, in order.
    pub changes: Vec<String>,
    /// The Node afterwards.
    pub after: NodeAfter,
    /// Its drain, if one is under way afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainForecast>,
}

/// What the controller keeps on a Node, under the names of its annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeAfter {
    /// The config that it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_config: Option<Arc<str>>,
    /// The config that it is to move to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_config: Option<Arc<str>>,
    /// The OS image that it is to move to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_image: Option<Arc<str>>,
    /// What its daemon asks of the drain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired_drain: Option<Arc<str>>,
    /// The last request that was served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_applied_drain: Option<Arc<str>>,
    /// It is cordoned.
    pub unschedulable: bool,
    /// `KEY:EFFECT`, sorted.
    pub taints: Vec<String>,
}

/// A drain that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainForecast {
    /// What the daemon asks for.
    pub request: String,
    /// Pods that are evicted now.
    pub evict: Vec<String>,
    /// Pods that it waits for, including those that are evicted now.
    pub waiting: Vec<Waiting>,
    /// Pods that stay.
    pub skipped: Vec<Skipped>,
    /// Why the request cannot be served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A node that still has to move to a changed pool's config, and when it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// The node.
    pub node: Arc<str>,
    /// Whether it goes at once.
    pub now: bool,
    /// What it waits for before its turn, if there is anything but its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
}

impl Situation {
    /// What the controller does now.
    pub fn forecast(&self, now: &Time) -> Forecast {
        let mut run = Run {
            situation: self,
            pools: self.pools.values().cloned().collect(),
            nodes: self.nodes.values().cloned().collect(),
            drains: vec![Drain::default(); self.nodes.len()],
            changes: BTreeMap::new(),
        };
        let mut first: Option<RolloutPlan> = None;
        let mut goes: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut events: BTreeMap<Arc<str>, Vec<EventPlan>> = BTreeMap::new();
        let mut last = None;
        let mut notes = self.notes.clone();
        let mut policies = self.policies();
        for round in 0..=ROUNDS {
            let drained = run.drain_round(now);
            let plan = plan(&self.inputs(&run.pools, &run.nodes, &policies, now));
            let steps = plan.pools.iter().flat_map(|p| &p.nodes);
            goes.extend(steps.filter(|n| n.step == Step::Goes).map(|n| n.node.clone()));
            for pool in &plan.pools {
                let told: &mut Vec<EventPlan> = events.entry(pool.pool.clone()).or_default();
                told.extend(pool.events.iter().filter(|e| !told.contains(e)).cloned().collect::<Vec<_>>());
            }
            let planned = run.apply(&plan) | policies.advance(&plan.of_policies());
            first.get_or_insert_with(|| plan.clone());
            last = Some(plan);
            if !drained && !planned {
                break;
            }
            if round == ROUNDS {
                notes.push(format!("still changing after {ROUNDS} rounds; the forecast ends here"));
            }
        }
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let pools = first.pools.iter().zip(&last.pools).zip(&run.pools).map(|((first, last), pool)| {
            let step = |n: &crate::plan::NodeStep| {
                let step = if goes.contains(&n.node) { Step::Goes } else { n.step.clone() };
                run.node(&n.node, step.to_string(), Some(step), now)
            };
            PoolForecast {
                pool: first.pool.clone(),
                target: last.target.clone(),
                held: last.hold.as_ref().map(Hold::to_string),
                capacity: first.capacity.clone(),
                status: pool.status.clone().unwrap_or_default(),
                events: events.get(&first.pool).cloned().unwrap_or_default(),
                nodes: last.nodes.iter().map(step).collect(),
            }
        });
        let unmanaged = last.unmanaged.iter().map(|n| run.node(&n.node, n.to_string(), None, now));
        Forecast {
            pools: pools.collect(),
            unmanaged: unmanaged.collect(),
            pool_alerts: last.pool_alerts.clone(),
            notes,
        }
    }

    /// The same cluster with another config for an existing pool.
    #[must_use]
    pub fn with_target(mut self, pool: &str, config: &str) -> Self {
        if let Some(all) = &mut self.configs {
            all.entry(config.to_owned()).or_default();
        }
        if let Some(pool) = self.pools.get_mut(pool) {
            config.clone_into(&mut pool.spec.configuration.name);
        }
        self
    }

    /// The nodes of a pool that still have to move to its config, in the order in which they go.
    pub fn queue(&self, pool: &str, now: &Time) -> Vec<Queued> {
        let plan = self.plan(now);
        let Some(plan) = plan.pools.iter().find(|p| &*p.pool == pool) else { return vec![] };
        let mut all: Vec<(u8, &NodeView, Queued)> = plan
            .nodes
            .iter()
            .filter_map(|n| {
                let view = self.nodes.get(&*n.node)?;
                let (rank, waits) = match &n.step {
                    Step::Goes => (0, None),
                    Step::Waits(Wait::Capacity { .. } | Wait::Pool) => (1, None),
                    Step::Waits(wait @ (Wait::RunsOperator | Wait::ControlPlane(_) | Wait::Etcd(_))) => {
                        (2, Some(wait.to_string()))
                    }
                    Step::Waits(wait) => (3, Some(wait.to_string())),
                    _ => return None,
                };
                Some((rank, view, Queued { node: n.node.clone(), now: rank == 0, waits }))
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| crate::order::order(a.1, b.1)));
        all.into_iter().map(|(.., queued)| queued).collect()
    }
}

/// Pools and nodes as plans change them.
struct Run<'a> {
    situation: &'a Situation,
    pools: Vec<MachineConfigPool>,
    nodes: Vec<NodeView>,
    drains: Vec<Drain>,
    changes: BTreeMap<Arc<str>, Vec<String>>,
}

impl Run<'_> {
    fn workload(&self) -> (Vec<&PodView>, Vec<&BudgetView>) {
        (self.situation.pods.iter().collect(), self.situation.budgets.iter().collect())
    }

    /// Serves every node's request as far as possible without pods leaving.
    fn drain_round(&mut self, now: &Time) -> bool {
        let (pods, budgets) = (
            self.situation.pods.iter().collect::<Vec<_>>(),
            self.situation.budgets.iter().collect::<Vec<_>>(),
        );
        let mut changed = false;
        for (node, state) in self.nodes.iter_mut().zip(&mut self.drains) {
            if Request::of(node) == Request::None && node.drain_wait.is_none() && node.draining.is_none() {
                continue;
            }
            let plan = drain::plan(node, &pods, &budgets, state, now.0);
            *state = plan.state;
            if let Some(patch) = plan.patch {
                changed = true;
                self.changes.entry(node.name.clone()).or_default().push(patch.to_string());
                *node = patch.applied_to(node);
            }
        }
        changed
    }

    fn apply(&mut self, plan: &RolloutPlan) -> bool {
        let at: BTreeMap<Arc<str>, usize> =
            self.nodes.iter().enumerate().map(|(i, n)| (n.name.clone(), i)).collect();
        let mut changed = false;
        let patches = plan.patches();
        for patch in patches {
            let Some(node) = at.get(&patch.node).and_then(|i| self.nodes.get_mut(*i)) else { continue };
            changed = true;
            self.changes.entry(node.name.clone()).or_default().push(patch.to_string());
            *node = patch.applied_to(node);
        }
        for (pool, PoolPlan { status, .. }) in self.pools.iter_mut().zip(&plan.pools) {
            if let Some(status) = status {
                changed = true;
                pool.status = Some(status.clone());
            }
        }
        changed
    }

    fn node(&self, name: &Arc<str>, why: String, step: Option<Step>, now: &Time) -> NodeForecast {
        let at = self.nodes.iter().position(|n| n.name == *name).unwrap_or_default();
        let fallback = (NodeView::default(), Drain::default());
        let node = self.nodes.get(at).unwrap_or(&fallback.0);
        let drain = (Request::of(node) != Request::None).then(|| {
            let (pods, budgets) = self.workload();
            let plan = drain::plan(node, &pods, &budgets, self.drains.get(at).unwrap_or(&fallback.1), now.0);
            DrainForecast {
                request: node.desired_drain.as_deref().unwrap_or_default().to_owned(),
                evict: plan.evict.iter().map(ToString::to_string).collect(),
                waiting: plan.waiting,
                skipped: plan.skipped,
                refused: plan.refused,
            }
        });
        let mut taints: Vec<String> = node.taints.iter().map(|t| format!("{}:{}", t.key, t.effect)).collect();
        taints.sort_unstable();
        NodeForecast {
            node: name.clone(),
            step,
            why,
            changes: self.changes.get(name).cloned().unwrap_or_default(),
            after: NodeAfter {
                current_config: node.current_config.clone(),
                desired_config: node.desired_config.clone(),
                desired_image: node.desired_image.clone(),
                desired_drain: node.desired_drain.clone(),
                last_applied_drain: node.last_applied_drain.clone(),
                unschedulable: node.unschedulable,
                taints,
            },
            drain,
        }
    }
}

impl fmt::Display for NodeForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Some(_) => writeln!(f, "  {}: {}", self.node, self.why)?,
            None => writeln!(f, "{}", self.why)?,
        }
        for change in &self.changes {
            writeln!(f, "    writes {change}")?;
        }
        let Some(drain) = &self.drain else { return Ok(()) };
        writeln!(f, "    drain {}", drain.request)?;
        if let Some(why) = &drain.refused {
            writeln!(f, "      refused: {why}")?;
        }
        drain.evict.iter().try_for_each(|pod| writeln!(f, "      evicts {pod}"))?;
        drain.waiting.iter().try_for_each(|pod| writeln!(f, "      waits for {pod}"))?;
        drain.skipped.iter().try_for_each(|pod| writeln!(f, "      leaves {pod}"))
    }
}

impl fmt::Display for PoolForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}", self.pool)?;
        if let Some(target) = &self.target {
            write!(f, " → {target}")?;
        }
        match &self.held {
            Some(why) => writeln!(f, ": held, {why}")?,
            None => writeln!(f, ": {}", self.capacity)?,
        }
        let status = &self.status;
        writeln!(
            f,
            "  machines {}, updated {}, ready {}, unavailable {}, degraded {}",
            status.machine_count,
            status.updated_machine_count,
            status.ready_machine_count,
            status.unavailable_machine_count,
            status.degraded_machine_count
        )?;
        for c in status.conditions.iter().flatten().filter(|c| c.is_true()) {
            match c.message.is_empty() {
                true => writeln!(f, "  {}", c.type_)?,
                false => writeln!(f, "  {}: {}", c.type_, c.message)?,
            }
        }
        self.nodes.iter().try_for_each(|node| node.fmt(f))
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pools.iter().try_for_each(|pool| pool.fmt(f))?;
        self.unmanaged.iter().try_for_each(|node| node.fmt(f))?;
        for node in &self.pool_alerts {
            writeln!(
                f,
                "node {node} is a control-plane node that a custom pool selects too; that pool is ignored"
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {note}"))
    }
}
