//! The objects that `mco plan` reads from a cluster. What it is not: those from files (`input::dump`), or what they mean.

use super::render::{Documents, typed};
use api::k8s::{Node, Pod, PodDisruptionBudget};
use api::names::GROUP;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use client::call;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// An API server that needs longer for all lists is as good as away.
const LISTS_TIMEOUT: Duration = Duration::from_secs(120);
/// Objects in one answer.
const PAGE: u32 = 500;

/// Kinds that need not be installed.
const OPTIONAL: [(&str, &str, &str); 6] = [
    (GROUP, "v1", "OSImageStream"),
    (GROUP, "v1", "MachineOSConfig"),
    (GROUP, "v1", "MachineOSBuild"),
    (CONFIG, "v1", "Scheduler"),
    (CONFIG, "v1", "FeatureGate"),
    ("operator.openshift.io", "v1", "MachineConfiguration"),
];
/// Kinds that MachineConfigs are made of, which need not be installed either.
const SETTINGS: [(&str, &str, &str); 11] = [
    (GROUP, "v1", "KubeletConfig"),
    (GROUP, "v1", "ContainerRuntimeConfig"),
    (CONFIG, "v1", "Node"),
    (CONFIG, "v1", "Image"),
    (CONFIG, "v1", "APIServer"),
    (CONFIG, "v1", "ClusterVersion"),
    (CONFIG, "v1", "ImageDigestMirrorSet"),
    (CONFIG, "v1", "ImageTagMirrorSet"),
    (CONFIG, "v1", "ClusterImagePolicy"),
    (CONFIG, "v1", "ImagePolicy"),
    ("operator.openshift.io", "v1alpha1", "ImageContentSourcePolicy"),
];
const CONFIG: &str = "config.openshift.io";

/// What was listed.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// The objects.
    pub(super) objects: Documents,
    /// Kinds that need not be installed and that may not be listed (403): taken for absent.
    pub(super) forbidden: Vec<String>,
}

/// What is said of a kind in [`Listed::forbidden`].
pub(super) fn not_allowed(kind: &str) -> String {
    format!(
        "mco: {kind}s may not be listed here, and it goes on as if there were none; if there are, what it says can be wrong: \
         be granted \"list\" on them"
    )
}

/// What a plan reads; MachineConfigs with their contents only where these are wanted: they are megabytes.
pub(super) async fn from_cluster(client: &kube::Client, contents: bool) -> anyhow::Result<Documents> {
    let lists = async {
        let mut all = Documents::new();
        all.extend(list::<MachineConfigPool>(client, GROUP, "MachineConfigPool").await?);
        all.extend(list::<ControllerConfig>(client, GROUP, "ControllerConfig").await?);
        all.extend(list::<Node>(client, "", "Node").await?);
        match contents {
            true => all.extend(list::<MachineConfig>(client, GROUP, "MachineConfig").await?),
            false => {
                all.extend(list::<PartialObjectMeta<MachineConfig>>(client, GROUP, "MachineConfig").await?);
            }
        }
        let settings = SETTINGS.iter().filter(|_| contents);
        for (group, version, kind) in OPTIONAL.iter().chain(settings) {
            let listed = list_if_there(client, group, version, kind).await?;
            listed.forbidden.iter().for_each(|kind| eprintln!("{}", not_allowed(kind)));
            all.extend(listed.objects);
        }
        all.extend(list::<Pod>(client, "", "Pod").await?);
        all.extend(list::<PodDisruptionBudget>(client, "policy", "PodDisruptionBudget").await?);
        Ok(all)
    };
    in_time(lists).await
}

/// What a pool's rendered config follows from: pools, MachineConfigs with their contents, and what says which OS images they
/// get.
pub(super) async fn for_rendering(client: &kube::Client) -> anyhow::Result<Listed> {
    let lists = async {
        let mut all = list::<MachineConfigPool>(client, GROUP, "MachineConfigPool").await?;
        all.extend(list::<ControllerConfig>(client, GROUP, "ControllerConfig").await?);
        all.extend(list::<MachineConfig>(client, GROUP, "MachineConfig").await?);
        let mut forbidden = vec![];
        for (group, version, kind) in [(GROUP, "v1", "OSImageStream"), (CONFIG, "v1", "FeatureGate")] {
            let listed = list_if_there(client, group, version, kind).await?;
            all.extend(listed.objects);
            forbidden.extend(listed.forbidden);
        }
        Ok(Listed { objects: all, forbidden })
    };
    in_time(lists).await
}

async fn in_time<T>(lists: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(LISTS_TIMEOUT, lists)
        .await
        .map_err(|_| anyhow::anyhow!("no answer from the API server within {} s", LISTS_TIMEOUT.as_secs()))?
}

/// Objects of a kind that need not be installed.
async fn list_if_there(
    client: &kube::Client,
    group: &str,
    version: &str,
    kind: &str,
) -> anyhow::Result<Listed> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let all = ListParams::default();
    match call(|| format!("cannot list {kind}s"), api.list(&all)).await {
        Ok(found) => {
            let objects = found.items.iter().map(|o| versioned(o, group, version, kind)).collect();
            Ok(Listed { objects, forbidden: vec![] })
        }
        Err(error) if error.is_absent_or_forbidden() => {
            let forbidden = error.is_forbidden().then(|| kind.to_owned());
            Ok(Listed { objects: vec![], forbidden: forbidden.into_iter().collect() })
        }
        Err(error) => Err(error.into()),
    }
}

async fn list<K>(client: &kube::Client, group: &str, kind: &str) -> anyhow::Result<Documents>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let (api, mut params) = (Api::<K>::all(client.clone()), ListParams::default().limit(PAGE));
    let mut all = Documents::new();
    loop {
        let page = api.list(&params).await.map_err(|e| {
            let absent = matches!(&e, kube::Error::Api(status) if status.code == 404);
            let error = anyhow::Error::new(e);
            match absent {
                true => error.context("the cluster does not serve our kinds; `mco install` puts them there"),
                false => error.context(format!("cannot list {kind}s")),
            }
        })?;
        all.extend(page.items.iter().map(|o| document(o, group, kind)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(all),
        }
    }
}

/// Items of a list do not say their kind.
fn document(object: &impl Serialize, group: &str, kind: &str) -> (String, Value) {
    versioned(object, group, "v1", kind)
}

fn versioned(object: &impl Serialize, group: &str, version: &str, kind: &str) -> (String, Value) {
    let mut value = typed(object, kind);
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    value["apiVersion"] = json!(version);
    ("the cluster".to_owned(), value)
}
