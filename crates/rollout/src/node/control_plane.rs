//! The special rules for control-plane nodes: that only one of them goes at a time, whatever pools they are in, and
//! whether they take ordinary pods if OpenShift's Scheduler decides that.
//!
//! What it is not: the choice of nodes, which nodes they are (see `roles`), or which pool owns one (see
//! `membership`).

use crate::facts::Facts;
use crate::hold::Wait;
use crate::node::Flags;
use crate::patch::{Change, NodePatch};
use crate::view::roles::{Cluster, is_control_plane, is_etcd};
use crate::view::{EtcdMember, NodeView};
use api::k8s::Taint;
use api::names::label::{
    CONTROL_PLANE_ROLE as CONTROL_PLANE_LABEL, MASTER_ROLE as MASTER_LABEL, WORKER_ROLE as WORKER_LABEL,
};
use api::topology::ControlPlaneTopology;
use std::sync::Arc;

const NO_SCHEDULE: &str = "NoSchedule";

/// The topology that a node's annotation should name. If that is `SingleReplica`, the node's daemon drains nothing,
/// which is right for a single control-plane node. Workers beside it can take each other's pods, so they do not get
/// that value; OpenShift sets it on them too.
pub(crate) fn topology(node: &NodeView, facts: &Facts) -> Change<Arc<str>> {
    let (wanted, has) = (&facts.control_plane_topology, &node.control_plane_topology);
    let is_single =
        |t: &Arc<str>| ControlPlaneTopology::parse(t) == Some(ControlPlaneTopology::SingleReplica);
    if facts.cluster == Cluster::Plain && is_single(wanted) && !is_control_plane(&node.labels) {
        return if has.as_ref().is_some_and(is_single) { Change::Remove } else { Change::Keep };
    }
    match wanted.is_empty() || has.as_ref() == Some(wanted) {
        true => Change::Keep,
        false => Change::Set(wanted.clone()),
    }
}

/// What is noted on a node of etcd that is sent to another config: [`EtcdMember::leaving`]. Until the reboot, the note follows a
/// container that is started again.
pub(crate) fn etcd_note(node: &NodeView, flags: Flags, goes: bool, facts: &Facts) -> Change<Arc<str>> {
    let member = EtcdMember {
        node: node.name.clone(),
        ready: true,
        container: facts.etcd_containers.get(&node.name).cloned(),
    };
    let Some(note) = member.leaving(node) else { return Change::Keep };
    let before = node.etcd_before.as_deref();
    let boot_before = before.and_then(|before| before.split_once(' ')).map(|(boot, _)| boot);
    let is_leaving = goes || !flags.updated && boot_before.is_some() && boot_before == node.boot.as_deref();
    match is_leaving && before != Some(&*note) {
        true => Change::Set(note.into()),
        false => Change::Keep,
    }
}

/// The control-plane nodes of the whole cluster that are out of service or on their way. While there is one, no other
/// goes. A pool's limit covers only its own nodes, but etcd's members may be in several pools: if they also have a
/// worker's label, or if there is no pool `master`.
#[derive(Debug, Default)]
pub(crate) struct ControlPlaneTurn {
    out: Vec<Arc<str>>,
    /// Nodes that count as out but are still in service (see [`Flags::broken`]). The other nodes wait for these; these
    /// wait only for nodes that are really out.
    broken: Vec<Arc<str>>,
    /// Nodes whose member of etcd is not Ready: a node is back before its member is. See [`Facts::etcd_not_ready`].
    etcd: Vec<Arc<str>>,
}

impl ControlPlaneTurn {
    /// Nobody has the turn yet.
    pub(crate) fn new(facts: &Facts) -> Self {
        Self { etcd: facts.etcd_not_ready.clone(), ..Self::default() }
    }

    /// Whether the node is bound by this. Nodes that run etcd alone are too: it is their quorum that is protected.
    fn binds(node: &NodeView) -> bool {
        is_control_plane(&node.labels) || is_etcd(&node.labels)
    }

    /// Records a node of a pool, before anything is chosen.
    pub(crate) fn record(&mut self, node: &NodeView, flags: Flags) {
        let out = flags.unavailable || flags.failing && !flags.candidate || flags.maybe_sent;
        if out && Self::binds(node) {
            let list = if flags.broken { &mut self.broken } else { &mut self.out };
            list.push(node.name.clone());
        }
    }

    /// Records a node that no pool owns.
    pub(crate) fn record_unmanaged(&mut self, node: &NodeView) {
        if !node.ready() && Self::binds(node) {
            self.out.push(node.name.clone());
        }
    }

    /// Lets the node go, or returns what it waits for. A node that is already out of service takes no one's turn. A node
    /// does not wait for its own member of etcd, which may need the node's new config.
    pub(crate) fn take(&mut self, node: &NodeView, flags: Flags) -> Result<(), Wait> {
        if flags.unavailable && !flags.broken || !Self::binds(node) {
            return Ok(());
        }
        let broken: &[Arc<str>] = if flags.broken { &[] } else { &self.broken };
        let others = self.out.iter().chain(broken).filter(|name| **name != node.name);
        let others: Vec<_> = others.cloned().collect();
        if !others.is_empty() {
            return Err(Wait::ControlPlane(others.into()));
        }
        let members: Vec<_> = self.etcd.iter().filter(|name| **name != node.name).cloned().collect();
        if !members.is_empty() {
            return Err(Wait::Etcd(members.into()));
        }
        self.out.push(node.name.clone());
        Ok(())
    }
}

/// Adds what a control-plane node lacks to the patch. Without a Scheduler object, nothing.
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
