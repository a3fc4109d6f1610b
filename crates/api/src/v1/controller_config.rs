//! ControllerConfig: cluster facts that templates and rendering need. There is one, `machine-config-controller`.
//!
//! Source: <https://github.com/openshift/api/blob/HEAD/machineconfiguration/v1/types.go>.

use crate::k8s::{ByteString, ObjectReference, Time};
use crate::topology::ControlPlaneTopology;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

crate::definition::resource::resource!(
    /// Cluster facts for templates and rendering.
    ControllerConfig, ControllerConfigSpec, ControllerConfigStatus,
    "machineconfiguration.openshift.io", "v1", "controllerconfigs"
);

/// The facts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerConfigSpec {
    /// The address of the cluster's DNS service.
    #[serde(rename = "clusterDNSIP", default)]
    pub cluster_dns_ip: String,
    /// The cloud provider's config file.
    #[serde(default)]
    pub cloud_provider_config: String,
    /// The platform's name; deprecated in favour of `infra`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etcd_discovery_domain: Option<String>,
    /// The CA bundle that clients of the API server trust (PEM).
    #[serde(rename = "kubeAPIServerServingCAData", default)]
    #[schemars(with = "String")]
    pub kube_api_server_serving_ca_data: ByteString,
    /// The cluster's root CA (PEM).
    #[serde(rename = "rootCAData", default)]
    #[schemars(with = "String")]
    pub root_ca_data: ByteString,
    /// The cloud provider's CA (PEM).
    #[serde(rename = "cloudProviderCAData", default)]
    #[schemars(with = "Option<String>")]
    pub cloud_provider_ca_data: Option<ByteString>,
    /// CAs that every host trusts beside the OS's own (PEM).
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub additional_trust_bundle: Option<ByteString>,
    /// CA bundles for image registries: file name and PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_registry_bundle_data: Option<Vec<ImageRegistryBundle>>,
    /// The same, the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_registry_bundle_user_data: Option<Vec<ImageRegistryBundle>>,
    /// Pull specs by key; which keys there are is up to the templates.
    #[serde(default)]
    pub images: BTreeMap<String, String>,
    /// The default OS image of rendered configs.
    #[serde(rename = "baseOSContainerImage", default)]
    pub base_os_container_image: String,
    /// The default extensions image of rendered configs.
    #[serde(rename = "baseOSExtensionsContainerImage", default, skip_serializing_if = "Option::is_none")]
    pub base_os_extensions_container_image: Option<String>,
    /// The OS image of old releases; not used for rendering.
    #[serde(rename = "osImageURL", default, skip_serializing_if = "Option::is_none")]
    pub os_image_url: Option<String>,
    /// The release's own image.
    #[serde(default)]
    pub release_image: String,
    /// The cluster's proxy.
    #[serde(default)]
    pub proxy: Option<ProxyStatus>,
    /// `config.openshift.io/v1` Infrastructure, embedded; kept as it is.
    #[serde(default)]
    #[schemars(schema_with = "super::any_object")]
    pub infra: Option<Value>,
    /// `config.openshift.io/v1` DNS, embedded; kept as it is.
    #[serde(default)]
    #[schemars(schema_with = "super::any_object")]
    pub dns: Option<Value>,
    /// `IPv4`, `IPv6`, `DualStack` or `DualStackIPv6Primary`.
    #[serde(default)]
    pub ip_families: String,
    /// Network settings that a migration needs.
    #[serde(default)]
    #[schemars(schema_with = "super::any_object")]
    pub network: Option<Value>,
    /// The network plug-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    /// Where the cluster's pull secret stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<ObjectReference>,
    /// The pull secret of the cluster's own registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub internal_registry_pull_secret: Option<ByteString>,
}

impl ControllerConfigSpec {
    /// A string in the embedded Infrastructure's status, by the names on the way to it.
    pub fn infra_status(&self, path: &[&str]) -> Option<&str> {
        let status = self.infra.as_ref()?.get("status")?;
        path.iter().try_fold(status, |v, key| v.get(key))?.as_str()
    }

    /// The control plane's topology as it is copied, `HighlyAvailable` and so on; empty when it is not known.
    pub fn control_plane_topology(&self) -> &str {
        self.infra_status(&["controlPlaneTopology"]).unwrap_or_default()
    }

    /// The control plane's topology, for decisions. `None`: it is not known, or is one of another version.
    pub fn topology(&self) -> Option<ControlPlaneTopology> {
        ControlPlaneTopology::parse(self.control_plane_topology())
    }

    /// The cluster is OpenShift: its own operator always names the release's image here; on other clusters the field is empty.
    pub fn is_openshift(&self) -> bool {
        !self.release_image.is_empty()
    }

    /// The embedded Infrastructure is a copy of the cluster's own object, which then decides its contents.
    pub fn copies_infrastructure(&self) -> bool {
        let uid = self.infra.as_ref().and_then(|i| i.pointer("/metadata/uid")?.as_str());
        uid.is_some_and(|uid| !uid.is_empty())
    }

    /// The platform's type, for example `None` or `AWS`; empty when it is not known.
    pub fn platform_type(&self) -> &str {
        self.infra_status(&["platformStatus", "type"])
            .or_else(|| self.infra_status(&["platform"]))
            .unwrap_or_default()
    }
}

/// One registry's CA bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageRegistryBundle {
    /// The file's name: the registry's host, and `..PORT` where it has one.
    pub file: String,
    /// PEM.
    #[schemars(with = "String")]
    pub data: ByteString,
}

/// A proxy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    /// For `http:` URLs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub http_proxy: String,
    /// For `https:` URLs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub https_proxy: String,
    /// What is reached without it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub no_proxy: String,
}

/// Where the template controller stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerConfigStatus {
    /// The generation that the templates were rendered for.
    #[serde(default)]
    pub observed_generation: i64,
    /// `TemplateControllerRunning`, `…Completed`, `…Failing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Vec<crate::conditions::Condition>>,
    /// The certificates in the spec's bundles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_certificates: Option<Vec<ControllerCertificate>>,
}

/// One certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerCertificate {
    /// Its subject.
    pub subject: String,
    /// Its issuer.
    pub signer: String,
    /// The bundle that contains it.
    pub bundle_file: String,
    /// Valid from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Valid to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Time>,
}
