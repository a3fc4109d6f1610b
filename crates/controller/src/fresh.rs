//! At the start of a term: the caches are at least as new as what the API server holds then.
//!
//! Another controller may have led until a moment ago. What it sent nodes to is in the cluster, and not yet in our caches
//! when their watches are slow or were cut; a plan made without it could send one node too many on its way. So names and
//! versions of pools and nodes are read from the API server itself, and nothing is planned before the caches have them.
//!
//! What it is not: a cache, or needed within a term: there our own writes are in the caches with their answers.

use crate::backoff::WORK;
use crate::call::{CallError, call};
use crate::context::Context;
use crate::store::Store;
use crate::watch::version_of;
use api::k8s::{Node, ResourceExt};
use api::v1::MachineConfigPool;
use kube::Resource;
use kube::api::ListParams;
use kube::core::ClusterResourceScope;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio::time::Instant;

/// Objects in one answer.
const PAGE: u32 = 500;
/// How often the caches are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long an object that is in no cache is waited for. It was deleted since, or cannot be decoded: neither ends by
/// waiting. A watch that works brings a new one in milliseconds.
const UNKNOWN: Duration = Duration::from_secs(2);

/// Waits until pools and nodes are as new as the API server has them now.
pub(crate) async fn caught_up(context: &Context) {
    let stores = &context.stores;
    tokio::join!(
        as_new::<MachineConfigPool, _>(context, &stores.pools),
        as_new::<Node, _>(context, &stores.nodes)
    );
}

async fn as_new<K, T>(context: &Context, store: &Store<T>)
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let mut attempt = 0;
    let mut missing = loop {
        match listed::<K>(context).await {
            Ok(list) => break list,
            Err(error) => {
                let delay = WORK.delay(attempt);
                tracing::warn!(?delay, "not started yet: {}", error.chain());
                tokio::time::sleep(delay).await;
                attempt += 1;
            }
        }
    };
    let begin = Instant::now();
    loop {
        missing.retain(|(name, version)| match store.version(name) {
            Some(have) => have < *version,
            None => begin.elapsed() < UNKNOWN,
        });
        if missing.is_empty() {
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Names and versions, read consistently.
async fn listed<K>(context: &Context) -> Result<Vec<(String, u64)>, CallError>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (api, mut params) = (context.api::<K>(), ListParams::default().limit(PAGE));
    let mut all = vec![];
    loop {
        let what = || format!("list of {}", K::plural(&()));
        let page = call(what, api.list_metadata(&params)).await?;
        all.extend(page.items.iter().map(|o| (o.name_any(), version_of(o))));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::{answer, context};
    use crate::store::Item;
    use rollout::view::NodeView;
    use serde_json::json;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_planned_on_nodes_that_another_leader_has_changed_meanwhile() {
        let context = context(|request| {
            let items = match request.uri().path().ends_with("/nodes") {
                true => {
                    json!([{"metadata": {"name": "a", "resourceVersion": "7"}}, {"metadata": {"name": "gone", "resourceVersion": "2"}}])
                }
                false => json!([]),
            };
            let kind =
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}});
            let mut list = kind;
            list["items"] = items;
            answer(200, &list)
        });
        let item = |version| Item { version, uid: "u".to_owned(), value: Arc::new(NodeView::default()) };
        context.stores.nodes.apply("a".to_owned(), item(6));
        let waited = tokio::time::timeout(Duration::from_mins(1), caught_up(&context)).await;
        assert!(waited.is_err(), "the cache is behind");
        context.stores.nodes.apply("a".to_owned(), item(8));
        let begin = Instant::now();
        caught_up(&context).await;
        assert!(begin.elapsed() < UNKNOWN + LOOK * 2, "{:?}", begin.elapsed());
    }
}
