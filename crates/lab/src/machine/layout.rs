//! Where distributions have a node's kubelet and what belongs to it, and how they mark the role of a node. Pure.
//!
//! Not here: what is in these files (`real_kubelet`). Only the outside is as in the distribution: k3s is one program with a
//! container runtime of its own, and here it is the lab's kubelet under k3s's name, with the node's containerd.

use serde::{Deserialize, Serialize};

use crate::machine::node_file::NodeFile;

/// The label of the nodes that the pool `worker` selects.
const WORKER: &str = "node-role.kubernetes.io/worker";
/// The label of the nodes that the pool `master` selects.
const MASTER: &str = "node-role.kubernetes.io/master";
/// The label of control-plane nodes today.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// Whose nodes a lab's nodes look like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Layout {
    /// The lab's own: a unit for the kubelet, its files in `/etc/kubernetes`, an empty role label on every node.
    #[default]
    Plain,
    /// k3s: the kubelet is inside of its server (`k3s.service`) or agent (`k3s-agent.service`), its files are below
    /// `/var/lib/rancher/k3s`, and only servers have role labels, with the value `true`.
    ///
    /// Source: <https://docs.k3s.io/cli/server> (data folder), <https://docs.k3s.io/installation/private-registry> (folders).
    K3s,
}

/// A kubelet on a node: absolute paths, and its unit.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) unit: &'static str,
    /// The command line up to the kubelet's own flags.
    pub(crate) program: &'static str,
    pub(crate) kubeconfig: &'static str,
    pub(crate) ca: &'static str,
    pub(crate) settings: &'static str,
    /// What else shows whose node it is.
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

    /// Where its kubelet is.
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
