//! Pools and nodes as the cluster has them now, kept up by watches: what a snapshot is planned over, trimmed as in the
//! controller, so that thousands of nodes cost little here and one request of each kind at the API server.
//!
//! What it is not: the controller's caches. It writes nothing, and ends with its command.

use crate::since::{Progress, readiness};
use crate::snapshot::{KnownNode, Snapshot, View};
use api::k8s::{Node, ObjectMeta, Pod, Time};
use api::names;
use api::rendered::owning_pool;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use client::{CallError, call};
use futures::{Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use rollout::view::{Names, NodeView, OsBuild, OsConfig};
use rollout::{ConfigView, Sources, Streams};
use serde_json::json;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// An API server that takes longer than this for the first lists is treated as unreachable.
const FIRST_LISTS: Duration = Duration::from_secs(30);
/// Changes are gathered for this long before they are shown: a person cannot follow more than four redraws a second.
const REDRAW: Duration = Duration::from_millis(250);

/// With fewer interned strings than this, a search for unused ones frees too little to be worth it.
const MANY_NAMES: usize = 10_000;

/// The objects of one kind: those that are known, and a new list that is not complete yet.
struct Kind<T> {
    known: BTreeMap<String, T>,
    coming: BTreeMap<String, T>,
    listed: bool,
}

impl<T> Kind<T> {
    fn new() -> Self {
        Self { known: BTreeMap::new(), coming: BTreeMap::new(), listed: false }
    }

    /// For a kind that need not be installed: where it is not, there is no list to wait for.
    fn expected(served: bool) -> Self {
        Self { listed: !served, ..Self::new() }
    }

    fn take<K: ResourceExt>(&mut self, event: Event<K>, keep: impl FnOnce(&K) -> T) {
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => {
                self.coming.insert(object.name_any(), keep(&object));
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.coming);
                self.listed = true;
            }
            Event::Apply(object) => {
                self.known.insert(object.name_any(), keep(&object));
            }
            Event::Delete(object) => {
                self.known.remove(&object.name_any());
            }
        }
    }
}

/// An event of one of the watches.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, and one at a time")]
enum WatchEvent {
    Pool(Event<MachineConfigPool>),
    Node(Event<Node>),
    Config(Event<PartialObjectMeta<MachineConfig>>),
    Settings(Event<ControllerConfig>),
    Progress(Event<MachineConfigNode>),
    OsConfig(Event<DynamicObject>),
    OsBuild(Event<DynamicObject>),
    Scheduler(Event<DynamicObject>),
    Operator(Event<Pod>),
}

/// Why the cluster cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The first lists take too long.
    #[error("no answer from the API server within {} s; is the kubeconfig the right one?", FIRST_LISTS.as_secs())]
    Late,
    /// The kinds of `machineconfiguration.openshift.io` are not installed.
    #[error(
        "the cluster has no MachineConfigPools and MachineConfigs: their CRDs are not installed; run \
        `mco install`"
    )]
    NotInstalled(#[source] Box<watcher::Error>),
    /// A list was refused, or failed.
    #[error("cannot list pools, nodes and MachineConfigs")]
    List(#[source] Box<watcher::Error>),
    /// The question which kinds are installed was not answered.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The watches ended. They begin again by themselves after every failure, so this is a fault in the program.
    #[error("the watches ended")]
    Ended,
}

/// Lists everything once and makes a snapshot of it.
///
/// # Errors
/// An API server that does not answer, or refuses.
pub async fn snapshot(client: &Client, only: &[String]) -> Result<Snapshot, FollowError> {
    Ok(ClusterWatch::start(client).await?.snapshot(only))
}

/// The cluster, followed.
pub struct ClusterWatch {
    seen: Pin<Box<dyn Stream<Item = Result<WatchEvent, watcher::Error>> + Send>>,
    pools: Kind<MachineConfigPool>,
    nodes: Kind<KnownNode>,
    configs: Kind<ConfigView>,
    settings: Kind<ControllerConfig>,
    progress: Kind<Option<Progress>>,
    os_configs: Kind<OsConfig>,
    os_builds: Kind<OsBuild>,
    schedulable: Kind<bool>,
    operators: Kind<Option<Arc<str>>>,
    names: Names,
    /// How many strings are interned when those that are not used any more are dropped.
    prune_at: usize,
}

impl std::fmt::Debug for ClusterWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterWatch").field("nodes", &self.nodes.known.len()).finish_non_exhaustive()
    }
}

