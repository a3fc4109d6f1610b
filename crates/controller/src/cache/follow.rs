//! The watches of all kinds that plans are made from: which kinds are watched, what is kept of each object, and which
//! [`Changed`](crate::dirty::Changed) a change of it becomes.
//!
//! What it is not: how one kind is watched (see `watch`), or what a change makes dirty (see `dirty`).

use crate::cache::store::{Cache, Change, Store};
use crate::cache::stores::{
    Config, ImageBuild, ImageConfig, TrimmedMachineConfigNode, TrimmedNode, operator_node,
};
use crate::cache::watch::{Need, OnChange, Presence, WatchedKind, follow, follow_ours};
use crate::cache::{follow_settings, template_inputs};
use crate::dirty::Changed;
use crate::shared::Shared;
use api::k8s::{Node, Pod};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, PinnedImageSet};
use api::v1alpha1::RolloutPolicy;
use build::JobFacts;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use rollout::view::EtcdMember;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

impl Shared {
    /// The same, for a kind of which all objects are watched.
    fn follows_all<K>(&self, need: Need, cache: Arc<dyn Cache>)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let api = Api::all_with(self.client.clone(), &resource);
        self.follows(WatchedKind {
            kind: resource.kind,
            need,
            api,
            which: watcher::Config::default(),
            cache,
        });
    }

    /// Starts the watches. They run until `stop`, whichever controller leads.
    pub(crate) fn watch(self: &Arc<Self>, tasks: &TaskTracker, stop: &CancellationToken) {
        let client = || self.client.clone();
        let stores = &self.stores;
        self.follows_all::<MachineConfigPool>(Need::Always, stores.pools.clone());
        self.follows_all::<MachineConfig>(Need::Always, stores.configs.clone());
        self.follows_all::<ControllerConfig>(Need::Always, stores.controller_configs.clone());
        self.follows_all::<RolloutPolicy>(Need::WhereServed, stores.rollout_policies.clone());
        self.follows_all::<PinnedImageSet>(Need::WhereServed, stores.pinned_image_sets.clone());
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
            self.then(|change| Changed::Pool(change)),
            stop.clone(),
        ));
        tasks.spawn(follow_ours(
            client(),
            Presence::Required,
            stores.configs.clone(),
            Config::new,
            self.then(|change| Changed::Config(change)),
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
            self.then(|change| Changed::ControllerConfig(change)),
            stop.clone(),
        ));
        tasks.spawn(follow_ours(
            client(),
            Presence::Optional,
            stores.rollout_policies.clone(),
            |mut p: RolloutPolicy| {
                p.metadata.managed_fields = None;
                p
            },
            self.then(|change| Changed::RolloutPolicy(change)),
            stop.clone(),
        ));
        tasks.spawn(follow_ours(
            client(),
            Presence::Optional,
            stores.pinned_image_sets.clone(),
            |mut set: PinnedImageSet| {
                set.metadata.managed_fields = None;
                // Which images they are is up to the agents.
                set.spec.pinned_images = vec![];
                set
            },
            self.then(|change| Changed::PinnedImageSet(change)),
            stop.clone(),
        ));
        self.watch_optional(tasks, stop);
        follow_settings::watch(self, tasks, stop);
        tasks.spawn(template_inputs::follow_folder(self.clone(), stop.clone()));
        tasks.spawn(template_inputs::follow_pull_secret(self.clone(), stop.clone()));
        let (progress, on_change) =
            (stores.progress.clone(), self.then(|change| Changed::MachineConfigNode(change)));
        let (api, token) = (Api::<TrimmedMachineConfigNode>::all(client()), stop.clone());
        tasks.spawn(async move {
            let keep = |object: TrimmedMachineConfigNode| Ok(object.0);
            let (config, kind) = (watcher::Config::default(), "MachineConfigNode".to_owned());
            follow(api, config, kind, Presence::Optional, &progress, keep, on_change, token).await;
        });
        let (me, nodes, on_change) =
            (self.clone(), stores.nodes.clone(), self.then(|change| Changed::Node(change)));
        let (api, stop) = (Api::<TrimmedNode>::all(client()), stop.clone());
        tasks.spawn(async move {
            let keep = |node: TrimmedNode| Ok(me.view(&node.0));
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

    /// Watches of kinds that need not be installed. Any change of their objects is an input of the whole plan.
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
            self.follows(WatchedKind { kind: kind.to_owned(), need, api: api.clone(), which, cache });
            api
        };
        let os_configs = note(ours, "MachineOSConfig", Need::WhereServed, any(), stores.os_configs.clone());
        let os_builds = note(ours, "MachineOSBuild", Need::WhereServed, any(), stores.os_builds.clone());
        self.watch_builds(tasks, os_configs, os_builds, stop);
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
        let pods = |namespace: &str, labels: &str, need: Need, cache: Arc<dyn Cache>| {
            let only = watcher::Config::default().labels(labels);
            self.follows(WatchedKind {
                kind: "Pod".to_owned(),
                need,
                api: Api::namespaced_with(self.client.clone(), namespace, &ApiResource::erase::<Pod>(&())),
                which: only.clone(),
                cache,
            });
            (Api::<Pod>::namespaced(self.client.clone(), namespace), only)
        };
        let operator = "k8s-app=machine-config-operator";
        let (api, only) = pods(api::names::NAMESPACE, operator, Need::Aside, stores.operator_nodes.clone());
        self.optional(tasks, api, only, &stores.operator_nodes, |p: Pod| Ok(operator_node(&p)), stop);
        for ((namespace, label), store) in EtcdMember::PLACES.into_iter().zip(&stores.etcd) {
            let (api, only) = pods(namespace, label, Need::WhereServed, store.clone());
            self.optional(tasks, api, only, store, |p: Pod| Ok(EtcdMember::of(&p)), stop);
        }
    }

    /// Watches of image builds: MachineOSConfigs, MachineOSBuilds, and the Jobs that build.
    fn watch_builds(
        self: &Arc<Self>,
        tasks: &TaskTracker,
        os_configs: Api<DynamicObject>,
        os_builds: Api<DynamicObject>,
        stop: &CancellationToken,
    ) {
        let jobs = ApiResource::from_gvk(&GroupVersionKind::gvk("batch", "v1", "Job"));
        let jobs: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), api::names::NAMESPACE, &jobs);
        let ours = watcher::Config::default().labels(build::names::LAYERING);
        let store = self.stores.build_jobs.clone();
        self.follows(WatchedKind {
            kind: "Job".to_owned(),
            need: Need::WhereServed,
            api: jobs.clone(),
            which: ours.clone(),
            cache: store.clone(),
        });
        let (me, token) = (self.clone(), stop.clone());
        tasks.spawn(async move {
            let on_change: OnChange<JobFacts> = Box::new(move |change| {
                for job in [&change.old, &change.new].into_iter().flatten() {
                    me.changed(&Changed::ImageBuild(&job.pool));
                }
            });
            let keep = |o: DynamicObject| Ok(JobFacts::new(&serde_json::json!(o)));
            let kind = "Job".to_owned();
            follow(jobs, ours, kind, Presence::Optional, &store, keep, on_change, token).await;
        });
        let (me, store, token) = (self.clone(), self.stores.os_configs.clone(), stop.clone());
        tasks.spawn(async move {
            let on_change: OnChange<ImageConfig> = Box::new(move |change| me.os_config_changed(change));
            let keep = |o: DynamicObject| Ok(ImageConfig::new(serde_json::json!(o)));
            let (config, kind) = (watcher::Config::default(), "machineosconfigs".to_owned());
            follow(os_configs, config, kind, Presence::Optional, &store, keep, on_change, token).await;
        });
        let (me, store, token) = (self.clone(), self.stores.os_builds.clone(), stop.clone());
        tasks.spawn(async move {
            let on_change: OnChange<ImageBuild> = Box::new(move |change| me.os_build_changed(change));
            let keep = |o: DynamicObject| Ok(ImageBuild::new(serde_json::json!(o)));
            let (config, kind) = (watcher::Config::default(), "machineosbuilds".to_owned());
            follow(os_builds, config, kind, Presence::Optional, &store, keep, on_change, token).await;
        });
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
        let me = self.clone();
        let on_change: OnChange<T> = Box::new(move |change| {
            if change.old != change.new {
                me.changed(&Changed::PlanInput);
            }
        });
        tasks.spawn(async move {
            follow(api, config, kind, Presence::Optional, &store, keep, on_change, stop).await;
        });
    }

    fn then<T: 'static>(self: &Arc<Self>, of: for<'a> fn(&'a Change<T>) -> Changed<'a>) -> OnChange<T> {
        let me = self.clone();
        Box::new(move |change| me.changed(&of(change)))
    }
}
