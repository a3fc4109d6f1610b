//! Every call to the API server that a node agent makes. Each has a timeout, and an error that names what was tried.
//! No call is retried here: the agent waits, reads its Node again and decides again.
//!
//! Not here: the watch of the agent's own Node (see [`crate::cluster::own_node`]).

use crate::protocol::{AgentNote, Changes, Cordon, EMPTY_CONFIG, NodeFacts};
use api::k8s::{Event, Node, ObjectMeta, ObjectReference, Time};
use api::names::{CLUSTER, CONTROLLER_CONFIG, NAMESPACE, annotation};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use client::{CallError, call, call_within};
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{GetParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Resource as _};
use rollout::view::{CordonMark, own};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The time limit for writing an event. Events are best effort and must not delay anything for longer.
const EVENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The component that events name as their source. Existing dashboards use this name.
const COMPONENT: &str = "machineconfigdaemon";
/// The field manager of our patches.
const FIELD_MANAGER: &str = "machine-config-daemon";

/// The API server, seen from one node.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    node: String,
    /// The duration of the last call in milliseconds.
    last: Arc<AtomicU64>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(client: Client, node: &str) -> Self {
        Self { client, node: node.to_owned(), last: Arc::default() }
    }

    async fn call<T>(&self, what: String, f: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
        let begun = Instant::now();
        let answer = call(|| what, f).await;
        let took = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(took, Ordering::Relaxed);
        answer
    }

    /// How long the last call took, in whole milliseconds: a measure of the API server's load.
    pub(crate) fn last_call(&self) -> Duration {
        Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    /// Sets annotations on the agent's own Node, and its cordon, in one patch. `seen` is the Node that this was decided by. If
    /// another Node of that name was created since, or with `unchanged` if anybody has changed this one, nothing is written, and
    /// the error is a conflict. Before the agent has seen its Node, it has no UID to name, and writes to whichever Node there is.
    pub(crate) async fn annotate(
        &self,
        changes: &Changes,
        cordon: Option<Cordon>,
        seen: &NodeFacts,
        unchanged: bool,
    ) -> Result<Node, CallError> {
        let mut patch = json!({ "metadata": { "uid": seen.uid, "annotations": changes } });
        for key in [annotation::CURRENT_IMAGE, annotation::DESIRED_IMAGE, own::PREVIOUS_IMAGE, own::SENT] {
            if changes.get(key).is_some_and(String::is_empty) {
                patch["metadata"]["annotations"][key] = Value::Null;
            }
        }
        if let Some(cordon) = cordon {
            let begins = cordon == Cordon::Begin;
            let mark = if begins { CordonMark::Daemon.text().into() } else { Value::Null };
            patch["metadata"]["annotations"][own::CORDON] = mark;
            patch["spec"] = json!({ "unschedulable": begins });
        }
        if unchanged {
            patch["metadata"]["resourceVersion"] = seen.resource_version.as_str().into();
        }
        // For these fields it has the same effect as a merge patch, but the API server does not have to convert the
        // Node to JSON and back.
        self.patch_node(&Patch::Strategic(patch)).await
    }

    /// Sets the annotations that the first boot left for the Node `seen`, as [`Self::annotate`] does.
    pub(crate) async fn annotate_from_file(
        &self,
        notes: &BTreeMap<String, String>,
        seen: &NodeFacts,
    ) -> Result<Node, CallError> {
        self.patch_node(&Patch::Merge(json!({ "metadata": { "uid": seen.uid, "annotations": notes } }))).await
    }

    /// Sets annotations that describe this host, on the Node that has its name, whichever object that is.
    pub(crate) async fn describe_host(&self, notes: &BTreeMap<String, String>) -> Result<Node, CallError> {
        self.patch_node(&Patch::Merge(json!({ "metadata": { "annotations": notes } }))).await
    }

    async fn patch_node(&self, patch: &Patch<Value>) -> Result<Node, CallError> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let api: Api<Node> = Api::all(self.client.clone());
        let what = format!("setting annotations of Node {}", self.node);
        self.call(what, api.patch(&self.node, &params, patch)).await
    }

    /// The version of the API server. `None`: it does not say, or in a form that is not known.
    pub(crate) async fn version(&self) -> Option<host::KubernetesVersion> {
        match self.call("getting the API server's version".to_owned(), self.client.apiserver_version()).await
        {
            Ok(info) => host::KubernetesVersion::parse(&info.git_version),
            Err(error) => {
                tracing::warn!(
                    error = error.chain(),
                    "the kubelet of an image is not compared with the API server"
                );
                None
            }
        }
    }

    /// The agent's own Node as etcd has it now, not from the API server's cache.
    pub(crate) async fn own_node(&self) -> Result<Node, CallError> {
        let api: Api<Node> = Api::all(self.client.clone());
        self.call(format!("getting Node {}", self.node), api.get(&self.node)).await
    }

    /// The name of the agent's own Node.
    pub(crate) fn node_name(&self) -> &str {
        &self.node
    }

    /// A rendered config by name. The empty config has no object. A rendered config never changes, so the API server
    /// may answer from its cache: a thousand nodes may ask at once.
    pub(crate) async fn config(&self, name: &str) -> Result<MachineConfig, CallError> {
        if name == EMPTY_CONFIG {
            return Ok(empty_config());
        }
        // Not decoded into the type directly: an error must name the field and never show its value.
        let api: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &ApiResource::erase::<MachineConfig>(&()));
        let what = || format!("getting MachineConfig {name}");
        let answer = match self.call(what(), api.get_with(name, &GetParams::any())).await {
            Err(error) if error.is_not_found() => self.call(what(), api.get(name)).await,
            answer => answer,
        };
        let config = client::decode(answer?).map_err(|why| CallError::Malformed { what: what(), why })?;
        Ok(desired::by_digest(config))
    }

    /// All pools. Read once in a node's life.
    pub(crate) async fn pools(&self) -> Result<Vec<MachineConfigPool>, CallError> {
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        let list =
            self.call("listing MachineConfigPools".to_owned(), api.list(&ListParams::default())).await?;
        Ok(list.items)
    }

    /// The same, but the API server may answer from its cache: each node may ask after a change.
    pub(crate) async fn cached_pools(&self) -> Result<Vec<MachineConfigPool>, CallError> {
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        let any = ListParams::default().match_any();
        Ok(self.call("listing MachineConfigPools".to_owned(), api.list(&any)).await?.items)
    }

    /// Who labels the cluster's nodes. Unknown without a ControllerConfig. Read together with the pools.
    pub(crate) async fn kind(&self) -> Result<rollout::Cluster, CallError> {
        let api: Api<ControllerConfig> = Api::all(self.client.clone());
        let what = format!("getting ControllerConfig {CONTROLLER_CONFIG}");
        match self.call(what, api.get_with(CONTROLLER_CONFIG, &GetParams::any())).await {
            Ok(config) => Ok(rollout::Cluster::of(Some(&config.spec))),
            Err(e) if e.is_not_found() => Ok(rollout::Cluster::Unknown),
            Err(e) => Err(e),
        }
    }

    /// The addresses of the cluster's API servers, from the EndpointSlice that they maintain. `None`: this node may
    /// not read it, or there is none.
    pub(crate) async fn api_servers(&self) -> Result<Option<Vec<String>>, CallError> {
        let api: Api<EndpointSlice> = Api::namespaced(self.client.clone(), "default");
        match self.call("getting EndpointSlice default/kubernetes".to_owned(), api.get("kubernetes")).await {
            Ok(slice) => Ok(Some(slice.endpoints.into_iter().flatten().flat_map(|e| e.addresses).collect())),
            Err(e) if e.is_client_error() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The cluster's MachineConfiguration, which has the disruption policies. `None`: there is none.
    pub(crate) async fn machine_configuration(&self) -> Result<Option<Value>, CallError> {
        let kind = GroupVersionKind::gvk("operator.openshift.io", "v1", "MachineConfiguration");
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        let what = format!("getting MachineConfiguration {CLUSTER}");
        // The API server may answer from its cache: that is as recent as a watch, and a thousand nodes may ask at
        // once.
        let object = client::if_found(self.call(what, api.get_with(CLUSTER, &GetParams::any())).await)?;
        Ok(object.map(|object| {
            let mut value = object.data;
            let annotations = object.metadata.annotations;
            value["metadata"] =
                json!({ "generation": object.metadata.generation, "annotations": annotations });
            value
        }))
    }

    /// The node's own MachineConfigNode. Unless `latest` is asked for, it comes from the API server's cache. A change
    /// based on an outdated one ends in a conflict.
    pub(crate) async fn progress(&self, latest: bool) -> Result<Option<MachineConfigNode>, CallError> {
        let api: Api<MachineConfigNode> = Api::all(self.client.clone());
        let what = || format!("getting MachineConfigNode {}", self.node);
        if !latest {
            match self.call(what(), api.get_with(&self.node, &GetParams::any())).await {
                Err(error) if error.is_not_found() => {}
                answer => return answer.map(Some),
            }
        }
        self.call(what(), api.get_opt(&self.node)).await
    }

    /// Creates the node's own MachineConfigNode. It is a conflict if the controller has created it meanwhile.
    pub(crate) async fn create_progress(
        &self,
        object: &MachineConfigNode,
    ) -> Result<MachineConfigNode, CallError> {
        let api: Api<MachineConfigNode> = Api::all(self.client.clone());
        let what = format!("creating MachineConfigNode {}", self.node);
        self.call(what, api.create(&PostParams::default(), object)).await
    }

    /// Patches the status of the node's own MachineConfigNode.
    pub(crate) async fn patch_progress_status(
        &self,
        patch: &Patch<Value>,
    ) -> Result<MachineConfigNode, CallError> {
        let api: Api<MachineConfigNode> = Api::all(self.client.clone());
        let what = format!("changing the status of MachineConfigNode {}", self.node);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.call(what, api.patch_status(&self.node, &params, patch)).await
    }

    /// Patches the node's own MachineConfigNode, except its status.
    pub(crate) async fn patch_progress(&self, patch: &Patch<Value>) -> Result<MachineConfigNode, CallError> {
        let api: Api<MachineConfigNode> = Api::all(self.client.clone());
        let what = format!("changing MachineConfigNode {}", self.node);
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        self.call(what, api.patch(&self.node, &params, patch)).await
    }

    /// Writes an event on the agent's own Node. Best effort: an event that cannot be written is logged.
    pub(crate) async fn create_event(&self, note: &AgentNote, uid: &str, now: Timestamp) {
        let reason = note.kind.text().to_owned();
        let AgentNote { kind, text, config } = note;
        tracing::info!(node = %self.node, event = %reason, "{text}");
        let name = format!("{}.{:x}", self.node, now.as_nanosecond());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(NAMESPACE.to_owned()),
                ..Default::default()
            },
            involved_object: ObjectReference {
                kind: Some("Node".to_owned()),
                api_version: Some("v1".to_owned()),
                name: Some(self.node.clone()),
                uid: Some(uid.to_owned()),
                // The API server requires that an event is in the namespace of the object that it names.
                namespace: Some(NAMESPACE.to_owned()),
                ..Default::default()
            },
            related: config.as_deref().map(config_reference),
            type_: Some(kind.severity().text().to_owned()),
            reason: Some(reason),
            message: Some(api::formats::text::cut(text, 1024).into_owned()),
            source: Some(k8s_openapi::api::core::v1::EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.node.clone()),
            }),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            ..Default::default()
        };
        let api: Api<Event> = Api::namespaced(self.client.clone(), NAMESPACE);
        let what = || format!("creating an event about Node {}", self.node);
        if let Err(error) = call_within(EVENT_TIMEOUT, what, api.create(&PostParams::default(), &event)).await
        {
            tracing::debug!("{}", error.chain());
        }
    }
}

/// The config that an event is about.
fn config_reference(name: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(MachineConfig::api_version(&()).into_owned()),
        kind: Some(MachineConfig::kind(&()).into_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// The config of a host to which none was ever applied.
pub(crate) fn empty_config() -> MachineConfig {
    let spec = api::v1::MachineConfigSpec {
        config: Some(json!({ "ignition": { "version": api::names::IGNITION_VERSION } })),
        ..Default::default()
    };
    MachineConfig::new(EMPTY_CONFIG, spec)
}

/// Whether an annotation of `node-annotations.json` may be written to the Node: only those of this system may.
pub(crate) fn is_ours(key: &str) -> bool {
    let prefix = annotation::CURRENT_CONFIG.split('/').next().unwrap_or_default();
    key.split_once('/').is_some_and(|(p, _)| p == prefix)
}
