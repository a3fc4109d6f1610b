//! After an unclean hand-over, patches of the earlier leader may still be on their way. This fence voids them before
//! they can take a node out of service in addition to the nodes that this leader sends. [`rollout::PoolPlan::nodes_with_late_patches`]
//! says which nodes are affected; each is written to once, so that it has a new version and a late patch is refused.
//!
//! Not needed in a term that began cleanly, for a node that has changed since the term began, or once the term is so old
//! that no request of the earlier leader can still arrive.

use crate::flight::nodes::{PATIENCE, PatchOf, until_answered};
use crate::io::clock::now;
use crate::shared::Shared;
use client::lease::{Handover, STRAY};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::Patch;
use rollout::RolloutPlan;
use rollout::view::own;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The nodes' versions when the term began; empty after a clean hand-over.
#[derive(Debug)]
pub(crate) struct Fence {
    begun: HashMap<String, u64>,
    at: Instant,
    /// Nodes that are being written to.
    writing: Arc<Mutex<HashSet<Arc<str>>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// The outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fenced {
    /// Nodes were written to: plan again.
    pub(crate) again: bool,
    /// Pools with a node that could not be written to, and why: none of their nodes may be sent.
    pub(crate) refused: BTreeMap<String, String>,
}

impl Fence {
    /// The fence of a term that begins now, with caches that are up to date.
    pub(crate) fn after(handover: Handover, shared: &Shared) -> Self {
        let nodes = &shared.stores.nodes;
        let begun = match handover {
            Handover::Clean => HashMap::new(),
            Handover::Unclean => {
                nodes.names().into_iter().filter_map(|n| nodes.version(&n).map(|v| (n, v))).collect()
            }
        };
        Self { begun, at: Instant::now(), writing: Arc::default(), tasks: Mutex::default() }
    }

    /// Writes to the nodes of this plan that need a fence. A node whose write is not answered within a moment holds up
    /// its own pool until it is, and no other pool.
    pub(crate) async fn close(&self, shared: &Arc<Shared>, plan: &RolloutPlan) -> Fenced {
        let mut fenced = Fenced::default();
        if self.begun.is_empty() || self.at.elapsed() >= STRAY {
            return fenced;
        }
        let unchanged = |name: &str| {
            let version = self.begun.get(name);
            version.is_some() && version.copied() == shared.stores.nodes.version(name)
        };
        let exposed: Vec<(&str, Arc<str>)> = plan
            .pools
            .iter()
            .flat_map(|p| p.nodes_with_late_patches().into_iter().map(|node| (&*p.pool, node)))
            .filter(|(_, node)| unchanged(node))
            .collect();
        if exposed.is_empty() {
            return fenced;
        }
        tracing::info!(
            nodes = exposed.len(),
            "the last leader did not give up its lease: writes to nodes that it may have sent are fenced off"
        );
        let mut writes: FuturesUnordered<_> = exposed
            .into_iter()
            .map(|(pool, node)| {
                let answer = self.write(shared, pool, &node);
                async move {
                    let Some(answer) = answer else { return (pool, Err(unanswered(&node))) };
                    match tokio::time::timeout(PATIENCE, answer).await {
                        Ok(Ok(done)) => (pool, done),
                        // The write continues on its own, or this controller is shutting down.
                        Err(_) | Ok(Err(_)) => (pool, Err(unanswered(&node))),
                    }
                }
            })
            .collect();
        while let Some((pool, done)) = writes.next().await {
            match done {
                Ok(()) => fenced.again = true,
                Err(why) => {
                    fenced.refused.insert(pool.to_owned(), why);
                }
            }
        }
        fenced
    }

