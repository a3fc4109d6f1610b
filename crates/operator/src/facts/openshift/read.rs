//! Reads OpenShift's objects. A kind that is not served is not asked for, and neither is a namespace that is not there.
//!
//! What it is not: what follows from them (see the parent).

use super::bundles::{MAPS, SYSTEM_MAPS, named};
use super::{API_SERVER, CONFIG, Entries, MANAGED, OpenShift};
use api::k8s::ConfigMap;
use api::names::{CLUSTER, NAMESPACE};
use client::{CallError, call_optional};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// The group of OpenShift's configuration.
const GROUP: &str = "config.openshift.io";
/// The kinds that are read: name, its form in URLs, and the name of the one object.
pub(crate) const KINDS: [(&str, &str, &str); 6] = [
    ("Infrastructure", "infrastructures", CLUSTER),
    ("Network", "networks", CLUSTER),
    ("DNS", "dnses", CLUSTER),
    ("Proxy", "proxies", CLUSTER),
    ("Image", "images", CLUSTER),
    ("ClusterVersion", "clusterversions", "version"),
];
/// OpenShift's namespaces in which ConfigMaps are read.
pub const NAMESPACES: [&str; 3] = [CONFIG, MANAGED, API_SERVER];

/// The API of a kind.
pub(crate) fn api<K>(client: &Client, kind: &str, plural: &str) -> Api<K>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
{
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, "v1", kind), plural);
    Api::all_with(client.clone(), &resource)
}

/// The kinds that the API server serves, by the names of its definitions.
pub(crate) fn served(definitions: &[Value]) -> Vec<(&'static str, &'static str, &'static str)> {
    let is_there = |plural: &str| {
        let name = format!("{plural}.{GROUP}");
        definitions.iter().any(|d| d["metadata"]["name"] == name)
    };
    KINDS.into_iter().filter(|(_, plural, _)| is_there(plural)).collect()
}

/// Reads what there is. `None`: no Infrastructure `cluster` says what this cluster is.
///
/// # Errors
/// The API server's answer. What is there and may not be read is an error, too: without it the ControllerConfig would say
/// something else than the cluster does.
pub(crate) async fn read(client: &Client, definitions: &[Value]) -> Result<Option<OpenShift>, CallError> {
    let mut found = OpenShift::default();
    let kinds = served(definitions);
    if !kinds.iter().any(|(kind, ..)| *kind == KINDS[0].0) {
        return Ok(None);
    }
    let objects = kinds.into_iter().map(|(kind, plural, name)| async move {
        let api = api::<DynamicObject>(client, kind, plural);
        Ok::<_, CallError>((kind, call_optional(|| format!("get {kind} {name}"), api.get(name)).await?))
    });
    let mut infrastructure = None;
    for (kind, object) in try_join_all(objects).await? {
        let object = object.map(|o| json!(o));
        match kind {
            "Infrastructure" => infrastructure = object,
            "Network" => found.network = object,
            "DNS" => found.dns = object,
            "Proxy" => found.proxy = object,
            "Image" => found.image = object,
            _ => found.version = object,
        }
    }
    let Some(infrastructure) = infrastructure else { return Ok(None) };
    found.infrastructure = infrastructure;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespaces = NAMESPACES.into_iter().map(|name| {
        let request = namespaces.get(name);
        async move {
            let there = call_optional(|| format!("get Namespace {name}"), request).await?;
            Ok::<_, CallError>(there.map(|_| name))
        }
    });
    found.namespaces = try_join_all(namespaces).await?.into_iter().flatten().collect();
    let by_name = [
        named(found.image.as_ref(), "/spec/additionalTrustedCA/name"),
        named(found.proxy.as_ref(), "/spec/trustedCA/name"),
    ];
    let mut places: Vec<(String, String)> = MAPS
        .iter()
        .chain(&SYSTEM_MAPS)
        .map(|(namespace, name)| ((*namespace).to_owned(), (*name).to_owned()))
        .chain(by_name.into_iter().flatten().map(|name| (CONFIG.to_owned(), name.to_owned())))
        .filter(|(namespace, _)| {
            [NAMESPACE, "kube-system"].contains(&namespace.as_str())
                || found.namespaces.contains(&namespace.as_str())
        })
        .collect();
    places.sort();
    places.dedup();
    let maps = places.into_iter().map(|(namespace, name)| async move {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let map = call_optional(|| format!("get ConfigMap {namespace}/{name}"), api.get(&name)).await?;
        Ok::<_, CallError>(map.map(|map| ((namespace, name), entries(map))))
    });
    found.maps = try_join_all(maps).await?.into_iter().flatten().collect();
    Ok(Some(found))
}

/// Text and bytes of a ConfigMap.
fn entries(map: ConfigMap) -> Entries {
    let text = map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes()));
    let binary = map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0));
    text.chain(binary).collect()
}
