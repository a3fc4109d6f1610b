//! The watches of all kinds that plans are made from: which kinds are watched, what is kept of each object, and which
//! [`Changed`] a change of it becomes.
//!
//! What it is not: how one kind is watched (see `cache::watch`), or what a change makes dirty (see `dirty`).

mod settings;
pub(crate) mod template_inputs;

use crate::cache::store::{Cache, Change, Store};
use crate::cache::trimmed::{
    Config, ImageBuild, ImageConfig, TrimmedMachineConfigNode, TrimmedNode, operator_node,
};
use crate::cache::watch::{
    OnChange, Presence, ReadRequirement, WatchedApi, WatchedKind, follow, follow_ours,
};
use crate::change::Changed;
use crate::shared::Shared;
use api::k8s::{Node, Pod};
use api::names::{label, part};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use build::JobFacts;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use rollout::view::EtcdMember;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts the watches. They run until `stop`, whichever controller leads.
pub(crate) fn start(shared: &Arc<Shared>, tasks: &TaskTracker, stop: &CancellationToken) {
    let watches = Watches { shared, tasks, stop };
    let stores = &shared.stores;
    watches.ours::<MachineConfigPool, _>(
        ReadRequirement::Always,
        &stores.pools,
        without_managed_fields,
        |change| Changed::Pool(change),
    );
    watches.ours::<MachineConfig, _>(ReadRequirement::Always, &stores.configs, Config::new, |change| {
        Changed::Config(change)
    });
    watches.ours::<ControllerConfig, _>(
        ReadRequirement::Always,
        &stores.controller_configs,
        without_managed_fields,
        |change| Changed::ControllerConfig(change),
    );
    watches.ours::<RolloutPolicy, _>(
        ReadRequirement::WhereServed,
        &stores.rollout_policies,
        without_managed_fields,
        |change| Changed::RolloutPolicy(change),
    );
    watches.ours::<PinnedImageSet, _>(
        ReadRequirement::WhereServed,
        &stores.pinned_image_sets,
        without_images,
        |change| Changed::PinnedImageSet(change),
    );
    watches.nodes();
    watches.machine_config_nodes();
    watches.image_builds();
    watches.other_inputs();
    settings::watch(shared, tasks, stop);
    tasks.spawn(template_inputs::follow_folder(shared.clone(), stop.clone()));
    tasks.spawn(template_inputs::follow_pull_secret(shared.clone(), stop.clone()));
}

fn without_managed_fields<K: kube::Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Which images they are is up to the agents.
fn without_images(set: PinnedImageSet) -> PinnedImageSet {
    let mut set = without_managed_fields(set);
    set.spec.pinned_images = vec![];
    set
}

/// What a watch is opened with.
struct Watch<K> {
    kind: String,
    api: WatchedApi<K>,
    which: watcher::Config,
    presence: Presence,
}

impl<K: kube::Resource> Watch<K> {
    /// A kind that need not be installed.
    fn optional(api: WatchedApi<K>, which: watcher::Config) -> Self {
        let kind = api.api.resource_url().rsplit('/').next().unwrap_or_default().to_owned();
        Self { kind, api, which, presence: Presence::Optional }
    }
}

