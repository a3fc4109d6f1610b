//! What late patches of an earlier leader could still do: [`PoolPlan::nodes_with_late_patches`].
//!
//! A leader that died, or lost its lease, may have sent patches that the API server has not received yet. Each is bound
//! to the version of its node that it was decided on. If the next leader sends the same node, that is safe: one of the
//! two patches is refused. But if the pool got another config meanwhile, or other members, the next leader may send
//! another node, and the late patch then makes one too many. So before a leader sends nodes of a pool for the first
//! time, it writes to every node that such a patch could take out of service in addition. That gives the node a new
//! version and voids all older patches. The same before it rejects a config: no late patch is to send a node there.
//!
//! What it is not: the write itself. Nor is it needed after a clean hand-over, where every patch was answered.

use crate::plan::{Capacity, PoolPlan, Step};
use std::collections::HashSet;
use std::sync::Arc;

impl PoolPlan {
    /// The nodes to write to before this plan's nodes are sent: all of the pool that are in service and not sent. Those to
    /// write to before it rejects the pool's config: all that are not sent. Nodes
    /// that the caller has seen change, or has changed, since its term began need no write: older patches are void
    /// there.
    pub fn nodes_with_late_patches(&self) -> Vec<Arc<str>> {
        let progress = self.policy.as_ref().map(|p| &p.progress);
        let rejects =
            progress.is_some_and(|p| p.rejected.iter().any(|r| p.config.as_ref() == Some(&r.config)));
        if !rejects && !self.nodes.iter().any(|n| n.step == Step::Goes) {
            return vec![];
        }
        let Capacity { unavailable, failing, unanswered, .. } = &self.capacity;
        let out = unavailable.iter().chain(failing).chain(unanswered);
        let out: HashSet<&str> = out.map(|n| &**n).collect();
        // These hold a slot but are still in service.
        let broken: HashSet<&str> = self.capacity.broken.iter().map(|n| &**n).collect();
        let in_service = |n: &str| rejects || !out.contains(n) || broken.contains(n);
        let free = self.nodes.iter().filter(|n| n.step != Step::Goes && in_service(&n.node));
        free.map(|n| n.node.clone()).collect()
    }
}
