//! What the operator reads of the cluster before a pass, and the requests by which it writes and deletes.
//!
//! What it is not: deciding what to write (see `plan` and `objects`).

use super::down_nodes::{DownNodes, not_ready, unclear};
use super::objects::{FIELD_MANAGER, KEPT_BY, Key, Rollout, rollout, selector};
use super::push_secrets::PushSecrets;
use crate::accounts::BOOTSTRAP_TOKEN;
use crate::facts::release;
pub(crate) use crate::install::read_settings as settings;
use crate::monitoring::{MONITORING, READER};
pub(crate) use crate::objects::api_of;
use crate::objects::resource;
use api::first_boot::boot_token;
use api::k8s::{ConfigMap, Node, ObjectMeta, Pod, Secret};
use api::names::{CLUSTER, CONTROLLER_CONFIG, NAMESPACE, PUSHED_IMAGES};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig};
use api::v1alpha1::MachineConfigOperator;
use client::{CallError, call, call_optional};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::jiff::Timestamp;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube::core::{ApiResource, DynamicResourceScope};
use kube::{Client, Resource, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How many Nodes are asked for at a time.
const AT_ONCE: usize = 16;

/// A kind of objects that the operator keeps, and where they stand.
pub(super) struct Kind {
    /// Its group and version.
    pub(super) api_version: &'static str,
    /// Its name.
    pub(super) kind: &'static str,
    /// The namespaces; none: it has no namespace.
    pub(super) namespaces: &'static [&'static str],
}

const fn kind(api_version: &'static str, kind: &'static str, namespaces: &'static [&'static str]) -> Kind {
    Kind { api_version, kind, namespaces }
}

const HERE: &[&str] = &[NAMESPACE];
const HERE_AND_TOKENS: &[&str] = &[NAMESPACE, boot_token::NAMESPACE];
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
const MUTATING: &str = "MutatingAdmissionPolicy";

/// All kinds that are listed. A Secret is read by its name: the operator may not list Secrets.
pub(super) const KINDS: [Kind; 17] = [
    kind(RBAC, "ClusterRole", &[]),
    kind(RBAC, "ClusterRoleBinding", &[]),
    kind(ADMISSION, "ValidatingAdmissionPolicy", &[]),
    kind(ADMISSION, "ValidatingAdmissionPolicyBinding", &[]),
    // Since Kubernetes 1.36.
    kind(ADMISSION, MUTATING, &[]),
    kind(ADMISSION, "MutatingAdmissionPolicyBinding", &[]),
    kind("v1", "ServiceAccount", HERE),
    kind(RBAC, "Role", HERE_AND_TOKENS),
    kind(RBAC, "RoleBinding", HERE_AND_TOKENS),
    kind("apps/v1", "Deployment", HERE),
    kind("apps/v1", "DaemonSet", HERE),
    kind("v1", "Service", HERE),
    kind("policy/v1", "PodDisruptionBudget", HERE),
    kind("networking.k8s.io/v1", "NetworkPolicy", HERE),
    kind("v1", "ConfigMap", HERE),
    // Of another operator: there may be none of them.
    kind(MONITORING, "ServiceMonitor", HERE),
    kind(MONITORING, "PrometheusRule", HERE),
];

impl Kind {
    /// Whether it may not be served: it is another program's, or newer than the oldest Kubernetes that is supported.
    pub(super) fn may_be_missing(&self) -> bool {
        self.api_version == MONITORING || self.kind.starts_with(MUTATING)
    }

    /// How its objects are asked for; `None`: it is not one of those that are installed.
    pub(super) fn resource(&self) -> Option<ApiResource> {
        resource(&json!({"apiVersion": self.api_version, "kind": self.kind}))
    }

    /// Where its objects stand.
    pub(super) fn places(&self) -> Vec<Place> {
        match self.namespaces {
            [] => vec![Place(None)],
            all => all.iter().map(|namespace| Place(Some(namespace))).collect(),
        }
    }

    /// The API of its objects, one for each namespace.
    fn apis<K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>>(
        &self,
        client: &Client,
    ) -> Vec<Api<K>> {
        let Some(resource) = self.resource() else { return vec![] };
        self.places().iter().map(|place| place.api(client.clone(), &resource)).collect()
    }
}