    /// Writes to one node, unless a write is in flight already.
    fn write(
        &self,
        shared: &Arc<Shared>,
        pool: &str,
        node: &Arc<str>,
    ) -> Option<oneshot::Receiver<Result<(), String>>> {
        let writing = self.writing.clone();
        if !writing.lock().unwrap_or_else(PoisonError::into_inner).insert(node.clone()) {
            return None;
        }
        let (waits, answer) = oneshot::channel();
        let (shared, pool, node) = (shared.clone(), pool.to_owned(), node.clone());
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            let place = shared.permits.take(PatchOf::Pool(&pool), &shared.terms).await;
            let body = Patch::Strategic(json!({"metadata": {"annotations": {own::FENCED: now()}}}));
            let done = until_answered(&*shared, &place, &node, &body, &node).await;
            writing.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
            drop(place);
            let done = match done {
                Err(error) if !error.is_not_found() => Err(error.chain()),
                _ => Ok(()),
            };
            if waits.send(done).is_err() {
                shared.mark_cluster();
            }
        });
        Some(answer)
    }
}

fn unanswered(node: &str) -> String {
    format!(
        "the API server does not answer a write to node {node} that fences off writes of an earlier leader; \
        check for an admission webhook that hangs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::{answer, shared};
    use rollout::view::NodeView;
    use rollout::{Capacity, NodeStep, PoolPlan, Step};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Node `a` is to be updated, `b` holds a slot, `c` and `d` are updated, and `d` has changed since the term began.
    #[tokio::test(start_paused = true)]
    async fn nodes_that_are_left_in_service_are_written_to_once_before_others_are_sent() {
        let written = Arc::new(AtomicU64::new(0));
        let count = written.clone();
        let shared = Arc::new(shared(move |request| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            assert_eq!(request.method().as_str(), "PATCH");
            if name == "e" {
                return answer(403, &json!({"kind": "Status", "code": 403, "message": "not this one"}));
            }
            assert_eq!(name, "c");
            // The first request is lost.
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                return None;
            }
            let metadata = json!({"name": name, "uid": "u", "resourceVersion": "9"});
            answer(200, &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
        }));
        let put = |name: &str, version| {
            let item = Item { version, uid: "u".to_owned(), value: Arc::new(NodeView::default()) };
            shared.stores.nodes.apply(name.to_owned(), item);
        };
        ["a", "b", "c", "d", "e"].into_iter().for_each(|name| put(name, 1));
        let step = |node: &str, step| NodeStep { node: node.into(), step };
        let pool = |a| PoolPlan {
            capacity: Capacity { unavailable: vec!["b".into()], ..Capacity::default() },
            nodes: vec![step("a", a), step("b", Step::Done), step("c", Step::Done), step("d", Step::Done)],
            ..PoolPlan::default()
        };
        let plan = |a| RolloutPlan { pools: vec![pool(a)], ..RolloutPlan::default() };
        let clean = Fence::after(Handover::Clean, &shared);
        let fence = Fence::after(Handover::Unclean, &shared);
        put("d", 2);
        let nothing = Fenced::default();
        assert_eq!(clean.close(&shared, &plan(Step::Goes)).await, nothing);
        assert_eq!(fence.close(&shared, &plan(Step::Done)).await, nothing, "nobody is sent");
        assert_eq!(written.load(Ordering::Relaxed), 0);
        let fenced = fence.close(&shared, &plan(Step::Goes)).await;
        assert!(fenced.again && fenced.refused.is_empty());
        assert_eq!(fence.close(&shared, &plan(Step::Goes)).await, nothing, "once");
        assert_eq!(written.load(Ordering::Relaxed), 2);
        // A node that cannot be written to holds up its pool, but no longer than a request can be on its way.
        let mut with_e = pool(Step::Goes);
        with_e.pool = "worker".into();
        with_e.nodes.push(step("e", Step::Done));
        let with_e = RolloutPlan { pools: vec![with_e], ..RolloutPlan::default() };
        let fenced = fence.close(&shared, &with_e).await;
        assert!(!fenced.again && fenced.refused["worker"].contains("not this one"), "{fenced:?}");
        tokio::time::advance(STRAY).await;
        assert_eq!(fence.close(&shared, &with_e).await, nothing);
    }
}
