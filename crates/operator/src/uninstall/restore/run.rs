//! Takes the nodes back: reads, sends, waits. What it is not: a choice of any kind (see `plan`).

use super::plan::{
    NodeMemory, NodeToRestore, RestoreRound, RestoreState, RoundInputs, how_far, members, restore_state,
    round, unpaused_pools,
};
use super::unsent_nodes::UnsentNodes;
use crate::objects::FIELD_MANAGER;
use crate::sync::cluster;
use crate::uninstall::UninstallError;
use crate::uninstall::progress::WaitReport;
use crate::uninstall::waiting::{Clock, Patience};
use api::k8s::{Node, Pod};
use api::names::{EMPTY_CONFIG, annotation, own};
use api::v1::MachineConfigPool;
use client::{CallError, call};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use rollout::view::{EtcdMember, Names, NodeView};
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often the nodes are looked at, and the time added for each node: a list of thousands is megabytes.
const LOOK: Duration = Duration::from_secs(1);
const LOOK_PER_NODE: Duration = Duration::from_millis(5);

/// A step, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// These pools are paused now.
    Paused(Vec<String>),
    /// A node was told to go back.
    Sent(String),
    /// A node has its own files.
    Done(String),
    /// A node does not get there, and why.
    Failed(String, String),
    /// The API server does not answer, as while the only control-plane node reboots.
    Unanswered(String),
    /// Nothing has happened for a while: how far the nodes are.
    Waits(String),
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused(pools) => write!(f, "paused: {}", pools.join(", ")),
            Self::Sent(node) => write!(f, "Node {node}: goes back to its own files"),
            Self::Done(node) => write!(f, "Node {node}: has its own files"),
            Self::Failed(node, why) => write!(f, "Node {node}: {why}"),
            Self::Unanswered(why) => write!(f, "waiting for the API server: {why}"),
            Self::Waits(how_far) => write!(f, "waiting: {how_far}"),
        }
    }
}

async fn nodes(client: &Client) -> Result<Vec<NodeView>, CallError> {
    let api: Api<Node> = Api::all(client.clone());
    let list = call(|| "list Nodes".to_owned(), api.list(&ListParams::default())).await?;
    let mut names = Names::default();
    Ok(list.items.iter().map(|node| NodeView::interned(node, &mut names)).collect())
}

/// The members of etcd that run as static pods.
async fn etcd(client: &Client) -> Result<Vec<EtcdMember>, CallError> {
    let mut all = vec![];
    for (namespace, label) in EtcdMember::PLACES {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let what = || format!("list pods of etcd in {namespace}");
        let pods = call(what, api.list(&ListParams::default().labels(label))).await?;
        all.extend(pods.items.iter().filter_map(EtcdMember::from_pod));
    }
    Ok(all)
}

/// What would be done: each node, its pool, and how far it is.
///
/// # Errors
/// The API server's answer.
pub async fn nodes_to_restore(client: &Client) -> Result<Vec<NodeToRestore>, UninstallError> {
    Ok(members(&nodes(client).await?, &cluster::pools(client).await?))
}

/// What a run knows of the nodes from one round to the next.
#[derive(Default)]
struct Watch {
    since: BTreeMap<Arc<str>, (RestoreState, Duration)>,
    sent_well: BTreeSet<Arc<str>>,
    /// The nodes that were tried last, and not sent.
    unsent: UnsentNodes,
    /// The nodes that the API server does not let be sent, with its answer.
    refused: BTreeMap<Arc<str>, String>,
    told: BTreeSet<Arc<str>>,
    changed: Option<Duration>,
}

impl Watch {
    /// Records the present state of each node, by the clock of the run, which stands still during an outage.
    fn memory(&mut self, nodes: &[NodeView], clock: &mut Clock) -> BTreeMap<Arc<str>, NodeMemory> {
        let (mut all, now) = (BTreeMap::new(), clock.waited());
        for node in nodes {
            let sent_well = self.sent_well.contains(&node.name);
            let state = restore_state(node, sent_well);
            let before = self.since.get(&node.name).filter(|(before, _)| *before == state);
            let since = before.map_or(now, |(_, since)| *since);
            if before.is_none() {
                clock.progressed();
                self.changed = Some(now);
                self.since.insert(node.name.clone(), (state, now));
            }
            all.insert(node.name.clone(), NodeMemory { waited: now.saturating_sub(since), sent_well });
        }
        all
    }

    /// Says what is new. Returns whether anything is.
    fn report_progress(&mut self, round: &RestoreRound, progress: &mut impl FnMut(Progress)) -> bool {
        let before = self.told.len();
        for (name, state) in &round.states {
            if *state == RestoreState::Done && self.told.insert(name.clone()) {
                progress(Progress::Done(name.to_string()));
            }
        }
        for (name, why) in &round.failed {
            if self.told.insert(name.clone()) {
                progress(Progress::Failed(name.to_string(), why.clone()));
            }
        }
        self.told.len() > before
    }
}

