//! The watches of what passes read: what is kept of each object, and which [`Changed`] a change of it becomes. Which watches there are
//! follows from the descriptors of the passes.
//!
//! What it is not: how one kind is watched (see `cache::watch`), or what a change makes dirty (see `dirty`).

pub(crate) mod input;
pub(crate) mod inputs;
mod settings;
pub(crate) mod template_inputs;

use crate::cache::store::{Cache, Change, Store};
use crate::cache::trimmed::{ImageBuild, ImageConfig, TrimmedMachineConfigNode, TrimmedNode, operator_node};
use crate::cache::watch::{OnChange, ReadRequirement, WatchedApi, WatchedKind, follow};
use crate::change::Changed;
use crate::kind::Kind;
use crate::shared::Shared;
use api::k8s::Pod;
use api::v1::PinnedImageSet;
use build::JobFacts;
use client::decode;
use input::{Input, Way};
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client};
use rollout::view::EtcdMember;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts the watches of these inputs. They run until `stop`, whichever controller leads.
pub(crate) fn start(
    shared: &Arc<Shared>,
    inputs: &[&'static Input],
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    let watches = Watches { shared, tasks, stop };
    for input in inputs {
        match (&input.way, input.kind) {
            (Way::Watched { need, start }, Some(kind)) => start(&watches, kind, *need),
            (Way::Followed(follow), _) => follow(&watches),
            _ => {}
        }
    }
    settings::watch(shared, tasks, stop);
}

fn without_managed_fields<K: kube::Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// The one object of a kind of OpenShift's.
fn the_cluster() -> watcher::Config {
    watcher::Config::default().fields(&format!("metadata.name={}", api::names::CLUSTER))
}

/// Which images they are is up to the agents.
fn without_images(set: PinnedImageSet) -> PinnedImageSet {
    let mut set = without_managed_fields(set);
    set.spec.pinned_images = vec![];
    set
}

/// What a watch is opened with.
struct Watch<K> {
    kind: Kind,
    need: ReadRequirement,
    api: WatchedApi<K>,
    which: watcher::Config,
}

/// What all watches are started with.
pub(crate) struct Watches<'a> {
    shared: &'a Arc<Shared>,
    tasks: &'a TaskTracker,
    stop: &'a CancellationToken,
}

