//! What needs attention in a snapshot: what `mco status --exit-code` reports by its exit code. Pure.
//!
//! What it is not: nodes that are being updated or wait for their turn, which is normal.

use crate::status::rows::{Phase, PoolRow};
use api::names::pool_condition::DEGRADED;
use rollout::{Hold, MEMBERSHIP_CONFLICT, NoPool, RolloutPlan, Step};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The sort of problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Problem {
    /// A pool is `Degraded`, or a node fails to get to its config.
    Degraded,
    /// No node of the pool gets a new config: the pool is paused, pinned to an older config, or blocked.
    Held,
    /// A drain has been waiting for pods for more than ten seconds.
    DrainBlocked,
    /// Several pools want a node, or a pool's selector cannot be read.
    Conflict,
    /// No pool selects a node.
    NoPool,
}

/// One problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Its sort.
    pub problem: Problem,
    /// The pool that it concerns, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The node that it concerns, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What is wrong, in words.
    pub message: String,
}

/// Whether a hold ends by itself: other nodes go first, a soak time runs, or an image is being built. That is no finding.
fn ends_by_itself(hold: &Hold) -> bool {
    match hold {
        Hold::Masters(_) | Hold::Arbiter(_) | Hold::Soak { .. } | Hold::Prefetch { .. } => true,
        Hold::Image(wait) => !wait.is_error(),
        Hold::OsImage(wait) => wait.is_underway(),
        _ => false,
    }
}

/// All findings about the pools shown and, where all pools are shown (`only` is empty), about nodes in no pool.
pub(crate) fn of(pools: &[PoolRow], plan: &RolloutPlan, only: &[String]) -> Vec<Finding> {
    let mut all = vec![];
    let mut add = |problem, pool: Option<&str>, node: Option<&str>, message: String| {
        let owned = |name: Option<&str>| name.map(str::to_owned);
        all.push(Finding { problem, pool: owned(pool), node: owned(node), message });
    };
    for pool in pools {
        let name = Some(pool.name.as_str());
        if let Some(message) = pool.conditions.get(DEGRADED) {
            add(Problem::Degraded, name, None, message.clone());
        }
        if let Some(pinned) = &pool.pinned {
            add(Problem::Held, name, None, pinned.clone());
        }
        if let Some(message) = pool.conditions.get(MEMBERSHIP_CONFLICT) {
            add(Problem::Conflict, name, None, message.clone());
        }
        for node in pool.nodes.iter().filter(|n| n.phase == Phase::Failing) {
            add(Problem::Degraded, name, Some(&node.name), node.why.clone());
        }
    }
    let shown: BTreeSet<&str> = pools.iter().map(|p| p.name.as_str()).collect();
    for pool in plan.pools.iter().filter(|p| shown.contains(&*p.pool)) {
        if let Some(hold) = pool.hold.as_ref().filter(|hold| !pool.nodes.is_empty() && !ends_by_itself(hold))
        {
            add(Problem::Held, Some(&pool.pool), None, hold.to_string());
        }
        for node in &pool.nodes {
            if matches!(&node.step, Step::Moving { drain: Some(_), .. }) {
                add(Problem::DrainBlocked, Some(&pool.pool), Some(&node.node), node.step.to_string());
            }
        }
    }
    for node in &plan.unmanaged {
        let (problem, concerns) = match &node.why {
            NoPool::NoMatch | NoPool::NoDaemon => (Problem::NoPool, only.is_empty()),
            NoPool::SeveralCustom(pools) => {
                (Problem::Conflict, only.is_empty() || pools.iter().any(|p: &Arc<str>| shown.contains(&**p)))
            }
        };
        if concerns {
            add(problem, None, Some(&node.node), node.to_string());
        }
    }
    for node in plan.pool_alerts.iter().filter(|_| only.is_empty()) {
        let message = format!(
            "node {node} is a control-plane node that a custom pool selects too; that pool is ignored"
        );
        add(Problem::Conflict, None, Some(node), message);
    }
    all
}
