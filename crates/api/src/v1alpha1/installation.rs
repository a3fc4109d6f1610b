//! MachineConfigOperator: what is installed in this cluster and how, and how far the operator has come with it.
//!
//! What it is not: the making of any object (see `operator`). The cluster's facts that templates read stand in the
//! ControllerConfig.

use super::Condition;
use crate::definition::{Cel, Column, kind};
use crate::k8s::ByteString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

kind! {
    /// MachineConfigOperator says what is installed in this cluster: the image, how nodes and booting machines are served,
    /// and how they reach the API server. There is one, named `cluster`. The operator keeps the installation as it says.
    MachineConfigOperator {
        spec: MachineConfigOperatorSpec, status: MachineConfigOperatorStatus,
        group: "machineconfig.dev", version: "v1alpha1", plural: "machineconfigoperators", singular: "machineconfigoperator",
        short_names: ["mcop"],
        categories: ["mco"],
        columns: [
            Column::text(
                "Version",
                ".status.versions[?(@.name==\"operator\")].version",
                "The version that is installed.",
            ),
            Column::text(
                "Available",
                ".status.conditions[?(@.type==\"Available\")].status",
                "Whether the installation is complete and its controller runs.",
            ),
            Column::text(
                "Progressing",
                ".status.conditions[?(@.type==\"Progressing\")].status",
                "Whether something is being rolled out.",
            ),
            Column::text(
                "Degraded",
                ".status.conditions[?(@.type==\"Degraded\")].status",
                "Whether a step of the operator has failed.",
            ),
            Column::text(
                "Reason",
                ".status.conditions[?(@.type==\"Degraded\")].reason",
                "Which step has failed, as one word.",
            ),
            Column::text("Image", ".spec.image", "The image of all parts.").wide_only(),
            Column::text(
                "Message",
                ".status.conditions[?(@.type==\"Progressing\")].message",
                "What is being rolled out.",
            )
            .wide_only(),
            Column::AGE,
        ],
        rules: ONLY_CLUSTER,
    }
}

const ONLY_CLUSTER: Cel = Cel {
    rule: "self.metadata.name == 'cluster'",
    message: "there is one object of this kind; name it cluster",
};

const IMAGE: Cel = Cel {
    rule: "self.matches('^[^\\\\s]+$')",
    message: "an image is a name without spaces, such as registry.example.com/mco:1",
};
const NETS: Cel = Cel {
    rule: "self.all(n, isCIDR(n) || isIP(n))",
    message: "each entry is an IP address or a range such as 10.0.0.4/31",
};
const NOT_ALL: Cel = Cel {
    rule: "self.all(n, !isCIDR(n) || cidr(n).prefixLength() > 0)",
    message: "a range of all addresses would trust everybody; name the addresses themselves",
};
/// Accepts the same texts as `network::is_host`; one table tests both. `isIP` refuses IPv4 addresses in IPv6 form (`::ffff:…`). With
/// another group in the place of `ffff` it still says whether the address is well formed.
const HOSTS: Cel = Cel {
    rule: "self.all(h, h.matches('^([A-Za-z0-9._-]+|\\\\[[0-9A-Fa-f.]*:[0-9A-Fa-f.:]*\\\\])\
           (:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]))?$') && \
           (!h.startsWith('[') || isIP(h.substring(1, h.indexOf(']')).lowerAscii().replace('ffff', 'fffe'))))",
    message: "each entry is a name such as mco.example.com or an address, IPv6 in brackets, with or without a port from 1 to 65535",
};
const URL: Cel = Cel {
    rule: "isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",
    message: "the API server's address is an https URL with a host, such as https://api.example.com:6443",
};
const NOT_LOOPBACK: Cel = Cel {
    rule: "!isURL(self) || !(url(self).getHostname() in ['localhost', '127.0.0.1', '[::1]', '::1', '0.0.0.0'])",
    message: "this is each machine's own address; use one by which machines reach the API server",
};
const IP: Cel = Cel { rule: "isIP(self)", message: "must be an IP address" };
const IMAGE_OF_PODS: Cel = Cel {
    rule: "!has(self.image) || self.runAs == 'Pods'",
    message: "agents that are services of their hosts have no image; set runAs to Pods, or take image out",
};
const KUBECONFIG_OF_PODS: Cel = Cel {
    rule: "!has(self.kubeconfig) || self.runAs == 'Pods'",
    message: "agents that are services of their hosts get their kubeconfig from their unit (--kubeconfig); set runAs to Pods, or take kubeconfig out",
};
const PATH: Cel = Cel {
    rule: "self.matches('^/[^\\\\s]+$')",
    message: "the kubeconfig is an absolute path on the hosts without spaces, such as /etc/mco/agent.kubeconfig",
};

