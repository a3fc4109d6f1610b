//! The platform that a cluster runs on, as far as templates depend on it.
//!
//! What it is not: the facts themselves (see ControllerConfig).

use api::topology::ControlPlaneTopology;
use api::v1::ControllerConfigSpec;
use serde_json::Value;

/// Platforms with one's own hardware, and the short name that their files carry.
pub(crate) const ON_PREM: [(&str, &str); 5] = [
    ("BareMetal", "kni"),
    ("Ovirt", "ovirt"),
    ("OpenStack", "openstack"),
    ("VSphere", "vsphere"),
    ("Nutanix", "nutanix"),
];
/// Platforms with a folder of templates.
const KNOWN: [&str; 13] = [
    "AWS",
    "Azure",
    "BareMetal",
    "GCP",
    "OpenStack",
    "Libvirt",
    "Ovirt",
    "VSphere",
    "Kubevirt",
    "PowerVS",
    "None",
    "External",
    "Nutanix",
];
/// Platforms whose cloud provider runs outside the kubelet.
const EXTERNAL_CLOUD: [&str; 10] = [
    "AlibabaCloud",
    "AWS",
    "Azure",
    "GCP",
    "IBMCloud",
    "Kubevirt",
    "Nutanix",
    "OpenStack",
    "PowerVS",
    "VSphere",
];

/// The platform, as far as templates depend on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Platform {
    pub(crate) kind: String,
    topology: Option<ControlPlaneTopology>,
    own_dns: bool,
    pub(crate) external_cloud: bool,
}

impl Platform {
    pub(crate) fn of(spec: &ControllerConfigSpec) -> Self {
        let kind = match spec.platform_type() {
            "" => "None",
            kind => kind,
        };
        let section = kind.to_ascii_lowercase();
        let dns = spec.infra_status(&["platformStatus", &section, "cloudLoadBalancerConfig", "dnsType"]);
        let manager = spec.infra_status(&["platformStatus", "external", "cloudControllerManager", "state"]);
        let external = EXTERNAL_CLOUD.contains(&kind) || (kind == "External" && manager == Some("External"));
        Self {
            kind: kind.to_owned(),
            topology: spec.topology(),
            own_dns: dns == Some("ClusterHosted") && load_balancers_known(spec, &section),
            external_cloud: external,
        }
    }

    /// The layers that apply here; later ones override earlier ones.
    pub(crate) fn layers(&self) -> Vec<String> {
        let kind = self.kind.as_str();
        let folder = if KNOWN.contains(&kind) { kind.to_ascii_lowercase() } else { "none".to_owned() };
        let layers = [
            Some("_base".to_owned()),
            ON_PREM.iter().any(|(k, _)| *k == kind).then(|| "on-prem".to_owned()),
            (matches!(kind, "AWS" | "GCP" | "Azure") && self.own_dns)
                .then(|| "cloud-platform-alt-dns".to_owned()),
            Some(folder),
            self.topology.and_then(layer).map(str::to_owned),
        ];
        layers.into_iter().flatten().collect()
    }
}

/// The layer of a topology. `None`: it has none.
fn layer(topology: ControlPlaneTopology) -> Option<&'static str> {
    match topology {
        ControlPlaneTopology::SingleReplica => Some("sno"),
        ControlPlaneTopology::DualReplica => Some("two-node-with-fencing"),
        ControlPlaneTopology::HighlyAvailable
        | ControlPlaneTopology::HighlyAvailableArbiter
        | ControlPlaneTopology::External => None,
    }
}

fn load_balancers_known(spec: &ControllerConfigSpec, section: &str) -> bool {
    let path = format!(
        "/status/platformStatus/{section}/cloudLoadBalancerConfig/clusterHosted/apiIntLoadBalancerIPs"
    );
    let ips = spec.infra.as_ref().and_then(|i| i.pointer(&path)).and_then(Value::as_array);
    ips.is_some_and(|ips| !ips.is_empty())
}