impl ClusterWatch {
    /// Starts the watches; returns when every kind was listed once.
    ///
    /// # Errors
    /// An API server that does not answer, or refuses.
    pub async fn start(client: &Client) -> Result<Self, FollowError> {
        let begin = async {
            // On the heap, as the whole below: callers hold this future within their own.
            let (seen, served) = Box::pin(streams(client)).await?;
            let mut me = Self {
                seen,
                pools: Kind::new(),
                nodes: Kind::new(),
                configs: Kind::new(),
                settings: Kind::new(),
                progress: Kind::expected(served.progress),
                os_configs: Kind::expected(served.os_configs),
                os_builds: Kind::expected(served.os_builds),
                schedulable: Kind::expected(served.scheduler),
                operators: Kind::new(),
                names: Names::default(),
                prune_at: MANY_NAMES,
            };
            while !me.listed() {
                match me.seen.next().await {
                    Some(Ok(seen)) => me.take(seen),
                    Some(Err(e)) => return Err(refused(e)),
                    None => return Err(FollowError::Ended),
                }
            }
            Ok(me)
        };
        tokio::time::timeout(FIRST_LISTS, begin).await.map_err(|_| FollowError::Late)?
    }

    /// Waits for a change, and then for [`REDRAW`] for those that come with it. A watch that fails is started again; until
    /// it answers, what was known stays, and the failure is logged once.
    pub async fn changed(&mut self) {
        let mut end: Option<Instant> = None;
        let mut told = false;
        loop {
            let seen = match end {
                None => self.seen.next().await,
                Some(end) => match tokio::time::timeout_at(end, self.seen.next()).await {
                    Ok(seen) => seen,
                    Err(_) => return,
                },
            };
            match seen {
                Some(Ok(seen)) => {
                    self.take(seen);
                    end = end.or_else(|| Some(Instant::now() + REDRAW));
                }
                Some(Err(error)) => {
                    if !std::mem::replace(&mut told, true) {
                        let why = client::chain(&error);
                        tracing::warn!(
                            "what is shown may be out of date; asking the API server again: {why}"
                        );
                    }
                }
                // Watches do not end.
                None => return,
            }
        }
    }

    fn take(&mut self, seen: WatchEvent) {
        match seen {
            WatchEvent::Pool(event) => self.pools.take(event, Clone::clone),
            WatchEvent::Node(event) => self.nodes.take(event, |n| KnownNode {
                view: NodeView::interned(n, &mut self.names),
                readiness: readiness(n),
            }),
            WatchEvent::Config(event) => self.configs.take(event, |c| config_view(&c.metadata)),
            WatchEvent::Settings(event) => self.settings.take(event, Clone::clone),
            WatchEvent::Progress(event) => self.progress.take(event, Progress::of),
            WatchEvent::OsConfig(event) => self.os_configs.take(event, |o| OsConfig::new(&json!(o))),
            WatchEvent::OsBuild(event) => self.os_builds.take(event, |o| OsBuild::new(&json!(o))),
            WatchEvent::Scheduler(event) => {
                self.schedulable
                    .take(event, |o| o.data.pointer("/spec/mastersSchedulable") == Some(&json!(true)));
            }
            WatchEvent::Operator(event) => self.operators.take(event, |p| {
                let here = p.metadata.deletion_timestamp.is_none();
                let node = p.spec.as_ref().and_then(|s| s.node_name.as_deref());
                node.filter(|n| here && !n.is_empty()).map(Arc::from)
            }),
        }
        if self.names.len() >= self.prune_at {
            self.names.prune();
            self.prune_at = self.names.len().saturating_mul(2).max(MANY_NAMES);
        }
    }

    /// Whether a pool is paused; `None`: there is no such pool.
    pub fn is_paused(&self, pool: &str) -> Option<bool> {
        self.pools.known.get(pool).map(|p| p.spec.paused)
    }

    /// Takes a pool over as the answer to a write shows it, before the watch reports it.
    pub fn put_pool(&mut self, pool: MachineConfigPool) {
        self.pools.known.insert(pool.name_any(), pool);
    }

    /// Everything was seen once.
    fn listed(&self) -> bool {
        let Self {
            pools,
            nodes,
            configs,
            settings,
            progress,
            os_configs,
            os_builds,
            schedulable,
            operators,
            ..
        } = self;
        pools.listed
            && nodes.listed
            && configs.listed
            && settings.listed
            && progress.listed
            && os_configs.listed
            && os_builds.listed
            && schedulable.listed
            && operators.listed
    }

    /// Where everything stands.
    pub fn snapshot(&self, only: &[String]) -> Snapshot {
        let sources = Sources {
            pools: self.pools.known.values().collect(),
            nodes: self.nodes.known.values().map(|n| &n.view).collect(),
            configs: Some(&self.configs.known),
            os_configs: self.os_configs.known.values().collect(),
            os_builds: self.os_builds.known.values().collect(),
            controller_config: self.settings.known.get(names::CONTROLLER_CONFIG),
            // They show in MachineConfigs' contents only, which are megabytes.
            streams: Streams::Unknown,
            operator_nodes: self.operators.known.values().cloned().collect(),
            masters_schedulable: self.schedulable.known.get(names::CLUSTER).copied(),
        };
        let (facts, now) = (sources.facts(), jiff::Timestamp::now());
        let plan = rollout::plan(&sources.inputs(&facts, Time(now)));
        let view = View {
            plan: &plan,
            pools: &self.pools.known,
            nodes: &self.nodes.known,
            progress: &self.progress.known,
        };
        Snapshot::of(view, only, now)
    }
}

