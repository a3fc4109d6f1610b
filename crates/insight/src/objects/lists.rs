//! Lists the objects of a cluster that plans and rendering need, as [`Objects`].
//!
//! What it is not: objects from files, which the program reads, or the meaning of objects (see `objects`).

use crate::objects::config_image::ConfigImage;
use crate::objects::settings_kinds::{CONFIG, SETTINGS};
use crate::objects::{Objects, has_no_streams, is, object};
use api::definition::{Defined as _, Definition};
use api::k8s::{Node, Pod, PodDisruptionBudget};
use api::names::{GROUP, own};
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use api::v1alpha1::RolloutPolicy;
use client::{CallError, PAGE, call_within, pages};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectList};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// An API server that needs longer for all lists counts as unreachable.
const LISTS_TIMEOUT: Duration = Duration::from_secs(600);
/// The limit of one request. It has the time to transfer an answer of several megabytes over a slow line.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);
/// MachineConfigs with their contents in one answer. Each may have more than a megabyte, and all of an answer is in the memory of both
/// sides at once.
const PAGE_OF_CONTENTS: u32 = 20;
/// How often a list is begun anew because its token is too old (410) and the API server gives none to go on with.
const BEGUN_ANEW: u32 = 2;

const POLICY: Definition = RolloutPolicy::DEFINITION;
/// Optional kinds.
const OPTIONAL: [(&str, &str, &str); 9] = [
    (GROUP, "v1", "MachineConfigNode"),
    (GROUP, "v1", "PinnedImageSet"),
    (GROUP, "v1", "OSImageStream"),
    (GROUP, "v1", "MachineOSConfig"),
    (GROUP, "v1", "MachineOSBuild"),
    (POLICY.group, POLICY.version, POLICY.kind),
    (CONFIG, "v1", "Scheduler"),
    (CONFIG, "v1", "FeatureGate"),
    ("operator.openshift.io", "v1", "MachineConfiguration"),
];
/// Why a cluster's objects cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The API server does not serve a kind that every installation has.
    #[error(
        "the cluster has no MachineConfigPools and MachineConfigs: their CRDs are not installed; run \
        `mco install`"
    )]
    NotInstalled(#[source] CallError),
    /// A list was refused, or one of its requests was not answered.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The caller stopped waiting.
    #[error("the API server has not answered yet")]
    Unanswered,
    /// The lists take too long.
    #[error("no answer from the API server within {} s", LISTS_TIMEOUT.as_secs())]
    Late,
}

impl ListError {
    /// The API server refused a list because of a missing right.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_forbidden())
    }
}

/// What was listed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listed {
    /// The objects.
    pub objects: Objects,
    /// Optional kinds that may not be listed (403): assumed to have no objects.
    pub forbidden: Vec<String>,
}

impl Listed {
    fn extend(&mut self, other: Self) {
        self.objects.extend(other.objects);
        self.forbidden.extend(other.forbidden);
    }
}

/// The objects that the plan of a change needs: all MachineConfigs with their contents, which are megabytes, and the settings that
/// MachineConfigs are made of.
///
/// # Errors
/// A list that failed, or no answer in time.
pub async fn for_planning(client: &kube::Client) -> Result<Listed, ListError> {
    let lists = async {
        let mut all = but_for_configs(client).await?;
        for (group, version, kind) in &SETTINGS {
            all.extend(list_if_there(client, group, version, kind).await?);
        }
        all.objects.extend(configs_with_contents(client).await?);
        Ok(all)
    };
    tokio::time::timeout(LISTS_TIMEOUT, lists).await.map_err(|_| ListError::Late)?
}

/// The objects that a plan of what is under way needs. Of the MachineConfigs only the metadata is there; where the plan depends on
/// their images, `spec` is there as well, with nothing but the image in it. They are no contents: do not render them.
///
/// # Errors
/// As [`for_planning`].
pub(crate) async fn for_present_plan(client: &kube::Client) -> Result<Listed, ListError> {
    let lists = async {
        let mut all = but_for_configs(client).await?;
        let configs = match needs_images(&all.objects) {
            true => {
                let api =
                    Api::<ConfigImage>::all_with(client.clone(), &ApiResource::erase::<MachineConfig>(&()));
                list_of(&api, PAGE_OF_CONTENTS, GROUP, "MachineConfig").await?
            }
            false => list::<PartialObjectMeta<MachineConfig>>(client, GROUP, "MachineConfig").await?,
        };
        all.objects.extend(configs);
        Ok(all)
    };
    tokio::time::timeout(LISTS_TIMEOUT, lists).await.map_err(|_| ListError::Late)?
}