/// What is installed, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigOperatorSpec {
    /// Whether the operator keeps the installation.
    #[serde(default)]
    pub management_state: ManagementState,
    /// The image of controller, config server and operator, and of agents that run as pods.
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [IMAGE]))]
    pub image: String,
    /// Where the image comes from once the operator runs.
    #[serde(default)]
    pub image_from: ImageFrom,
    /// The built-in pools. A pool that is missing is created; one that exists is never changed or deleted.
    #[serde(default = "built_in_pools")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 63)), extend("x-kubernetes-list-type" = "set"))]
    pub pools: Vec<String>,
    /// The node agents.
    #[serde(default)]
    pub agents: Agents,
    /// The config server for booting machines.
    #[serde(default)]
    pub config_server: ConfigServer,
    /// The API server, as machines reach it. Without it the operator takes what the cluster says: the ConfigMap
    /// `kube-public/cluster-info`, or the Infrastructure on OpenShift.
    #[serde(default)]
    pub api_server: ApiServer,
    /// Monitoring of the parts.
    #[serde(default)]
    pub monitoring: Monitoring,
    /// The page that shows the fleet.
    #[serde(default, skip_serializing_if = "Dashboard::is_default")]
    pub dashboard: Dashboard,
    /// What a change of hosts costs if no disruption policy of the MachineConfiguration matches it.
    #[serde(default)]
    pub reboots: Reboots,
    /// The address of the cluster's DNS service. Without it the operator takes that of the cluster's own Service.
    #[serde(rename = "clusterDNSIP", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 45), extend("x-kubernetes-validations" = [IP]))]
    pub cluster_dns_ip: Option<String>,
}

fn built_in_pools() -> Vec<String> {
    vec![crate::names::MASTER.to_owned(), crate::names::WORKER.to_owned()]
}

/// Which image the operator and its parts run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageFrom {
    /// `spec.image`.
    #[default]
    Settings,
    /// The image `machineConfigOperator` of the ConfigMap `machine-config-operator-images`: whoever applies a release's
    /// payload there rolls out all of it. `spec.image` is what the first operator starts with.
    ReleasePayload,
}

/// Whether the operator acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ManagementState {
    /// The operator keeps everything as these settings say.
    #[default]
    Managed,
    /// The operator writes nothing but its status. Running parts continue.
    Unmanaged,
}

/// How node agents run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [IMAGE_OF_PODS, KUBECONFIG_OF_PODS]))]
pub struct Agents {
    /// As pods, or as services of their hosts.
    #[serde(default)]
    pub run_as: RunAs,
    /// The image of the pods, if it is not `spec.image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [IMAGE]))]
    pub image: Option<String>,
    /// The kubeconfig of the pods, as a path on the hosts. Without it they look for the kubelet's, where kubeadm, k3s, RKE2, k0s
    /// and OpenShift have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 2, max = 256), extend("x-kubernetes-validations" = [PATH]))]
    pub kubeconfig: Option<String>,
}

/// How agents are started. The default is for new objects: the API server stores a default in each object, so one that was
/// created when the default was `HostServices` keeps that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunAs {
    /// systemd of each host, from a package or an image of the host.
    HostServices,
    /// The kubelet: one pod on each Linux node.
    #[default]
    Pods,
}

/// Who gets a config from the config server, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigServer {
    /// Who gets a config.
    #[serde(default)]
    pub access: Access,
    /// Load balancers that send the client's address by PROXY protocol, version 2: addresses or ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 64)),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [NETS, NOT_ALL]))]
    pub proxy_protocol_from: Vec<String>,
}

/// Who gets a config.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Access {
    /// Machines that show a boot token, over HTTPS.
    #[default]
    BootTokens,
    /// Everybody who reaches the server, over plain HTTP too, as in OpenShift.
    Everybody,
}

