//! At the start of a term: the caches are at least as new as what the API server holds then.
//!
//! Another controller may have led until a moment ago. What it sent nodes to, and what it rendered that from, is in the
//! cluster, and not yet in our caches when their watches are slow, were cut, or died without a word. A plan made without
//! it could send one node too many on its way; a config rendered without it would send nodes back. So names and versions
//! of every kind that anything is decided on are read from the API server itself, and nothing is decided before the
//! caches have them, and nothing that is gone.
//!
//! What it is not: a cache, or needed within a term: there our own writes are in the caches with their answers.

use crate::backoff::WORK;
use crate::call::{CallError, call};
use crate::context::Context;
use crate::store::Cache;
use crate::watch::{key_of, version_of};
use futures::future::join_all;
use kube::Api;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::watcher;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Objects in one answer.
const PAGE: u32 = 500;
/// How often the caches are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// A watch that works brings what is new in milliseconds. One that has not by then lists everything anew, and names and
/// versions are read again: what was deleted in between is not waited for.
const SILENT: Duration = Duration::from_secs(2);
/// How often a kind of setting is asked for before it counts as unknown.
const TRIES: u32 = 6;

/// What is done where a kind cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing is decided.
    Always,
    /// Where it is not served, or not for us, there is none of it.
    WhereServed,
    /// A kind of setting: as long as it cannot be read nothing is rendered, and pools say so.
    Setting,
}

/// A kind that is followed for as long as this process lives.
pub(crate) struct Followed {
    pub(crate) kind: String,
    pub(crate) need: Need,
    pub(crate) api: Api<DynamicObject>,
    /// Which objects of it.
    pub(crate) which: watcher::Config,
    pub(crate) cache: Arc<dyn Cache>,
}

/// Waits until each kind is as new as the API server has it now.
pub(crate) async fn caught_up(context: &Context) {
    let followed = context.followed();
    join_all(followed.iter().map(|kind| as_new(kind))).await;
}

async fn as_new(followed: &Followed) {
    let (begin, mut told) = (Instant::now(), false);
    'list: loop {
        let Some((list, at)) = read(followed).await else { return };
        let since = Instant::now();
        while let Some(name) = followed.cache.behind(&list, at) {
            if since.elapsed() >= SILENT {
                if !std::mem::replace(&mut told, true) {
                    let kind = &followed.kind;
                    tracing::info!(kind, name, "the cache is behind the API server; listing again");
                }
                followed.cache.list_again();
                continue 'list;
            }
            tokio::time::sleep(LOOK).await;
        }
        if told {
            tracing::info!(kind = followed.kind, after = ?begin.elapsed(), "the cache has caught up");
        }
        return;
    }
}

/// Names and versions, and the version of the list; `None`: there is nothing to wait for.
async fn read(followed: &Followed) -> Option<(BTreeMap<String, u64>, u64)> {
    let mut attempt = 0;
    loop {
        let error = match listed(followed).await {
            Ok(list) => return Some(list),
            Err(error) => error,
        };
        let none = error.is_not_found() || error.is_forbidden() && followed.need == Need::WhereServed;
        if none && followed.need != Need::Always {
            return None;
        }
        if followed.need == Need::Setting && (error.is_forbidden() || attempt >= TRIES) {
            tracing::warn!(kind = followed.kind, "not known to be up to date: {}", error.chain());
            followed.cache.doubt();
            return None;
        }
        let delay = WORK.delay(attempt);
        tracing::warn!(?delay, "not started yet: {}", error.chain());
        tokio::time::sleep(delay).await;
        attempt += 1;
    }
}