/// The objects that every plan needs, without the MachineConfigs.
async fn but_for_configs(client: &kube::Client) -> Result<Listed, ListError> {
    let mut all = Listed::default();
    let objects = &mut all.objects;
    objects.extend(list::<MachineConfigPool>(client, GROUP, "MachineConfigPool").await?);
    objects.extend(list::<ControllerConfig>(client, GROUP, "ControllerConfig").await?);
    objects.extend(list::<Node>(client, "", "Node").await?);
    for (group, version, kind) in &OPTIONAL {
        all.extend(list_if_there(client, group, version, kind).await?);
    }
    all.objects.extend(list::<Pod>(client, "", "Pod").await?);
    all.objects.extend(list::<PodDisruptionBudget>(client, "policy", "PodDisruptionBudget").await?);
    Ok(all)
}

/// Whether a plan depends on the images of configs, besides what the controller has left in their annotations: streams are used, or
/// images are fetched ahead.
fn needs_images(objects: &Objects) -> bool {
    let has_streams = objects.iter().any(|(_, v)| is(v, GROUP, "OSImageStream")) && !has_no_streams(objects);
    let fetches = |v: &Value| {
        is(v, GROUP, "MachineConfigPool") && v["metadata"]["annotations"].get(own::PREFETCH).is_some()
    };
    has_streams || objects.iter().any(|(_, v)| fetches(v))
}

async fn configs_with_contents(client: &kube::Client) -> Result<Objects, ListError> {
    list_of(&Api::<MachineConfig>::all(client.clone()), PAGE_OF_CONTENTS, GROUP, "MachineConfig").await
}

/// What a pool's rendered config follows from: pools, MachineConfigs with their contents, and what says which OS images they
/// get.
///
/// # Errors
/// As [`for_planning`].
pub async fn for_rendering(client: &kube::Client) -> Result<Listed, ListError> {
    let lists = async {
        let mut all = Listed::default();
        all.objects.extend(list::<MachineConfigPool>(client, GROUP, "MachineConfigPool").await?);
        all.objects.extend(list::<ControllerConfig>(client, GROUP, "ControllerConfig").await?);
        all.objects.extend(configs_with_contents(client).await?);
        for (group, version, kind) in [(GROUP, "v1", "OSImageStream"), (CONFIG, "v1", "FeatureGate")] {
            all.extend(list_if_there(client, group, version, kind).await?);
        }
        Ok(all)
    };
    tokio::time::timeout(LISTS_TIMEOUT, lists).await.map_err(|_| ListError::Late)?
}

/// Objects of an optional kind.
async fn list_if_there(
    client: &kube::Client,
    group: &str,
    version: &str,
    kind: &str,
) -> Result<Listed, ListError> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let document = |object: DynamicObject| versioned(&object, group, version, kind);
    match all_of(&api, PAGE, kind, document).await {
        Ok(objects) => Ok(Listed { objects, forbidden: vec![] }),
        Err(error) if error.is_absent_or_forbidden() => {
            let forbidden = error.is_forbidden().then(|| kind.to_owned());
            Ok(Listed { objects: vec![], forbidden: forbidden.into_iter().collect() })
        }
        Err(error) => Err(error.into()),
    }
}

async fn list<K>(client: &kube::Client, group: &str, kind: &str) -> Result<Objects, ListError>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    list_of(&Api::<K>::all(client.clone()), PAGE, group, kind).await
}

/// All objects of a kind that every installation has, as many in one answer.
async fn list_of<K>(api: &Api<K>, limit: u32, group: &str, kind: &str) -> Result<Objects, ListError>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    match all_of(api, limit, kind, |object: K| document(&object, group, kind)).await {
        Ok(all) => Ok(all),
        Err(error) if error.is_not_found() => Err(ListError::NotInstalled(error)),
        Err(error) => Err(error.into()),
    }
}

/// All objects of a kind, as documents. A list that can no longer be continued (see [`client::Pages`]) is begun anew.
async fn all_of<K>(
    api: &Api<K>,
    limit: u32,
    kind: &str,
    document: impl Fn(K) -> (String, Value),
) -> Result<Objects, CallError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut begun = 0;
    loop {
        let mut all = Objects::new();
        let params = ListParams::default().limit(limit);
        let done =
            pages(params, |params| page(api, kind, params), |object: K| all.push(document(object))).await;
        match done {
            Ok(()) => return Ok(all),
            Err(error) if error.code() == Some(410) && begun < BEGUN_ANEW => begun += 1,
            Err(error) => return Err(error),
        }
    }
}

async fn page<K>(api: &Api<K>, kind: &str, params: ListParams) -> Result<ObjectList<K>, CallError>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    call_within(PAGE_TIMEOUT, || cannot_list(kind), api.list(&params)).await
}

fn cannot_list(kind: &str) -> String {
    format!("cannot list {kind} objects")
}

/// Items of a list do not have their kind.
fn document(of: &impl Serialize, group: &str, kind: &str) -> (String, Value) {
    versioned(of, group, "v1", kind)
}

fn versioned(of: &impl Serialize, group: &str, version: &str, kind: &str) -> (String, Value) {
    let mut value = object(of, kind);
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    value["apiVersion"] = json!(version);
    ("the cluster".to_owned(), value)
}

#[cfg(test)]
mod tests;