/// Monitoring of the parts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Monitoring {
    /// The objects by which the Prometheus operator finds metrics and alerts.
    #[serde(default)]
    pub prometheus: PrometheusObjects,
    /// The dashboards for Grafana.
    #[serde(default)]
    pub dashboards: DashboardObjects,
}

/// Whether ServiceMonitors and a PrometheusRule are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PrometheusObjects {
    /// If the cluster has these kinds, also if they are installed later.
    #[default]
    WhereServed,
    /// Never. Existing ones are deleted.
    Never,
}

/// Whether dashboards are put into the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DashboardObjects {
    /// No dashboards.
    #[default]
    Never,
    /// As ConfigMaps with the label `grafana_dashboard: "1"`, by which the sidecar of Grafana's Helm chart finds them.
    ConfigMaps,
}

/// The page that shows the fleet, behind the Service `machine-config-dashboard`. Everybody who may read the cluster's pools and
/// nodes may use it, with a bearer token of the cluster or signed in by a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dashboard {
    /// Whether it runs.
    #[serde(default)]
    pub run: RunDashboard,
    /// Names by which people reach it besides the Service's: host names or addresses (IPv6 in brackets), with or without a port from 1 to
    /// 65535. Requests by other names are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 260)),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [HOSTS]))]
    pub hosts: Vec<String>,
    /// Proxies that sign people in: addresses or ranges from which `X-Forwarded-User` and `X-Forwarded-Groups` count.
    /// Whoever sends from such an address can pass as anybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64)),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [NETS, NOT_ALL]))]
    pub trusted_proxies: Vec<String>,
    /// Who may connect to it: addresses or ranges, as the network plugin sees them (a NetworkPolicy). Without any: everybody
    /// who can reach its pod.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 64)),
        extend("x-kubernetes-list-type" = "set", "x-kubernetes-validations" = [NETS]))]
    pub connections_from: Vec<String>,
}

impl Dashboard {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether the dashboard runs in the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunDashboard {
    /// It does not run. Its objects are deleted.
    #[default]
    Never,
    /// As a Deployment.
    InCluster,
}

/// When a change for which there is no disruption policy drains and reboots a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Reboots {
    /// Always a drain and a reboot, as in OpenShift.
    #[default]
    AsReference,
    /// Only where the change cannot take effect otherwise. What has a row in the table of the documentation's page on
    /// disruption takes effect at once, and is checked; everything else reboots.
    WhenNeeded,
}

/// How machines reach the API server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiServer {
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512), extend("x-kubernetes-validations" = [URL, NOT_LOOPBACK]))]
    pub url: Option<String>,
    /// The CAs that its clients trust: PEM, in base64 as in a kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "byte", "maxLength" = 262_144))]
    pub ca_data: Option<ByteString>,
}

/// How far the operator has come.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineConfigOperatorStatus {
    /// The generation of the settings that the conditions speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub observed_generation: Option<i64>,
    /// The version of the operator that wrote this status.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 128))]
    pub observed_by: String,
    /// `Available`, `Progressing`, `Degraded`, `Upgradeable` and `EvaluationConditionsDetected`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What has been rolled out completely: `operator` (its version), `operator-image`, and `release` where the cluster has a
    /// release's payload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub versions: Vec<OperandVersion>,
    /// Each pool in one sentence, and `lastSyncError` where the last pass failed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256), transform = limit_texts)]
    pub extension: BTreeMap<String, String>,
}

fn limit_texts(schema: &mut schemars::Schema) {
    schema
        .insert("additionalProperties".to_owned(), serde_json::json!({"type": "string", "maxLength": 32768}));
}

/// The version of one part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperandVersion {
    /// The part.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Its version.
    #[schemars(length(max = 512))]
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_omitted_field_has_its_default() {
        let object: MachineConfigOperator = crate::formats::yaml::from_str("spec: {image: mco:1}").unwrap();
        let spec = object.spec;
        assert_eq!(spec.pools, ["master", "worker"]);
        assert_eq!((spec.agents.run_as, spec.config_server.access), (RunAs::Pods, Access::BootTokens));
        assert_eq!(spec.management_state, ManagementState::Managed);
        let bare: MachineConfigOperator =
            crate::formats::yaml::from_str("metadata: {name: cluster}").unwrap();
        assert_eq!(bare.spec.image, "");
    }
}
