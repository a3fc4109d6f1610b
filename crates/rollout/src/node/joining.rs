//! The taint of nodes that join (`machineconfig.dev/joining:NoSchedule`): which nodes carry it, and when it is removed.
//!
//! What it is not: how a Node gets it when it registers (an admission policy of the operator, or the kubelet), or the
//! rest of a node's patch (see `decide`).
//!
//! Source: <https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/>.

use crate::node::Flags;
use crate::node::membership::{NoPool, has_role};
use crate::view::NodeView;
use crate::view::roles::is_control_plane;
use api::names::EMPTY_CONFIG;
use api::v1::MachineConfigPool;
use jiff::{SignedDuration, Timestamp};

/// How long a node without a role label and a pool keeps the taint after it was registered. Its agent may still be
/// pulling its image, or somebody may still label it. Without an end, a node on which no agent can run would never get
/// workload.
const UNOWNED: SignedDuration = SignedDuration::from_mins(10);

/// Whether a node of a pool carries the taint, so that no workload lands on it: its agent has reported that it never had
/// a config, or it was registered with the taint. A node that was there before its pool has workload already. The control
/// plane's nodes keep theirs away by taints of their own: with this one, a cluster whose only control-plane node registers
/// again would have no place for what it needs itself.
pub(crate) fn is_kept_free(pool: &MachineConfigPool, node: &NodeView, flags: Flags) -> bool {
    if is_control_plane(&node.labels) || has_joined(node, flags) {
        return false;
    }
    let since = pool.metadata.creation_timestamp.as_ref().map(|t| t.0.as_second());
    let is_new = since.is_some_and(|since| node.created > since);
    node.has_joining_taint() || is_new && never_had_one(node)
}

/// Whether the node is at rest in a rendered config, of whatever version. It may wait for its turn for days, or its
/// pool may be paused, and a Node that was deleted and registers again had workload before.
pub(crate) fn has_joined(node: &NodeView, flags: Flags) -> bool {
    flags.done && node.current_config.as_deref().is_some_and(|c| !c.is_empty()) && !never_had_one(node)
}

fn never_had_one(node: &NodeView) -> bool {
    node.current_config.as_deref() == Some(EMPTY_CONFIG)
}

/// Until when a node that no pool owns keeps the taint; `None`: it has none, or loses it now. Nothing else would remove
/// it there.
pub(crate) fn unowned_until(node: &NodeView, why: &NoPool, now: Timestamp) -> Option<Timestamp> {
    let may_be_owned = match why {
        NoPool::NoDaemon => true,
        // On OpenShift roles are labelled after the Node has registered.
        NoPool::NoMatch => !has_role(&node.labels),
        NoPool::SeveralCustom(_) => false,
    };
    if !may_be_owned || !node.has_joining_taint() {
        return None;
    }
    let created = Timestamp::from_second(node.created).ok()?;
    Some(created.saturating_add(UNOWNED).unwrap_or(created)).filter(|end| *end > now)
}