/// A namespace; `None`: objects without one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(Option<&'static str>);

impl Place {
    /// The API of a kind's objects there.
    pub(super) fn api<K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>>(
        self,
        client: Client,
        resource: &ApiResource,
    ) -> Api<K> {
        match self.0 {
            None => Api::all_with(client, resource),
            Some(namespace) => Api::namespaced_with(client, namespace, resource),
        }
    }
}

/// Selects the objects that the operator keeps.
pub(super) fn kept_label() -> String {
    format!("{}={}", KEPT_BY.0, KEPT_BY.1)
}

/// What a pass works with.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    /// The settings. `None`: nothing was installed by settings; the parts run elsewhere.
    pub(super) settings: Option<MachineConfigOperator>,
    /// The ControllerConfig, as the API server returned it.
    pub(super) config: Option<Value>,
    /// MachineConfiguration `cluster`.
    pub(super) machine_configuration: Option<Value>,
    /// Settings in use that a later version treats otherwise, see [`super::status::evaluation`].
    pub(super) evaluation: Vec<&'static str>,
    /// Pools whose image builds were interrupted, see [`super::image_builds`].
    pub(super) interrupted: Vec<String>,
    /// The Secrets that images are pushed with.
    pub(super) push_secrets: PushSecrets,
    /// All pools.
    pub(super) pools: Vec<MachineConfigPool>,
    /// The objects with our label, each with its kind.
    pub(super) kept: Vec<Value>,
    /// The nodes that are down, for each of the DaemonSets that are being rolled out.
    pub(super) down: BTreeMap<Key, DownNodes>,
    /// The definitions of kinds: metadata alone.
    pub(super) definitions: Vec<Value>,
    /// Whether MutatingAdmissionPolicies are served.
    pub(super) mutates: bool,
    /// The release's payload, as far as it is there.
    pub(super) release: release::PayloadSources,
}

/// The ControllerConfig, as the API server returns it.
pub(crate) async fn config(client: &Client) -> Result<Option<Value>, CallError> {
    let resource = ApiResource::erase::<ControllerConfig>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let found =
        call_optional(|| format!("get ControllerConfig {CONTROLLER_CONFIG}"), api.get(CONTROLLER_CONFIG))
            .await?;
    Ok(found.map(|c| json!(c)))
}

/// MachineConfiguration `cluster`, as the API server returns it.
pub(super) async fn machine_configuration(client: &Client) -> Result<Option<Value>, CallError> {
    let Some(api) = api_of(client, &super::machine_configuration::new()) else { return Ok(None) };
    let found = call_optional(|| format!("get MachineConfiguration {CLUSTER}"), api.get(CLUSTER)).await?;
    Ok(found.map(|object| json!(object)))
}

/// What KubeletConfigs and ContainerRuntimeConfigs set that a later version treats otherwise.
async fn evaluation(client: &Client) -> Result<Vec<&'static str>, CallError> {
    let mut all = vec![];
    for kind in ["KubeletConfig", "ContainerRuntimeConfig"] {
        let like = json!({"apiVersion": format!("{}/v1", api::names::GROUP), "kind": kind});
        let Some(api) = api_of(client, &like) else { continue };
        let found =
            call_optional(|| format!("list {kind} objects"), api.list(&ListParams::default())).await?;
        all.extend(found.into_iter().flatten().map(|object| json!(object)));
    }
    Ok(super::status::evaluation(&all))
}

/// Pools whose image builds were interrupted, and the Secrets that images are pushed with; none where the kinds do not exist.
async fn image_builds(client: &Client) -> Result<(Vec<String>, PushSecrets), CallError> {
    let all = ListParams::default();
    let configs: Api<MachineOSConfig> = Api::all(client.clone());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let what = format!("get ConfigMap {PUSHED_IMAGES}");
    let (configs, list) = futures::try_join!(
        call_optional(|| "list MachineOSConfigs".to_owned(), configs.list(&all)),
        call_optional(|| what, maps.get(PUSHED_IMAGES))
    )?;
    let configs = configs.map(|l| l.items).unwrap_or_default();
    let push_secrets = PushSecrets::of(&configs, list.as_ref());
    if configs.is_empty() {
        return Ok((vec![], push_secrets));
    }
    let builds: Api<MachineOSBuild> = Api::all(client.clone());
    let builds =
        call_optional(|| "list MachineOSBuilds".to_owned(), builds.list(&all)).await?.map(|l| l.items);
    Ok((super::image_builds::interrupted(&configs, &builds.unwrap_or_default()), push_secrets))
}

