//! After a hand-over that was not clean: patches of the earlier leader that are still on their way are made void before they
//! can take a node out of service beside those that this leader sends. Which nodes that is about stands in
//! [`rollout::PoolPlan::exposed`]; here they are written to, once, so that they have another version.
//!
//! What it is not: needed in a term that began cleanly, or for a node that has changed since the term began.

use crate::call::CallError;
use crate::context::Context;
use crate::leader::{Handover, now};
use crate::writes::until_answered;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kube::api::Patch;
use rollout::RolloutPlan;
use rollout::view::own;
use serde_json::json;
use std::collections::HashMap;

/// The nodes' versions when the term began; nothing, where the hand-over was clean.
#[derive(Debug, Default)]
pub(crate) struct Seal {
    begun: HashMap<String, u64>,
}

impl Seal {
    /// For a term that begins now, with caches that are up to date.
    pub(crate) fn after(handover: Handover, context: &Context) -> Self {
        let nodes = &context.stores.nodes;
        let begun = match handover {
            Handover::Clean => HashMap::new(),
            Handover::Unclean => {
                nodes.names().into_iter().filter_map(|n| nodes.version(&n).map(|v| (n, v))).collect()
            }
        };
        Self { begun }
    }

    /// Seals what the plan needs sealed. Whether there was something: then it is to be made anew.
    ///
    /// # Errors
    /// A node that cannot be written to: nothing of the plan may be carried out.
    pub(crate) async fn close(&self, context: &Context, plan: &RolloutPlan) -> Result<bool, CallError> {
        if self.begun.is_empty() {
            return Ok(false);
        }
        let unchanged = |name: &str| {
            let version = self.begun.get(name);
            version.is_some() && version.copied() == context.stores.nodes.version(name)
        };
        let exposed: Vec<_> =
            plan.pools.iter().flat_map(|p| p.exposed()).filter(|name| unchanged(name)).collect();
        if exposed.is_empty() {
            return Ok(false);
        }
        tracing::info!(
            nodes = exposed.len(),
            "the last leader was not heard of again: what it may have sent to nodes is made void"
        );
        let body = Patch::Merge(json!({"metadata": {"annotations": {own::SEALED: now()}}}));
        let writes: FuturesUnordered<_> = exposed
            .iter()
            .map(|name| async {
                let done = until_answered(context, name, &body, name).await;
                done.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
            })
            .collect();
        let all: Vec<Result<(), CallError>> = writes.collect().await;
        all.into_iter().collect::<Result<Vec<()>, CallError>>()?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::{answer, context};
    use crate::store::Item;
    use rollout::view::NodeView;
    use rollout::{Capacity, NodeStep, PoolPlan, Step};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// `a` goes, `b` holds a slot, `c` and `d` are at rest, and `d` has changed since the term began.
    #[tokio::test(start_paused = true)]
    async fn nodes_that_are_left_in_service_are_written_to_once_before_others_are_sent() {
        let written = Arc::new(AtomicU64::new(0));
        let count = written.clone();
        let context = context(move |request| {
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            assert_eq!((request.method().as_str(), name.as_str()), ("PATCH", "c"));
            // The first try is lost.
            if count.fetch_add(1, Ordering::Relaxed) == 0 {
                return None;
            }
            let metadata = json!({"name": name, "uid": "u", "resourceVersion": "9"});
            answer(200, &json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}))
        });
        let put = |name: &str, version| {
            let item = Item { version, uid: "u".to_owned(), value: Arc::new(NodeView::default()) };
            context.stores.nodes.apply(name.to_owned(), item);
        };
        ["a", "b", "c", "d"].into_iter().for_each(|name| put(name, 1));
        let step = |node: &str, step| NodeStep { node: node.into(), step };
        let pool = |a| PoolPlan {
            capacity: Capacity { unavailable: vec!["b".into()], ..Capacity::default() },
            nodes: vec![step("a", a), step("b", Step::Done), step("c", Step::Done), step("d", Step::Done)],
            ..PoolPlan::default()
        };
        let plan = |a| RolloutPlan { pools: vec![pool(a)], ..RolloutPlan::default() };
        let clean = Seal::after(Handover::Clean, &context);
        let seal = Seal::after(Handover::Unclean, &context);
        put("d", 2);
        assert!(!clean.close(&context, &plan(Step::Goes)).await.unwrap());
        assert!(!seal.close(&context, &plan(Step::Done)).await.unwrap(), "nobody is sent");
        assert_eq!(written.load(Ordering::Relaxed), 0);
        assert!(seal.close(&context, &plan(Step::Goes)).await.unwrap());
        assert!(!seal.close(&context, &plan(Step::Goes)).await.unwrap(), "once");
        assert_eq!(written.load(Ordering::Relaxed), 2);
    }
}
