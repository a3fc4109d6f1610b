//! The configuration files for `kubeadm` (`kubeadm.k8s.io/v1beta4`), the kubelet and kube-proxy, as texts.
//!
//! Pure. Not here: running `kubeadm`. Only what the lab's machines need differs from kubeadm's defaults:
//!
//! - images are already in containerd, under the lab's names;
//! - control groups are of version 1, and the nodes share this computer's disk, memory and kernel settings;
//! - etcd does not sync to disk (a node's reboot loses nothing: its disk is this computer's), and serves its health
//!   without TLS;
//! - Go's runtime of each program of the control plane gets one processor, because all nodes share those of this computer.

use std::net::IpAddr;

use serde_json::{Value, json};

use crate::control_plane::programs::KUBERNETES_VERSION;
use crate::error::{Error, Result};
use crate::kubeadm::images::{ETCD_TAG, REPOSITORY};
use crate::machine::real_kubelet::ONE_PROCESSOR;

/// The port of every API server, and of the load balancer in front of them.
pub(crate) const API_PORT: u16 = 6443;
/// etcd's `/health` and metrics, plain HTTP, on every control-plane node.
pub(crate) const ETCD_HEALTH_PORT: u16 = 2381;
/// The API server's address in the service subnet: the first one.
pub(crate) const API_SERVICE: &str = "10.96.0.1";
/// containerd's socket in the nodes.
const SOCKET: &str = "unix:///run/containerd/containerd.sock";

/// A node as kubeadm sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: IpAddr,
}

impl Member<'_> {
    fn registration(&self) -> Value {
        json!({
            "name": self.name,
            "criSocket": SOCKET,
            "imagePullPolicy": "Never",
            "kubeletExtraArgs": [{"name": "node-ip", "value": self.address}],
        })
    }

    fn endpoint(&self) -> Value {
        json!({"advertiseAddress": self.address, "bindPort": API_PORT})
    }
}

/// What a node needs to join, from the output of `kubeadm token create --print-join-command`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JoinCredentials {
    token: String,
    ca_hash: String,
}

impl std::fmt::Debug for JoinCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ticket")
    }
}

impl JoinCredentials {
    /// Parses that output.
    ///
    /// # Errors
    /// The command has no token or no hash.
    pub(crate) fn parse(join_command: &str) -> Result<Self> {
        let words: Vec<&str> = join_command.split_whitespace().collect();
        let after = |flag: &str| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1).map(|word| (*word).to_owned())
        };
        match (after("--token"), after("--discovery-token-ca-cert-hash")) {
            (Some(token), Some(ca_hash)) => Ok(Self { token, ca_hash }),
            // The message does not quote the text, which may contain a token.
            _ => Err(Error::Options(
                "`kubeadm token create --print-join-command` names no token or no hash".to_owned(),
            )),
        }
    }
}

/// For `kubeadm init` on the first control-plane node. `endpoint` is the balancer's address. With `certificate_key`, 32
/// bytes in hex, other control-plane nodes decrypt the cluster's certificates.
pub(crate) fn init(first: Member<'_>, endpoint: IpAddr, certificate_key: &str) -> String {
    let envs = json!([{"name": ONE_PROCESSOR.0, "value": ONE_PROCESSOR.1}]);
    documents(&[
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "certificateKey": certificate_key,
            "localAPIEndpoint": first.endpoint(),
            "nodeRegistration": first.registration(),
        }),
        json!({
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "ClusterConfiguration",
            "kubernetesVersion": KUBERNETES_VERSION,
            "clusterName": "lab",
            "imageRepository": REPOSITORY,
            "controlPlaneEndpoint": format!("{endpoint}:{API_PORT}"),
            "networking": {
                "serviceSubnet": "10.96.0.0/16", "podSubnet": "10.244.0.0/16", "dnsDomain": "cluster.local",
            },
            "apiServer": {"extraEnvs": envs},
            "controllerManager": {"extraEnvs": envs},
            "scheduler": {"extraEnvs": envs},
            "etcd": {"local": {
                "dataDir": "/var/lib/etcd",
                "imageTag": ETCD_TAG,
                "extraEnvs": envs,
                "extraArgs": [
                    {"name": "unsafe-no-fsync", "value": "true"},
                    {"name": "listen-metrics-urls", "value": format!("http://0.0.0.0:{ETCD_HEALTH_PORT}")},
                ],
            }},
        }),
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": false,
            "failSwapOn": false,
            "enforceNodeAllocatable": ["none"],
            "evictionHard": {
                "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
                "imagefs.available": "0%", "imagefs.inodesFree": "0%",
            },
            // Images must not be garbage collected: they cannot be pulled again.
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": false,
            // A node that has rebooted should be seen at once, as with the lab's other nodes.
            "nodeStatusUpdateFrequency": "2s",
        }),
        json!({
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "iptables",
            // These kernel settings belong to the whole computer, so kube-proxy must not change them.
            "conntrack": {
                "maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
            },
        }),
    ])
}

