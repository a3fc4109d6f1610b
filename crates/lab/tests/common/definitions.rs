//! Installs our CRDs on a cluster, directly from the crate that defines their types.
//!
//! Not here: `mco install`, which the product's tests use.

use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use std::time::{Duration, Instant};

/// A loaded API server needs seconds before it serves a new kind.
const LIMIT: Duration = Duration::from_secs(60);

/// Objects of any kind of version `v1`.
fn dynamic(client: &Client, group: &str, kind: &str) -> Api<DynamicObject> {
    Api::all_with(client.clone(), &ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind)))
}

/// Applies our CRDs and the namespace of our objects, and waits until every kind is served.
pub(crate) async fn install_definitions(client: &Client, field_manager: &str) {
    let params = PatchParams::apply(field_manager).force();
    let definitions = dynamic(client, "apiextensions.k8s.io", "CustomResourceDefinition");
    let ours: Vec<_> = api::crds::all().unwrap().into_iter().filter(|crd| crd.ours).collect();
    for crd in &ours {
        definitions.patch(&crd.name(), &params, &Patch::Apply(&crd.object)).await.unwrap();
    }
    let name = api::names::NAMESPACE;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    dynamic(client, "", "Namespace").patch(name, &params, &Patch::Apply(&namespace)).await.unwrap();
    let end = Instant::now() + LIMIT;
    for crd in &ours {
        let kind = crd.object["spec"]["names"]["kind"].as_str().unwrap();
        let version = crd.object["spec"]["versions"][0]["name"].as_str().unwrap();
        let gvk = GroupVersionKind::gvk(&crd.group, version, kind);
        let objects: Api<DynamicObject> =
            Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, &crd.plural));
        while let Err(error) = objects.list(&ListParams::default()).await {
            assert!(Instant::now() < end, "{kind} is not served: {error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
