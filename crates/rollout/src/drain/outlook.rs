//! What a drain of a node would wait for, found out before the node is cordoned.
//!
//! What it is not: a promise. Pods and budgets change between the look and the drain.
//!
//! Source: <https://kubernetes.io/docs/tasks/run-application/configure-pdb/>.

use super::pods::skip_reason;
use crate::view::{BudgetView, NodeView, PodPhase, PodView};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How often those who follow a cluster look at a node again, as long as the plan asks for it.
pub const OUTLOOK_INTERVAL: Duration = Duration::from_secs(15);

/// How long the observation of a node stays valid.
pub const OUTLOOK_MAX_AGE: Duration = Duration::from_secs(60);

/// What a drain of a node would do. Nodes with the least go first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outlook {
    /// All its pods can leave, and run elsewhere afterwards.
    Ends,
    /// All its pods can leave, but one of them would lose something: which pod, and what.
    Loses(String),
    /// It would wait; for which pod, and why.
    Waits(String),
}

/// Looks at a node before it is cordoned. `pods` may contain pods of other nodes; `budgets` must contain all budgets.
pub fn outlook(node: &NodeView, pods: &[&PodView], budgets: &[&BudgetView]) -> Outlook {
    let leaves = |pod: &&&PodView| pod.node == node.name && skip_reason(pod).is_none() && !pod.deleting;
    let mut mine: Vec<&PodView> =
        pods.iter().filter(leaves).filter(|p| p.phase == PodPhase::Alive).copied().collect();
    mine.sort_unstable_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let loses = mine.iter().find_map(|pod| match (&pod.owner, pod.empty_dir) {
        (None, _) => Some(format!("pod {pod} has no controller that creates it again")),
        (Some(_), true) => Some(format!("pod {pod} loses its emptyDir")),
        (Some(_), false) => None,
    });
    let mut worst = loses.map_or(Outlook::Ends, Outlook::Loses);
    for budget in budgets {
        let guarded: Vec<&&PodView> = mine.iter().filter(|pod| budget.guards(pod)).collect();
        let Some(pod) = guarded.first() else { continue };
        // Evicted one by one, they run elsewhere, and the budget allows the next one. If it allows none, it may never.
        if budget.disruptions_allowed <= 0 {
            let BudgetView { namespace, name, current_healthy, desired_healthy, .. } = budget;
            let why = format!(
                "pod {pod}: PodDisruptionBudget {namespace}/{name} allows no disruption now ({current_healthy} pods healthy, \
                 {desired_healthy} needed)"
            );
            worst = worst.max(Outlook::Waits(why));
        }
    }
    worst
}

impl Outlook {
    /// The outlook of a node whose pods or budgets cannot be read. It does not hold the node back, because the drain itself
    /// reports the problem.
    pub fn unread(why: &str) -> Self {
        Self::Loses(format!("its pods cannot be read: {why}"))
    }
}

impl fmt::Display for Outlook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ends => f.write_str("its pods can leave"),
            Self::Loses(why) | Self::Waits(why) => f.write_str(why),
        }
    }
}
