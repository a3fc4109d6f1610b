//! Objects that are installed, of any kind: which one it is, how it is marked as the operator's own, and where the API server
//! has it. Everything else in this crate may use it.
//!
//! What it is not: what is in them (see `manifests`), or when one is written (see `sync::objects`).

use api::detected::digest;
use api::names::NAMESPACE;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::fmt;

/// The owner of the fields that are applied. It stands in objects of earlier versions, as the value of [`KEPT_BY`] does: under another
/// name nothing that they made would be ours.
pub(crate) const FIELD_MANAGER: &str = api::names::part::OPERATOR;
/// The label on every object that the operator keeps, and its value. Only these are ever pruned.
pub(crate) const KEPT_BY: (&str, &str) = (api::names::label::KEPT_BY, api::names::part::OPERATOR);

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Its kind.
    pub(crate) kind: String,
    /// Its namespace; empty: it has none.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
}

impl Key {
    /// The key of an object.
    pub(crate) fn of(object: &Value) -> Self {
        let text = |p: &str| object.pointer(p).and_then(Value::as_str).unwrap_or_default().to_owned();
        Self { kind: text("/kind"), namespace: text("/metadata/namespace"), name: text("/metadata/name") }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" | NAMESPACE => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

/// The object with the operator's label.
pub(crate) fn labelled(mut object: Value) -> Value {
    object["metadata"]["labels"][KEPT_BY.0] = json!(KEPT_BY.1);
    object
}

/// The object with the operator's label and the digest of its content.
pub(crate) fn marked(object: Value) -> Value {
    let mut object = labelled(object);
    let digest = digest(object.to_string().as_bytes());
    object["metadata"]["annotations"][api::names::own::WRITTEN_DIGEST] = json!(digest.get(..16));
    object
}

/// How the API server serves an object's kind. `None`: the kind is not one that is installed.
pub(crate) fn resource(object: &Value) -> Option<ApiResource> {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let plural = match kind {
        "MachineConfigOperator" => crate::settings::PLURAL,
        "ClusterOperator" => "clusteroperators",
        "ClusterVersion" => "clusterversions",
        "KubeletConfig" => "kubeletconfigs",
        "ContainerRuntimeConfig" => "containerruntimeconfigs",
        "MachineConfiguration" => "machineconfigurations",
        "MachineConfigPool" => "machineconfigpools",
        "ControllerConfig" => "controllerconfigs",
        "CustomResourceDefinition" => "customresourcedefinitions",
        "Namespace" => "namespaces",
        "ServiceAccount" => "serviceaccounts",
        "ClusterRole" => "clusterroles",
        "ClusterRoleBinding" => "clusterrolebindings",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "DaemonSet" => "daemonsets",
        "Deployment" => "deployments",
        "NetworkPolicy" => "networkpolicies",
        "PodDisruptionBudget" => "poddisruptionbudgets",
        "Service" => "services",
        "ConfigMap" => "configmaps",
        "ServiceMonitor" => "servicemonitors",
        "PrometheusRule" => "prometheusrules",
        "Secret" => "secrets",
        "ValidatingAdmissionPolicy" => "validatingadmissionpolicies",
        "ValidatingAdmissionPolicyBinding" => "validatingadmissionpolicybindings",
        "MutatingAdmissionPolicy" => "mutatingadmissionpolicies",
        "MutatingAdmissionPolicyBinding" => "mutatingadmissionpolicybindings",
        _ => return None,
    };
    Some(ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural))
}

/// The API of an object's kind, in its namespace. `None`: the kind is not one that is kept.
pub(crate) fn api_of(client: &Client, object: &Value) -> Option<Api<DynamicObject>> {
    let resource = resource(object)?;
    Some(match object.pointer("/metadata/namespace").and_then(Value::as_str) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}
