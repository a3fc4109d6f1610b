//! [`plan`]: which nodes of which pools move now.
//!
//! Data flow: membership → predicates of each node → holds → capacity → choice → one patch for each node → status and
//! events as they are after the patches.
//!
//! What it is not: I/O or a clock. The executor decides nothing again.

mod arbiter;
mod outcome;
mod pool_state;

use crate::hold::Hold;
use crate::inputs::{Inputs, PoolInput};
use crate::node::control_plane::ControlPlaneTurn;
use crate::node::membership::{self, Membership, NoPool, Unmanaged};
use crate::node::{Flags, Goal, joining};
use crate::patch::{Change, NodePatch};
use crate::plan::prefetch::Prefetch;
use crate::plan::{Capacity, PoolPlan, RolloutPlan};
use crate::policy::{self, Allowance, PolicyPlan, RejectedElsewhere};
use crate::view::NodeView;
use api::v1::MachineConfigPool;
use arbiter::hold_control_plane;
use std::collections::HashMap;

/// Decides for all pools at once.
///
/// # Guarantees
/// - No pool has more nodes on their way after the plan than `maxUnavailable`, unless it had before.
/// - No control-plane node goes while another, of whatever pool, is out of service or on its way, or its member of etcd is
///   not Ready.
/// - A held pool's nodes keep their annotations, taints and labels, but for the mark of nodes that take what waits for a window
///   ([`api::names::own::WAITING`]), for what OpenShift's Scheduler says of masters, for
///   the joining taint of nodes that are in a config or of the control plane, and, while it is paused, for nodes whose
///   drains were given up: they are called back.
/// - Of a node that no pool owns only the joining taint and the mark of a config that waits are removed.
/// - Applied to the inputs, the plan leads to inputs whose plan has no patches. Two cases take one more round: labels
///   that change a node's pool, and a node that is back in service by being told to stay where it is.
///
/// # Assumes
/// - The caller sees its own writes: a patch's answer is in the views before the next plan is made, or the patch is in
///   [`crate::Facts::unanswered`].
///
/// # Example
/// ```
/// use api::k8s::{Node, Time};
/// use api::v1::MachineConfigPool;
/// use rollout::view::{Names, NodeView};
/// use rollout::{Cluster, Facts, Inputs, PoolInput, plan};
/// use serde_json::json;
///
/// let pool: MachineConfigPool = serde_json::from_value(json!({
///     "metadata": {"name": "worker"},
///     "spec": {
///         "nodeSelector": {"matchLabels": {"node-role.kubernetes.io/worker": ""}},
///         "configuration": {"name": "rendered-worker-2"},
///         "maxUnavailable": 1,
///     },
/// }))?;
/// let nodes = ["n1", "n2"].map(|name| {
///     let node: Node = serde_json::from_value(json!({
///         "metadata": {
///             "name": name, "resourceVersion": "7",
///             "labels": {"node-role.kubernetes.io/worker": ""},
///             "annotations": {
///                 "machineconfiguration.openshift.io/currentConfig": "rendered-worker-1",
///                 "machineconfiguration.openshift.io/desiredConfig": "rendered-worker-1",
///                 "machineconfiguration.openshift.io/state": "Done",
///             },
///         },
///         "status": {"conditions": [{"type": "Ready", "status": "True"}]},
///     }))?;
///     Ok::<_, serde_json::Error>(NodeView::interned(&node, &mut Names::default()))
/// });
/// let nodes = nodes.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let facts = Facts { cluster: Cluster::Plain, ..Facts::default() };
/// let plan = plan(&Inputs {
///     pools: vec![PoolInput::of(&pool)],
///     nodes: nodes.iter().collect(),
///     facts: &facts,
///     now: Time("2026-07-01T12:00:00Z".parse()?),
/// });
/// // One node goes, and the plan says why the other one waits.
/// let words: Vec<String> = plan.pools[0].nodes.iter().map(|n| n.to_string()).collect();
/// assert_eq!(words, ["n1: goes now", "n2: waits: one at a time, and the slot is taken by n1"]);
/// // What is sent to the API server for it is bound to the version that was looked at.
/// let patch = plan.pools[0].patches.iter().find(|p| &*p.node == "n1").ok_or("a patch")?;
/// assert_eq!(patch.merge_patch()["metadata"]["resourceVersion"], "7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn plan(inputs: &Inputs<'_>) -> RolloutPlan {
    let pools: Vec<_> = inputs.pools.iter().map(|p| p.pool).collect();
    let Membership { members, mut unmanaged, unowned, alerts, broken } =
        membership::resolve(&pools, &inputs.nodes, inputs.facts.cluster);
    let members = members.iter().zip(&broken);
    let rejects = |p: &&PoolInput<'_>| policy::is_rejected(p.policy, &p.pool.spec.configuration.name);
    let elsewhere: Vec<RejectedElsewhere<'_>> =
        inputs.pools.iter().filter(rejects).map(|p| RejectedElsewhere::of(p.pool)).collect();
    let mut evals: Vec<Eval<'_>> = inputs
        .pools
        .iter()
        .zip(members)
        .map(|(pool, (nodes, broken))| Eval::new(pool, nodes, broken.as_ref(), (inputs, &elsewhere)))
        .collect();
    if inputs.facts.has_arbiter() {
        hold_control_plane(&mut evals);
    }
    let mut conflicts: HashMap<&str, Vec<String>> = HashMap::new();
    for node in &unmanaged {
        if let NoPool::SeveralCustom(pools) = &node.why {
            for pool in pools {
                conflicts.entry(pool).or_default().push(node.to_string());
            }
        }
    }
    let by_name: HashMap<&str, &MachineConfigPool> =
        inputs.pools.iter().map(|p| (p.name(), p.pool)).collect();
    let labelled = inputs.nodes.iter().filter(|n| n.custom_pool_labels_applied).map(|n| &*n.name).collect();
    let mut turn = ControlPlaneTurn::new(inputs.facts);
    evals.iter().flat_map(|e| &e.nodes).for_each(|(node, flags)| turn.record(node, *flags));
    unowned.iter().for_each(|node| turn.record_unmanaged(node));
    let pools: Vec<PoolPlan> = evals
        .iter()
        .map(|eval| {
            let conflicts = conflicts.get(eval.input.name()).map(Vec::as_slice).unwrap_or_default();
            eval.plan(inputs, &by_name, conflicts, &labelled, &mut turn)
        })
        .collect();
    let unmanaged_patches = unmanaged
        .iter_mut()
        .zip(&unowned)
        .filter_map(|(of, node)| free_unmanaged(of, node, inputs))
        .collect();
    let ends = unmanaged.iter().filter_map(|node| node.tainted_until);
    let look_again = pools.iter().filter_map(|pool| pool.look_again).chain(ends).min();
    RolloutPlan { pools, unmanaged, unmanaged_patches, pool_alerts: alerts, look_again }
}

