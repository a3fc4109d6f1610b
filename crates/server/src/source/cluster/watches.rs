//! What the config server reads from the API server: its watches, and a few single requests.
//!
//! What it is not: what follows from a change (see `follow` and `state`).

use super::CALL;
use super::built_image::InternalRegistry;
use api::first_boot::boot_token;
use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::{Backoff, call_within, is_answered, watch_with_starts};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// The API server ends a watch after this long, and the watch is resumed. A dead connection is noticed after this time
/// at the latest.
const WATCH_SECONDS: u32 = 60;
/// Waits between tries of a watch that fails. The last one bounds how late a change is seen after an outage.
const WATCH: Backoff = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(2) };
/// The ConfigMap with the CA bundle for machines.
const BUNDLE: &str = "kubeconfig-data";
/// The namespace of the cluster's own registry.
const REGISTRY_NAMESPACE: &str = "openshift-image-registry";

/// One event of a watch.
pub(super) enum Change {
    /// The API server has accepted the watch, and its kind can be read.
    Accepted,
    Pool(Event<DynamicObject>),
    Config(Event<PartialObjectMeta<MachineConfig>>),
    Settings(Event<DynamicObject>),
    Bundle(Event<ConfigMap>),
    Token(Event<Secret>),
    OsConfig(Event<DynamicObject>),
    OsBuild(Event<DynamicObject>),
}

/// A message of the watch of a kind.
pub(super) struct WatchMessage {
    pub(super) kind: &'static str,
    /// Whether the API server has answered.
    pub(super) answered: bool,
    /// An event, or why the watch failed.
    pub(super) change: Result<Change, watcher::Error>,
}

pub(super) type Changes = SelectAll<BoxStream<'static, WatchMessage>>;

/// The API server, as the config server reads it.
pub(super) struct Reader(pub(super) Client);

impl Reader {
    pub(super) fn watches(&self) -> Changes {
        let any = watcher::Config::default;
        let own = |name: &str| any().fields(&format!("metadata.name={name}"));
        let configs =
            self.watch("MachineConfig", Api::<PartialObjectMeta<MachineConfig>>::all, any(), Change::Config);
        let bundles = |client| Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let settings = ApiResource::erase::<ControllerConfig>(&());
        let settings = |client| Api::all_with(client, &settings);
        let pools = ApiResource::erase::<MachineConfigPool>(&());
        let mut all = Changes::new();
        all.push(self.watch(
            "MachineConfigPool",
            |client| Api::all_with(client, &pools),
            any(),
            Change::Pool,
        ));
        all.push(configs);
        all.push(self.watch("ControllerConfig", settings, own(CONTROLLER_CONFIG), Change::Settings));
        all.push(self.watch("ConfigMap", bundles, own(BUNDLE), Change::Bundle));
        all
    }

    pub(super) fn dynamic(
        &self,
        kind: &'static str,
        change: fn(Event<DynamicObject>) -> Change,
    ) -> BoxStream<'static, WatchMessage> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        self.watch(kind, |client| Api::all_with(client, &resource), watcher::Config::default(), change)
    }

    /// The watch of boot tokens.
    pub(super) fn token_watch(&self) -> BoxStream<'static, WatchMessage> {
        let secrets = |client| Api::<Secret>::namespaced(client, boot_token::NAMESPACE);
        self.watch("Secret", secrets, watcher::Config::default().labels(boot_token::LABEL), Change::Token)
    }

    fn watch<K>(
        &self,
        kind: &'static str,
        api: impl FnOnce(Client) -> Api<K>,
        which: watcher::Config,
        change: fn(Event<K>) -> Change,
    ) -> BoxStream<'static, WatchMessage>
    where
        K: kube::Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let events = watch_with_starts(&self.0, api, which.timeout(WATCH_SECONDS), WATCH);
        let message = move |event: Result<Option<Event<K>>, watcher::Error>| WatchMessage {
            kind,
            answered: is_answered(&event),
            change: event.map(|event| event.map_or(Change::Accepted, change)),
        };
        events.map(message).boxed()
    }

    /// Whether the cluster has MachineOSConfigs and MachineOSBuilds.
    pub(super) async fn has_builds(&self) -> bool {
        let version = format!("{GROUP}/v1");
        let what = || format!("list the kinds of {version}");
        let asked = call_within(CALL, what, self.0.list_api_group_resources(&version)).await;
        asked.is_ok_and(|list| {
            let has = |kind: &str| list.resources.iter().any(|r| r.kind == kind);
            has("MachineOSConfig") && has("MachineOSBuild")
        })
    }

    /// The hosts of the cluster's own registry. `None`: they cannot be found out.
    pub(super) async fn internal_registry(&self) -> Option<InternalRegistry> {
        let services: Api<Service> = Api::namespaced(self.0.clone(), REGISTRY_NAMESPACE);
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
        let routes: Api<DynamicObject> = Api::namespaced_with(self.0.clone(), REGISTRY_NAMESPACE, &route);
        let what = || format!("list Routes in {REGISTRY_NAMESPACE}");
        match call_within(CALL, what, routes.list(&all)).await {
            Ok(list) => hosts.extend(
                list.iter().filter_map(|r| r.data.pointer("/spec/host")?.as_str().map(str::to_owned)),
            ),
            // Without the kind there are no routes.
            Err(error) if error.is_not_found() => {}
            Err(_) => return None,
        }
        Some(InternalRegistry { hosts })
    }
}
