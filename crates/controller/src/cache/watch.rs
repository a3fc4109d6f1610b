//! Watches: one endless stream for each kind, trimmed on arrival and folded into a [`Store`].
//!
//! Guarantees: a cut watch, an expired version (410) and an API server that is away for minutes lead to a new list; the
//! stream never ends. An object that cannot be decoded is skipped with a warning that names it, and does not stop the
//! others. Of each object, only what `trim` returns is kept.
//!
//! What it is not: a decision. `on_change` marks queues.

use crate::cache::store::{Cache, Change, Item, Store};
use crate::io::backoff;
use crate::io::connection::WATCH_SECONDS;
use client::{WatchStarts, chain, is_answer, watch_code, watch_is_expired, with_watch_starts};
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the same failure of a watch lasts before it is logged again.
const REPEAT_WARNING: Duration = Duration::from_secs(30);

/// Objects in one page of a list. A page is held as text and then decoded, at up to 50 KB a Node. More requests in a
/// row cost a few milliseconds each at start-up.
const PAGE: u32 = 100;

/// What a changed object causes: an owned closure, because watches outlive passes.
pub(crate) type OnChange<T> = Box<dyn Fn(&Change<T>) + Send>;

/// `metadata.resourceVersion` as a number; 0 for one that is not a number (no API server we know of).
pub(crate) fn version_of(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default()
}

/// An object's key in its store. It includes the namespace: two namespaces may each have a pod or a budget of the same
/// name.
pub(crate) fn key_of(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Whether a kind has to be served, and what its absence means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Nothing is done before it was listed.
    Required,
    /// Where it is not served, it counts as empty.
    Optional,
}

impl Presence {
    /// How often to look whether a kind has been installed. A look costs a request. A long wait delays the start on a
    /// fresh cluster whose definitions are installed after the controller. Nobody waits for an optional kind.
    fn look_again(self) -> Duration {
        match self {
            Self::Required => Duration::from_secs(1),
            Self::Optional => Duration::from_secs(5),
        }
    }
}

/// What happens when a kind cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadRequirement {
    /// Nothing is decided until it can.
    Always,
    /// If it is not served, it counts as empty. A right that is missing says nothing about what there is: nothing is decided.
    WhereServed,
    /// A kind of setting: while it cannot be read nothing is rendered, and pools say so.
    Setting,
    /// No decision rests on it: while it cannot be read, what is in the cache counts. Who writes its objects waits until they are
    /// known.
    NonBlocking,
}

impl ReadRequirement {
    /// Whether the kind has to be served.
    pub(crate) fn presence(self) -> Presence {
        match self {
            Self::Always => Presence::Required,
            Self::WhereServed | Self::Setting | Self::NonBlocking => Presence::Optional,
        }
    }
}

/// A kind that is watched for as long as this process lives, as the start of a leader's term sees it: which objects, and
/// what happens when it cannot be read.
pub(crate) struct WatchedKind {
    pub(crate) kind: String,
    pub(crate) need: ReadRequirement,
    pub(crate) api: Api<DynamicObject>,
    /// Which of its objects are watched.
    pub(crate) which: watcher::Config,
    pub(crate) cache: Arc<dyn Cache>,
}

/// The API of a kind that is watched, and when the API server accepts its watch. A watch that failed resumes where it was, so an
/// event is no sign that it works again: it comes once an object changes.
pub(crate) struct WatchedApi<K> {
    pub(crate) api: Api<K>,
    starts: WatchStarts,
}

impl<K> WatchedApi<K> {
    /// What `api` makes of a client of its own.
    pub(crate) fn new(client: &Client, api: impl FnOnce(Client) -> Api<K>) -> Self {
        let (client, starts) = with_watch_starts(client.clone());
        Self { api: api(client), starts }
    }
}

