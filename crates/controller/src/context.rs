//! What all passes share: caches, queues, client, events, metrics; and which key a changed object makes dirty.
//!
//! What it is not: a decision. Marking too many keys costs a pass that finds nothing to do; marking too few loses a
//! change. So marks are generous.

use crate::cache::operator_pod::operator_node;
use crate::cache::settings::{self, API_SERVER, FEATURE_GATE, STREAMS, Settings};
use crate::cache::store::{Cache, Change, Item, Store};
use crate::cache::template_inputs::{self, Place};
use crate::cache::trimmed::{LightNode, LightProgress};
use crate::cache::watch::{OnChange, Presence, follow, follow_ours, version_of};
use crate::flight::permits::{Places, Whose};
use crate::flight::refusals::{Remarks, Topic, Troubles};
use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::passes::generated::Gate;
use crate::passes::own_configs::Kept;
use crate::passes::queue::Queue;
use crate::passes::template_gate::{Standing, is_from_template};
use crate::passes::version_claim::Claim;
use crate::term::catch_up::{Followed, Need};
use crate::term::leader::Terms;
use api::k8s::{Node, ObjectMeta, Pod, ResourceExt};
use api::names::WORKER;
use api::selector;
use api::v1::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolSpec,
    PoolConfiguration,
};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Api, Client};
use render::Versions;
use rollout::TroubleOf;
use rollout::view::{Names, NodeView, OsBuild, OsConfig};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The caches.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    pub(crate) pools: Arc<Store<MachineConfigPool>>,
    pub(crate) configs: Arc<Store<Config>>,
    pub(crate) controller_configs: Arc<Store<ControllerConfig>>,
    pub(crate) nodes: Arc<Store<NodeView>>,
    /// Without their status. The kind may not be installed.
    pub(crate) progress: Arc<Store<MachineConfigNode>>,
    /// Nor these.
    pub(crate) os_configs: Arc<Store<OsConfig>>,
    pub(crate) os_builds: Arc<Store<OsBuild>>,
    /// `spec.mastersSchedulable` of OpenShift's Scheduler.
    pub(crate) masters_schedulable: Arc<Store<bool>>,
    /// Whether OpenShift's MachineConfiguration says that nobody looks after the age of boot images.
    pub(crate) boot_image_skew: Arc<Store<bool>>,
    /// Nodes that run a pod of the operator.
    pub(crate) operator_nodes: Arc<Store<Option<Arc<str>>>>,
}

impl Stores {
    /// The one ControllerConfig.
    pub(crate) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(api::names::CONTROLLER_CONFIG)
    }
}

/// A MachineConfig as the cache keeps it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Config {
    /// Input of rendering: kept whole.
    Source(Arc<MachineConfig>),
    /// A pool's rendered config, up to 1.5 MB: kept without its spec, which is read when a pass needs it.
    Rendered(Box<Rendered>),
}

/// What is kept of a rendered config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Rendered {
    /// Name, annotations, owners, time of creation.
    pub(crate) metadata: ObjectMeta,
    /// The pool that owns it.
    pub(crate) pool: String,
    /// `spec.osImageURL`.
    pub(crate) os_image_url: Box<str>,
}

impl Rendered {
    /// Is this very pool its owner, and not an earlier one of that name?
    pub(crate) fn is_owned_by(&self, pool: &MachineConfigPool) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|o| o.controller == Some(true) && Some(&o.uid) == pool.metadata.uid.as_ref())
    }
}

impl Config {
    fn new(object: MachineConfig) -> Self {
        let owner = object
            .metadata
            .owner_references
            .iter()
            .flatten()
            .find(|o| o.controller == Some(true) && o.kind == "MachineConfigPool");
        match owner.map(|o| o.name.clone()) {
            Some(pool) => {
                let mut metadata = object.metadata;
                metadata.managed_fields = None;
                // Read by people only, through `mco explain`.
                metadata.annotations.get_or_insert_default().remove(api::names::annotation::PROVENANCE);
                let os_image_url = object.spec.os_image_url.into_boxed_str();
                Self::Rendered(Box::new(Rendered { metadata, pool, os_image_url }))
            }
            None => {
                let mut object = object;
                object.metadata.managed_fields = None;
                Self::Source(Arc::new(object))
            }
        }
    }

