//! The watches of all kinds that plans are made from: which kinds are watched, what is kept of each object, and which
//! [`Changed`](crate::dirty::Changed) a change of it becomes.
//!
//! What it is not: how one kind is watched (see `watch`), or what a change makes dirty (see `dirty`).

use crate::cache::follow_settings;
use crate::cache::store::{Cache, Change, Store};
use crate::cache::stores::{Config, operator_node};
use crate::cache::template_inputs;
use crate::cache::trimmed::{TrimmedMachineConfigNode, TrimmedNode};
use crate::cache::watch::{OnChange, Presence, follow, follow_ours};
use crate::cache::watched_kind::{Need, WatchedKind};
use crate::dirty::Changed;
use crate::shared::Shared;
use api::k8s::{Node, Pod};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use rollout::view::{OsBuild, OsConfig};
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
        self.follows(WatchedKind {
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
