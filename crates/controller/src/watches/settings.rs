//! The watches of the cluster's settings. For a kind that the API server does not serve, one request for each group of
//! kinds looks from time to time whether it has been installed. From then on it is watched.
//!
//! What it is not: the caches that these watches fill (see `cache::settings`).

use crate::cache::settings::{Setting, without_our_status};
use crate::cache::store::Change;
use crate::cache::watch::{Presence, ReadRequirement, WatchedApi, WatchedKind, follow};
use crate::change::Changed;
use crate::shared::Shared;
use client::call;
use kube::api::DynamicObject;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often to look for kinds that are not served. Nobody waits for one that is being installed.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the watches, and the search for kinds that are not served yet.
pub(crate) fn watch(shared: &Arc<Shared>, tasks: &TaskTracker, stop: &CancellationToken) {
    let mut groups: BTreeMap<String, Vec<Setting>> = BTreeMap::new();
    for (setting, cache) in shared.settings.stores() {
        // Also for a kind that is not served yet: it may be by the time somebody asks.
        shared.add_watched_kind(WatchedKind {
            kind: setting.kind.name.to_owned(),
            need: ReadRequirement::Setting,
            api: setting.api(&shared.client),
            which: setting.watch_config(),
            cache: cache.clone(),
        });
        let group = format!("{}/{}", setting.kind.group, setting.kind.version);
        groups.entry(group).or_default().push(*setting);
    }
    for (group, kinds) in groups {
        let (shared, inner, stop) = (shared.clone(), tasks.clone(), stop.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = look(&shared, &group, kinds, &inner, &stop) => {}
            }
        });
    }
}

/// Looks until each kind of the group is served, and watches it from then on.
async fn look(
    shared: &Arc<Shared>,
    group: &str,
    mut kinds: Vec<Setting>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let mut told = false;
    loop {
        let served = call(|| format!("kinds of {group}"), shared.client.list_api_group_resources(group));
        match served.await {
            Ok(list) => {
                let is_served =
                    |setting: &Setting| list.resources.iter().any(|r| r.kind == setting.kind.name);
                let (there, missing) = kinds.into_iter().partition(is_served);
                kinds = missing;
                for setting in there {
                    tasks.spawn(follow_kind(shared.clone(), setting, stop.clone()));
                }
                absent(shared, &kinds);
            }
            // The API server answers 404 only once it knows all of its definitions.
            Err(e) if e.is_not_found() => absent(shared, &kinds),
            Err(e) if told => tracing::debug!("{}", e.chain()),
            Err(e) => {
                tracing::warn!("discovery of the API's kinds failed and is retried: {}", e.chain());
                told = true;
            }
        }
        if kinds.is_empty() {
            return;
        }
        tokio::time::sleep(RECHECK_INTERVAL).await;
    }
}

fn absent(shared: &Shared, kinds: &[Setting]) {
    for store in kinds.iter().filter_map(|setting| shared.settings.store(*setting)).filter(|s| !s.is_synced())
    {
        store.replace(BTreeMap::new());
        shared.changed(&Changed::SettingKnown);
    }
}

async fn follow_kind(shared: Arc<Shared>, setting: Setting, stop: CancellationToken) {
    let Some(store) = shared.settings.store(setting).cloned() else { return };
    let changed = shared.clone();
    let on_change = Box::new(move |change: &Change<Value>| {
        let of = |object: &Option<Arc<Value>>| object.as_deref().map(without_our_status);
        if of(&change.old) != of(&change.new) {
            changed.changed(&Changed::Setting(setting));
        }
    });
    let trim = move |object: DynamicObject| Ok(setting.trimmed(&object));
    let marked = shared.clone();
    let listed = async {
        loop {
            store.synced().await;
            // Also if there is no object of it: whatever waited for this may go on.
            marked.changed(&Changed::SettingKnown);
            store.until_doubted().await;
        }
    };
    let api = WatchedApi::new(&shared.client, |client| setting.api(&client));
    tokio::select! {
        () = follow(api, setting.watch_config(), setting.kind.name.to_owned(), Presence::Required, &store, trim, on_change, stop) => {}
        () = listed => {}
    }
}