impl Watches<'_> {
    /// Watches all objects of a kind of our own API groups.
    fn all_of_own_kind<K, T>(
        &self,
        kind: Kind,
        need: ReadRequirement,
        store: &Arc<Store<T>>,
        trim: fn(K) -> T,
        of: for<'a> fn(&'a Change<T>) -> Changed<'a>,
    ) where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + 'static,
        T: Send + Sync + 'static,
    {
        let watch = self.untyped(kind, need, watcher::Config::default(), store.clone());
        // Objects arrive undecoded, so that a malformed one can be skipped.
        let decode = move |object: DynamicObject| decode::<K>(object).map(trim);
        self.spawn(watch, store, decode, self.then(of));
    }

    fn template_folder(&self) {
        self.tasks.spawn(template_inputs::follow_folder(self.shared.clone(), self.stop.clone()));
    }

    fn pull_secret(&self) {
        self.tasks.spawn(template_inputs::follow_pull_secret(self.shared.clone(), self.stop.clone()));
    }

    fn nodes(&self, kind: Kind, need: ReadRequirement) {
        let store = &self.shared.stores.nodes;
        let watch = self.typed(kind, need, Api::<TrimmedNode>::all, store.clone());
        let shared = self.shared.clone();
        let trim = move |node: TrimmedNode| Ok(shared.view(&node.0));
        self.spawn(watch, store, trim, self.then(|change| Changed::Node(change)));
    }

    fn machine_config_nodes(&self, kind: Kind, need: ReadRequirement) {
        let store = &self.shared.stores.machine_config_nodes;
        let watch = self.typed(kind, need, Api::<TrimmedMachineConfigNode>::all, store.clone());
        let trim = |object: TrimmedMachineConfigNode| Ok(object.0);
        self.spawn(watch, store, trim, self.then(|change| Changed::MachineConfigNode(change)));
    }

    fn os_configs(&self, kind: Kind, need: ReadRequirement) {
        let store = &self.shared.stores.os_configs;
        let watch = self.untyped(kind, need, watcher::Config::default(), store.clone());
        let shared = self.shared.clone();
        let changed: OnChange<ImageConfig> = Box::new(move |change| shared.os_config_changed(change));
        self.spawn(watch, store, |o: DynamicObject| Ok(ImageConfig::new(serde_json::json!(o))), changed);
    }

    fn os_builds(&self, kind: Kind, need: ReadRequirement) {
        let store = &self.shared.stores.os_builds;
        let watch = self.untyped(kind, need, watcher::Config::default(), store.clone());
        let shared = self.shared.clone();
        let changed: OnChange<ImageBuild> = Box::new(move |change| shared.os_build_changed(change));
        self.spawn(watch, store, |o: DynamicObject| Ok(ImageBuild::new(serde_json::json!(o))), changed);
    }

    fn build_jobs(&self, kind: Kind, need: ReadRequirement) {
        let (client, store) = (&self.shared.client, &self.shared.stores.build_jobs);
        let which = watcher::Config::default().labels(build::names::LAYERING);
        let api =
            |client| Api::<DynamicObject>::namespaced_with(client, api::names::NAMESPACE, &kind.resource());
        self.record(kind, need, api(client.clone()), which.clone(), store.clone());
        let shared = self.shared.clone();
        let changed: OnChange<JobFacts> = Box::new(move |change| {
            for job in [&change.old, &change.new].into_iter().flatten() {
                shared.changed(&Changed::ImageBuild(&job.pool));
            }
        });
        let watch = Watch { kind, need, api: WatchedApi::new(client, api), which };
        self.spawn(watch, store, |o: DynamicObject| Ok(JobFacts::new(&serde_json::json!(o))), changed);
    }

    fn scheduler(&self, kind: Kind, need: ReadRequirement) {
        let store = &self.shared.stores.masters_schedulable;
        let watch = self.untyped(kind, need, the_cluster(), store.clone());
        let schedulable = |o: DynamicObject| {
            Ok(o.data.pointer("/spec/mastersSchedulable") == Some(&serde_json::Value::Bool(true)))
        };
        self.spawn(watch, store, schedulable, self.plan_input());
    }

    fn boot_image_skew(&self, kind: Kind, need: ReadRequirement) {
        let store = &self.shared.stores.boot_image_skew;
        let watch = self.untyped(kind, need, the_cluster(), store.clone());
        let skew = |o: DynamicObject| {
            let mode = o.data.pointer("/status/bootImageSkewEnforcementStatus/mode");
            Ok(mode.and_then(serde_json::Value::as_str) == Some("None"))
        };
        self.spawn(watch, store, skew, self.plan_input());
    }

    fn operator_pods(&self, kind: Kind, need: ReadRequirement, labels: &str) {
        let store = &self.shared.stores.operator_nodes;
        let pods = self.pods(kind, need, api::names::NAMESPACE, labels, store.clone());
        self.spawn(pods, store, |p: Pod| Ok(operator_node(&p)), self.plan_input());
    }

    fn etcd_pods(
        &self,
        kind: Kind,
        need: ReadRequirement,
        namespace: &str,
        labels: &str,
        store: &Arc<Store<Option<EtcdMember>>>,
    ) {
        let pods = self.pods(kind, need, namespace, labels, store.clone());
        self.spawn(pods, store, |p: Pod| Ok(EtcdMember::from_pod(&p)), self.plan_input());
    }

    /// Pods with these labels in one namespace.
    fn pods(
        &self,
        kind: Kind,
        need: ReadRequirement,
        namespace: &str,
        labels: &str,
        cache: Arc<dyn Cache>,
    ) -> Watch<Pod> {
        let (client, which) = (&self.shared.client, watcher::Config::default().labels(labels));
        let undecoded = Api::namespaced_with(client.clone(), namespace, &kind.resource());
        self.record(kind, need, undecoded, which.clone(), cache);
        let api = WatchedApi::new(client, |client| Api::namespaced(client, namespace));
        Watch { kind, need, api, which }
    }

    /// All objects of a kind, decoded as `K`.
    fn typed<K>(
        &self,
        kind: Kind,
        need: ReadRequirement,
        api: fn(Client) -> Api<K>,
        cache: Arc<dyn Cache>,
    ) -> Watch<K> {
        let (client, which) = (&self.shared.client, watcher::Config::default());
        let undecoded = Api::all_with(client.clone(), &kind.resource());
        self.record(kind, need, undecoded, which.clone(), cache);
        Watch { kind, need, api: WatchedApi::new(client, api), which }
    }

    /// Objects of a kind that are not decoded here.
    fn untyped(
        &self,
        kind: Kind,
        need: ReadRequirement,
        which: watcher::Config,
        cache: Arc<dyn Cache>,
    ) -> Watch<DynamicObject> {
        let client = &self.shared.client;
        let api = |client| Api::<DynamicObject>::all_with(client, &kind.resource());
        self.record(kind, need, api(client.clone()), which.clone(), cache);
        Watch { kind, need, api: WatchedApi::new(client, api), which }
    }

    /// Records what is watched for the start of a term.
    fn record(
        &self,
        kind: Kind,
        need: ReadRequirement,
        api: Api<DynamicObject>,
        which: watcher::Config,
        cache: Arc<dyn Cache>,
    ) {
        let kind = kind.name.to_owned();
        self.shared.add_watched_kind(WatchedKind { kind, need, api, which, cache });
    }

    fn spawn<K, T>(
        &self,
        watch: Watch<K>,
        store: &Arc<Store<T>>,
        trim: impl Fn(K) -> Result<T, String> + Send + 'static,
        on_change: OnChange<T>,
    ) where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        let (store, stop) = (store.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            let Watch { kind, need, api, which } = watch;
            let (kind, presence) = (kind.name.to_owned(), need.presence());
            follow(api, which, kind, presence, &store, trim, on_change, stop).await;
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
