//! What OpenShift's own objects say about the cluster, for the ControllerConfig. [`OpenShift::wanted`] is pure; [`read`] reads.
//!
//! | field of the ControllerConfig | from |
//! | --- | --- |
//! | `clusterDNSIP`, `ipFamilies`, `networkType`, `network` | Network `cluster` |
//! | `infra`, `platform`, `etcdDiscoveryDomain` | Infrastructure `cluster` |
//! | `dns`, `proxy` | DNS and Proxy `cluster` |
//! | `releaseImage`, once | ClusterVersion `version` |
//! | `kubeAPIServerServingCAData`, `rootCAData`, `additionalTrustBundle`, registries' CAs, the cloud's config | see [`bundles`] |
//!
//! What it is not: the release's images (see [`super::release`]), which come later than all this; and what wins over it. What
//! the administrator says in the settings comes first, and so does what somebody else wrote into the ControllerConfig (see
//! [`super::owners`]).

mod bundles;
mod read;

pub(crate) use bundles::SYSTEM_MAPS;
pub use read::NAMESPACES;
pub(crate) use read::{api, read, served};

use super::{dns_address, families_word};
use crate::controller_config_values::ControllerConfigValues;
use api::names::CLUSTER;
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// What the administrator set for the whole cluster.
const CONFIG: &str = "openshift-config";
/// What operators publish for each other.
const MANAGED: &str = "openshift-config-managed";
/// Where the API server's operator keeps what it signs with.
const API_SERVER: &str = "openshift-kube-apiserver-operator";

/// The entries of a ConfigMap, text and bytes alike.
pub(crate) type Entries = BTreeMap<String, Vec<u8>>;

/// What was read. Everything but the Infrastructure may be missing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct OpenShift {
    /// Infrastructure `cluster`.
    pub(crate) infrastructure: Value,
    /// Network `cluster`.
    pub(crate) network: Option<Value>,
    /// DNS `cluster`.
    pub(crate) dns: Option<Value>,
    /// Proxy `cluster`.
    pub(crate) proxy: Option<Value>,
    /// Image `cluster`.
    pub(crate) image: Option<Value>,
    /// ClusterVersion `version`.
    pub(crate) version: Option<Value>,
    /// OpenShift's namespaces that there are, of [`NAMESPACES`].
    pub(crate) namespaces: Vec<&'static str>,
    /// ConfigMaps by namespace and name.
    pub(crate) maps: BTreeMap<(String, String), Entries>,
}

/// What is to stand in the ControllerConfig.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ControllerConfigFields {
    /// Fields of the spec; null: the field is to be absent. Fields that are not listed are left as they are.
    pub(crate) spec: Map<String, Value>,
    /// Fields that are written only where there are none yet.
    pub(crate) once: Map<String, Value>,
    /// Annotations.
    pub(crate) annotations: Map<String, Value>,
}

impl OpenShift {
    /// What is to stand in the ControllerConfig. `said`: what the settings object says, which comes first. `plain`: what is
    /// known without these objects, for what they leave open.
    ///
    /// # Errors
    /// An object that contradicts itself or lacks what the cluster cannot do without: its kind, name, path and the remedy.
    pub(crate) fn wanted(
        &self,
        said: &ControllerConfigValues,
        plain: &ControllerConfigValues,
    ) -> Result<ControllerConfigFields, String> {
        let mut wanted = ControllerConfigFields::default();
        let spec = &mut wanted.spec;
        let mut put = |field: &str, value: Value| drop(spec.insert(field.to_owned(), value));
        let (dns_ip, families) = self.addresses()?;
        for (field, said, found, plain) in [
            ("clusterDNSIP", &said.cluster_dns_ip, dns_ip, &plain.cluster_dns_ip),
            ("ipFamilies", &said.ip_families, families, &plain.ip_families),
        ] {
            if let Some(value) = said.clone().or(found).or_else(|| plain.clone()) {
                put(field, json!(value));
            }
        }
        let infra = self.infra(said, plain);
        let platform = platform(&infra);
        put("platform", json!(if platform.is_empty() { "none".to_owned() } else { platform.to_lowercase() }));
        put("etcdDiscoveryDomain", text_or_null(&infra["status"]["etcdDiscoveryDomain"]));
        put("infra", infra);
        put("dns", self.dns.as_ref().map_or(Value::Null, |dns| embedded(dns, "DNS")));
        put("proxy", self.proxy.as_ref().map_or(Value::Null, proxy));
        if let Some(network) = &self.network {
            put("networkType", network_type(network));
            let mtu = &network["status"]["migration"]["mtu"];
            put("network", if mtu.is_null() { Value::Null } else { json!({ "mtuMigration": mtu }) });
        }
        if self.namespaces.contains(&CONFIG) {
            put("pullSecret", json!({"namespace": CONFIG, "name": "pull-secret"}));
        }
        for (field, value) in self.bundles(said, plain)? {
            put(field, value);
        }
        let image = self.version.as_ref().map(|v| &v["status"]["desired"]["image"]);
        if let Some(image) = image.and_then(Value::as_str).filter(|i| !i.is_empty()) {
            wanted.once.insert("releaseImage".to_owned(), json!(image));
        }
        Ok(wanted)
    }