/// What all watches are started with.
struct Watches<'a> {
    shared: &'a Arc<Shared>,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Watches<'_> {
    /// Watches all objects of a kind of our own API group.
    fn ours<K, T>(
        &self,
        need: ReadRequirement,
        store: &Arc<Store<T>>,
        keep: fn(K) -> T,
        of: for<'a> fn(&'a Change<T>) -> Changed<'a>,
    ) where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + 'static,
        T: Send + Sync + 'static,
    {
        self.record_all::<K>(need, store.clone());
        let presence = if need == ReadRequirement::Always { Presence::Required } else { Presence::Optional };
        let (client, store, stop) = (self.shared.client.clone(), store.clone(), self.stop.clone());
        self.tasks.spawn(follow_ours(client, presence, store, keep, self.then(of), stop));
    }

    fn nodes(&self) {
        let store = &self.shared.stores.nodes;
        self.record_all::<Node>(ReadRequirement::Always, store.clone());
        let watch = Watch {
            kind: "Node".to_owned(),
            api: WatchedApi::new(&self.shared.client, Api::<TrimmedNode>::all),
            which: watcher::Config::default(),
            presence: Presence::Required,
        };
        let shared = self.shared.clone();
        let keep = move |node: TrimmedNode| Ok(shared.view(&node.0));
        self.spawn(watch, store, keep, self.then(|change| Changed::Node(change)));
    }

    fn machine_config_nodes(&self) {
        let store = &self.shared.stores.machine_config_nodes;
        self.record_all::<MachineConfigNode>(ReadRequirement::Aside, store.clone());
        let watch = Watch {
            kind: "MachineConfigNode".to_owned(),
            api: WatchedApi::new(&self.shared.client, Api::<TrimmedMachineConfigNode>::all),
            which: watcher::Config::default(),
            presence: Presence::Optional,
        };
        let keep = |object: TrimmedMachineConfigNode| Ok(object.0);
        self.spawn(watch, store, keep, self.then(|change| Changed::MachineConfigNode(change)));
    }

    /// MachineOSConfigs, MachineOSBuilds, and the Jobs that build.
    fn image_builds(&self) {
        let (stores, any) = (&self.shared.stores, watcher::Config::default);
        let (need, cache) = (ReadRequirement::WhereServed, stores.os_configs.clone());
        let configs = self.untyped(api::names::GROUP, "MachineOSConfig", need, any(), cache);
        let shared = self.shared.clone();
        let changed: OnChange<ImageConfig> = Box::new(move |change| shared.os_config_changed(change));
        let keep = |o: DynamicObject| Ok(ImageConfig::new(serde_json::json!(o)));
        self.spawn(configs, &stores.os_configs, keep, changed);

        let cache = stores.os_builds.clone();
        let builds = self.untyped(api::names::GROUP, "MachineOSBuild", need, any(), cache);
        let shared = self.shared.clone();
        let changed: OnChange<ImageBuild> = Box::new(move |change| shared.os_build_changed(change));
        let keep = |o: DynamicObject| Ok(ImageBuild::new(serde_json::json!(o)));
        self.spawn(builds, &stores.os_builds, keep, changed);

        let jobs = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
        let api = |client| Api::<DynamicObject>::namespaced_with(client, api::names::NAMESPACE, &jobs);
        let which = any().labels(build::names::LAYERING);
        let client = &self.shared.client;
        self.record("Job", need, api(client.clone()), which.clone(), stores.build_jobs.clone());
        let shared = self.shared.clone();
        let changed: OnChange<JobFacts> = Box::new(move |change| {
            for job in [&change.old, &change.new].into_iter().flatten() {
                shared.changed(&Changed::ImageBuild(&job.pool));
            }
        });
        let keep = |o: DynamicObject| Ok(JobFacts::new(&serde_json::json!(o)));
        let api = WatchedApi::new(client, api);
        let watch = Watch { kind: "Job".to_owned(), api, which, presence: Presence::Optional };
        self.spawn(watch, &stores.build_jobs, keep, changed);
    }

    /// Kinds that need not be installed, and of which a plan reads one fact. Any change of their objects is an input of the whole
    /// plan.
    fn other_inputs(&self) {
        let stores = &self.shared.stores;
        let one = || watcher::Config::default().fields("metadata.name=cluster");

        let store = &stores.masters_schedulable;
        let schedulers =
            self.untyped("config.openshift.io", "Scheduler", ReadRequirement::Aside, one(), store.clone());
        let schedulable = |o: DynamicObject| {
            Ok(o.data.pointer("/spec/mastersSchedulable") == Some(&serde_json::Value::Bool(true)))
        };
        self.spawn(schedulers, store, schedulable, self.plan_input());

        let store = &stores.boot_image_skew;
        let operator = self.untyped(
            "operator.openshift.io",
            "MachineConfiguration",
            ReadRequirement::Aside,
            one(),
            store.clone(),
        );
        let skew = |o: DynamicObject| {
            let mode = o.data.pointer("/status/bootImageSkewEnforcementStatus/mode");
            Ok(mode.and_then(serde_json::Value::as_str) == Some("None"))
        };
        self.spawn(operator, store, skew, self.plan_input());

        let (labels, store) = (format!("{}={}", label::PART, part::OPERATOR), &stores.operator_nodes);
        let pods = self.pods(api::names::NAMESPACE, &labels, ReadRequirement::Aside, store.clone());
        self.spawn(pods, store, |p: Pod| Ok(operator_node(&p)), self.plan_input());
        for ((namespace, labels), store) in EtcdMember::PLACES.into_iter().zip(&stores.etcd) {
            let pods = self.pods(namespace, labels, ReadRequirement::WhereServed, store.clone());
            self.spawn(pods, store, |p: Pod| Ok(EtcdMember::from_pod(&p)), self.plan_input());
        }
    }

    /// Pods with these labels in one namespace.
    fn pods(
        &self,
        namespace: &str,
        labels: &str,
        need: ReadRequirement,
        cache: Arc<dyn Cache>,
    ) -> Watch<Pod> {
        let (client, which) = (self.shared.client.clone(), watcher::Config::default().labels(labels));
        let untyped = Api::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        self.record("Pod", need, untyped, which.clone(), cache);
        Watch::optional(WatchedApi::new(&client, |client| Api::namespaced(client, namespace)), which)
    }

    /// A kind that need not be installed, and whose objects are not decoded here.
    fn untyped(
        &self,
        group: &str,
        kind: &str,
        need: ReadRequirement,
        which: watcher::Config,
        cache: Arc<dyn Cache>,
    ) -> Watch<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let api = |client| Api::<DynamicObject>::all_with(client, &resource);
        let client = &self.shared.client;
        self.record(kind, need, api(client.clone()), which.clone(), cache);
        Watch::optional(WatchedApi::new(client, api), which)
    }

    /// Records a kind of which all objects are watched.
    fn record_all<K: kube::Resource<DynamicType = ()>>(&self, need: ReadRequirement, cache: Arc<dyn Cache>) {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::all_with(self.shared.client.clone(), &resource);
        self.record(&resource.kind, need, api, watcher::Config::default(), cache);
    }

    /// Records a watched kind for the start of a term.
    fn record(
        &self,
        kind: &str,
        need: ReadRequirement,
        api: Api<DynamicObject>,
        which: watcher::Config,
        cache: Arc<dyn Cache>,
    ) {
        self.shared.add_watched_kind(WatchedKind { kind: kind.to_owned(), need, api, which, cache });
    }

    fn spawn<K, T>(
        &self,
        watch: Watch<K>,
        store: &Arc<Store<T>>,
        keep: impl Fn(K) -> Result<T, String> + Send + 'static,
        on_change: OnChange<T>,
    ) where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        let (store, stop) = (store.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let Watch { kind, api, which, presence } = watch;
            follow(api, which, kind, presence, &store, keep, on_change, stop).await;
        });
    }

    fn then<T: 'static>(&self, of: for<'a> fn(&'a Change<T>) -> Changed<'a>) -> OnChange<T> {
        let shared = self.shared.clone();
        Box::new(move |change| shared.changed(&of(change)))
    }

    /// Marks the node pass when the cached part of an object changes.
    fn plan_input<T: PartialEq + 'static>(&self) -> OnChange<T> {
        let shared = self.shared.clone();
        Box::new(move |change: &Change<T>| {
            if change.old != change.new {
                shared.changed(&Changed::PlanInput);
            }
        })
    }
}
