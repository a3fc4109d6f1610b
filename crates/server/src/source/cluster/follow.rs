//! The task that follows the cluster and keeps the prepared configs up to date.
//!
//! Flow: watches → [`ClusterState`] → the rendered configs that pools want are fetched → sources → prepared configs. Of
//! MachineConfigs only the metadata is watched; one is fetched when a pool serves it.
//!
//! Guarantees: while the API server is unavailable, the prepared configs stay, and only their freshness changes. What to
//! serve is decided in `state` and `served_config`; this file does only I/O.

use super::CALL;
use super::kubeconfig::Credentials;
use super::state::{ClusterState, Fetched, Sources, Unfetched, checked};
use super::watches::{Change, Reader, WatchMessage};
use crate::answer::respond::Shared;
use crate::prepared::cache::{Freshness, Update};
use api::images::image_builds::{OsBuild, OsConfig};
use api::v1::MachineConfig;
use client::{call_within, chain, decode};
use futures::{FutureExt as _, StreamExt as _};
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// How often the token's files are read, and configs that could not be fetched are asked for again.
const LOOK: Duration = Duration::from_secs(1);
/// How often a cluster without image builds is asked whether their kinds exist now.
const LEARN: Duration = Duration::from_secs(60);
/// The key of the CA bundle in its ConfigMap.
const BUNDLE_KEY: &str = "ca-bundle.crt";

/// Follows the cluster and publishes prepared configs.
pub(super) struct Follower {
    reader: Reader,
    apiserver_url: String,
    token_dir: PathBuf,
    state: ClusterState,
    fetched: Fetched,
    /// Kinds that cannot be watched now, and why.
    down: BTreeMap<&'static str, String>,
    down_since: Option<SystemTime>,
    held_back: BTreeMap<String, String>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Follower({})", self.apiserver_url)
    }
}

impl Follower {
    pub(super) fn new(client: Client, apiserver_url: String, token_dir: PathBuf) -> Self {
        Self {
            reader: Reader(client),
            apiserver_url,
            token_dir,
            state: ClusterState::default(),
            fetched: Fetched::new(),
            down: BTreeMap::new(),
            down_since: None,
            held_back: BTreeMap::new(),
        }
    }

    /// Runs until it is dropped.
    pub(super) async fn follow(&mut self, shared: &Shared) {
        let mut changes = self.reader.watches();
        if shared.boot_tokens.is_some() {
            changes.push(self.reader.token_watch());
        }
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut learn = tokio::time::interval(LEARN);
        let mut learnt = false;
        loop {
            let mut dirty = false;
            tokio::select! {
                change = changes.next() => {
                    let Some(change) = change else { return };
                    dirty |= self.take(shared, change);
                    // Take all events that are waiting, so that a burst causes one rebuild.
                    while let Some(Some(change)) = changes.next().now_or_never() {
                        dirty |= self.take(shared, change);
                    }
                }
                _ = look.tick() => {
                    dirty |= self.read_credentials().await;
                    dirty |= self.missing(shared).is_none() && self.fetch_failed();
                }
                _ = learn.tick(), if !learnt => {
                    if self.reader.has_builds().await {
                        learnt = true;
                        changes.push(self.reader.dynamic("MachineOSConfig", Change::OsConfig));
                        changes.push(self.reader.dynamic("MachineOSBuild", Change::OsBuild));
                    }
                }
            }
            if dirty && self.missing(shared).is_none() {
                self.rebuild(shared).await;
            }
            self.publish_freshness(shared);
        }
    }

