//! What drains of nodes would wait for, before the nodes are cordoned. A node's pods and all budgets are listed, and again as
//! long as a plan asks for it. Only the result is kept.
//!
//! What it is not: the listing and the judgement of pods and budgets (see `lookups`), or the choice of nodes.

use crate::shared::Shared;
use client::CallError;
use rollout::drain::{OUTLOOK_INTERVAL, OUTLOOK_MAX_AGE, Outlook};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

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
            let inspected = lookups::inspect_drains(&shared.client, &due).await;
            // Who may not list pods or budgets cannot drain either: the drain reports it, and no node waits for it here.
            let unread = |why: Arc<CallError>| Outlook::unread(&why.chain());
            let looked: Vec<(Arc<str>, Outlook)> =
                inspected.into_iter().map(|(node, seen)| (node, seen.unwrap_or_else(unread))).collect();
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
