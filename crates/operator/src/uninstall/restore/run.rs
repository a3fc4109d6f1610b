//! Takes the nodes back: reads, sends, waits. What it is not: a choice of any kind (see `plan`).

use super::plan::{
    NodeMemory, NodeToRestore, RestoreRound, RestoreState, RoundInputs, how_far, members, restore_state,
    round, unpaused_pools,
};
use crate::objects::FIELD_MANAGER;
use crate::sync::cluster;
use crate::uninstall::UninstallError;
use crate::uninstall::last_word::LastWord;
use api::k8s::{Node, Pod};
use api::names::{EMPTY_CONFIG, annotation, own};
use api::v1::MachineConfigPool;
use client::{CallError, call, retry};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use rollout::view::{EtcdMember, Names, NodeView};
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
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
    since: BTreeMap<Arc<str>, (RestoreState, Instant)>,
    sent_well: BTreeSet<Arc<str>>,
    /// The nodes whose change the API server has refused, with its answer.
    refused: BTreeMap<Arc<str>, String>,
    told: BTreeSet<Arc<str>>,
    changed: Option<Instant>,
}

impl Watch {
    /// Records the present state of each node.
    fn memory(&mut self, nodes: &[NodeView], now: Instant) -> BTreeMap<Arc<str>, NodeMemory> {
        let mut all = BTreeMap::new();
        for node in nodes {
            let sent_well = self.sent_well.contains(&node.name);
            let state = restore_state(node, sent_well);
            let before = self.since.get(&node.name).filter(|(before, _)| *before == state);
            let since = before.map_or(now, |(_, since)| *since);
            if before.is_none() {
                self.changed = Some(now);
                self.since.insert(node.name.clone(), (state, now));
            }
            all.insert(node.name.clone(), NodeMemory { waited: now - since, sent_well });
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
    pause(client, limit, &mut progress).await?;
    let (mut watch, mut last_word) = (Watch::default(), LastWord::now());
    // Since when none of the nodes that are to go could be sent.
    let mut unsent: Option<Instant> = None;
    loop {
        let seen =
            || async { Ok((cluster::pools(client).await?, nodes(client).await?, etcd(client).await?)) };
        let tell = |why| progress(Progress::Unanswered(why));
        let (pools, nodes, etcd) = retry::on_outage(limit, tell, seen).await?;
        let resumed = unpaused_pools(&pools);
        if !resumed.is_empty() {
            return Err(UninstallError::Resumed { pools: resumed });
        }
        let memory = watch.memory(&nodes, Instant::now());
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
            last_word.spoken();
        }
        let calm = watch.changed.map_or(Duration::ZERO, |changed| changed.elapsed());
        if round.is_over() {
            return Ok(BTreeMap::new());
        }
        if round.is_stuck(force, calm, limit) {
            let left = round.not_restored().into_iter().map(|(name, why)| (name.to_string(), why)).collect();
            return if force { Ok(left) } else { Err(UninstallError::NotRestored { nodes: left }) };
        }
        let (mut refused, mut sent) = (None, false);
        for node in nodes.iter().filter(|n| round.send.contains(&n.name)) {
            // Also where no answer comes: it may have been sent all the same.
            if node.state.is_bad() {
                watch.sent_well.remove(&node.name);
            } else {
                watch.sent_well.insert(node.name.clone());
            }
            match send(client, node, &etcd).await {
                Ok(None) => {
                    sent = true;
                    progress(Progress::Sent(node.name.to_string()));
                }
                Ok(Some(error)) => refused = Some(error),
                Err(error) if force => {
                    watch.refused.insert(node.name.clone(), error.chain());
                }
                Err(error) => return Err(error.into()),
            }
        }
        match refused.filter(|_| !sent) {
            None => unsent = None,
            Some(error) if unsent.get_or_insert_with(Instant::now).elapsed() > limit => {
                return Err(error.into());
            }
            Some(_) => {}
        }
        if sent {
            last_word.spoken();
        } else if last_word.is_due() {
            progress(Progress::Waits(how_far(&nodes, &round, &memory)));
        }
        let more = LOOK_PER_NODE.saturating_mul(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        tokio::time::sleep(LOOK + more).await;
    }
}

/// Sends a node to the empty config. An error in `Ok`: the node has changed since it was looked at, or the API server serves nobody;
/// the next round tries again.
async fn send(client: &Client, node: &NodeView, etcd: &[EtcdMember]) -> Result<Option<CallError>, CallError> {
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
    match call(|| format!("patch Node {}", node.name), request).await {
        Ok(_) => Ok(None),
        Err(error) if error.is_conflict() || error.is_not_found() || error.is_outage() => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// Pauses the pools. While the API server serves nobody it is asked again, for `limit`: the only control-plane node may just have
/// rebooted.
pub(crate) async fn pause(
    client: &Client,
    limit: Duration,
    progress: &mut impl FnMut(Progress),
) -> Result<(), UninstallError> {
    let paused = Mutex::new(vec![]);
    let tell = |why| progress(Progress::Unanswered(why));
    retry::on_outage(limit, tell, || pause_once(client, &paused)).await?;
    let paused = paused.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !paused.is_empty() {
        progress(Progress::Paused(paused));
    }
    Ok(())
}

/// Pauses the pools that are not, and adds their names to `paused`.
async fn pause_once(client: &Client, paused: &Mutex<Vec<String>>) -> Result<(), CallError> {
    let pools = cluster::pools(client).await?;
    let api: Api<MachineConfigPool> = Api::all(client.clone());
    for name in pools.iter().filter(|p| !p.spec.paused).map(|p| p.name_any()) {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({"spec": {"paused": true}}));
        call(|| format!("pause MachineConfigPool {name}"), api.patch(&name, &params, &patch)).await?;
        paused.lock().unwrap_or_else(PoisonError::into_inner).push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: u16, message: &str) -> (u16, serde_json::Value) {
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Invalid", "message": message});
        (code, status)
    }

    /// An API server with two pools that answers the first patches with these refusals. Also returns what was asked.
    fn server(mut refusals: Vec<(u16, serde_json::Value)>) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(vec![]));
        let seen = asked.clone();
        let pool = |name: &str, paused: bool| {
            json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": name}, "spec": {"paused": paused}})
        };
        let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let path = format!("{} {}", request.method(), request.uri().path());
            let is_patch = request.method() == http::Method::PATCH;
            let master = seen.lock().unwrap().iter().any(|path: &String| path.ends_with("done"));
            let (code, answer) = match is_patch {
                false => {
                    (200, json!({"metadata": {}, "items": [pool("master", master), pool("worker", false)]}))
                }
                true if !refusals.is_empty() => refusals.remove(0),
                true => (200, pool("any", true)),
            };
            let done = if is_patch && code == 200 { " done" } else { "" };
            seen.lock().unwrap().push(format!("{path}{done}"));
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap()) }
        });
        (Client::new(serve, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn pools_are_paused_once_the_api_server_has_started() {
        let starts = "pools \"master\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: \
                      failed to find resource referenced by paramKind";
        let (client, asked) = server(vec![refusal(422, starts), refusal(503, "starts")]);
        let mut told = vec![];
        pause(&client, Duration::from_secs(60), &mut |step: Progress| told.push(step.to_string()))
            .await
            .unwrap();
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(
            told[0].starts_with("waiting for the API server: pause MachineConfigPool master: "),
            "{told:?}"
        );
        assert_eq!(told[1], "paused: master, worker");
        let patches = asked.lock().unwrap().iter().filter(|path| path.starts_with("PATCH")).count();
        assert_eq!(patches, 4, "no pool is paused twice: {asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_that_may_not_be_paused_ends_the_removal_at_once() {
        let policy = "is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for (said, tries) in [(policy, 1), ("is not valid", 1)] {
            let (client, asked) = server(vec![refusal(422, said); 5]);
            let error = pause(&client, Duration::from_secs(60), &mut drop).await.unwrap_err();
            assert!(client::chain(&error).contains(said), "{error:?}");
            let patches = asked.lock().unwrap().iter().filter(|path| path.starts_with("PATCH")).count();
            assert_eq!(patches, tries, "{said}: {asked:?}");
        }
        // One that never has time is waited for as long as a node may take.
        let (client, _) = server(vec![refusal(503, "starts"); 200]);
        let error = pause(&client, Duration::from_secs(60), &mut drop).await.unwrap_err();
        assert!(client::chain(&error).contains("starts"), "{error:?}");
    }

    /// Lists work, and no Node can be changed: a webhook is down, say.
    #[tokio::test(start_paused = true)]
    async fn nodes_that_cannot_be_sent_end_the_removal_after_the_time_limit() {
        let serve = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let is_patch = request.method() == http::Method::PATCH;
            let node = json!({"metadata": {"name": "n", "annotations": {
                annotation::CURRENT_CONFIG: "rendered-1", annotation::DESIRED_CONFIG: "rendered-1", annotation::STATE: "Done"}}});
            let (code, answer) = match request.uri().path().rsplit('/').next() {
                _ if is_patch => refusal(500, "the webhook is down"),
                Some("nodes") => (200, json!({"metadata": {}, "items": [node]})),
                _ => (200, json!({"metadata": {}, "items": []})),
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        });
        let client = Client::new(serve, "default");
        let begin = Instant::now();
        let ended = restore_hosts(&client, Duration::from_secs(60), false, drop).await;
        let error = client::chain(&ended.unwrap_err());
        assert!(error.contains("patch Node n") && error.contains("the webhook is down"), "{error}");
        assert!((60..70).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    }
}
