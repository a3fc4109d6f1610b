//! Which Secrets and ConfigMaps of our namespaces somebody else made: they go with the namespace. Pure.
//!
//! What it is not: a look into one. Only its metadata is read.

use crate::manifests::own_secrets;
use crate::monitoring;
use crate::objects::{KEPT_BY, Key};
use api::first_boot::server_tls::{self, MANAGED_BY};
use api::formats::text::names;
use api::names::PUSHED_IMAGES;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The kinds that are looked for.
pub(super) const KINDS: [&str; 2] = [SECRET, "ConfigMap"];
const SECRET: &str = "Secret";

/// ConfigMaps that Kubernetes and OpenShift put into every namespace, and those of ours that may have no label.
const KNOWN_MAPS: [&str; 5] =
    ["kube-root-ca.crt", "openshift-service-ca.crt", server_tls::CA, monitoring::CA, PUSHED_IMAGES];
/// Whose token a Secret holds. It is worth nothing once the account is gone.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
/// How many are named where only a few fit.
const SHOWN: usize = 10;

/// An object that somebody else made, and that goes with its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Lost {
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Lost {
    pub(super) fn of(object: &Value) -> Self {
        let Key { kind, namespace, name } = Key::of(object);
        Self { kind, namespace, name }
    }

    /// Whether it may be the only copy of a key or a password. What is in a ConfigMap is no secret, and is mostly kept elsewhere.
    pub(super) fn is_secret(&self) -> bool {
        self.kind == SECRET
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name } = self.clone();
        write!(f, "{}", Key { kind, namespace, name })
    }
}

/// Whether somebody else made this Secret or ConfigMap.
pub(super) fn is_others(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let has_label = |(key, value): (&str, &str)| metadata["labels"][key] == value;
    // What has an owner goes with that one or is made again by it.
    let is_owned = metadata["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    if has_label(MANAGED_BY) || has_label(KEPT_BY) || is_owned {
        return false;
    }
    let name = metadata["name"].as_str().unwrap_or_default();
    if object["kind"] != SECRET {
        return !KNOWN_MAPS.contains(&name);
    }
    // A certificate without our label is used, and is somebody else's.
    let is_own = own_secrets::is_own(name) && !own_secrets::is_certificate(name);
    !is_own && metadata["annotations"][ACCOUNT].is_null()
}

/// Their names, for a sentence.
pub(super) fn listed(all: &[Lost]) -> String {
    names(all, SHOWN)
}

/// The commands that print these Secrets, so that somebody can keep them.
pub(super) fn commands(secrets: &[Lost]) -> String {
    let mut by_namespace: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for secret in secrets {
        by_namespace.entry(&secret.namespace).or_default().push(&secret.name);
    }
    let commands = by_namespace
        .iter()
        .map(|(namespace, names)| format!("kubectl -n {namespace} get secret {} -o yaml", names.join(" ")));
    commands.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_neither_we_nor_kubernetes_made_is_somebody_elses() {
        let object = |kind: &str, name: &str, more: Value| {
            let mut object = json!({"kind": kind, "metadata": more});
            object["metadata"]["name"] = json!(name);
            object
        };
        let label = |(key, value): (&str, &str)| json!({"labels": {key: value}});
        for (kind, name, metadata, want) in [
            (SECRET, "os-signing", json!({}), true),
            (SECRET, "push", json!({"labels": {MANAGED_BY.0: "Helm"}}), true),
            (SECRET, "pull-secret", json!({}), true),
            (SECRET, "node-bootstrapper-token", json!({}), false),
            (SECRET, "boot-token-0a", json!({}), false),
            (SECRET, "machine-config-server-ca", label(MANAGED_BY), false),
            // Its owner renews it.
            (SECRET, "machine-config-server-ca", json!({}), true),
            (SECRET, "machine-config-operator-metrics-tls", json!({}), true),
            (SECRET, "theirs", label(KEPT_BY), false),
            (SECRET, "token", json!({"annotations": {ACCOUNT: "machine-config-daemon"}}), false),
            (SECRET, "copy", json!({"ownerReferences": [{"kind": "ExternalSecret"}]}), false),
            (SECRET, "copy", json!({"ownerReferences": []}), true),
            ("ConfigMap", "kube-root-ca.crt", json!({}), false),
            ("ConfigMap", "machine-os-images", json!({}), false),
            ("ConfigMap", "machine-config-server-ca", json!({}), false),
            ("ConfigMap", "mco-fleet", label(KEPT_BY), false),
            ("ConfigMap", "kubeconfig-data", label(MANAGED_BY), false),
            ("ConfigMap", "kubeconfig-data", json!({}), true),
            ("ConfigMap", "machine-config-osimageurl", json!({}), true),
        ] {
            let object = object(kind, name, metadata);
            assert_eq!(is_others(&object), want, "{object}");
        }
    }
}
