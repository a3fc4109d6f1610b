//! The objects that `mco plan` reads from a cluster. What it is not: those from files (`dump.rs`), or what they mean.

use super::render::{Documents, typed};
use anyhow::Context;
use api::k8s::{Node, Pod, PodDisruptionBudget};
use api::names::GROUP;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
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
const OPTIONAL: [(&str, &str); 5] = [
    (GROUP, "OSImageStream"),
    (GROUP, "MachineOSConfig"),
    (GROUP, "MachineOSBuild"),
    ("config.openshift.io", "Scheduler"),
    ("operator.openshift.io", "MachineConfiguration"),
];

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
        for (group, kind) in OPTIONAL {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            match api.list(&ListParams::default()).await {
                Ok(found) => all.extend(found.items.iter().map(|o| document(o, group, kind))),
                Err(kube::Error::Api(e)) if e.code == 404 => {}
                Err(e) => return Err(e).with_context(|| format!("cannot list {kind}s")),
            }
        }
        all.extend(list::<Pod>(client, "", "Pod").await?);
        all.extend(list::<PodDisruptionBudget>(client, "policy", "PodDisruptionBudget").await?);
        Ok(all)
    };
    tokio::time::timeout(LISTS_TIMEOUT, lists)
        .await
        .map_err(|_| anyhow::anyhow!("no answer from the API server within {} s", LISTS_TIMEOUT.as_secs()))?
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
    let mut value = typed(object, kind);
    let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
    value["apiVersion"] = json!(version);
    ("the cluster".to_owned(), value)
}