/// For `kubeadm join`; with a certificate key the node becomes a control-plane node.
pub(crate) fn join(
    member: Member<'_>,
    endpoint: IpAddr,
    ticket: &JoinCredentials,
    certificate_key: Option<&str>,
) -> String {
    let mut config = json!({
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "JoinConfiguration",
        "discovery": {"bootstrapToken": {
            "apiServerEndpoint": format!("{endpoint}:{API_PORT}"),
            "token": ticket.token,
            "caCertHashes": [ticket.ca_hash],
        }},
        "nodeRegistration": member.registration(),
    });
    if let Some(key) = certificate_key {
        config["controlPlane"] = json!({"localAPIEndpoint": member.endpoint(), "certificateKey": key});
    }
    documents(&[config])
}

/// Several JSON documents, which are valid YAML.
fn documents(all: &[Value]) -> String {
    all.iter().map(|one| format!("---\n{one:#}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_join_is_made_from_the_words_of_kubeadm() {
        let said = "kubeadm join 10.1.1.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:12ab \n";
        let ticket = JoinCredentials::parse(said).unwrap();
        let member = Member { name: "worker-0", address: "10.1.1.13".parse().unwrap() };
        let endpoint = "10.1.1.1".parse().unwrap();
        let worker = join(member, endpoint, &ticket, None);
        let worker: Value = serde_json::from_str(worker.trim_start_matches("---\n")).unwrap();
        let token = &worker["discovery"]["bootstrapToken"];
        assert_eq!(token["token"], "abcdef.0123456789abcdef");
        assert_eq!(token["caCertHashes"][0], "sha256:12ab");
        assert_eq!(token["apiServerEndpoint"], "10.1.1.1:6443");
        assert_eq!(worker["nodeRegistration"]["kubeletExtraArgs"][0]["value"], "10.1.1.13");
        assert_eq!(worker.get("controlPlane"), None);
        let control_plane = join(member, endpoint, &ticket, Some("00"));
        let control_plane: Value = serde_json::from_str(control_plane.trim_start_matches("---\n")).unwrap();
        assert_eq!(control_plane["controlPlane"]["certificateKey"], "00");
        assert_eq!(control_plane["controlPlane"]["localAPIEndpoint"]["advertiseAddress"], "10.1.1.13");

        let error = JoinCredentials::parse("kubeadm join --token secret.secret").unwrap_err().to_string();
        assert!(error.contains("no hash") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn init_speaks_of_one_cluster_in_four_documents() {
        let first = Member { name: "control-plane-0", address: "10.1.1.10".parse().unwrap() };
        let text = init(first, "10.1.1.1".parse().unwrap(), "0f");
        let documents: Vec<Value> =
            text.split("---\n").skip(1).map(|one| serde_json::from_str(one).unwrap()).collect();
        let kinds: Vec<&str> = documents.iter().filter_map(|one| one["kind"].as_str()).collect();
        assert_eq!(
            kinds,
            ["InitConfiguration", "ClusterConfiguration", "KubeletConfiguration", "KubeProxyConfiguration"]
        );
        assert_eq!(documents[1]["controlPlaneEndpoint"], "10.1.1.1:6443");
        assert_eq!(documents[0]["certificateKey"], "0f");
    }
}