/// All pools; none where the kind does not exist yet.
pub(crate) async fn pools(client: &Client) -> Result<Vec<MachineConfigPool>, CallError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let found =
        call_optional(|| "list MachineConfigPools".to_owned(), pools.list(&ListParams::default())).await?;
    Ok(found.map(|list| list.items).unwrap_or_default())
}

/// The metadata of the rendered configs that these pools name; one that is not there is left out.
pub(super) async fn rendered(
    client: &Client,
    pools: &[MachineConfigPool],
) -> Result<Vec<ObjectMeta>, CallError> {
    let api: Api<MachineConfig> = Api::all(client.clone());
    let names =
        pools.iter().map(|pool| pool.spec.configuration.name.as_str()).filter(|name| !name.is_empty());
    let reads = names.map(|name| {
        let request = api.get_metadata(name);
        async move { call_optional(|| format!("get MachineConfig {name}"), request).await }
    });
    Ok(try_join_all(reads).await?.into_iter().flatten().map(|object| object.metadata).collect())
}

/// Reads everything that the steps need.
pub(super) async fn read(client: &Client) -> Result<ClusterState, CallError> {
    let settings = settings(client).await?;
    let all = ListParams::default();
    if settings.is_none() {
        let (config, pools) = futures::try_join!(config(client), pools(client))?;
        return Ok(ClusterState { config, pools, ..ClusterState::default() });
    }
    let definitions: Option<Api<DynamicObject>> =
        resource(&json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}))
            .map(|r| Api::all_with(client.clone(), &r));
    let definitions = async {
        let Some(api) = definitions else { return Ok(vec![]) };
        let found = call(|| "list CustomResourceDefinitions".to_owned(), api.list_metadata(&all)).await?;
        Ok(found.items.iter().map(|o| json!(o)).collect::<Vec<_>>())
    };
    let mutates = async {
        let what = format!("list the kinds of {ADMISSION}");
        let kinds = call_optional(|| what, client.list_api_group_resources(ADMISSION)).await?;
        Ok(kinds.is_some_and(|all| all.resources.iter().any(|r| r.kind == MUTATING)))
    };
    let (config, machine_configuration, evaluation, builds, pools, kept, definitions, mutates, release) = futures::try_join!(
        config(client),
        machine_configuration(client),
        evaluation(client),
        image_builds(client),
        pools(client),
        kept_objects(client),
        definitions,
        mutates,
        release::read(client)
    )?;
    let (interrupted, push_secrets) = builds;
    // Where that is not known, a rollout waits for all nodes.
    let down = down_nodes(client, &kept).await.unwrap_or_else(|error| {
        tracing::debug!("which nodes are down is not known: {}", error.chain());
        BTreeMap::new()
    });
    Ok(ClusterState {
        settings,
        config,
        machine_configuration,
        evaluation,
        interrupted,
        push_secrets,
        pools,
        kept,
        down,
        definitions,
        mutates,
        release,
    })
}

/// The nodes that are down, for each of these DaemonSets that is being rolled out. Of all others nobody asks, and reading all Nodes
/// of a large cluster costs: only those are read whose pod does not work.
pub(super) async fn down_nodes(
    client: &Client,
    kept: &[Value],
) -> Result<BTreeMap<Key, DownNodes>, CallError> {
    let none = DownNodes::default();
    let is_moving = |o: &&Value| o["kind"] == "DaemonSet" && matches!(rollout(o, &none), Rollout::Moving(_));
    let moving: Vec<&Value> = kept.iter().filter(is_moving).collect();
    let mut all = BTreeMap::new();
    for set in moving {
        let pods = pods(client, &selector(set)).await?;
        let now = Timestamp::now();
        let api: Api<Node> = Api::all(client.clone());
        let reads = unclear(&pods, now).into_iter().map(|name| {
            let api = api.clone();
            async move { call_optional(|| format!("get Node {name}"), api.get(&name)).await }
        });
        let nodes: Vec<Option<Node>> =
            futures::stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
        let not_ready = not_ready(nodes.iter().flatten());
        all.insert(Key::of(set), DownNodes::of(set, &pods, &not_ready, now));
    }
    Ok(all)
}