    /// Whether anything of these objects can be seen in a change of this ConfigMap.
    fn map(&self, (namespace, name): (&str, &str)) -> Option<&Entries> {
        self.maps.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// A text in a ConfigMap.
    fn text(&self, place: (&str, &str), key: &str) -> Option<String> {
        let text = String::from_utf8_lossy(self.map(place)?.get(key)?).into_owned();
        (!text.trim().is_empty()).then_some(text)
    }

    /// The address of the cluster's DNS, and the IP families.
    fn addresses(&self) -> Result<(Option<String>, Option<String>), String> {
        const PATH: &str = "Network cluster: spec.serviceNetwork";
        let Some(network) = &self.network else { return Ok((None, None)) };
        let mut nets: Vec<IpNet> = vec![];
        for (i, net) in network["spec"]["serviceNetwork"].as_array().into_iter().flatten().enumerate() {
            let net = net.as_str().unwrap_or_default();
            let wrong = |_| {
                format!("{PATH}[{i}] {net:?} is not a range of addresses such as 172.30.0.0/16; correct it")
            };
            nets.push(net.parse().map_err(wrong)?);
        }
        let Some(first) = nets.first() else {
            return Err(format!("{PATH} is empty; name the range of the cluster's Services there"));
        };
        let dns = dns_address(first).ok_or_else(|| {
            format!("{PATH}[0] {first} is too small: the cluster's DNS has the tenth address of this range; use a larger \
                one")
        })?;
        let families: Vec<bool> = nets.iter().map(|n| n.addr().is_ipv6()).collect();
        Ok((Some(dns), families_word(&families).map(str::to_owned)))
    }

    /// The Infrastructure as it is embedded: with its kind, and with the platform's status even where only the older field
    /// names the platform.
    fn infra(&self, said: &ControllerConfigValues, plain: &ControllerConfigValues) -> Value {
        let mut infra = embedded(&self.infrastructure, "Infrastructure");
        if !infra["status"].is_object() {
            infra["status"] = json!({});
        }
        if infra["status"]["platformStatus"].is_null() {
            let of = infra["status"]["platform"].as_str().filter(|p| !p.is_empty()).unwrap_or("None");
            infra["status"]["platformStatus"] = json!({ "type": of });
        }
        for field in ["apiServerInternalURI", "apiServerURL"] {
            let has = infra["status"][field].as_str().filter(|url| !url.is_empty());
            let url = said.api_server_url.as_deref().or(has).or(plain.api_server_url.as_deref());
            if let Some(url) = url.map(str::to_owned) {
                infra["status"][field] = json!(url);
            }
        }
        infra
    }

    /// The version that the cluster is to have, where ClusterVersion `version` says it.
    pub(crate) fn cluster_version(&self) -> Option<String> {
        let desired = self.version.as_ref()?["status"]["desired"]["version"].as_str();
        desired.filter(|version| !version.is_empty()).map(str::to_owned)
    }
}

/// An object as the ControllerConfig embeds it: with its kind, and without what changes with every write of anybody
/// (`resourceVersion`, `managedFields`).
fn embedded(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = json!("config.openshift.io/v1");
    object["kind"] = json!(kind);
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({ "name": CLUSTER });
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|key, _| {
            !["resourceVersion", "managedFields", "generation", "selfLink"].contains(&key.as_str())
        });
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        }
        metadata.retain(|_, value| value != &json!({}));
    }
    object
}

/// The platform's type; empty: none is said.
fn platform(infra: &Value) -> &str {
    infra["status"]["platformStatus"]["type"].as_str().unwrap_or_default()
}

fn text_or_null(value: &Value) -> Value {
    value.as_str().filter(|t| !t.is_empty()).map_or(Value::Null, |t| json!(t))
}

/// The proxy in force; null: there is none.
fn proxy(proxy: &Value) -> Value {
    let mut found = Map::new();
    for field in ["httpProxy", "httpsProxy", "noProxy"] {
        if let Some(value) = proxy["status"][field].as_str().filter(|v| !v.is_empty()) {
            found.insert(field.to_owned(), json!(value));
        }
    }
    if found.is_empty() { Value::Null } else { found.into() }
}

/// The network plug-in: the one that is being migrated to, the one in force, or, before there is one, the one that is asked
/// for.
fn network_type(network: &Value) -> Value {
    let status = &network["status"];
    match text_or_null(&status["networkType"]) {
        Value::Null => text_or_null(&network["spec"]["networkType"]),
        now => match text_or_null(&status["migration"]["networkType"]) {
            Value::Null => now,
            next => next,
        },
    }
}

#[cfg(test)]
mod tests;
