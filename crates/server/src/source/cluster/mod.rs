//! The server of a cluster: follows pools, rendered configs, the ControllerConfig and the bootstrap token, and keeps
//! the board as they say.
//!
//! Flow: watches → [`ClusterState`] → the rendered configs that pools want are fetched → sources → board. Of MachineConfigs
//! only the metadata is watched; one is fetched when a pool serves it.
//!
//! Guarantees: an API server that is away changes nothing on the board but its freshness. What it decides is in
//! `state` and `served_config`; here is only I/O.

pub mod kubeconfig;
pub mod layered;
pub mod served_config;
pub(crate) mod state;

use crate::answer::boot_tokens::BootTokens;
use crate::answer::respond::Shared;
use crate::error::ServerError;
use crate::listen::{ListenOptions, Listeners};
use crate::prepared::cache::{Freshness, PreparedConfigs, Update};
use crate::source::cluster::kubeconfig::Credentials;
use crate::source::cluster::layered::InternalRegistry;
use crate::source::cluster::state::{ClusterState, Fetched, Sources, Unfetched, checked};
use api::boot_token;
use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::{Backoff, call_within, chain, decode};
use futures::stream::{BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// One request to the API server.
const CALL: Duration = Duration::from_secs(10);
/// How often the token's files are looked at, and an API server that was away is asked whether it is back.
const LOOK: Duration = Duration::from_secs(1);
/// The API server ends a watch after this long and it is resumed: the longest that a dead connection goes unnoticed.
const WATCH_SECONDS: u32 = 60;
/// Waits between tries of a watch that fails; the cap is how late a change is seen after an outage.
const WATCH: Backoff = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(2) };
/// How often a cluster without image builds is asked whether it has learnt them.
const LEARN: Duration = Duration::from_secs(60);
/// The ConfigMap with the CA bundle for machines, and its key.
const BUNDLE: &str = "kubeconfig-data";
const BUNDLE_KEY: &str = "ca-bundle.crt";
/// The kind that boot tokens are.
const SECRET: &str = "Secret";
/// Where the cluster's own registry runs.
const REGISTRY_NAMESPACE: &str = "openshift-image-registry";

/// The options of `mco server start`; the fields are its flags.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// Ports, certificate, TLS.
    pub listen: ListenOptions,
    /// `--kubeconfig`: for running outside of the cluster; none uses the pod's own credentials.
    pub kubeconfig: Option<PathBuf>,
    /// `--apiserver-url`: the API server as machines reach it. Must be given.
    pub apiserver_url: String,
    /// `--bootstrap-token-dir` (ours): where the Secret `node-bootstrapper-token` is mounted.
    pub bootstrap_token_dir: PathBuf,
    /// `--require-token` (ours): configs only for machines that show a boot token. The one switch; off by default.
    pub require_token: bool,
}

impl Default for StartOptions {
    fn default() -> Self {
        Self {
            listen: ListenOptions::default(),
            kubeconfig: None,
            apiserver_url: String::new(),
            bootstrap_token_dir: "/etc/mcs/bootstrap-token".into(),
            require_token: false,
        }
    }
}

/// Serves from the cluster until `shutdown`, and then until running answers are finished.
///
/// # Errors
/// An option or certificate that cannot be used, a port that is taken, no cluster to connect to. An API server that
/// does not answer is no error: machines are told to try again.
pub async fn start(options: StartOptions, shutdown: CancellationToken) -> Result<(), ServerError> {
    StartServer::open(options).await?.run(shutdown).await;
    Ok(())
}

/// As [`start`], with a client made from a configuration that [`tune`] has been through; `options.kubeconfig` is not read.
///
/// # Errors
/// As [`start`].
pub async fn start_with(
    client: Client,
    options: StartOptions,
    shutdown: CancellationToken,
) -> Result<(), ServerError> {
    StartServer::open_with(client, options)?.run(shutdown).await;
    Ok(())
}

/// A cluster server whose ports are open.
#[derive(Debug)]
pub struct StartServer {
    listeners: Listeners,
    shared: Arc<Shared>,
    follower: Follower,
}

impl StartServer {
    /// Checks the options and opens the ports.
    ///
    /// # Errors
    /// As [`start`].
    pub async fn open(mut options: StartOptions) -> Result<Self, ServerError> {
        let client = connect(options.kubeconfig.take()).await?;
        Self::open_with(client, options)
    }

