//! Where a distribution of Kubernetes has a node's kubelet and its files, and how it marks the role of a node. Pure.
//!
//! Not here: the content of these files (`real_kubelet`). Only paths and names are as in the distribution: k3s is one
//! program with its own container runtime, but here the lab's kubelet runs under k3s's name with the node's containerd.

use serde::{Deserialize, Serialize};

use crate::machine::node_file::NodeFile;

/// The label of the nodes that the pool `worker` selects.
const WORKER: &str = "node-role.kubernetes.io/worker";
/// The label of the nodes that the pool `master` selects.
const MASTER: &str = "node-role.kubernetes.io/master";
/// The label of control-plane nodes in current Kubernetes.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Which distribution of Kubernetes a lab's nodes imitate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Layout {
    /// The lab's own: a unit for the kubelet, its files in `/etc/kubernetes`, an empty role label on every node.
    #[default]
    Plain,
    /// k3s: the kubelet is part of its server (`k3s.service`) or agent (`k3s-agent.service`), its files are below
    /// `/var/lib/rancher/k3s`, and only servers have role labels, with the value `true`.
    ///
    /// Source: <https://docs.k3s.io/cli/server> (data folder), <https://docs.k3s.io/installation/private-registry> (folders).
    K3s,
}

/// The absolute paths of a kubelet's files on a node, and its unit.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) unit: &'static str,
    /// The command line up to the kubelet's own flags.
    pub(crate) program: &'static str,
    pub(crate) kubeconfig: &'static str,
    pub(crate) ca: &'static str,
    pub(crate) settings: &'static str,
    /// Further files by which the distribution can be recognised.
    pub(crate) more: Vec<NodeFile>,
}

impl Layout {
    /// The labels of a node's role.
    pub(crate) fn roles(self, server: bool) -> &'static [(&'static str, &'static str)] {
        match (self, server) {
            (Self::Plain, false) => &[(WORKER, "")],
            (Self::Plain, true) => &[(MASTER, "")],
            (Self::K3s, false) => &[],
            (Self::K3s, true) => &[(CONTROL_PLANE, "true"), (MASTER, "true")],
        }
    }

    /// The paths and the unit of its kubelet.
    pub(crate) fn places(self, server: bool) -> Places {
        match self {
            Self::Plain => Places {
                unit: "kubelet.service",
                program: "/usr/local/bin/kubelet",
                kubeconfig: "/etc/kubernetes/kubelet.kubeconfig",
                ca: "/etc/kubernetes/pki/ca.crt",
                settings: "/etc/kubernetes/kubelet.conf",
                more: vec![],
            },
            Self::K3s => Places {
                unit: if server { "k3s.service" } else { "k3s-agent.service" },
                program: "/usr/local/bin/k3s",
                kubeconfig: "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
                ca: "/var/lib/rancher/k3s/agent/client-ca.crt",
                settings: "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf",
                more: if server {
                    vec![NodeFile::new("var/lib/rancher/k3s/server/token", 0o600, "K10lab::server:lab\n")]
                } else {
                    vec![]
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_servers_of_k3s_have_a_role_and_a_servers_folder() {
        for (server, unit) in [(true, "k3s.service"), (false, "k3s-agent.service")] {
            let places = Layout::K3s.places(server);
            assert_eq!(places.unit, unit);
            assert_eq!(places.more.iter().any(|file| file.path.contains("k3s/server/")), server);
            let roles = Layout::K3s.roles(server);
            assert!(
                roles.iter().all(|(_, value)| *value == "true") && roles.is_empty() != server,
                "{roles:?}"
            );
        }
    }
}