    /// `spec.osImageURL`; empty: none.
    pub(crate) fn os_image_url(&self) -> &str {
        match self {
            Self::Source(object) => &object.spec.os_image_url,
            Self::Rendered(rendered) => &rendered.os_image_url,
        }
    }

    /// The object, where it is an input of rendering.
    pub(crate) fn source(&self) -> Option<&Arc<MachineConfig>> {
        match self {
            Self::Source(object) => Some(object),
            Self::Rendered(_) => None,
        }
    }
}

/// The one key of the node queue: a plan looks at the whole cluster, since a node's pool depends on all pools.
const ALL: &str = "cluster";

/// The queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    pub(crate) template: Queue<String>,
    pub(crate) generated: Queue<String>,
    pub(crate) render: Queue<String>,
    pub(crate) node: Queue<String>,
    pub(crate) drain: Queue<String>,
    pub(crate) progress: Queue<String>,
    pub(crate) garbage: Queue<String>,
    pub(crate) topology: Queue<String>,
}

/// How often a patch that is held back looks whether the lease was renewed after all.
const LEASE_LOOK: Duration = Duration::from_millis(20);

/// Lists of one node's pods in flight at once. Each request that is under way holds a connection with its buffers.
const LOOKS_IN_FLIGHT: usize = 16;

/// What all passes share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) templates: PathBuf,
    pub(crate) stores: Stores,
    pub(crate) queues: Queues,
    pub(crate) events: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) names: Mutex<Names>,
    /// Places for Node patches.
    places: Places,
    /// No further Node patch is sent: this controller ends.
    closing: CancellationToken,
    /// What those who act and those who see to the lease tell each other.
    pub(crate) terms: Arc<Terms>,
    /// Places for looks at a node's pods, see [`LOOKS_IN_FLIGHT`].
    pub(crate) looks: Semaphore,
    /// The node that looks whether MachineConfigNodes have come to be installed, while they are not: with thousands of
    /// nodes one look now and then is enough.
    pub(crate) progress_absent: Mutex<Option<String>>,
    /// The build that this is.
    pub(crate) versions: Versions,
    /// What the templates say is to stand, which pools are not rendered without.
    pub(crate) standing: Standing,
    /// Whose ControllerConfig it is.
    pub(crate) claim: Claim,
    /// What fails now, and since when.
    pub(crate) troubles: Troubles,
    /// The same for writes of the node pass, by node, and by pool for what it writes to pools.
    pub(crate) node_troubles: Troubles,
    pub(crate) pool_troubles: Troubles,
    /// What goes wrong and holds nothing up.
    pub(crate) remarks: Remarks,
    /// The template folder is watched; otherwise it is read now and then.
    pub(crate) templates_watched: AtomicBool,
    /// Where the pull secret stands that templates are rendered with.
    pub(crate) pull_secret: tokio::sync::watch::Sender<Place>,
    /// The cluster's settings beside our own objects.
    pub(crate) settings: Settings,
    /// How far what is generated from them follows.
    pub(crate) generated: Gate,
    /// The MachineConfigs of our own that stand as they should.
    pub(crate) kept: Kept,
    /// Every kind that is followed, see [`crate::term::catch_up`].
    followed: Mutex<Vec<Arc<Followed>>>,
    /// What rendering last had each pool name. A pool that comes to name this asks for nothing.
    named: Mutex<HashMap<String, PoolConfiguration>>,
}

