//! Certificates on a machine that boots: those of the cluster, a new CA of the API server, authorities of a MachineConfig, and the
//! node's state when they cannot be written.
//!
//! Not here: the machines (the module above).

use super::NODE;
use crate::product;
use crate::product::{Cluster, MCO, condition, machine_config, note, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lab::{DAEMON_UNIT, NodeHandle};
use serde_json::{Value, json};

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";

/// The kubeconfig file for the kubelet's first contact, and the one that it uses afterwards.
const KUBECONFIGS: [&str; 2] = ["/etc/kubernetes/kubeconfig", "/var/lib/kubelet/kubeconfig"];

/// A CA from a MachineConfig is added to the trust store of a host that lacks CoreOS's service for it, and is removed
/// again.
pub(super) async fn authorities(cluster: &Cluster, node: &NodeHandle) {
    let ca = cluster.lab.control_plane().ca();
    let path = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";
    let contents = json!({"source": format!("data:;base64,{}", STANDARD.encode(&ca))});
    let storage = json!({"files": [{"path": path, "mode": 0o644, "contents": contents}]});
    let config = json!({"ignition": {"version": "3.5.0"}, "storage": storage});
    let stored = async |is: bool| {
        let about = format!("the host trusts the authority: {is}");
        cluster
            .wait(&about, async || {
                let store = node.read_file("/etc/ssl/certs/ca-certificates.crt").await.unwrap_or_default();
                (store.contains(ca.trim()) == is).then_some(())
            })
            .await;
    };
    stored(false).await;
    cluster.create(machine_config("50-authority", "worker", config)).await;
    stored(true).await;
    cluster.settled("worker", 2, &["50-authority"], &[]).await;
    cluster.delete("MachineConfig", "50-authority").await;
    stored(false).await;
    cluster.settled("worker", 2, &["00-worker"], &["50-authority"]).await;
}

/// A new CA reaches the host without a drain. A CA that cannot be written makes the node degraded until it can.
pub(super) async fn certificates(cluster: &Cluster, node: &NodeHandle) {
    let ca = async |text: &str| {
        let spec = json!({"spec": {"kubeAPIServerServingCAData": STANDARD.encode(text)}});
        cluster.patch("ControllerConfig", "machine-config-controller", spec).await;
    };
    let stands = async |text: &'static str| {
        cluster
            .wait("the CA is on the host", async || {
                (node.read_file(KUBELET_CA).await.ok().as_deref() == Some(text)).then_some(())
            })
            .await;
    };
    ca("NEW CA").await;
    stands("NEW CA\n").await;
    // Somebody removes the CA, or puts another one there.
    node.run(["rm", KUBELET_CA]).await.unwrap();
    stands("NEW CA\n").await;
    node.run(["sh", "-c", &format!("echo OTHER > {KUBELET_CA}")]).await.unwrap();
    stands("NEW CA\n").await;

    node.run(["sh", "-c", &format!("rm {KUBELET_CA} && mkdir -p {KUBELET_CA}/x")]).await.unwrap();
    ca("NEWER CA").await;
    let words = [KUBELET_CA, "there is a folder at this path; move it away"];
    let has_all = |text: &str| words.iter().all(|w| text.contains(w));
    cluster
        .wait("the node is degraded, with path and remedy", async || {
            let found = cluster.get("Node", NODE).await;
            (note(&found, "state") == "Degraded" && has_all(&note(&found, "reason"))).then_some(())
        })
        .await;
    cluster
        .wait("so says its MachineConfigNode", async || {
            let found = cluster.get("MachineConfigNode", NODE).await;
            condition(&found, "NodeDegraded").filter(|m| has_all(m))
        })
        .await;
    cluster
        .wait("so says its log", async || {
            node.logs(DAEMON_UNIT).await.ok()?.lines().any(has_all).then_some(())
        })
        .await;
    cluster.told(NODE, "CertificatesNotWritten", &words).await;
    node.run(["rm", "-r", KUBELET_CA]).await.unwrap();
    stands("NEWER CA\n").await;
    cluster
        .wait("the node is done again", async || {
            let found = cluster.get("Node", NODE).await;
            (product::is_done(&found) && note(&found, "reason").is_empty()).then_some(())
        })
        .await;
    cluster
        .wait("so says its MachineConfigNode", async || {
            let found = cluster.get("MachineConfigNode", NODE).await;
            (condition(&found, "NodeDegraded").is_none() && condition(&found, "Updated").is_some())
                .then_some(())
        })
        .await;
}