/// The objects with our label, and the Secrets of booting machines and of who reads metrics.
pub(crate) async fn kept_objects(client: &Client) -> Result<Vec<Value>, CallError> {
    let params = ListParams::default().labels(&kept_label());
    let lists = KINDS
        .iter()
        .flat_map(|kind| kind.apis::<DynamicObject>(client).into_iter().map(move |api| (kind, api)));
    let lists = lists.map(|(kind, api)| {
        let params = params.clone();
        async move {
            let list = call_optional(|| format!("list {} objects", kind.kind), api.list(&params)).await?;
            let typed = |object: DynamicObject| {
                let mut object = json!(object);
                object["apiVersion"] = json!(kind.api_version);
                object["kind"] = json!(kind.kind);
                object
            };
            Ok::<_, CallError>(list.map(|l| l.items.into_iter().map(typed).collect()).unwrap_or_default())
        }
    });
    let mut all: Vec<Value> =
        try_join_all(lists).await?.into_iter().flat_map(|list: Vec<Value>| list).collect();
    // Their data stay with the API server: only the metadata is read.
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    for name in [BOOTSTRAP_TOKEN, READER] {
        let what = format!("get Secret {name}");
        if let Some(secret) = call_optional(|| what, secrets.get_metadata(name)).await? {
            let mut object = json!(secret);
            object["apiVersion"] = json!("v1");
            object["kind"] = json!("Secret");
            object["type"] = json!("kubernetes.io/service-account-token");
            all.push(object);
        }
    }
    Ok(all)
}

fn words(object: &Value) -> String {
    super::objects::Key::of(object).to_string()
}

/// Applies an object, and returns it as it stands then.
pub(crate) async fn apply(client: &Client, object: &Value) -> Result<Value, CallError> {
    let Some(api) = api_of(client, object) else {
        let why = "this kind is not one that is installed".to_owned();
        return Err(CallError::Malformed { what: words(object), why });
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(object);
    let written = call(|| format!("apply {}", words(object)), api.patch(name, &params, &patch)).await?;
    let mut written = json!(written);
    for key in ["apiVersion", "kind"] {
        written[key] = object[key].clone();
    }
    Ok(written)
}

/// Deletes this object, and no other that has been given its name since. One that is gone already is deleted, too.
pub(crate) async fn delete(client: &Client, object: &Value) -> Result<(), CallError> {
    let Some(api) = api_of(client, object) else { return Ok(()) };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(Preconditions {
            uid: object["metadata"]["uid"].as_str().map(str::to_owned),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    call_optional(|| format!("delete {}", words(object)), api.delete(name, &params)).await.map(drop)
}

/// The pods of a workload.
pub(crate) async fn pods(client: &Client, selector: &str) -> Result<Vec<Pod>, CallError> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let params = ListParams::default().labels(selector);
    Ok(call(|| format!("list pods with {selector}"), api.list(&params)).await?.items)
}

/// The minor version of the API server, and of each kubelet.
pub(super) async fn kubelets(client: &Client) -> Result<Option<(u64, Vec<(String, u64)>)>, CallError> {
    let version = call(|| "get the API server's version".to_owned(), client.apiserver_version()).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = call(|| "list Nodes".to_owned(), nodes.list(&ListParams::default())).await?;
    let of = |node: &Node| {
        let text = &node.status.as_ref()?.node_info.as_ref()?.kubelet_version;
        Some((node.name_any(), super::status::minor(text)?))
    };
    let server = super::status::minor(&format!("{}.{}", version.major, version.minor));
    Ok(server.map(|server| (server, nodes.iter().filter_map(of).collect())))
}