impl Context {
    pub(crate) fn new(client: Client, templates: PathBuf, events: Recorder, metrics: Metrics) -> Self {
        Self {
            client,
            templates,
            stores: Stores::default(),
            queues: Queues::default(),
            events,
            metrics,
            names: Mutex::default(),
            places: Places::default(),
            closing: CancellationToken::new(),
            terms: Arc::default(),
            looks: Semaphore::new(LOOKS_IN_FLIGHT),
            progress_absent: Mutex::default(),
            versions: crate::version::versions(),
            standing: Standing::default(),
            claim: Claim::default(),
            troubles: Troubles::default(),
            node_troubles: Troubles::default(),
            pool_troubles: Troubles::default(),
            remarks: Remarks::default(),
            templates_watched: AtomicBool::new(false),
            pull_secret: tokio::sync::watch::Sender::new(None),
            settings: Settings::default(),
            generated: Gate::default(),
            kept: Kept::default(),
            followed: Mutex::default(),
            named: Mutex::default(),
        }
    }

    /// Every kind's API is cluster-scoped here.
    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
    {
        Api::all(self.client.clone())
    }

    /// Trims a Node.
    pub(crate) fn view(&self, node: &Node) -> NodeView {
        NodeView::interned(node, &mut self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Every pool is to be rendered anew, where that makes a difference.
    pub(crate) fn mark_render(&self) {
        self.queues.render.mark_all(self.stores.pools.names());
    }

    /// Marks everything: on start and on becoming leader.
    pub(crate) fn mark_all(&self) {
        // Another leader may have left its work half done, and an upgrade brings other templates.
        self.standing.forget();
        self.claim.forget();
        self.kept.forget();
        self.generated.begin();
        self.troubles.forget();
        self.node_troubles.forget();
        self.pool_troubles.forget();
        self.remarks.forget();
        self.named.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let Queues { template, generated: _, render, node, drain, progress, garbage, topology } =
            &self.queues;
        template.mark(api::names::CONTROLLER_CONFIG.to_owned());
        topology.mark(api::names::CONTROLLER_CONFIG.to_owned());
        self.mark_generated();
        let pools = self.stores.pools.names();
        render.mark_all(pools.clone());
        garbage.mark_all(pools);
        node.mark(ALL.to_owned());
        let nodes = self.stores.nodes.names();
        drain.mark_all(nodes.clone());
        // Objects of nodes that went away meanwhile are deleted.
        progress.mark_all(nodes.into_iter().chain(self.stores.progress.names()));
    }

    /// What templates are made from has changed, and with it what is generated over them.
    pub(crate) fn mark_templates(&self) {
        self.queues.template.mark(api::names::CONTROLLER_CONFIG.to_owned());
        self.mark_generated();
    }

    /// What MachineConfigs are generated from has changed: no pool is rendered before they follow.
    pub(crate) fn mark_generated(&self) {
        self.generated.close();
        self.queues.generated.mark(api::names::CONTROLLER_CONFIG.to_owned());
    }

    /// A setting came, went or says something else.
    pub(crate) fn setting_changed(&self, kind: settings::Kind) {
        if [STREAMS, FEATURE_GATE].contains(&kind) {
            self.queues.render.mark_all(self.stores.pools.names());
            // A pool's status names its stream.
            self.mark_cluster();
        }
        match kind {
            // Nothing is generated from it.
            STREAMS => {}
            // TLS versions stand in templates, too.
            API_SERVER => self.mark_templates(),
            _ => self.mark_generated(),
        }
    }

    /// Notes a kind that is followed from now on.
    pub(crate) fn follows(&self, kind: Followed) {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(kind));
    }

    /// Every kind that is followed.
    pub(crate) fn followed(&self) -> Vec<Arc<Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, for a kind of which all objects count.
    fn follows_all<K>(&self, need: Need, cache: Arc<dyn Cache>)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::all_with(self.client.clone(), &resource);
        self.follows(Followed { kind: resource.kind, need, api, which: watcher::Config::default(), cache });
    }

