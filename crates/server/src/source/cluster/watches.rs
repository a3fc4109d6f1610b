//! What the config server reads from the API server: its watches, and a few single requests.
//!
//! What it is not: what follows from a change (see `follow` and `state`).

use super::CALL;
use super::layered::InternalRegistry;
use api::boot_token;
use api::names::{CONTROLLER_CONFIG, GROUP, NAMESPACE};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::{Backoff, call_within};
use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt as _};
use std::time::Duration;

/// The API server ends a watch after this long, and the watch is resumed. A dead connection is noticed after this time
/// at the latest.
const WATCH_SECONDS: u32 = 60;
/// Waits between tries of a watch that fails. The last one bounds how late a change is seen after an outage.
const WATCH: Backoff = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(2) };
/// The ConfigMap with the CA bundle for machines.
const BUNDLE: &str = "kubeconfig-data";
/// The kind of boot tokens.
const SECRET: &str = "Secret";
/// The namespace of the cluster's own registry.
const REGISTRY_NAMESPACE: &str = "openshift-image-registry";

/// One event of a watch.
pub(super) enum Change {
    Pool(Event<DynamicObject>),
    Config(Event<PartialObjectMeta<MachineConfig>>),
    Settings(Event<DynamicObject>),
    Bundle(Event<ConfigMap>),
    Token(Event<Secret>),
    OsConfig(Event<DynamicObject>),
    OsBuild(Event<DynamicObject>),
}

pub(super) type Changes = SelectAll<BoxStream<'static, (&'static str, Result<Change, watcher::Error>)>>;

/// The API server, as the config server reads it.
pub(super) struct Reader(pub(super) Client);

impl Reader {
    pub(super) fn watches(&self) -> Changes {
        let client = &self.0;
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

    pub(super) fn dynamic(
        &self,
        kind: &'static str,
        change: fn(Event<DynamicObject>) -> Change,
    ) -> BoxStream<'static, (&'static str, Result<Change, watcher::Error>)> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
        let api: Api<DynamicObject> = Api::all_with(self.0.clone(), &resource);
        let stream = watcher::watcher(api, watcher::Config::default().timeout(WATCH_SECONDS));
        stream.backoff(WATCH.series()).map(move |e| (kind, e.map(change))).boxed()
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

    /// Whether the API server lists a kind, with the same selection as its watch. Each kind is asked for separately: the API
    /// server may answer for others while this kind, or our right to it, is gone.
    pub(super) async fn can_list(&self, kind: &'static str) -> bool {
        let one = ListParams::default().limit(1);
        let gvk = |group: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let (api, one): (Api<DynamicObject>, _) = match kind {
            "ConfigMap" => (
                Api::namespaced_with(self.0.clone(), NAMESPACE, &gvk("")),
                one.fields(&format!("metadata.name={BUNDLE}")),
            ),
            SECRET => (
                Api::namespaced_with(self.0.clone(), boot_token::NAMESPACE, &gvk("")),
                one.labels(boot_token::LABEL),
            ),
            "ControllerConfig" => (
                Api::all_with(self.0.clone(), &gvk(GROUP)),
                one.fields(&format!("metadata.name={CONTROLLER_CONFIG}")),
            ),
            _ => (Api::all_with(self.0.clone(), &gvk(GROUP)), one),
        };
        call_within(CALL, || format!("list {kind}"), api.list_metadata(&one)).await.is_ok()
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

    /// The watch of boot tokens.
    pub(super) fn token_watch(&self) -> BoxStream<'static, (&'static str, Result<Change, watcher::Error>)> {
        let secrets: Api<Secret> = Api::namespaced(self.0.clone(), boot_token::NAMESPACE);
        let labelled = watcher::Config::default().labels(boot_token::LABEL).timeout(WATCH_SECONDS);
        let tokens = watcher::watcher(secrets, labelled);
        tokens.backoff(WATCH.series()).map(|e| (SECRET, e.map(Change::Token))).boxed()
    }
}
