//! The cluster's settings, as JSON: KubeletConfigs, ContainerRuntimeConfigs, and OpenShift's config kinds where they are
//! installed.
//!
//! Guarantee: a kind counts as absent only when the API server says that it does not serve it. A kind that is served
//! and cannot be listed counts as unknown. Taking it for empty would remove its settings from every host.
//!
//! What it is not: the watches that fill it (see `watches/settings.rs`), or what a setting means (see `render::settings`).

use crate::cache::store::{Item, Store};
use crate::cache::watch::version_of;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;

/// A kind of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) name: &'static str,
    /// The name of the only object that counts, for a kind with one such object.
    only: Option<&'static str>,
    /// What is kept of an object, as paths below its root. Name and version are always kept.
    read: &'static [&'static str],
}

const OURS: &str = api::names::GROUP;
const CONFIG: &str = "config.openshift.io";

const fn config(name: &'static str, read: &'static [&'static str]) -> Kind {
    Kind { group: CONFIG, version: "v1", name, only: Some(api::names::CLUSTER), read }
}

/// Settings of kubelets.
pub(crate) const KUBELET_CONFIG: Kind =
    Kind { group: OURS, version: "v1", name: "KubeletConfig", only: None, read: &["spec", "status"] };
/// Settings of container runtimes.
pub(crate) const RUNTIME_CONFIG: Kind = Kind { name: "ContainerRuntimeConfig", ..KUBELET_CONFIG };
/// OpenShift's feature gates.
pub(crate) const FEATURE_GATE: Kind = config("FeatureGate", &["spec", "status"]);
/// OpenShift's settings for all nodes.
pub(crate) const NODE: Kind = config("Node", &["spec"]);
/// OpenShift's registries.
pub(crate) const IMAGE: Kind = config("Image", &["spec"]);
/// OpenShift's TLS settings.
pub(crate) const API_SERVER: Kind = config("APIServer", &["spec"]);
/// OpenShift's release.
pub(crate) const CLUSTER_VERSION: Kind =
    Kind { only: Some("version"), ..config("ClusterVersion", &["status/desired/image"]) };
/// Mirrors of images by digest.
pub(crate) const DIGEST_MIRRORS: Kind = Kind { only: None, ..config("ImageDigestMirrorSet", &["spec"]) };
/// Mirrors of images by tag.
pub(crate) const TAG_MIRRORS: Kind = Kind { name: "ImageTagMirrorSet", ..DIGEST_MIRRORS };
/// Mirrors of images by digest, in the form of older releases.
pub(crate) const SOURCE_POLICY: Kind = Kind {
    group: "operator.openshift.io",
    version: "v1alpha1",
    name: "ImageContentSourcePolicy",
    ..DIGEST_MIRRORS
};

/// What images must be signed with.
pub(crate) const CLUSTER_POLICY: Kind = Kind { name: "ClusterImagePolicy", ..DIGEST_MIRRORS };
/// The same for the pods of one namespace.
pub(crate) const POLICY: Kind = Kind { name: "ImagePolicy", read: &["spec", "status"], ..DIGEST_MIRRORS };

/// Images of the OS, for pools that follow a stream of them.
pub(crate) const STREAMS: Kind =
    Kind { name: "OSImageStream", only: Some(api::names::CLUSTER), ..KUBELET_CONFIG };

/// Which changes are accepted although existing machines cannot follow them.
pub(crate) const MACHINE_CONFIGURATION: Kind = Kind {
    group: "operator.openshift.io",
    version: "v1",
    name: "MachineConfiguration",
    only: Some(api::names::CLUSTER),
    read: &["spec/irreconcilableValidationOverrides"],
};

/// All of them.
pub(crate) const KINDS: [Kind; 14] = [
    MACHINE_CONFIGURATION,
    STREAMS,
    KUBELET_CONFIG,
    RUNTIME_CONFIG,
    FEATURE_GATE,
    NODE,
    IMAGE,
    API_SERVER,
    CLUSTER_VERSION,
    DIGEST_MIRRORS,
    TAG_MIRRORS,
    SOURCE_POLICY,
    CLUSTER_POLICY,
    POLICY,
];

impl Kind {
    fn resource(self) -> ApiResource {
        ApiResource::from_gvk(&GroupVersionKind::gvk(self.group, self.version, self.name))
    }

    /// Reads and writes objects of the kind.
    pub(crate) fn api(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// The same for a namespaced kind.
    pub(crate) fn api_in(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.resource())
    }

    /// Which of its objects are watched.
    pub(crate) fn watch_config(self) -> watcher::Config {
        let all = watcher::Config::default();
        match self.only {
            Some(name) => all.fields(&format!("metadata.name={name}")),
            None => all,
        }
    }

    /// What is kept of an object. Parts that are not used, such as most of a ClusterVersion, change often.
    pub(crate) fn trimmed(self, object: &DynamicObject) -> Value {
        let mut kept = json!({
            "apiVersion": format!("{}/{}", self.group, self.version),
            "kind": self.name,
            "metadata": object.metadata,
        });
        if let Some(metadata) = kept.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        for path in self.read {
            let Some(value) = object.data.pointer(&format!("/{path}")) else { continue };
            let mut at = &mut kept;
            for part in path.split('/') {
                let Value::Object(map) = at else { break };
                at = map.entry(part).or_insert_with(|| json!({}));
            }
            *at = value.clone();
        }
        kept
    }
}

/// The caches.
#[derive(Debug)]
pub(crate) struct Settings {
    stores: [(Kind, Arc<Store<Value>>); KINDS.len()],
}

impl Default for Settings {
    fn default() -> Self {
        Self { stores: KINDS.map(|kind| (kind, Arc::default())) }
    }
}

impl Settings {
    pub(crate) fn store(&self, kind: Kind) -> Option<&Arc<Store<Value>>> {
        self.stores.iter().find(|(k, _)| *k == kind).map(|(_, store)| store)
    }

    /// All objects of a kind, by name.
    pub(crate) fn all(&self, kind: Kind) -> Vec<Arc<Value>> {
        self.store(kind).map(|s| s.all()).unwrap_or_default()
    }

    /// The only object that counts, for a kind with one such object.
    pub(crate) fn one(&self, kind: Kind) -> Option<Arc<Value>> {
        self.store(kind)?.get(kind.only?)
    }

    /// An object of any name.
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<Arc<Value>> {
        self.store(kind)?.get(name)
    }

    /// The kinds whose objects are not known yet.
    pub(crate) fn unknown(&self) -> Vec<&'static str> {
        self.stores.iter().filter(|(_, store)| !store.is_synced()).map(|(kind, _)| kind.name).collect()
    }

    /// Puts the answer to a write of ours into the cache.
    pub(crate) fn answer(&self, kind: Kind, object: &DynamicObject) {
        let value = Arc::new(kind.trimmed(object));
        let item = Item { version: version_of(object), uid: object.uid().unwrap_or_default(), value };
        if let Some(store) = self.store(kind) {
            // Nothing has to follow from this change: it is our own.
            store.answer(&object.name_any(), item);
        }
    }
}