    /// Starts the watches; they run until `stop`, whoever leads.
    pub(crate) fn watch(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let client = || self.client.clone();
        let stores = &self.stores;
        self.follows_all::<MachineConfigPool>(Need::Always, stores.pools.clone());
        self.follows_all::<MachineConfig>(Need::Always, stores.configs.clone());
        self.follows_all::<ControllerConfig>(Need::Always, stores.controller_configs.clone());
        self.follows_all::<Node>(Need::Always, stores.nodes.clone());
        self.follows_all::<MachineConfigNode>(Need::Aside, stores.progress.clone());
        tasks.spawn(follow_ours(
            client(),
            Presence::Required,
            stores.pools.clone(),
            |mut p: MachineConfigPool| {
                p.metadata.managed_fields = None;
                p
            },
            self.then(Self::pool_changed),
            stop.clone(),
        ));
        tasks.spawn(follow_ours(
            client(),
            Presence::Required,
            stores.configs.clone(),
            Config::new,
            self.then(Self::config_changed),
            stop.clone(),
        ));
        tasks.spawn(follow_ours(
            client(),
            Presence::Required,
            stores.controller_configs.clone(),
            |mut c: ControllerConfig| {
                c.metadata.managed_fields = None;
                c
            },
            self.then(Self::controller_config_changed),
            stop.clone(),
        ));
        self.watch_optional(tasks, stop);
        settings::watch(self, tasks, stop);
        tasks.spawn(template_inputs::follow_folder(self.clone(), stop.clone()));
        tasks.spawn(template_inputs::follow_pull_secret(self.clone(), stop.clone()));
        let (progress, on_change) = (stores.progress.clone(), self.then(Self::progress_changed));
        let (api, token) = (Api::<LightProgress>::all(client()), stop.clone());
        tasks.spawn(async move {
            let keep = |object: LightProgress| Ok(object.0);
            let (config, kind) = (watcher::Config::default(), "MachineConfigNode".to_owned());
            follow(api, config, kind, Presence::Optional, &progress, keep, on_change, token).await;
        });
        let (me, nodes, on_change) = (self.clone(), stores.nodes.clone(), self.then(Self::node_changed));
        let (api, stop) = (Api::<LightNode>::all(client()), stop.clone());
        tasks.spawn(async move {
            let keep = |node: LightNode| Ok(me.view(&node.0));
            follow(
                api,
                watcher::Config::default(),
                "Node".to_owned(),
                Presence::Required,
                &nodes,
                keep,
                on_change,
                stop,
            )
            .await;
        });
    }

