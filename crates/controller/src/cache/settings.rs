//! The cluster's settings, as JSON: KubeletConfigs, ContainerRuntimeConfigs, and OpenShift's config kinds where they are
//! installed.
//!
//! Guarantee: a kind counts as absent only when the API server says that it does not serve it. A kind that is served
//! and cannot be listed counts as unknown. Taking it for empty would remove its settings from every host.
//!
//! What it is not: the watches that fill it (see `watches/settings.rs`), or what a setting means (see `render::settings`).

use crate::cache::store::{Item, Store};
use crate::cache::watch::version_of;
use crate::kind::{self, Kind};
use kube::api::{Api, DynamicObject};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::sync::Arc;

/// A kind of setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) kind: Kind,
    /// The name of the only object that counts, for a kind with one such object.
    only: Option<&'static str>,
    /// What is kept of an object, as paths below its root. Name and version are always kept.
    read: &'static [&'static str],
}

/// A setting of which any number of objects counts.
const fn all(kind: Kind, read: &'static [&'static str]) -> Setting {
    Setting { kind, only: None, read }
}

/// A setting of OpenShift's with one object.
const fn one(kind: Kind, read: &'static [&'static str]) -> Setting {
    Setting { kind, only: Some(api::names::CLUSTER), read }
}

/// Settings of kubelets.
pub(crate) const KUBELET_CONFIG: Setting = all(kind::KUBELET_CONFIGS, &["spec", "status"]);
/// Settings of container runtimes.
pub(crate) const RUNTIME_CONFIG: Setting = all(kind::RUNTIME_CONFIGS, &["spec", "status"]);
/// OpenShift's feature gates.
pub(crate) const FEATURE_GATE: Setting = one(kind::FEATURE_GATES, &["spec", "status"]);
/// OpenShift's settings for all nodes.
pub(crate) const NODE: Setting = one(kind::NODE_SETTINGS, &["spec"]);
/// OpenShift's registries.
pub(crate) const IMAGE: Setting = one(kind::IMAGES, &["spec"]);
/// OpenShift's TLS settings.
pub(crate) const API_SERVER: Setting = one(kind::API_SERVERS, &["spec"]);
/// OpenShift's release.
pub(crate) const CLUSTER_VERSION: Setting =
    Setting { only: Some("version"), ..one(kind::CLUSTER_VERSIONS, &["status/desired/image"]) };
/// Mirrors of images by digest.
pub(crate) const DIGEST_MIRRORS: Setting = all(kind::DIGEST_MIRRORS, &["spec"]);
/// Mirrors of images by tag.
pub(crate) const TAG_MIRRORS: Setting = all(kind::TAG_MIRRORS, &["spec"]);
/// Mirrors of images by digest, in the form of older releases.
pub(crate) const SOURCE_POLICY: Setting = all(kind::SOURCE_POLICIES, &["spec"]);
/// What images must be signed with.
pub(crate) const CLUSTER_POLICY: Setting = all(kind::CLUSTER_IMAGE_POLICIES, &["spec"]);
/// The same for the pods of one namespace.
pub(crate) const POLICY: Setting = all(kind::IMAGE_POLICIES, &["spec", "status"]);
/// Images of the OS, for pools that follow a stream of them.
pub(crate) const STREAMS: Setting = one(kind::STREAMS, &["spec", "status"]);
/// Which changes are accepted although existing machines cannot follow them.
pub(crate) const MACHINE_CONFIGURATION: Setting =
    one(kind::MACHINE_CONFIGURATIONS, &["spec/irreconcilableValidationOverrides"]);

impl Setting {
    /// Reads and writes objects of the kind.
    pub(crate) fn api(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.kind.resource())
    }

    /// The same for a namespaced kind.
    pub(crate) fn api_in(self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(client.clone(), namespace, &self.kind.resource())
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
            "apiVersion": format!("{}/{}", self.kind.group, self.kind.version),
            "kind": self.kind.name,
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
    stores: Vec<(Setting, Arc<Store<Value>>)>,
}

impl Settings {
    /// Caches for these settings.
    pub(crate) fn new(all: impl IntoIterator<Item = Setting>) -> Self {
        Self { stores: all.into_iter().map(|setting| (setting, Arc::default())).collect() }
    }

    /// The caches.
    pub(crate) fn stores(&self) -> &[(Setting, Arc<Store<Value>>)] {
        &self.stores
    }

    pub(crate) fn store(&self, setting: Setting) -> Option<&Arc<Store<Value>>> {
        self.stores.iter().find(|(s, _)| *s == setting).map(|(_, store)| store)
    }

    /// All objects of a kind, by name.
    pub(crate) fn all(&self, setting: Setting) -> Vec<Arc<Value>> {
        self.store(setting).map(|s| s.all()).unwrap_or_default()
    }

    /// The only object that counts, for a kind with one such object.
    pub(crate) fn one(&self, setting: Setting) -> Option<Arc<Value>> {
        self.store(setting)?.get(setting.only?)
    }

    /// An object of any name.
    pub(crate) fn get(&self, setting: Setting, name: &str) -> Option<Arc<Value>> {
        self.store(setting)?.get(name)
    }

    /// The kinds whose objects are not known yet.
    pub(crate) fn unknown(&self) -> Vec<&'static str> {
        self.stores
            .iter()
            .filter(|(_, store)| !store.is_synced())
            .map(|(setting, _)| setting.kind.name)
            .collect()
    }

    /// Puts the answer to a write of ours into the cache.
    pub(crate) fn answer(&self, setting: Setting, object: &DynamicObject) {
        let value = Arc::new(setting.trimmed(object));
        let item = Item { version: version_of(object), uid: object.uid().unwrap_or_default(), value };
        if let Some(store) = self.store(setting) {
            // Nothing has to follow from this change: it is our own.
            store.answer(&object.name_any(), item);
        }
    }
}

/// Kinds whose status is written by us.
const JUDGED: [&str; 3] = [kind::KUBELET_CONFIGS.name, kind::RUNTIME_CONFIGS.name, kind::IMAGE_POLICIES.name];

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
        let mut object = DynamicObject::new("o", &kind::CLUSTER_VERSIONS.resource()).data(data);
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
        let of = |setting: Setting, status: Value, max: i32| {
            without_our_status(&setting.trimmed(&object(json!({"spec": {"maxPods": max}, "status": status}))))
        };
        assert_eq!(of(KUBELET_CONFIG, json!({"a": 1}), 1), of(KUBELET_CONFIG, json!({}), 1));
        assert_ne!(of(KUBELET_CONFIG, json!({}), 2), of(KUBELET_CONFIG, json!({}), 1));
        assert_ne!(of(FEATURE_GATE, json!({"a": 1}), 1), of(FEATURE_GATE, json!({}), 1));
    }

    #[test]
    fn what_was_not_listed_is_unknown_and_not_empty() {
        let settings = Settings::new([IMAGE, NODE]);
        assert_eq!(settings.unknown(), ["Image", "Node"]);
        settings.store(NODE).unwrap().replace(BTreeMap::new());
        assert!(!settings.unknown().contains(&"Node") && settings.one(NODE).is_none());
    }
}
