//! Certificates and the cloud's config, out of ConfigMaps. Pure.
//!
//! What it is not: reading them (see `read`).

use super::{API_SERVER, CONFIG, Entries, MANAGED, OpenShift, platform};
use crate::controller_config_values::ControllerConfigValues;
use api::first_boot::server_tls;
use api::formats::pem;
use api::k8s::ByteString;
use api::names::NAMESPACE;
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The key of a CA bundle in most of these ConfigMaps.
const BUNDLE: &str = "ca-bundle.crt";
/// Its presence says that the cluster's first control plane has handed over to the final one.
const BOOTSTRAPPED: (&str, &str) = ("kube-system", "bootstrap");
/// The CAs of the API server's clients, once the cluster is complete: those that kubelets accept requests from.
const CLIENT_CA: (&str, &str) = (MANAGED, "kube-apiserver-client-ca");
/// The same until then.
const INITIAL_CA: (&str, &str) = (CONFIG, "initial-kube-apiserver-server-ca");
/// The API server's signer towards kubelets, as it is now.
const KUBELET_CLIENT_CA: (&str, &str) = (API_SERVER, "kube-apiserver-to-kubelet-client-ca");
/// The name of that signer in the subjects of its certificates.
const KUBELET_SIGNER: &str = "kube-apiserver-to-kubelet-signer";
/// The config server's CA, and the one that the installer made.
const SERVER_CA: (&str, &str) = (NAMESPACE, server_tls::CA);
const ROOT_CA: (&str, &str) = ("kube-system", "root-ca");
/// CAs that every host trusts.
const USER_CA: (&str, &str) = (CONFIG, "user-ca-bundle");
/// The CAs of the cluster's own registry, one key for each of its names.
const REGISTRY_CA: (&str, &str) = (MANAGED, "image-registry-ca");
/// The cloud provider's config and CA.
const CLOUD: (&str, &str) = (MANAGED, "kube-cloud-config");
/// The CA that clients of the API server trust: what kubelets' kubeconfigs get.
pub(super) const KUBECONFIG_CA: (&str, &str) = (MANAGED, "kube-apiserver-server-ca");
/// Platforms that do not work without a cloud config.
const NEED_CLOUD: [&str; 4] = ["Azure", "GCP", "OpenStack", "VSphere"];

/// The ConfigMaps whose names are known. Two more have names that the Proxy and the Image say.
pub(super) const MAPS: [(&str, &str); 8] =
    [CLIENT_CA, INITIAL_CA, KUBELET_CLIENT_CA, SERVER_CA, USER_CA, REGISTRY_CA, CLOUD, KUBECONFIG_CA];
/// The same in `kube-system`.
pub(crate) const SYSTEM_MAPS: [(&str, &str); 2] = [BOOTSTRAPPED, ROOT_CA];

fn bytes(data: &[u8]) -> Value {
    json!(ByteString(data.to_vec()))
}

/// The name of a ConfigMap in `openshift-config` that an object refers to.
pub(super) fn named<'a>(object: Option<&'a Value>, path: &str) -> Option<&'a str> {
    object?.pointer(path)?.as_str().filter(|name| !name.is_empty())
}

impl OpenShift {
    /// The CA bundles and the cloud's config.
    pub(super) fn bundles(
        &self,
        said: &ControllerConfigValues,
        plain: &ControllerConfigValues,
    ) -> Result<Vec<(&'static str, Value)>, String> {
        let mut fields = vec![];
        let serving = match &said.api_server_ca {
            Some(ca) => Some(ca.clone()),
            None => self.serving_ca()?.or_else(|| plain.api_server_ca.clone()),
        };
        if let Some(ca) = &serving {
            fields.push(("kubeAPIServerServingCAData", bytes(ca)));
        }
        // Our own config server gets its CA after the ControllerConfig: until then there may be none.
        let root = self.entry(SERVER_CA, BUNDLE).or_else(|| self.entry(ROOT_CA, "ca.crt"));
        if let Some(ca) = root.or(serving.as_deref()) {
            fields.push(("rootCAData", bytes(ca)));
        }
        fields.push(("additionalTrustBundle", self.trust_bundle()?.map_or(Value::Null, |b| bytes(&b))));
        fields.push(("imageRegistryBundleData", registries(self.map(REGISTRY_CA), false)));
        let user = named(self.image.as_ref(), "/spec/additionalTrustedCA/name");
        let user = user.and_then(|name| self.map((CONFIG, name)));
        fields.push(("imageRegistryBundleUserData", registries(user, true)));
        let (config, ca) = self.cloud()?;
        fields.push(("cloudProviderConfig", json!(config.unwrap_or_default())));
        fields.push(("cloudProviderCAData", ca.map_or(Value::Null, bytes)));
        Ok(fields)
    }

    fn entry(&self, place: (&str, &str), key: &str) -> Option<&[u8]> {
        self.map(place)?.get(key).map(Vec::as_slice).filter(|data| !data.is_empty())
    }