    /// What an answer needs and has not been read yet.
    fn missing(&self, shared: &Shared) -> Option<&'static str> {
        let tokens = shared.boot_tokens.as_ref().is_some_and(|boot_tokens| !boot_tokens.ready());
        self.state.missing().or_else(|| tokens.then_some("the boot tokens are not listed yet"))
    }

    /// Takes a change into the state. Returns whether answers may change.
    fn take(&mut self, shared: &Shared, WatchMessage { kind, answered, change }: WatchMessage) -> bool {
        let change = match change {
            Ok(change) => change,
            Err(error) => {
                self.watch_failed(kind, &chain(&error));
                return false;
            }
        };
        if answered {
            self.watch_recovered(kind);
        }
        match change {
            Change::Accepted => return false,
            Change::Pool(event) => self.state.pools.apply(event, |o| (o.name_any(), decode(o))),
            Change::Config(event) => self.state.configs.apply(event, |o| {
                let version = o.resource_version().unwrap_or_default();
                (o.name_any(), format!("{}:{version}", o.uid().unwrap_or_default()))
            }),
            Change::Settings(event) => self.state.settings.apply(event, |o| (o.name_any(), decode(o))),
            Change::Bundle(event) => self.state.bundles.apply(event, |o| {
                let name = o.name_any();
                let bytes = o.binary_data.and_then(|mut d| d.remove(BUNDLE_KEY)).map(|b| b.0);
                let text = || o.data.and_then(|mut d| d.remove(BUNDLE_KEY)).map(String::into_bytes);
                (name, bytes.or_else(text).unwrap_or_default())
            }),
            Change::Token(event) => {
                let Some(boot_tokens) = &shared.boot_tokens else { return false };
                let was_ready = boot_tokens.ready();
                boot_tokens.apply(event);
                // A token decides who gets a config, and does not change any config.
                return !was_ready && boot_tokens.ready();
            }
            Change::OsConfig(event) => self.state.os_configs.apply(event, |o| read(&o, OsConfig::new)),
            Change::OsBuild(event) => self.state.os_builds.apply(event, |o| read(&o, OsBuild::new)),
        }
        true
    }

    fn watch_failed(&mut self, kind: &'static str, why: &str) {
        if self.down.insert(kind, why.to_owned()).is_none() {
            tracing::warn!(kind, "the cluster cannot be read, the last good state is served: {why}");
        }
        self.down_since.get_or_insert_with(SystemTime::now);
    }

    fn watch_recovered(&mut self, kind: &'static str) {
        if self.down.remove(kind).is_some() {
            tracing::info!(kind, "the cluster can be read again");
        }
        if self.down.is_empty() {
            self.down_since = None;
        }
    }

    /// Reads the token's files.
    async fn read_credentials(&mut self) -> bool {
        let dir = self.token_dir.clone();
        let read = tokio::task::spawn_blocking(move || Credentials::read(&dir)).await;
        let read = read.unwrap_or_else(|e| Err(format!("the bootstrap token was not read: {e}")));
        self.state.set_credentials(read)
    }

    fn fetch_failed(&self) -> bool {
        self.fetched.values().any(|(_, fetched)| matches!(fetched, Err(Unfetched::Unavailable(_))))
    }

    /// Fetches missing configs, and publishes the new state.
    async fn rebuild(&mut self, shared: &Shared) {
        let wanted: Vec<(String, String)> =
            self.state.wanted().into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        self.fetched.retain(|name, _| wanted.iter().any(|(n, _)| n == name));
        let api: Api<MachineConfig> = Api::all(self.reader.0.clone());
        for (name, version) in wanted {
            if self
                .fetched
                .get(&name)
                .is_some_and(|(v, f)| *v == version && !matches!(f, Err(Unfetched::Unavailable(_))))
            {
                continue;
            }
            let what = || format!("get MachineConfig {name}");
            let fetched = match call_within(CALL, what, api.get(&name)).await {
                Ok(config) => checked(config),
                Err(error) => Err(Unfetched::Unavailable(error.chain())),
            };
            self.fetched.insert(name, (version, fetched));
        }
        if self.state.layering() {
            self.state.internal = self.reader.internal_registry().await;
        }
        let Sources { pools, held_back } = self.state.sources(&self.apiserver_url, &self.fetched);
        for (pool, why) in &held_back {
            if self.held_back.get(pool) != Some(why) {
                tracing::warn!(pool, "the last good config is still served: {why}");
            }
        }
        self.held_back = held_back;
        let held_back = self.held_back.clone();
        let update = Update { pools, held_back, freshness: self.freshness(), bootstrap: false };
        shared.configs.publish(update, SystemTime::now()).await;
        shared.metrics.update_pools(&shared.configs.now());
    }

    fn freshness(&self) -> Freshness {
        match (self.down_since, self.down.values().next()) {
            (Some(since), Some(why)) => Freshness::LastGood { since, why: why.clone() },
            _ => Freshness::Current,
        }
    }

    fn publish_freshness(&self, shared: &Shared) {
        let missing = self.missing(shared);
        let up = self.down.is_empty() && missing.is_none();
        shared.metrics.source_up.set(i64::from(up));
        if up {
            shared.metrics.source_seen.set(seconds(SystemTime::now()));
        }
        // Before the first state is published, there is no last good one to serve.
        let starting = matches!(shared.configs.now().freshness, Freshness::Starting { .. });
        shared.configs.set_freshness(if starting {
            let down = self.down.iter().next().map(|(kind, why)| format!("{kind}: {why}"));
            Freshness::Starting { why: down.or_else(|| missing.map(str::to_owned)) }
        } else {
            self.freshness()
        });
    }
}

/// The name of an object, and what is read of it.
fn read<T>(object: &DynamicObject, read: impl Fn(&serde_json::Value) -> T) -> (String, T) {
    (object.name_any(), read(&serde_json::to_value(object).unwrap_or_default()))
}

fn seconds(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use crate::prepared::cache::PreparedConfigs;
    use kube::runtime::watcher;

    #[tokio::test]
    async fn a_list_that_is_only_begun_is_no_sign_that_a_kind_can_be_read() {
        let never = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let client = Client::new(never, "ours");
        let mut follower =
            Follower::new(client, "https://api.example.com".to_owned(), PathBuf::from("/nowhere"));
        let shared =
            Shared { configs: PreparedConfigs::default(), metrics: Metrics::default(), boot_tokens: None };
        let mut says = |answered, change| {
            let message = WatchMessage { kind: "MachineConfigPool", answered, change };
            follower.take(&shared, message);
            (follower.down.len(), follower.down_since)
        };
        let (down, since) = says(false, Err(watcher::Error::NoResourceVersion));
        assert!(down == 1 && since.is_some());
        assert_eq!(says(false, Ok(Change::Pool(watcher::Event::Init))), (1, since), "nothing was answered");
        assert_eq!(says(true, Ok(Change::Accepted)), (0, None));
    }
}