/// Kinds whose status is written by us.
const JUDGED: [&str; 3] = [KUBELET_CONFIG.name, RUNTIME_CONFIG.name, POLICY.name];

/// What other things are made from: the object without a status that we write, and without its version.
pub(crate) fn without_our_status(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut()
        // The status of all other kinds (FeatureGate, ClusterVersion) is somebody else's decision, so it is an input.
        && fields.get("kind").and_then(Value::as_str).is_some_and(|k| JUDGED.contains(&k))
    {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn object(data: Value) -> DynamicObject {
        let mut object = DynamicObject::new("o", &CLUSTER_VERSION.resource()).data(data);
        object.metadata.resource_version = Some("7".to_owned());
        object.metadata.managed_fields = Some(vec![]);
        object
    }

    #[test]
    fn only_what_is_read_of_an_object_is_kept() {
        let data = json!({"spec": {"x": 1}, "status": {"desired": {"image": "i", "y": 1}, "history": []}});
        let kept = CLUSTER_VERSION.trimmed(&object(data));
        assert_eq!(kept["status"], json!({"desired": {"image": "i"}}));
        assert_eq!((kept.get("spec"), kept["metadata"].get("managedFields")), (None, None));
        assert_eq!(kept["kind"], "ClusterVersion");
    }

    #[test]
    fn a_verdict_is_no_change_of_a_setting() {
        let of = |kind: Kind, status: Value, max: i32| {
            without_our_status(&kind.trimmed(&object(json!({"spec": {"maxPods": max}, "status": status}))))
        };
        assert_eq!(of(KUBELET_CONFIG, json!({"a": 1}), 1), of(KUBELET_CONFIG, json!({}), 1));
        assert_ne!(of(KUBELET_CONFIG, json!({}), 2), of(KUBELET_CONFIG, json!({}), 1));
        assert_ne!(of(FEATURE_GATE, json!({"a": 1}), 1), of(FEATURE_GATE, json!({}), 1));
    }

    #[test]
    fn what_was_not_listed_is_unknown_and_not_empty() {
        let settings = Settings::default();
        assert_eq!(settings.unknown().len(), KINDS.len());
        settings.store(NODE).unwrap().replace(BTreeMap::new());
        assert!(!settings.unknown().contains(&"Node") && settings.one(NODE).is_none());
    }
}