/// A MachineConfig as its metadata shows it: the pool that owns it.
fn config_view(metadata: &ObjectMeta) -> ConfigView {
    let pool = owning_pool(metadata.owner_references.as_deref());
    ConfigView { pool: pool.map(Into::into), ..ConfigView::default() }
}

type Watches = Pin<Box<dyn Stream<Item = Result<WatchEvent, watcher::Error>> + Send>>;

/// Which of the optional kinds are installed.
struct Served {
    progress: bool,
    os_configs: bool,
    os_builds: bool,
    scheduler: bool,
}

async fn streams(client: &Client) -> Result<(Watches, Served), FollowError> {
    let how = watcher::Config::default;
    let pools = watcher(Api::<MachineConfigPool>::all(client.clone()), how()).default_backoff();
    let nodes = watcher(Api::<Node>::all(client.clone()), how()).default_backoff();
    let configs =
        watcher(Api::<PartialObjectMeta<MachineConfig>>::all(client.clone()), how()).default_backoff();
    let operators = Api::<Pod>::namespaced(client.clone(), names::NAMESPACE);
    let operators = watcher(operators, how().labels("k8s-app=machine-config-operator")).default_backoff();
    let settings = watcher(Api::<ControllerConfig>::all(client.clone()), how()).default_backoff();
    let mut all = vec![
        settings.map(|e| e.map(WatchEvent::Settings)).boxed(),
        pools.map(|e| e.map(WatchEvent::Pool)).boxed(),
        nodes.map(|e| e.map(WatchEvent::Node)).boxed(),
        configs.map(|e| e.map(WatchEvent::Config)).boxed(),
        operators.map(|e| e.map(WatchEvent::Operator)).boxed(),
    ];
    let dynamic = |group: &str, kind: &str| -> Api<DynamicObject> {
        Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
    };
    let progress = Api::<MachineConfigNode>::all(client.clone());
    let os_configs = dynamic(names::GROUP, "MachineOSConfig");
    let os_builds = dynamic(names::GROUP, "MachineOSBuild");
    let scheduler = dynamic("config.openshift.io", "Scheduler");
    let there = tokio::try_join!(
        served(progress.clone()),
        served(os_configs.clone()),
        served(os_builds.clone()),
        served(scheduler.clone())
    )?;
    let served = Served { progress: there.0, os_configs: there.1, os_builds: there.2, scheduler: there.3 };
    if served.progress {
        all.push(watcher(progress, how()).default_backoff().map(|e| e.map(WatchEvent::Progress)).boxed());
    }
    for (there, api, seen) in [
        (served.os_configs, os_configs, WatchEvent::OsConfig as fn(Event<DynamicObject>) -> WatchEvent),
        (served.os_builds, os_builds, WatchEvent::OsBuild),
        (served.scheduler, scheduler, WatchEvent::Scheduler),
    ] {
        if there {
            all.push(watcher(api, how()).default_backoff().map(move |e| e.map(seen)).boxed());
        }
    }
    Ok((Box::pin(futures::stream::select_all(all)), served))
}

/// Whether an optional kind is installed and may be read.
async fn served<K: Clone + serde::de::DeserializeOwned + std::fmt::Debug>(
    api: Api<K>,
) -> Result<bool, CallError> {
    let one = ListParams::default().limit(1);
    match call(|| "look which kinds the cluster serves".to_owned(), api.list_metadata(&one)).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_absent_or_forbidden() => Ok(false),
        Err(error) => Err(error),
    }
}

fn refused(error: watcher::Error) -> FollowError {
    let absent = matches!(
        &error,
        watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404
    );
    let error = Box::new(error);
    if absent { FollowError::NotInstalled(error) } else { FollowError::List(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_new_list_does_not_have_is_gone_and_what_was_known_stays_until_the_list_is_whole() {
        let pool = |name: &str| MachineConfigPool::new(name, Default::default());
        let mut kind = Kind::new();
        let mut steps: Vec<(Event<MachineConfigPool>, &[&str])> = vec![
            (Event::Init, &[]),
            (Event::InitApply(pool("a")), &[]),
            (Event::InitApply(pool("b")), &[]),
            (Event::InitDone, &["a", "b"]),
            (Event::Apply(pool("c")), &["a", "b", "c"]),
            (Event::Delete(pool("a")), &["b", "c"]),
            (Event::Init, &["b", "c"]),
            (Event::InitApply(pool("c")), &["b", "c"]),
            (Event::InitDone, &["c"]),
        ];
        for (n, (event, want)) in steps.drain(..).enumerate() {
            kind.take(event, |_| ());
            assert_eq!(kind.known.keys().collect::<Vec<_>>(), want, "step {n}");
        }
    }
}
