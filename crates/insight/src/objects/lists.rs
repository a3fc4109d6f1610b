//! Lists the objects of a cluster that plans and rendering need, as [`Objects`].
//!
//! What it is not: objects from files, which the program reads, or the meaning of objects (see `objects`).

use crate::objects::settings_kinds::{CONFIG, SETTINGS};
use crate::objects::{Objects, object};
use api::definition::{Defined as _, Definition};
use api::k8s::{Node, Pod, PodDisruptionBudget};
use api::names::GROUP;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use api::v1alpha1::RolloutPolicy;
use client::{CallError, call};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, ObjectList};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// An API server that needs longer for all lists counts as unreachable.
const LISTS_TIMEOUT: Duration = Duration::from_secs(120);
/// Objects in one answer.
const PAGE: u32 = 500;

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

/// The objects that a plan needs. MachineConfigs, which are megabytes, are listed with their contents only on request.
///
/// # Errors
/// A list that failed, or no answer in time.
pub async fn for_planning(client: &kube::Client, contents: bool) -> Result<Listed, ListError> {
    let lists = async {
        let mut all = Listed::default();
        let objects = &mut all.objects;
        objects.extend(list::<MachineConfigPool>(client, GROUP, "MachineConfigPool").await?);
        objects.extend(list::<ControllerConfig>(client, GROUP, "ControllerConfig").await?);
        objects.extend(list::<Node>(client, "", "Node").await?);
        objects.extend(match contents {
            true => list::<MachineConfig>(client, GROUP, "MachineConfig").await?,
            false => list::<PartialObjectMeta<MachineConfig>>(client, GROUP, "MachineConfig").await?,
        });
        let settings = SETTINGS.iter().filter(|_| contents);
        for (group, version, kind) in OPTIONAL.iter().chain(settings) {
            all.extend(list_if_there(client, group, version, kind).await?);
        }
        all.objects.extend(list::<Pod>(client, "", "Pod").await?);
        all.objects.extend(list::<PodDisruptionBudget>(client, "policy", "PodDisruptionBudget").await?);
        Ok(all)
    };
    tokio::time::timeout(LISTS_TIMEOUT, lists).await.map_err(|_| ListError::Late)?
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
        all.objects.extend(list::<MachineConfig>(client, GROUP, "MachineConfig").await?);
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
    let all = ListParams::default();
    match call(|| cannot_list(kind), api.list(&all)).await {
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

async fn list<K>(client: &kube::Client, group: &str, kind: &str) -> Result<Objects, ListError>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let api = Api::<K>::all(client.clone());
    let page = |params: ListParams| {
        let api = api.clone();
        async move { call(|| cannot_list(kind), api.list(&params)).await }
    };
    let mut all = Objects::new();
    match pages(page, |object: K| all.push(document(&object, group, kind))).await {
        Ok(()) => Ok(all),
        Err(error) if error.is_not_found() => Err(ListError::NotInstalled(error)),
        Err(error) => Err(error.into()),
    }
}

fn cannot_list(kind: &str) -> String {
    format!("cannot list {kind} objects")
}

/// Goes through a list in pages, so that neither side holds thousands of objects at once. `page` makes one request.
///
/// # Errors
/// That of the first request that fails.
pub async fn pages<K: Clone, E, F>(
    mut page: impl FnMut(ListParams) -> F,
    mut each: impl FnMut(K),
) -> Result<(), E>
where
    F: Future<Output = Result<ObjectList<K>, E>>,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let list = page(params.clone()).await?;
        list.items.into_iter().for_each(&mut each);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
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
mod tests {
    use super::*;
    use kube::client::Body;
    use tokio::time::Instant;

    /// An API server that answers each request with this code; 0: it breaks the connection, 1: it never answers.
    fn answering(code: u16) -> kube::Client {
        let serve = tower::service_fn(move |_: http::Request<Body>| async move {
            match code {
                0 => return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                1 => std::future::pending().await,
                _ => {}
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "R", "message": "no"});
            let body = Body::from(status.to_string().into_bytes());
            Ok(http::Response::builder().status(code).body(body).unwrap())
        });
        kube::Client::new(serve, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_of_a_list_names_its_kind_and_what_kind_of_failure_it_is() {
        let list = "cannot list MachineConfigPool objects";
        for (code, says, forbidden, outage) in [
            (403, format!("{list}: no (403 R)"), true, false),
            (503, format!("{list}: no (503 R)"), false, true),
            (0, format!("{list}: "), false, true),
            (1, format!("{list}: no answer within 30 s"), false, true),
            (404, "the cluster has no MachineConfigPools and MachineConfigs".to_owned(), false, false),
        ] {
            let begin = Instant::now();
            let error = for_rendering(&answering(code)).await.unwrap_err();
            assert!(client::chain(&error).starts_with(&says), "{}", client::chain(&error));
            let is_outage = matches!(&error, ListError::Call(error) if error.is_outage());
            assert_eq!((error.is_forbidden(), is_outage), (forbidden, outage), "{code}: {error:?}");
            assert!(begin.elapsed() <= client::REQUEST_TIMEOUT * 2, "{code}: {:?}", begin.elapsed());
        }
    }

    #[test]
    fn each_page_of_a_list_is_requested_with_the_token_of_the_previous_one() {
        let mut asked = vec![];
        let mut all: Vec<u8> = vec![];
        let page = |params: ListParams| {
            let token = params.continue_token;
            asked.push(token.clone());
            let (items, next) = match token.as_deref() {
                None => (vec![1, 2], "x"),
                Some("x") => (vec![3], "y"),
                // The last page has an empty token.
                _ => (vec![4], ""),
            };
            let metadata = json!({"continue": next});
            let list: ObjectList<u8> =
                serde_json::from_value(json!({"metadata": metadata, "items": items})).unwrap();
            async move { Ok::<_, ()>(list) }
        };
        futures::executor::block_on(pages(page, |n| all.push(n))).unwrap();
        assert_eq!(all, [1, 2, 3, 4]);
        assert_eq!(asked, [None, Some("x".to_owned()), Some("y".to_owned())]);
        let fails = |_: ListParams| async { Err::<ObjectList<u8>, _>("no") };
        assert_eq!(futures::executor::block_on(pages(fails, |_| ())), Err("no"));
    }
}
