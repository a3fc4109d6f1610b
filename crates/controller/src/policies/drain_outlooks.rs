//! What drains of nodes would wait for, before the nodes are cordoned. A node's pods and all budgets are listed, and again as
//! long as a plan asks for it. Only the result is kept.
//!
//! What it is not: the judgement of pods and budgets (see `rollout::drain::outlook`), or the choice of nodes.

use crate::shared::Shared;
use api::k8s::{Pod, PodDisruptionBudget};
use client::call;
use futures::future::join_all;
use kube::Api;
use kube::api::ListParams;
use rollout::drain::{OUTLOOK_INTERVAL, OUTLOOK_MAX_AGE, Outlook, outlook};
use rollout::view::{BudgetView, Names, NodeView, PodView};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Nodes' pods listed at once.
const IN_FLIGHT: usize = 8;

/// The nodes whose drains are judged, and the results.
#[derive(Debug, Default)]
pub(super) struct DrainOutlooks {
    task: Mutex<Option<Task>>,
    known: Arc<Mutex<KnownObjects>>,
}

/// The result and its time, by node.
type KnownObjects = BTreeMap<Arc<str>, (Outlook, Instant)>;

#[derive(Debug)]
struct Task {
    wanted: watch::Sender<BTreeSet<Arc<str>>>,
    handle: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl DrainOutlooks {
    pub(super) fn known(&self) -> BTreeMap<Arc<str>, Outlook> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, at)| at.elapsed() < OUTLOOK_MAX_AGE);
        known.iter().map(|(node, (outlook, _))| (node.clone(), outlook.clone())).collect()
    }

    /// Judges the drains of these nodes from now on, and of no others.
    pub(super) fn request(&self, shared: &Arc<Shared>, nodes: BTreeSet<Arc<str>>) {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if nodes.is_empty() {
            *task = None;
            return;
        }
        match &*task {
            Some(task) => {
                task.wanted.send_if_modified(|had| {
                    let news = *had != nodes;
                    *had = nodes;
                    news
                });
            }
            None => {
                let (wanted, is_wanted) = watch::channel(nodes);
                let run = run(shared.clone(), is_wanted, self.known.clone());
                *task = Some(Task { wanted, handle: tokio::spawn(run).abort_handle() });
            }
        }
    }
}

async fn run(
    shared: Arc<Shared>,
    mut wanted: watch::Receiver<BTreeSet<Arc<str>>>,
    known: Arc<Mutex<KnownObjects>>,
) {
    let mut seen: BTreeMap<Arc<str>, Instant> = BTreeMap::new();
    loop {
        let nodes = wanted.borrow_and_update().clone();
        seen.retain(|node, at| nodes.contains(node) && at.elapsed() < OUTLOOK_INTERVAL);
        let due: Vec<Arc<str>> = nodes.iter().filter(|n| !seen.contains_key(*n)).cloned().collect();
        if !due.is_empty() {
            let looked = read_outlooks(&shared, &due).await;
            let at = Instant::now();
            seen.extend(due.iter().map(|node| (node.clone(), at)));
            let news = {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let other =
                    |(node, seen): &(Arc<str>, Outlook)| known.get(node).is_none_or(|(had, _)| had != seen);
                let news = looked.iter().any(other);
                known.extend(looked.into_iter().map(|(node, seen)| (node, (seen, at))));
                news
            };
            if news {
                shared.mark_cluster();
            }
        }
        let next = seen
            .values()
            .min()
            .map_or_else(|| Instant::now() + OUTLOOK_INTERVAL, |at| *at + OUTLOOK_INTERVAL);
        tokio::select! {
            changed = wanted.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(next) => {}
        }
    }
}

/// Lists pods and budgets, and judges each of these nodes.
async fn read_outlooks(shared: &Shared, nodes: &[Arc<str>]) -> Vec<(Arc<str>, Outlook)> {
    let budgets: Api<PodDisruptionBudget> = Api::all(shared.client.clone());
    let what = || "list poddisruptionbudgets".to_owned();
    let budgets: Vec<BudgetView> = match call(what, budgets.list(&ListParams::default())).await {
        Ok(list) => list.items.iter().map(|b| BudgetView::from_budget(b, &mut Names::default())).collect(),
        Err(why) => {
            let outlook = Outlook::unread(&why.chain());
            return nodes.iter().map(|node| (node.clone(), outlook.clone())).collect();
        }
    };
    let mut all = vec![];
    for some in nodes.chunks(IN_FLIGHT) {
        all.extend(join_all(some.iter().map(|node| read_outlook(shared, node, &budgets))).await);
    }
    all
}

async fn read_outlook(shared: &Shared, node: &Arc<str>, budgets: &[BudgetView]) -> (Arc<str>, Outlook) {
    let pods: Api<Pod> = Api::all(shared.client.clone());
    let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let seen = match call(|| format!("list of the pods of node {node}"), pods.list(&params)).await {
        Ok(list) => {
            let mut names = Names::default();
            let pods: Vec<PodView> =
                list.items.iter().map(|pod| PodView::from_pod(pod, &mut names)).collect();
            let view = NodeView { name: node.clone(), ..NodeView::default() };
            let budgets: Vec<&BudgetView> = budgets.iter().collect();
            outlook(&view, &pods.iter().collect::<Vec<_>>(), &budgets)
        }
        Err(why) => Outlook::unread(&why.chain()),
    };
    (node.clone(), seen)
}
