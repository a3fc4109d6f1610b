//! The API server's CA is replaced on a cluster without OpenShift's objects: the ControllerConfig and the ConfigMap that agents
//! read follow `kube-root-ca.crt`. While that is missing, nothing returns to an older CA.
//!
//! Not here: what agents do with it (`tests/node/services.rs`), and the rotation on OpenShift (`openshift`). No controllers of
//! Kubernetes run, so that only the test writes `kube-root-ca.crt`.

use crate::installation::{IMAGE, URL, operator, own_object, set};
use crate::openshift::certificate;
use crate::parts::speak_as;
use crate::product::{Cluster, defined, text};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-machine-config-operator";
const ROTATED_AT: &str = "machineconfig.dev/rotated-at";

/// Writes a ConfigMap.
async fn write(cluster: &Cluster, namespace: &str, name: &str, data: Value) {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data});
    let file = cluster.lab.folder().join("map.json");
    std::fs::write(&file, map.to_string()).unwrap();
    let said = cluster.kubectl(&["apply", "-f", &file.display().to_string()]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// The CAs in the ControllerConfig and in the ConfigMap that agents read, and the time at which agents were last told.
async fn cas(cluster: &Cluster) -> ([String; 3], String) {
    let config = cluster.get("ControllerConfig", "machine-config-controller").await;
    let map = own_object(cluster, "configmap", "kubeconfig-data").await;
    let all = [
        text(&config["spec"]["kubeAPIServerServingCAData"]),
        text(&config["spec"]["rootCAData"]),
        text(&map["binaryData"]["ca-bundle.crt"]),
    ];
    (all, text(&config["metadata"]["annotations"][ROTATED_AT]))
}

/// Waits until all of them are this CA, and agents were told at another time than this. Returns that time.
async fn follows(cluster: &Cluster, what: &str, ca: &str, not_at: Option<&str>) -> String {
    let want = STANDARD.encode(ca);
    cluster
        .wait(&format!("{what} is everywhere"), async || {
            let (all, at) = cas(cluster).await;
            (all.iter().all(|ca| *ca == want) && not_at != Some(at.as_str())).then_some(at)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_ca_of_the_api_server_arrives_and_an_older_one_does_not_come_back() {
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(1).simulated()).await;
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let (old, new) = (certificate("old"), certificate("new"));
    let info = json!({"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "", "cluster": {
        "server": "https://api.lab.test:6443", "certificate-authority-data": STANDARD.encode(&old)}}]});
    // Nobody changes this ConfigMap after `kubeadm init`.
    write(&cluster, "kube-public", "cluster-info", json!({"kubeconfig": info.to_string()})).await;
    write(&cluster, NAMESPACE, "kube-root-ca.crt", json!({"ca.crt": old})).await;
    let dir = tempfile::tempdir().unwrap();
    let account = speak_as(&cluster, dir.path(), "machine-config-operator").await;
    let running = operator(dir.path(), "operator", &account);
    let first = follows(&cluster, "the first CA", &old, None).await;
    assert_eq!(first, "", "agents have it from the beginning");

    let both = format!("{old}{new}");
    write(&cluster, NAMESPACE, "kube-root-ca.crt", json!({"ca.crt": both})).await;
    let told = follows(&cluster, "the bundle", &both, Some("")).await;
    write(&cluster, NAMESPACE, "kube-root-ca.crt", json!({"ca.crt": new})).await;
    let told = follows(&cluster, "the second CA", &new, Some(&told)).await;

    // The ConfigMap is missing for a moment: a pass in that time changes something else, and leaves the CA.
    let said = cluster.kubectl(&["-n", NAMESPACE, "delete", "configmap", "kube-root-ca.crt"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    set(&cluster, json!({"clusterDNSIP": "10.96.0.77"})).await;
    cluster
        .wait("a pass was made", async || {
            let config = cluster.get("ControllerConfig", "machine-config-controller").await;
            (config["spec"]["clusterDNSIP"] == "10.96.0.77").then_some(())
        })
        .await;
    let want = STANDARD.encode(&new);
    let (all, at) = cas(&cluster).await;
    assert!(all.iter().all(|ca| *ca == want) && at == told, "{all:?} {at}");
    // The next rotation is followed again.
    let third = certificate("third");
    write(&cluster, NAMESPACE, "kube-root-ca.crt", json!({"ca.crt": third})).await;
    follows(&cluster, "the third CA", &third, Some(&told)).await;
    drop(running.stop().await);
    cluster.stop().await;
}