/// Read consistently.
async fn listed(followed: &Followed) -> Result<(BTreeMap<String, u64>, u64), CallError> {
    let mut params = ListParams::default().limit(PAGE);
    params.field_selector.clone_from(&followed.which.field_selector);
    params.label_selector.clone_from(&followed.which.label_selector);
    let (mut all, mut at) = (BTreeMap::new(), None);
    loop {
        let what = || format!("list of {}s", followed.kind);
        let page = call(what, followed.api.list_metadata(&params)).await?;
        all.extend(page.items.iter().map(|o| (key_of(o), version_of(o))));
        let version = page.metadata.resource_version.as_deref().and_then(|v| v.parse().ok());
        let at = *at.get_or_insert_with(|| version.unwrap_or_default());
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((all, at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_server::{answer, context};
    use crate::store::{Item, Store};
    use kube::api::ApiResource;
    use kube::core::GroupVersionKind;
    use serde_json::json;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn followed(context: &Context, kind: &str, need: Need, cache: &Arc<Store<u8>>) -> Followed {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(api::names::GROUP, "v1", kind));
        let (api, which) = (Api::all_with(context.client.clone(), &resource), watcher::Config::default());
        Followed { kind: kind.to_owned(), need, api, which, cache: cache.clone() }
    }

    fn list(items: &serde_json::Value) -> Option<http::Response<kube::client::Body>> {
        answer(
            200,
            &json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                     "metadata": {"resourceVersion": "20"}, "items": items}),
        )
    }

    fn put(cache: &Store<u8>, name: &str, version: u64) {
        cache.apply(name.to_owned(), Item { version, uid: "u".to_owned(), value: Arc::new(0) });
    }

    /// What another leader has changed, made and deleted meanwhile, of any kind.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_decided_before_every_kind_is_as_the_api_server_has_it() {
        for kind in ["MachineConfig", "KubeletConfig", "MachineConfigPool"] {
            let served = json!([{"metadata": {"name": "a", "resourceVersion": "7"}}, {"metadata": {"name": "b", "resourceVersion": "8"}}]);
            let context = context(move |_| list(&served));
            let cache = Arc::new(Store::default());
            put(&cache, "a", 6);
            put(&cache, "gone", 5);
            context.follows(followed(&context, kind, Need::Always, &cache));
            let waits = async || {
                let waited = tokio::time::timeout(Duration::from_mins(1), caught_up(&context)).await;
                waited.is_err()
            };
            assert!(waits().await, "{kind}: nothing is up to date");
            put(&cache, "a", 7);
            assert!(waits().await, "{kind}: b is not there");
            // Somebody else's watch would bring it now; ours is asked to list everything.
            tokio::time::timeout(LOOK, cache.asked_to_list()).await.expect("it is asked to list");
            cache.skip("b", 8);
            assert!(waits().await, "{kind}: one is there that is gone");
            cache.remove("gone");
            let begin = Instant::now();
            caught_up(&context).await;
            assert!(begin.elapsed() < LOOK, "{kind}: {:?}", begin.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_cannot_be_read_holds_what_depends_on_it() {
        let rows = [
            (403, Need::Always, None, true),
            (500, Need::Always, None, true),
            (500, Need::WhereServed, None, true),
            (403, Need::WhereServed, Some(1), true),
            (404, Need::WhereServed, Some(1), true),
            (404, Need::Setting, Some(1), true),
            (403, Need::Setting, Some(1), false),
            (500, Need::Setting, Some(TRIES + 1), false),
        ];
        for (code, need, want, known) in rows {
            let asked = Arc::new(AtomicU32::new(0));
            let count = asked.clone();
            let context = context(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                answer(code, &json!({"kind": "Status", "code": code, "message": "no"}))
            });
            let cache = Arc::new(Store::default());
            cache.replace(BTreeMap::new());
            context.follows(followed(&context, "KubeletConfig", need, &cache));
            let ended = tokio::time::timeout(Duration::from_mins(5), caught_up(&context)).await.is_ok();
            let times = ended.then(|| asked.load(Ordering::Relaxed));
            assert_eq!((times, cache.is_synced()), (want, known), "{code} {need:?}");
        }
    }
}