    /// Watches of kinds that need not be there; any change of theirs is one of the whole plan's inputs.
    fn watch_optional(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let all = |group: &str, kind: &str| -> Api<DynamicObject> {
            let kind = GroupVersionKind::gvk(group, "v1", kind);
            Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind))
        };
        let stores = &self.stores;
        let any = watcher::Config::default;
        let one = || any().fields("metadata.name=cluster");
        let (ours, config) = (api::names::GROUP, "config.openshift.io");
        let note = |group: &str, kind: &str, need, which, cache: Arc<dyn Cache>| {
            let api = all(group, kind);
            self.follows(Followed { kind: kind.to_owned(), need, api: api.clone(), which, cache });
            api
        };
        let os_config = |o: DynamicObject| Ok(OsConfig::new(&serde_json::json!(o)));
        let os_configs = note(ours, "MachineOSConfig", Need::WhereServed, any(), stores.os_configs.clone());
        self.optional(tasks, os_configs, any(), &stores.os_configs, os_config, stop);
        let os_build = |o: DynamicObject| Ok(OsBuild::new(&serde_json::json!(o)));
        let os_builds = note(ours, "MachineOSBuild", Need::WhereServed, any(), stores.os_builds.clone());
        self.optional(tasks, os_builds, any(), &stores.os_builds, os_build, stop);
        let schedulable = |o: DynamicObject| {
            Ok(o.data.pointer("/spec/mastersSchedulable") == Some(&serde_json::Value::Bool(true)))
        };
        let schedulers = note(config, "Scheduler", Need::Aside, one(), stores.masters_schedulable.clone());
        self.optional(tasks, schedulers, one(), &stores.masters_schedulable, schedulable, stop);
        let skew = |o: DynamicObject| {
            let mode = o.data.pointer("/status/bootImageSkewEnforcementStatus/mode");
            Ok(mode.and_then(serde_json::Value::as_str) == Some("None"))
        };
        let settings = note(
            "operator.openshift.io",
            "MachineConfiguration",
            Need::Aside,
            one(),
            stores.boot_image_skew.clone(),
        );
        self.optional(tasks, settings, one(), &stores.boot_image_skew, skew, stop);
        let namespace = api::names::NAMESPACE;
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        let only = watcher::Config::default().labels("k8s-app=machine-config-operator");
        self.follows(Followed {
            kind: "Pod".to_owned(),
            need: Need::Aside,
            api: Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Pod>(&())),
            which: only.clone(),
            cache: stores.operator_nodes.clone(),
        });
        self.optional(tasks, pods, only, &stores.operator_nodes, |p: Pod| Ok(operator_node(&p)), stop);
    }

    fn optional<K, T>(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        api: Api<K>,
        config: watcher::Config,
        store: &Arc<Store<T>>,
        keep: impl Fn(K) -> Result<T, String> + Send + 'static,
        stop: &CancellationToken,
    ) where
        K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
        T: PartialEq + Send + Sync + 'static,
    {
        let (store, stop) = (store.clone(), stop.clone());
        let kind = api.resource_url().rsplit('/').next().unwrap_or_default().to_owned();
        let on_change = self.then(|me, change: &Change<T>| {
            if change.old != change.new {
                me.mark_cluster();
            }
        });
        tasks.spawn(async move {
            follow(api, config, kind, Presence::Optional, &store, keep, on_change, stop).await;
        });
    }

    /// Has everything about nodes planned anew.
    pub(crate) fn mark_cluster(&self) {
        self.queues.node.mark(ALL.to_owned());
    }

    /// Has pools say something that goes wrong and holds nothing up, or say it no longer.
    pub(crate) fn remark(&self, topic: Topic, of: TroubleOf, text: Option<String>) {
        if self.remarks.set(topic, of, text) {
            self.mark_cluster();
        }
    }

    fn then<T: 'static>(self: &Arc<Self>, f: fn(&Self, &Change<T>)) -> OnChange<T> {
        let me = self.clone();
        Box::new(move |change| f(&me, change))
    }

    fn pool_changed(&self, change: &Change<MachineConfigPool>) {
        let name = &change.name;
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if new.is_none() {
            self.metrics.forget_pool(name);
            self.pool_troubles.over(name);
            self.named.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        }
        let selects = |p: Option<&MachineConfigPool>| p.and_then(|p| p.spec.node_selector.clone());
        if old.is_none() || new.is_none() || selects(old) != selects(new) {
            // Nodes may come from any pool, or go to any.
            self.mark_cluster();
            self.queues.progress.mark_all(self.stores.nodes.names());
        }
        let labels = |p: Option<&MachineConfigPool>| p.map(|p| p.metadata.labels.clone());
        if labels(old) != labels(new) {
            // Settings select pools by their labels.
            self.mark_generated();
        }
        let (Some(new), old) = (new, old) else { return };
        let ours = || {
            let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
            named.get(name).is_some_and(|n| *n == new.spec.configuration)
        };
        let same_input = old.is_some_and(|o| {
            let spec =
                MachineConfigPoolSpec { configuration: o.spec.configuration.clone(), ..new.spec.clone() };
            o.spec == spec
                && (o.spec.configuration == new.spec.configuration || ours())
                && o.metadata.labels == new.metadata.labels
                && rollout::pinned(o) == rollout::pinned(new)
                && o.metadata.uid == new.metadata.uid
        });
        if !same_input {
            self.queues.render.mark(name.clone());
        }
        let stream = |p: &MachineConfigPool| p.spec.os_image_stream.clone();
        if name == WORKER && old.map(stream) != Some(stream(new)) {
            // Custom pools follow its stream where they name none.
            self.queues.render.mark_all(self.stores.pools.names().into_iter().filter(|other| other != name));
        }
        let reached = |p: &MachineConfigPool| p.status.as_ref().map(|s| s.configuration.name.clone());
        if old.is_some_and(|old| reached(old) != reached(new)) {
            // Nobody may name the config that the pool has left behind.
            self.queues.garbage.mark(name.clone());
        }
        self.mark_cluster();
    }

    fn config_changed(&self, change: &Change<Config>) {
        // Each pool once: how many changes come at a time is what spaces passes.
        let mut pools = BTreeSet::new();
        for config in [change.old.as_deref(), change.new.as_deref()].into_iter().flatten() {
            match config {
                Config::Rendered(rendered) => {
                    // Gone or tampered with: the pool's pass puts it back. One that the pool does not name has just
                    // been made, or was cleared away.
                    let pool = self.stores.pools.get(&rendered.pool);
                    let names = |p: &MachineConfigPool| {
                        p.spec.configuration.name == change.name
                            || rollout::pinned(p) == Some(change.name.as_str())
                    };
                    if pool.is_some_and(|p| names(&p)) {
                        pools.insert(rendered.pool.clone());
                    }
                    self.mark_cluster();
                }
                Config::Source(object) => {
                    let labels = object.metadata.labels.as_ref();
                    if is_generated(object) {
                        self.mark_generated();
                    }
                    let selected = self.stores.pools.all().into_iter().filter(|p| {
                        // A selector that cannot be evaluated is reported by the pool's own pass.
                        selector::matches(p.spec.machine_config_selector.as_ref(), labels).unwrap_or(true)
                    });
                    pools.extend(selected.map(|p| p.name_any()));
                    if is_from_template(object) || self.standing.makes(&change.name) {
                        self.queues.template.mark(api::names::CONTROLLER_CONFIG.to_owned());
                    }
                }
            }
        }
        self.queues.render.mark_all(pools);
    }

    fn controller_config_changed(&self, change: &Change<ControllerConfig>) {
        if change.name != api::names::CONTROLLER_CONFIG {
            return;
        }
        let place = change.new.as_deref().and_then(|c| template_inputs::place(c.spec.pull_secret.as_ref()));
        self.pull_secret.send_if_modified(|at| {
            let moved = *at != place;
            *at = place;
            moved
        });
        let input = |c: &Option<Arc<ControllerConfig>>| {
            c.as_ref().map(|c| (c.spec.clone(), c.metadata.annotations.clone(), c.metadata.uid.clone()))
        };
        if input(&change.old) != input(&change.new) {
            self.mark_generated();
        }
        let cluster = |c: &Option<Arc<ControllerConfig>>| rollout::Cluster::of(c.as_deref().map(|c| &c.spec));
        if cluster(&change.old) != cluster(&change.new) {
            // Another rule says which pools nodes are in.
            self.queues.progress.mark_all(self.stores.nodes.names());
        }
        self.queues.template.mark(change.name.clone());
        self.queues.topology.mark(change.name.clone());
        let pools = self.stores.pools.names();
        self.queues.render.mark_all(pools.clone());
        self.queues.garbage.mark_all(pools);
        self.mark_cluster();
    }

    fn progress_changed(&self, change: &Change<MachineConfigNode>) {
        let spec = |n: &Option<Arc<MachineConfigNode>>| n.as_ref().map(|n| n.spec.clone());
        if spec(&change.old) != spec(&change.new) {
            self.queues.progress.mark(change.name.clone());
        }
    }

    fn node_changed(&self, change: &Change<NodeView>) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if let (Some(old), Some(new)) = (old, new)
            && old.alike(new)
        {
            return;
        }
        if new.is_none() {
            self.metrics.forget_node(&change.name);
        }
        if old.map(|n| &n.labels) != new.map(|n| &n.labels) {
            // A node more or less, or another role.
            self.queues.topology.mark(api::names::CONTROLLER_CONFIG.to_owned());
        }
        self.queues.drain.mark(change.name.clone());
        self.queues.progress.mark(change.name.clone());
        self.mark_cluster();
        let config = |node: Option<&NodeView>| node.and_then(|n| n.current_config.clone());
        let left = config(old).filter(|left| config(new).as_ref() != Some(left));
        if let Some(Config::Rendered(left)) = left.and_then(|name| self.stores.configs.get(&name)).as_deref()
        {
            self.queues.garbage.mark(left.pool.clone());
        }
    }

    /// Puts the answer to a write of ours to a Node into the cache.
    pub(crate) fn node_answer(&self, node: &Node) {
        let item = Item {
            version: version_of(node),
            uid: node.uid().unwrap_or_default(),
            value: Arc::new(self.view(node)),
        };
        if let Some(change) = self.stores.nodes.answer(&node.name_any(), item) {
            self.node_changed(&change);
        }
    }

    /// Says what a pool is about to be given, see [`Context::named`].
    pub(crate) fn will_name(&self, pool: &str, configuration: PoolConfiguration) {
        self.named.lock().unwrap_or_else(PoisonError::into_inner).insert(pool.to_owned(), configuration);
    }

    /// The same for a pool.
    pub(crate) fn pool_answer(&self, pool: MachineConfigPool) {
        self.answer(&self.stores.pools, pool, Self::pool_changed);
    }

    /// The same for the ControllerConfig.
    pub(crate) fn controller_config_answer(&self, config: ControllerConfig) {
        self.answer(&self.stores.controller_configs, config, Self::controller_config_changed);
    }

    /// A place to send a Node patch from, as soon as there is one and the lease is held; never, once
    /// [`Context::last_patches`] is called.
    pub(crate) async fn place(&self, whose: Whose<'_>) -> OwnedSemaphorePermit {
        let place = self.places.of(whose).acquire_owned().await;
        // It may be renewed yet; if it is not, the pass that waits here is dropped with all others.
        while self.terms.over() {
            tokio::time::sleep(LEASE_LOOK).await;
        }
        match place {
            Ok(place) if !self.closing.is_cancelled() => place,
            none => {
                // Whoever waits for all places is to have this one.
                drop(none);
                std::future::pending().await
            }
        }
    }

    /// Lets no further Node patch go and waits for the answers of those that are under way, `most` at the longest. A
    /// patch that is still on its way when the next leader plans could take a slot that this one gives to another node.
    pub(crate) async fn last_patches(&self, most: Duration) {
        self.closing.cancel();
        if tokio::time::timeout(most, self.places.take_all()).await.is_err() {
            self.terms.leave_unanswered();
            tracing::warn!("some patches of nodes have no answer yet; the next leader makes them void");
        }
    }

    /// The same for a MachineConfigNode, also one that we have just made.
    pub(crate) fn progress_answer(&self, object: LightProgress) {
        let item = whole(object.0);
        if let Some(change) = self.stores.progress.apply(item.value.name_any(), item) {
            self.progress_changed(&change);
        }
    }

    fn answer<K: ResourceExt>(&self, store: &Store<K>, object: K, changed: fn(&Self, &Change<K>)) {
        let item = whole(object);
        if let Some(change) = store.answer(&item.value.name_any(), item) {
            changed(self, &change);
        }
    }

    /// The same for a MachineConfig, also one that we have just made.
    pub(crate) fn config_answer(&self, config: MachineConfig) {
        let name = config.name_any();
        let (version, uid) = (version_of(&config), config.uid().unwrap_or_default());
        let item = Item { version, uid, value: Arc::new(Config::new(config)) };
        if let Some(change) = self.stores.configs.apply(name, item) {
            self.config_changed(&change);
        }
    }
}

/// Made by the pass over settings: told by its name, so that one whose marks somebody took away is put back, too.
fn is_generated(object: &MachineConfig) -> bool {
    object.metadata.name.as_deref().is_some_and(|n| n.contains("-generated-"))
}

/// An object kept whole, but for its record of who wrote which field.
fn whole<K: ResourceExt>(mut object: K) -> Item<K> {
    object.managed_fields_mut().clear();
    Item { version: version_of(&object), uid: object.uid().unwrap_or_default(), value: Arc::new(object) }
}

#[cfg(test)]
#[path = "context_tests.rs"]
mod tests;