/// Removes the joining taint from a node that no pool owns, or notes until when the node keeps it; and the mark of a config that
/// waits, because no pool says any more that the node may take it.
fn free_unmanaged(of: &mut Unmanaged, node: &NodeView, inputs: &Inputs<'_>) -> Option<NodePatch> {
    of.tainted_until = joining::unowned_until(node, &of.why, inputs.now.0);
    if inputs.facts.unanswered.contains_key(&node.name) {
        return None;
    }
    let mut patch = NodePatch::default();
    if of.tainted_until.is_none() {
        patch.set_joining_taint(node, false);
    }
    if node.waiting.is_some() {
        patch.waiting = Change::Remove;
    }
    (!patch.is_empty()).then(|| patch.bound_to(node))
}

/// A pool, its nodes with their predicates, and what holds it.
struct Eval<'a> {
    input: &'a PoolInput<'a>,
    nodes: Vec<(&'a NodeView, Flags)>,
    hold: Option<Hold>,
    /// Whether taints and topology are still maintained: the pool is held only until its turn comes, or not at all.
    tends: bool,
    /// Whether marks of nodes that are put aside are removed: no policy asks for them any more.
    frees: bool,
    capacity: Capacity,
    /// What the pool's policy allows.
    leave: Allowance,
    /// What its nodes fetch before they go.
    prefetch: Prefetch,
    /// What follows for the policy itself.
    policy: Option<PolicyPlan>,
    /// The pool's config is rejected, and its nodes go back to this one.
    back: Option<Back<'a>>,
}

/// A rejected config, as nodes leave it.
#[derive(Clone)]
struct Back<'a> {
    to: &'a str,
    why: Hold,
}

fn goal<'a>(input: &'a PoolInput<'a>) -> Goal<'a> {
    Goal { config: &input.pool.spec.configuration.name, layering: &input.layering }
}
