//! The special rules for control-plane nodes: which nodes they are, that only one of them goes at a time whatever pools
//! they are in, and whether they take ordinary pods if OpenShift's Scheduler decides that.
//!
//! What it is not: the choice of nodes, or which pool owns one (see `membership`).

use crate::membership::Cluster;
use crate::node::Flags;
use crate::patch::{Change, NodePatch};
use crate::plan::Facts;
use crate::view::{Labels, NodeView};
use api::k8s::Taint;
use api::names::label::{
    CONTROL_PLANE_ROLE as CONTROL_PLANE_LABEL, ETCD_ROLE, MASTER_ROLE as MASTER_LABEL,
    WORKER_ROLE as WORKER_LABEL,
};
use api::names::topology::SINGLE_REPLICA;
use std::sync::Arc;

const NO_SCHEDULE: &str = "NoSchedule";

/// Whether a node with these labels is one of the control plane: it has one of the two role labels. k3s gives them the
/// value `true`, kubeadm none: the value says nothing.
pub fn is_control_plane(labels: &Labels) -> bool {
    [MASTER_LABEL, CONTROL_PLANE_LABEL].iter().any(|key| labels.get(key).is_some())
}

/// Whether a node with these labels is a member of etcd's, beside the control plane or alone.
pub(crate) fn is_etcd(labels: &Labels) -> bool {
    labels.get(ETCD_ROLE).is_some()
}

/// The topology that a node's annotation is to name. Its daemon drains nothing where that is `SingleReplica`, which is
/// right for the one control-plane node. Workers beside it can take each other's pods; OpenShift tells it to them too.
pub(crate) fn topology(node: &NodeView, facts: &Facts) -> Change<Arc<str>> {
    let (wanted, has) = (&facts.control_plane_topology, &node.control_plane_topology);
    let is_single = |t: &Arc<str>| &**t == SINGLE_REPLICA;
    if facts.cluster == Cluster::Plain && is_single(wanted) && !is_control_plane(&node.labels) {
        return if has.as_ref().is_some_and(is_single) { Change::Remove } else { Change::Keep };
    }
    match wanted.is_empty() || has.as_ref() == Some(wanted) {
        true => Change::Keep,
        false => Change::Set(wanted.clone()),
    }
}

/// The control-plane nodes of the whole cluster that are out of service, or on their way: while there is one, no other
/// goes. A pool bounds its own nodes only, and etcd's members may be spread over several: with a worker's label beside, or
/// where there is no pool `master`.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    out: Vec<Arc<str>>,
    /// Those that count as out and are in service, see [`Flags::broken`]: the others wait for them, they for nodes that are
    /// really out.
    broken: Vec<Arc<str>>,
}

impl Turn {
    /// Is the node bound by it? Nodes that run etcd alone are, too: it is their quorum that is kept.
    fn binds(node: &NodeView) -> bool {
        is_control_plane(&node.labels) || is_etcd(&node.labels)
    }

    /// A node of a pool, before anybody is chosen.
    pub(crate) fn see(&mut self, node: &NodeView, flags: Flags) {
        let out = flags.unavailable || flags.failing && !flags.candidate || flags.maybe_sent;
        if out && Self::binds(node) {
            let list = if flags.broken { &mut self.broken } else { &mut self.out };
            list.push(node.name.clone());
        }
    }

    /// A node that no pool owns.
    pub(crate) fn see_unmanaged(&mut self, node: &NodeView) {
        if !node.ready() && Self::binds(node) {
            self.out.push(node.name.clone());
        }
    }

    /// Lets the node go, or says which nodes it waits for. One that is out of service already takes nobody's turn.
    pub(crate) fn take(&mut self, node: &NodeView, flags: Flags) -> Result<(), Arc<[Arc<str>]>> {
        if flags.unavailable && !flags.broken || !Self::binds(node) {
            return Ok(());
        }
        let broken: &[Arc<str>] = if flags.broken { &[] } else { &self.broken };
        let others = self.out.iter().chain(broken).filter(|name| **name != node.name);
        let others: Vec<_> = others.cloned().collect();
        if !others.is_empty() {
            return Err(others.into());
        }
        self.out.push(node.name.clone());
        Ok(())
    }
}

/// Adds to the patch what a control-plane node lacks. Without a Scheduler, nothing.
pub(crate) fn adjust(node: &NodeView, facts: &Facts, patch: &mut NodePatch) {
    let Some(schedulable) = facts.masters_schedulable.filter(|_| node.is_master()) else { return };
    if node.labels.get(CONTROL_PLANE_LABEL).is_none() {
        patch.labels.insert(CONTROL_PLANE_LABEL.into(), Some("".into()));
    }
    let is_worker = node.labels.get(WORKER_LABEL).is_some();
    let keeps_out =
        |t: &Taint| t.effect == NO_SCHEDULE && (t.key == MASTER_LABEL || t.key == CONTROL_PLANE_LABEL);
    if schedulable {
        if !is_worker {
            patch.labels.insert(WORKER_LABEL.into(), Some("".into()));
        }
        if node.taints.iter().any(keeps_out) {
            patch.edit_taints(node, keeps_out, None);
        }
        return;
    }
    if is_worker {
        patch.labels.insert(WORKER_LABEL.into(), None);
    }
    if !node.taints.iter().any(|t| t.key == MASTER_LABEL && t.effect == NO_SCHEDULE) {
        let taint =
            Taint { key: MASTER_LABEL.to_owned(), effect: NO_SCHEDULE.to_owned(), ..Taint::default() };
        patch.edit_taints(node, |_| false, Some(taint));
    }
}