    fn open_with(client: Client, options: StartOptions) -> Result<Self, ServerError> {
        let StartOptions { listen, kubeconfig: _, apiserver_url, bootstrap_token_dir, require_token } =
            options;
        let bad_url = |why: String| ServerError::Option { option: "apiserver-url", why };
        if apiserver_url.is_empty() {
            return Err(bad_url("must be given: the API server's URL as machines reach it".to_owned()));
        }
        match url::Url::parse(&apiserver_url) {
            Ok(url) if matches!(url.scheme(), "https" | "http") && url.has_host() => {}
            Ok(_) => return Err(bad_url(format!("{apiserver_url:?} is not an https:// URL with a host"))),
            Err(e) => return Err(bad_url(format!("{apiserver_url:?}: {e}"))),
        }
        let boot_tokens =
            require_token.then(|| BootTokens::new(Api::namespaced(client.clone(), boot_token::NAMESPACE)));
        let shared = Arc::new(Shared {
            configs: PreparedConfigs::default(),
            metrics: listen.metrics.clone(),
            boot_tokens,
        });
        let listeners = Listeners::open(&listen)?;
        let payload = listen.payload_version;
        tracing::info!(apiserver_url, payload, require_token, "serving from the cluster");
        let follower = Follower::new(client, apiserver_url, bootstrap_token_dir);
        Ok(Self { listeners, shared, follower })
    }

    /// Where HTTPS is served.
    ///
    /// # Errors
    /// An address that the system does not tell.
    pub fn secure_addr(&self) -> io::Result<SocketAddr> {
        self.listeners.secure_addr()
    }

    /// Serves until `shutdown`, and then until running answers are finished.
    pub async fn run(self, shutdown: CancellationToken) {
        let Self { listeners, shared, mut follower } = self;
        let follow = async {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = follower.follow(&shared) => {}
            }
        };
        tokio::join!(listeners.serve(Arc::clone(&shared), shutdown.clone()), follow);
    }
}

async fn connect(kubeconfig: Option<PathBuf>) -> Result<Client, ServerError> {
    let cluster = |e: String| ServerError::Cluster(e);
    let mut config = match kubeconfig {
        Some(path) => {
            let told = |e: kube::config::KubeconfigError| cluster(format!("{}: {e}", path.display()));
            let file = Kubeconfig::read_from(&path).map_err(told)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(file, &options).await.map_err(told)?
        }
        None => kube::Config::infer().await.map_err(|e| cluster(e.to_string()))?,
    };
    tune(&mut config);
    Client::try_from(config).map_err(|e| cluster(e.to_string()))
}

/// How the server wants to speak with an API server.
pub fn tune(config: &mut kube::Config) {
    config.connect_timeout = Some(CALL);
}

/// Something that a watch told.
enum Change {
    Pool(Event<DynamicObject>),
    Config(Event<PartialObjectMeta<MachineConfig>>),
    Settings(Event<DynamicObject>),
    Bundle(Event<ConfigMap>),
    Token(Event<Secret>),
    OsConfig(Event<DynamicObject>),
    OsBuild(Event<DynamicObject>),
}

type Changes = SelectAll<BoxStream<'static, (&'static str, Result<Change, watcher::Error>)>>;

/// The task that keeps the board as the cluster says.
struct Follower {
    client: Client,
    apiserver_url: String,
    token_dir: PathBuf,
    state: ClusterState,
    fetched: Fetched,
    /// Watches that do not work now, and why.
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
    fn new(client: Client, apiserver_url: String, token_dir: PathBuf) -> Self {
        Self {
            client,
            apiserver_url,
            token_dir,
            state: ClusterState::default(),
            fetched: Fetched::new(),
            down: BTreeMap::new(),
            down_since: None,
            held_back: BTreeMap::new(),
        }
    }