fn pem(name: &str) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.self_signed(&key).unwrap().pem()
}

/// A new CA of the API server is written to both kubeconfigs. The kubelet is restarted to read it: at once, or, if that
/// can wait, when the agent stops.
pub(super) async fn rotation(cluster: &Cluster, node: &NodeHandle) {
    let starts = async || node.read_file("/var/kubelet.log").await.unwrap().lines().count();
    // The CAs here are not the API server's. The kubeconfigs of both agents name a file, so they are left alone: an agent that took
    // these CAs over would reach the API server no more.
    let own = "/etc/mco-lab/daemon.kubeconfig";
    for node in [node, &cluster.lab.node(1)] {
        let mut config: Value = api::formats::yaml::from_str(&node.read_file(own).await.unwrap()).unwrap();
        let entry = config["clusters"][0]["cluster"].as_object_mut().unwrap();
        let data = entry.remove("certificate-authority-data").unwrap();
        entry.insert("certificate-authority".to_owned(), json!("/etc/mco-lab/ca.crt"));
        let on_node = |path: &str| node.root_of_boot().unwrap().join(path.trim_start_matches('/'));
        std::fs::write(on_node("/etc/mco-lab/ca.crt"), STANDARD.decode(text(&data)).unwrap()).unwrap();
        std::fs::write(on_node(own), config.to_string()).unwrap();
        node.run(["systemctl", "restart", DAEMON_UNIT]).await.unwrap();
    }
    let old = pem("old-signer");
    for path in KUBECONFIGS {
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: local\n  cluster:\n    server: https://api\n    certificate-authority-data: {}\n",
            STANDARD.encode(&old)
        );
        let file = node.root_of_boot().unwrap().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    let rotate = async |bundle: &str, yes: &str| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kubeconfig-data", "namespace": "openshift-machine-config-operator"},
            "data": {"ca-bundle.crt": bundle},
        });
        let folder = cluster.lab.folder().make("rotation").unwrap();
        let file = folder.join("map.json");
        std::fs::write(&file, map.to_string()).unwrap();
        let said = cluster.kubectl(&["apply", "-f", &file.to_string_lossy()]).await;
        assert_eq!(said.code, 0, "{said:?}");
        let annotation = json!({"metadata": {"annotations": {format!("{MCO}service-ca-rotate"): yes}}});
        cluster.patch("ControllerConfig", "machine-config-controller", annotation).await;
        cluster
            .wait("the Node says that it has seen the rotation", async || {
                let found = cluster.get("Node", NODE).await;
                (note(&found, "lastObservedServerCAAnnotation") == yes).then_some(())
            })
            .await;
    };
    let first = starts().await;
    let new = pem("kube-apiserver-service-network-signer");
    let both = format!("{old}{new}");
    rotate(&both, "true").await;
    let holds = async |certificate: &str| {
        for path in KUBECONFIGS {
            let config: Value = api::formats::yaml::from_str(&node.read_file(path).await.unwrap()).unwrap();
            let data = text(&config["clusters"][0]["cluster"]["certificate-authority-data"]);
            let pem = String::from_utf8(STANDARD.decode(data).unwrap()).unwrap();
            assert!(pem.contains(certificate.trim()), "{path} lacks the new CA: {pem}");
        }
    };
    holds(&new).await;
    assert_eq!(starts().await, first + 1, "the kubelet has not read the new CA");

    rotate(&both, "false").await;
    let waits = pem("kube-apiserver-lb-signer");
    rotate(&format!("{both}{waits}"), "true").await;
    holds(&waits).await;
    assert_eq!(starts().await, first + 1, "a restart that can wait has not waited");
    node.run(["systemctl", "restart", DAEMON_UNIT]).await.unwrap();
    assert_eq!(starts().await, first + 2, "the agent has ended and left the kubelet behind");
}
