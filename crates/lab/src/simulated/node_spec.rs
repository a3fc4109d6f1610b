//! What a fake kubelet says of its node: the Node object and its status, and how often it says so.
//!
//! Not here: that it is said (see `fake_kubelet`).

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Taint};
use serde_json::{Value, json};

use crate::control_plane::programs::KUBERNETES_VERSION;
use crate::system::random::random;

/// How often a kubelet renews its Lease; the node lifecycle controller considers a node unreachable after 40 s without
/// a renewal.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How often a kubelet reports a status that has not changed.
const STATUS_PERIOD: Duration = Duration::from_secs(300);
/// The duration of a Lease, in renewals, as with a kubelet.
const BEATS: u64 = 4;
/// The most renewals per second of all nodes of a lab in which nobody reads Leases: renewals every 10 s by each of
/// 5,000 nodes would take a fifth of a small machine.
const BEATS_A_SECOND: usize = 100;
/// A Node's properties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSpec {
    /// The Node's name and host name.
    pub name: String,
    /// Labels in addition to the usual ones (host name, os, arch).
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Taints: (key, value, effect).
    pub taints: Vec<(String, String, String)>,
    /// Its internal address.
    pub address: Option<String>,
    /// CPUs, memory and pods, as quantities.
    pub capacity: BTreeMap<String, String>,
    /// The OS image that it reports.
    pub os_image: String,
    /// The boot id with which it starts.
    pub boot_id: String,
    /// Time between two Lease renewals.
    pub heartbeat: Duration,
    /// Time between two status reports in which only the time has changed.
    pub status_period: Duration,
}

impl NodeSpec {
    /// A worker with this name.
    #[must_use]
    pub fn worker(name: &str) -> Self {
        Self::new(name).label("node-role.kubernetes.io/worker", "")
    }

    /// A node without a role.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let capacity = [("cpu", "4"), ("memory", "16Gi"), ("pods", "250"), ("ephemeral-storage", "100Gi")];
        Self {
            name: name.to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            taints: Vec::new(),
            address: None,
            capacity: capacity.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            os_image: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            boot_id: new_boot_id(),
            heartbeat: HEARTBEAT,
            status_period: STATUS_PERIOD,
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The duration of its Lease, like a kubelet's `nodeLeaseDurationSeconds`.
    pub(crate) fn lease_seconds(&self) -> u64 {
        self.heartbeat.max(HEARTBEAT).as_secs().saturating_mul(BEATS)
    }

    pub(crate) fn object(&self) -> Node {
        let mut labels = self.labels.clone();
        for (key, value) in [
            ("kubernetes.io/hostname", self.name.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let mut node = Node::default();
        node.metadata.name = Some(self.name.clone());
        node.metadata.labels = Some(labels);
        node.metadata.annotations = Some(self.annotations.clone());
        if !self.taints.is_empty() {
            let taint = |(key, value, effect): &(String, String, String)| Taint {
                key: key.clone(),
                value: Some(value.clone()),
                effect: effect.clone(),
                time_added: None,
            };
            node.spec = Some(k8s_openapi::api::core::v1::NodeSpec {
                taints: Some(self.taints.iter().map(taint).collect()),
                ..Default::default()
            });
        }
        node
    }

    pub(crate) fn status(&self, power: &Power, now: &str) -> Value {
        let (ready, reason, message) = match power {
            Power::Up { .. } => ("True", "KubeletReady", "kubelet is posting ready status"),
            Power::Down { reason } => ("False", "KubeletNotReady", reason.as_str()),
        };
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                   "lastHeartbeatTime": now, "lastTransitionTime": now})
        };
        let mut status = json!({"conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "enough memory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "enough disk"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID", "enough process ids"),
            condition("Ready", ready, reason, message),
        ]});
        if let Power::Up { boot_id } = power {
            let mut addresses = vec![json!({"type": "Hostname", "address": self.name})];
            addresses
                .extend(self.address.iter().map(|address| json!({"type": "InternalIP", "address": address})));
            status["addresses"] = Value::Array(addresses);
            status["capacity"] = json!(self.capacity);
            status["allocatable"] = json!(self.capacity);
            status["nodeInfo"] = json!({
                "machineID": "", "systemUUID": "", "bootID": boot_id, "kernelVersion": kernel_version(),
                "osImage": self.os_image, "containerRuntimeVersion": "fake://1",
                "kubeletVersion": KUBERNETES_VERSION, "kubeProxyVersion": "", "operatingSystem": "linux",
                "architecture": "amd64",
            });
        }
        json!({ "status": status })
    }
}

/// How often each of this many nodes renews its Lease: as kubelets do if somebody reads Leases. Otherwise, with more
/// than a thousand nodes, less often, as with a larger `nodeLeaseDurationSeconds`.
pub(crate) fn heartbeat(nodes: usize, looked_at: bool) -> Duration {
    let stretched = Duration::from_secs(u64::try_from(nodes.div_ceil(BEATS_A_SECOND)).unwrap_or(u64::MAX));
    if looked_at { HEARTBEAT } else { stretched.max(HEARTBEAT) }
}

/// A new boot id, from the kernel's source of UUIDs.
#[must_use]
pub fn new_boot_id() -> String {
    match std::fs::read_to_string("/proc/sys/kernel/random/uuid") {
        Ok(text) => text.trim().to_owned(),
        Err(_) => format!("{:016x}-{:016x}", random(), random()),
    }
}

fn kernel_version() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Whether a node has power.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Power {
    Up { boot_id: String },
    Down { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_down_says_so_and_keeps_its_boot_id_to_itself() {
        let spec = NodeSpec::worker("w");
        let up = spec.status(&Power::Up { boot_id: "b".into() }, "t");
        assert_eq!(up["status"]["nodeInfo"]["bootID"], "b");
        assert_eq!(up["status"]["conditions"][3]["status"], "True");
        let down = spec.status(&Power::Down { reason: "off".into() }, "t");
        assert_eq!(down["status"]["conditions"][3]["status"], "False");
        assert!(down["status"].get("nodeInfo").is_none());
    }

    #[test]
    fn leases_are_renewed_as_by_kubelets_where_somebody_looks_or_the_nodes_are_few() {
        for (nodes, looked_at, seconds) in [(5000, true, 10), (1000, false, 10), (5000, false, 50)] {
            let spec = NodeSpec { heartbeat: heartbeat(nodes, looked_at), ..NodeSpec::worker("w") };
            assert_eq!((spec.heartbeat.as_secs(), spec.lease_seconds()), (seconds, 4 * seconds), "{nodes}");
        }
    }
}