    /// Goes on until it is dropped.
    async fn follow(&mut self, shared: &Shared) {
        let mut changes = self.watches();
        if shared.boot_tokens.is_some() {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), boot_token::NAMESPACE);
            let tokens = watcher::watcher(
                secrets,
                watcher::Config::default().labels(boot_token::LABEL).timeout(WATCH_SECONDS),
            );
            changes.push(tokens.backoff(WATCH.series()).map(|e| (SECRET, e.map(Change::Token))).boxed());
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
                    // What else is there already: one rebuild for a burst.
                    while let Some(Some(change)) = changes.next().now_or_never() {
                        dirty |= self.take(shared, change);
                    }
                }
                _ = look.tick() => {
                    dirty |= self.look().await;
                    dirty |= self.missing(shared).is_none() && self.fetch_failed();
                }
                _ = learn.tick(), if !learnt => {
                    if self.has_builds().await {
                        learnt = true;
                        changes.push(self.dynamic("MachineOSConfig", Change::OsConfig));
                        changes.push(self.dynamic("MachineOSBuild", Change::OsBuild));
                    }
                }
            }
            if dirty && self.missing(shared).is_none() {
                self.rebuild(shared).await;
            }
            self.tell_freshness(shared);
        }
    }

    fn watches(&self) -> Changes {
        let client = &self.client;
        let own = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let configs =
            watcher::watcher(Api::<PartialObjectMeta<MachineConfig>>::all(client.clone()), config.clone());
        let bundle = watcher::watcher(
            Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE),
            own(BUNDLE).timeout(WATCH_SECONDS),
        );
        let settings = ApiResource::erase::<ControllerConfig>(&());
        let settings = watcher::watcher(
            Api::all_with(client.clone(), &settings),
            own(CONTROLLER_CONFIG).timeout(WATCH_SECONDS),
        );
        let pools = ApiResource::erase::<MachineConfigPool>(&());
        let pools = watcher::watcher(Api::all_with(client.clone(), &pools), config);
        let mut all = Changes::new();
        all.push(pools.backoff(WATCH.series()).map(|e| ("MachineConfigPool", e.map(Change::Pool))).boxed());
        all.push(configs.backoff(WATCH.series()).map(|e| ("MachineConfig", e.map(Change::Config))).boxed());
        all.push(
            settings.backoff(WATCH.series()).map(|e| ("ControllerConfig", e.map(Change::Settings))).boxed(),
        );
        all.push(bundle.backoff(WATCH.series()).map(|e| ("ConfigMap", e.map(Change::Bundle))).boxed());
        all
    }

    fn dynamic(
        &self,
        kind: &'static str,
        change: fn(Event<DynamicObject>) -> Change,
    ) -> BoxStream<'static, (&'static str, Result<Change, watcher::Error>)> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let stream = watcher::watcher(api, watcher::Config::default().timeout(WATCH_SECONDS));
        stream.backoff(WATCH.series()).map(move |e| (kind, e.map(change))).boxed()
    }

    /// Whether the cluster has the kinds of image builds.
    async fn has_builds(&self) -> bool {
        let version = format!("{GROUP}/v1");
        let what = || format!("list the kinds of {version}");
        let asked = call_within(CALL, what, self.client.list_api_group_resources(&version)).await;
        asked.is_ok_and(|list| {
            let has = |kind: &str| list.resources.iter().any(|r| r.kind == kind);
            has("MachineOSConfig") && has("MachineOSBuild")
        })
    }

    /// What was not seen yet of all that an answer needs.
    fn missing(&self, shared: &Shared) -> Option<&'static str> {
        let tokens = shared.boot_tokens.as_ref().is_some_and(|boot_tokens| !boot_tokens.ready());
        self.state.missing().or_else(|| tokens.then_some("the boot tokens are not listed yet"))
    }

    /// Takes a change into the state; true: something may follow from it.
    fn take(
        &mut self,
        shared: &Shared,
        (kind, change): (&'static str, Result<Change, watcher::Error>),
    ) -> bool {
        let change = match change {
            Ok(change) => change,
            Err(error) => {
                self.went_down(kind, &chain(&error));
                return false;
            }
        };
        self.came_back(kind);
        match change {
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
                // A token changes who may ask, not what is answered.
                return !was_ready && boot_tokens.ready();
            }
            Change::OsConfig(event) => self.state.os_configs.apply(event, |o| whole(&o)),
            Change::OsBuild(event) => self.state.os_builds.apply(event, |o| whole(&o)),
        }
        true
    }

    fn went_down(&mut self, kind: &'static str, why: &str) {
        if self.down.insert(kind, why.to_owned()).is_none() {
            tracing::warn!(kind, "the cluster cannot be read, the last good state is served: {why}");
        }
        self.down_since.get_or_insert_with(SystemTime::now);
    }

    fn came_back(&mut self, kind: &'static str) {
        if self.down.remove(kind).is_some() {
            tracing::info!(kind, "the cluster can be read again");
        }
        if self.down.is_empty() {
            self.down_since = None;
        }
    }

    /// Looks at the token's files and, while something is down, at the API server: a watch that is resumed without a
    /// change tells nothing.
    async fn look(&mut self) -> bool {
        let dir = self.token_dir.clone();
        let read = tokio::task::spawn_blocking(move || Credentials::read(&dir)).await;
        let read = read.unwrap_or_else(|e| Err(format!("the bootstrap token was not read: {e}")));
        let changed = self.state.set_credentials(read);
        for kind in self.down.keys().copied().collect::<Vec<_>>() {
            if self.can_list(kind).await {
                self.came_back(kind);
            }
        }
        changed
    }

    /// Whether the API server lists a kind, asked for as its watch asks. Each for itself: an API server that has lost
    /// one kind, or our right to it, answers the others.
    async fn can_list(&self, kind: &'static str) -> bool {
        let one = ListParams::default().limit(1);
        let gvk = |group: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let (api, one): (Api<DynamicObject>, _) = match kind {
            "ConfigMap" => (
                Api::namespaced_with(self.client.clone(), NAMESPACE, &gvk("")),
                one.fields(&format!("metadata.name={BUNDLE}")),
            ),
            SECRET => (
                Api::namespaced_with(self.client.clone(), boot_token::NAMESPACE, &gvk("")),
                one.labels(boot_token::LABEL),
            ),
            "ControllerConfig" => (
                Api::all_with(self.client.clone(), &gvk(GROUP)),
                one.fields(&format!("metadata.name={CONTROLLER_CONFIG}")),
            ),
            _ => (Api::all_with(self.client.clone(), &gvk(GROUP)), one),
        };
        call_within(CALL, || format!("list {kind}"), api.list_metadata(&one)).await.is_ok()
    }

    fn fetch_failed(&self) -> bool {
        self.fetched.values().any(|(_, fetched)| matches!(fetched, Err(Unfetched::Unavailable(_))))
    }

    /// Fetches what is wanted and puts the board up.
    async fn rebuild(&mut self, shared: &Shared) {
        let wanted: Vec<(String, String)> =
            self.state.wanted().into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        self.fetched.retain(|name, _| wanted.iter().any(|(n, _)| n == name));
        let api: Api<MachineConfig> = Api::all(self.client.clone());
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
            self.state.internal = self.internal_registry().await;
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
        shared.metrics.tell_pools(&shared.configs.now());
    }

    fn freshness(&self) -> Freshness {
        match (self.down_since, self.down.values().next()) {
            (Some(since), Some(why)) => Freshness::LastGood { since, why: why.clone() },
            _ => Freshness::Current,
        }
    }

    fn tell_freshness(&self, shared: &Shared) {
        let missing = self.missing(shared);
        let up = self.down.is_empty() && missing.is_none();
        shared.metrics.source_up.set(i64::from(up));
        if up {
            shared.metrics.source_seen.set(seconds(SystemTime::now()));
        }
        // Until the first board there is nothing good to fall back to, only what is missing.
        let starting = matches!(shared.configs.now().freshness, Freshness::Starting { .. });
        shared.configs.set_freshness(if starting {
            let down = self.down.iter().next().map(|(kind, why)| format!("{kind}: {why}"));
            Freshness::Starting { why: down.or_else(|| missing.map(str::to_owned)) }
        } else {
            self.freshness()
        });
    }

    /// Where the cluster's own registry can be reached; none: it cannot be known.
    async fn internal_registry(&self) -> Option<InternalRegistry> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), REGISTRY_NAMESPACE);
        let all = ListParams::default();
        let what = || format!("list Services in {REGISTRY_NAMESPACE}");
        let services = call_within(CALL, what, services.list(&all)).await.ok()?;
        let mut hosts: Vec<String> = services
            .iter()
            .map(|s| {
                let host = format!("{}.{REGISTRY_NAMESPACE}.svc", s.name_any());
                let port = s.spec.as_ref().and_then(|s| s.ports.as_ref()?.first()).map(|p| p.port);
                port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"))
            })
            .collect();
        let route = ApiResource::from_gvk(&GroupVersionKind::gvk("route.openshift.io", "v1", "Route"));
        let routes: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), REGISTRY_NAMESPACE, &route);
        let what = || format!("list Routes in {REGISTRY_NAMESPACE}");
        match call_within(CALL, what, routes.list(&all)).await {
            Ok(list) => hosts.extend(
                list.iter().filter_map(|r| r.data.pointer("/spec/host")?.as_str().map(str::to_owned)),
            ),
            // A cluster without the kind has no routes.
            Err(error) if error.is_not_found() => {}
            Err(_) => return None,
        }
        Some(InternalRegistry { hosts })
    }
}

/// An object as it is.
fn whole(object: &DynamicObject) -> (String, serde_json::Value) {
    let name = object.name_any();
    (name, serde_json::to_value(object).unwrap_or_default())
}

fn seconds(at: SystemTime) -> i64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