    /// The CA that kubelets' kubeconfigs are to have. `None`: OpenShift does not say.
    pub(crate) fn kubeconfig_ca(&self) -> Option<&[u8]> {
        self.entry(KUBECONFIG_CA, BUNDLE)
    }

    /// The CAs from which kubelets accept requests.
    fn serving_ca(&self) -> Result<Option<Vec<u8>>, String> {
        if self.map(BOOTSTRAPPED).is_some() {
            return match self.entry(CLIENT_CA, BUNDLE) {
                Some(ca) => Ok(Some(ca.to_vec())),
                None => Err(format!(
                    "ConfigMap {}/{} has no {BUNDLE}, by which kubelets verify the API server; the API server's operator \
                     writes it: see ClusterOperator kube-apiserver",
                    CLIENT_CA.0, CLIENT_CA.1
                )),
            };
        }
        let Some(initial) = self.entry(INITIAL_CA, BUNDLE) else {
            return Ok(self.entry(CLIENT_CA, BUNDLE).map(<[u8]>::to_vec));
        };
        Ok(Some(match self.entry(KUBELET_CLIENT_CA, BUNDLE) {
            Some(signer) => with_signer(initial, signer),
            None => initial.to_vec(),
        }))
    }

    /// The CAs that every host trusts beside those of its operating system.
    fn trust_bundle(&self) -> Result<Option<Vec<u8>>, String> {
        let by_proxy = named(self.proxy.as_ref(), "/spec/trustedCA/name").filter(|name| *name != USER_CA.1);
        let mut all = vec![];
        for name in [Some(USER_CA.1), by_proxy].into_iter().flatten() {
            let Some(bundle) = self.entry((CONFIG, name), BUNDLE) else { continue };
            if certificates(bundle).is_none_or(|found| found.is_empty()) {
                return Err(format!(
                    "ConfigMap {CONFIG}/{name}: {BUNDLE} is not a bundle of certificates in PEM; repair it"
                ));
            }
            if all.last().is_some_and(|last| *last != b'\n') {
                all.push(b'\n');
            }
            all.extend_from_slice(bundle);
        }
        Ok((!all.is_empty()).then_some(all))
    }

    /// The cloud provider's config and CA.
    fn cloud(&self) -> Result<(Option<String>, Option<&[u8]>), String> {
        let infra = &self.infrastructure;
        let of = match platform(infra) {
            "" => infra["status"]["platform"].as_str().unwrap_or_default(),
            of => of,
        };
        let is_named = infra["spec"]["cloudConfig"]["name"].as_str().is_some_and(|name| !name.is_empty());
        let needed = NEED_CLOUD.contains(&of);
        let place = format!("ConfigMap {}/{}", CLOUD.0, CLOUD.1);
        if self.map(CLOUD).is_none() && (needed || is_named) {
            let why = if needed {
                format!("on {of} it")
            } else {
                "Infrastructure cluster names a cloud config: it".to_owned()
            };
            return Err(format!("{place} is missing: {why} holds the cloud provider's config; create it"));
        }
        let config = self.text(CLOUD, "cloud.conf");
        if config.is_none() && needed {
            return Err(format!("{place} has no cloud.conf, which the cloud provider needs on {of}; add it"));
        }
        Ok((config, self.entry(CLOUD, "ca-bundle.pem")))
    }
}

/// The certificates of a bundle, in DER. `None`: it is not PEM.
fn certificates(pem: &[u8]) -> Option<Vec<Vec<u8>>> {
    let blocks: Result<Vec<Pem>, _> = Pem::iter_from_buffer(pem).collect();
    let blocks = blocks.ok()?;
    let is_one = |pem: &Pem| pem.label == "CERTIFICATE" && X509Certificate::from_der(&pem.contents).is_ok();
    blocks.iter().all(is_one).then(|| blocks.into_iter().map(|pem| pem.contents).collect())
}

/// The bundle with the present certificates of the API server's signer towards kubelets, in place of the ones that it was
/// installed with.
fn with_signer(bundle: &[u8], signer: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bundle);
    let mut kept = String::new();
    for block in pem::parts(&text) {
        let old = Pem::iter_from_buffer(block.as_bytes()).flatten().any(|pem| {
            X509Certificate::from_der(&pem.contents)
                .is_ok_and(|(_, c)| c.subject().to_string().contains(KUBELET_SIGNER))
        });
        if !old {
            kept.push_str(block.trim_start_matches('\n'));
            if block.ends_with(pem::END) {
                kept.push('\n');
            }
        }
    }
    let mut kept = kept.into_bytes();
    kept.extend_from_slice(signer);
    kept
}

/// Registries' CAs, sorted by registry; null: there are none. The user's may be in base64.
fn registries(map: Option<&Entries>, may_be_base64: bool) -> Value {
    let all: Vec<Value> = map
        .into_iter()
        .flatten()
        .map(|(file, data)| {
            let decoded =
                may_be_base64.then(|| super::super::decode(&String::from_utf8_lossy(data))).flatten();
            json!({"file": file, "data": bytes(&decoded.unwrap_or_else(|| data.clone()))})
        })
        .collect();
    if all.is_empty() { Value::Null } else { all.into() }
}