/// Takes all nodes back, and returns those that could not be restored, with the reason; with `force` only, else that is an
/// error. `limit`: how long one node may take.
///
/// # Errors
/// Nodes that fail, do not answer or take too long; a pool that somebody resumes meanwhile; the API server's answer, or that it
/// does not answer for `limit`. Nothing was removed then, and the pools are paused.
pub async fn restore_hosts(
    client: &Client,
    limit: Duration,
    force: bool,
    mut progress: impl FnMut(Progress),
) -> Result<BTreeMap<String, String>, UninstallError> {
    let patience = Patience::new(limit);
    let pools = pause(client, &patience, &mut |why| progress(Progress::Unanswered(why))).await?;
    if !pools.paused.is_empty() {
        progress(Progress::Paused(pools.paused));
    }
    if let Some((_, error)) = pools.refused.into_iter().next() {
        return Err(error.into());
    }
    let (mut watch, mut wait_report, mut clock) = (Watch::default(), WaitReport::now(), Clock::begin(limit));
    loop {
        let seen =
            || async { Ok((cluster::pools(client).await?, nodes(client).await?, etcd(client).await?)) };
        let tell = |why| progress(Progress::Unanswered(why));
        let (pools, nodes, etcd) = clock.ask(tell, seen).await?;
        let resumed = unpaused_pools(&pools);
        if !resumed.is_empty() {
            return Err(UninstallError::Resumed { pools: resumed });
        }
        let memory = watch.memory(&nodes, &mut clock);
        let round = round(&RoundInputs {
            nodes: &nodes,
            pools: &pools,
            etcd: &etcd,
            memory: &memory,
            refused: &watch.refused,
            limit,
            force,
        });
        if watch.report_progress(&round, &mut progress) {
            wait_report.spoken();
        }
        let calm = watch.changed.map_or(Duration::ZERO, |changed| clock.waited().saturating_sub(changed));
        if round.is_over() {
            return Ok(BTreeMap::new());
        }
        if round.is_stuck(force, calm, limit) {
            let left = round.not_restored().into_iter().map(|(name, why)| (name.to_string(), why)).collect();
            return if force { Ok(left) } else { Err(UninstallError::NotRestored { nodes: left }) };
        }
        let (mut done, mut sent) = (BTreeSet::new(), false);
        for node in watch.unsent.last(nodes.iter().filter(|n| round.send.contains(&n.name))) {
            // Also where no answer comes: it may have been sent all the same.
            if node.state.is_bad() {
                watch.sent_well.remove(&node.name);
            } else {
                watch.sent_well.insert(node.name.clone());
            }
            let begin = Instant::now();
            match send(client, node, &etcd).await {
                Ok(()) => {
                    sent = true;
                    clock.progressed();
                    done.insert(node.name.clone());
                    progress(Progress::Sent(node.name.to_string()));
                }
                // The next round tries again, unless that would be in vain.
                Err(error) => {
                    let is_outage = error.is_outage();
                    if is_outage {
                        // Agents cannot answer during an outage, and a request without an answer takes long. Lists that are
                        // answered prove nothing: agents write, too. For the node itself that time counts.
                        clock.leave_out_unanswered(begin.elapsed());
                    }
                    if let Some(why) = watch.unsent.record(&node.name, &error, clock.tried(), limit) {
                        watch.refused.insert(node.name.clone(), why);
                    }
                    if is_outage {
                        // The next list waits for the API server. If only this node is concerned, the others go before it then.
                        break;
                    }
                }
            }
        }
        watch.unsent.retain(|node| round.send.contains(node) && !done.contains(node));
        if sent {
            wait_report.spoken();
        } else if wait_report.is_due() {
            let unsent = watch.unsent.words(clock.tried());
            progress(Progress::Waits(how_far(&nodes, &round, &memory, &unsent)));
        }
        let more = LOOK_PER_NODE.saturating_mul(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        tokio::time::sleep(LOOK + more).await;
    }
}

/// Sends a node to the empty config.
async fn send(client: &Client, node: &NodeView, etcd: &[EtcdMember]) -> Result<(), CallError> {
    let api: Api<Node> = Api::all(client.clone());
    let mut notes = Map::from_iter([(annotation::DESIRED_CONFIG.to_owned(), json!(EMPTY_CONFIG))]);
    // As for every other update: after the reboot the pod of etcd tells by it whether it is the one from before.
    if let Some(note) = etcd.iter().find(|m| m.node == node.name).and_then(|member| member.leaving(node)) {
        notes.insert(own::ETCD_BEFORE.to_owned(), json!(note));
    }
    let patch =
        Patch::Merge(json!({"metadata": {"resourceVersion": node.resource_version, "annotations": notes}}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let request = api.patch_metadata(&node.name, &params, &patch);
    call(|| format!("patch Node {}", node.name), request).await.map(drop)
}

/// What has become of the pools that were to be paused.
#[derive(Debug, Default)]
pub(crate) struct PausedPools {
    /// Those that are paused now and were not before.
    pub(crate) paused: Vec<String>,
    /// Those that cannot be paused, each with the API server's answer. A webhook that is down for them is one, too.
    pub(crate) refused: Vec<(String, CallError)>,
}

/// Pauses the pools. While the API server serves nobody it is asked again: the only control-plane node may just have rebooted.
/// `tell` gets the reason then.
///
/// # Errors
/// The pools cannot be listed.
pub(crate) async fn pause(
    client: &Client,
    patience: &Patience,
    tell: &mut impl FnMut(String),
) -> Result<PausedPools, CallError> {
    let mut all = PausedPools::default();
    let pools = patience.ask(&mut *tell, || cluster::pools(client)).await?;
    let api: Api<MachineConfigPool> = Api::all(client.clone());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"paused": true}}));
    for name in pools.iter().filter(|p| !p.spec.paused).map(|p| p.name_any()) {
        let write = || call(|| format!("pause MachineConfigPool {name}"), api.patch(&name, &params, &patch));
        match patience.ask(&mut *tell, write).await {
            Ok(_) => all.paused.push(name),
            // It is gone.
            Err(error) if error.is_not_found() => {}
            Err(error) => all.refused.push((name, error)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