/// Watches any kind until `stop`.
#[expect(
    clippy::too_many_arguments,
    reason = "each is a different thing, and all callers stand in two places"
)]
pub(crate) async fn follow<K, T>(
    WatchedApi { api, mut starts }: WatchedApi<K>,
    config: watcher::Config,
    kind: String,
    presence: Presence,
    store: &Store<T>,
    trim: impl Fn(K) -> Result<T, String>,
    on_change: OnChange<T>,
    stop: CancellationToken,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = watcher::Config { page_size: Some(PAGE), ..config }.timeout(WATCH_SECONDS);
    let open = || Box::pin(client::watch(api.clone(), config.clone(), backoff::WATCH));
    let mut stream = open();
    let mut listing: BTreeMap<String, Item<T>> = BTreeMap::new();
    let mut undecodable: BTreeSet<String> = BTreeSet::new();
    let mut trouble = Trouble::default();
    let (mut listed, mut under_way) = (false, false);
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            () = store.asked_to_list(under_way) => {
                tracing::debug!(kind, "the watch is behind; listing again");
                (stream, under_way) = (open(), false);
                continue;
            }
            () = starts.next() => {
                trouble.over(&kind);
                store.set_trouble(None);
                continue;
            }
            event = stream.next() => event,
        };
        let Some(event) = event else { return };
        let event = match event {
            Ok(event) => {
                if is_answer(&event) {
                    trouble.over(&kind);
                    store.set_trouble(None);
                }
                event
            }
            Err(error) => {
                starts.forget();
                under_way = false;
                let absent = not_served(&error) && !listed;
                if absent && presence == Presence::Optional {
                    tracing::debug!(kind, "the API server does not serve this kind: {}", chain(&error));
                    // As far as we can see, it is empty.
                    store.set_trouble(None);
                    store.replace(BTreeMap::new()).iter().for_each(&on_change);
                } else {
                    let remedy = if absent { "; `mco install` installs its CRD" } else { "" };
                    trouble.tell(&kind, &error, remedy);
                    store.set_trouble(Some(chain(&error)));
                }
                if absent {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(presence.look_again()) => {}
                    }
                }
                continue;
            }
        };
        let mut item = |object: K| {
            let name = key_of(&object);
            let (version, uid) = (version_of(&object), object.uid().unwrap_or_default());
            match trim(object) {
                Ok(value) => {
                    undecodable.remove(&name);
                    Some((name, Item { version, uid, value: Arc::new(value) }))
                }
                Err(why) => {
                    store.skip(&name, version);
                    // Logged once for each object, not once for each list.
                    if undecodable.insert(name.clone()) {
                        tracing::warn!(
                            kind,
                            name,
                            "skipped, because it cannot be decoded: {why}; correct or delete it"
                        );
                    }
                    None
                }
            }
        };
        match event {
            Event::Init => {
                // It ends: a connection on which nothing arrives is closed (see `io::connection`).
                under_way = true;
                listing.clear();
            }
            Event::InitApply(object) => listing.extend(item(object)),
            Event::InitDone => {
                under_way = false;
                let first = !std::mem::replace(&mut listed, true);
                let changes = store.replace(std::mem::take(&mut listing));
                tracing::debug!(kind, first, changed = changes.len(), "listed");
                changes.iter().for_each(&on_change);
            }
            Event::Apply(object) => {
                let name = key_of(&object);
                let change = match item(object) {
                    Some((name, item)) => store.apply(name, item),
                    // It can no longer be decoded, so its present content is unknown.
                    None => store.remove(&name),
                };
                change.iter().for_each(&on_change);
            }
            Event::Delete(object) => {
                let name = key_of(&object);
                undecodable.remove(&name);
                let uid = object.uid().unwrap_or_default();
                store.delete(&name, &uid).iter().for_each(&on_change);
            }
        }
    }
}

/// Whether the kind is not served (yet). A refusal (403) is something else: an API server that has just started refuses everything
/// until it knows who may what.
fn not_served(error: &watcher::Error) -> bool {
    watch_code(error) == Some(404)
}

/// Logs a failure of a watch when it begins, when it changes, from time to time while it lasts, and when it is over.
#[derive(Debug, Default)]
struct Trouble {
    last: Option<(String, Instant)>,
}

impl Trouble {
    fn tell(&mut self, kind: &str, error: &watcher::Error, remedy: &str) {
        let text = chain(error);
        // An expired version is the API's ordinary way to ask for a new list.
        if watch_is_expired(error) {
            tracing::debug!(kind, "the watch expired; listing again: {text}");
            return;
        }
        let known = self.last.as_ref().is_some_and(|(t, at)| *t == text && at.elapsed() < REPEAT_WARNING);
        if known {
            return;
        }
        tracing::warn!(kind, "the watch failed and is retried: {text}{remedy}");
        self.last = Some((text, Instant::now()));
    }

    fn over(&mut self, kind: &str) {
        if self.last.take().is_some() {
            tracing::info!(kind, "the watch works again");
        }
    }
}

#[cfg(test)]
mod tests;
