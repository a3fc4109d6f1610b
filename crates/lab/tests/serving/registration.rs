//! Nodes that register with a cluster in which the operator runs: which of them get the joining taint, that no pod is scheduled
//! there while they have it, and when they lose it. Kubelets are fakes with kubelets' certificates; the API server, the
//! scheduler, the operator and the controller are real.
//!
//! Not here: what the controller decides (`crates/rollout`), and agents (`tests/cluster/joining.rs`).

use crate::installation::{installed, operator, own_object, says, set};
use crate::parts::speak_as;
use crate::product::controllers::Controller;
use crate::product::{Cluster, text};
use lab::{FakeKubelet, NodeSpec};
use serde_json::{Value, json};

const POLICY: &str = "machine-config-joining-nodes";
const TAINT: &str = "machineconfig.dev/joining";

/// The name of the policy that gives Nodes the taint; empty if there is none.
async fn policy(cluster: &Cluster) -> String {
    let get = &["get", "mutatingadmissionpolicy", POLICY, "-o", "name", "--ignore-not-found"];
    cluster.kubectl(get).await.out
}

/// Creates a Node and deletes it again. Returns the taints in the API server's answer.
async fn created(cluster: &Cluster, name: &str, labels: Value, taints: Value, by: &[&str]) -> Vec<Value> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
    let file = cluster.lab.folder().join(format!("{name}.json"));
    std::fs::write(&file, node.to_string()).unwrap();
    let said =
        cluster.kubectl(&[&["create", "-f", &file.display().to_string(), "-o", "json"], by].concat()).await;
    assert_eq!(said.code, 0, "{said:?}");
    let made: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(cluster.kubectl(&["delete", "node", name]).await.code, 0);
    made["spec"]["taints"].as_array().cloned().unwrap_or_default()
}

fn joining(taints: &[Value]) -> usize {
    taints.iter().filter(|t| t["key"] == TAINT && t["effect"] == "NoSchedule").count()
}

/// Registers a Node as its kubelet does; returns how many of its taints are ours.
async fn registered(cluster: &Cluster, name: &str) -> usize {
    let (user, group) = (format!("--as=system:node:{name}"), "--as-group=system:nodes");
    joining(&created(cluster, name, json!({}), Value::Null, &[&user, group]).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_registers_with_the_joining_taint_and_loses_it_in_its_pools_config() {
    let Some((cluster, dir, account)) = installed(&["--agents-of-hosts"]).await else { return };
    assert_eq!(registered(&cluster, "before").await, 0, "there is no policy yet");
    let running = operator(dir.path(), "operator", &account);
    set(&cluster, json!({"agents": {"runAs": "Pods"}})).await;
    // The API server applies a new policy after some moments, and the operator creates this one only while a controller runs.
    cluster
        .wait("nodes register with the taint", async || {
            (registered(&cluster, "first").await == 1).then_some(())
        })
        .await;

    let taint = |key: &str| json!([{"key": key, "effect": "NoSchedule"}]);
    for (name, labels, taints, want) in [
        ("bare", json!({}), Value::Null, 1),
        ("with-its-own", json!({}), taint("team"), 1),
        ("with-ours", json!({}), taint(TAINT), 1),
        ("control-plane", json!({}), taint("node-role.kubernetes.io/control-plane"), 0),
        ("windows", json!({"kubernetes.io/os": "windows"}), Value::Null, 0),
    ] {
        let (user, group) = (format!("--as=system:node:{name}"), "--as-group=system:nodes");
        let got = created(&cluster, name, labels, taints.clone(), &[&user, group]).await;
        assert_eq!(joining(&got), want, "{name}: {got:?}");
        for own in taints.as_array().into_iter().flatten() {
            assert!(got.iter().any(|t| t["key"] == own["key"]), "{name} lost a taint: {got:?}");
        }
    }
    let by_hand = created(&cluster, "by-hand", json!({}), Value::Null, &[]).await;
    assert_eq!(joining(&by_hand), 0, "no kubelet registered it: {by_hand:?}");

    workload_waits(&cluster, dir.path()).await;
    fails_open(&cluster).await;

    // Without agents on all nodes nobody would remove the taint.
    set(&cluster, json!({"agents": {"runAs": "HostServices"}})).await;
    cluster.wait("the policy is gone", async || policy(&cluster).await.is_empty().then_some(())).await;
    let log = running.stop().await;
    assert!(!log.contains("forbidden"), "{log}");
    cluster.stop().await;
}

/// A node registers, and a pod that fits no other node waits until the node is in its pool's config.
async fn workload_waits(cluster: &Cluster, dir: &std::path::Path) {
    let account = speak_as(cluster, dir, "machine-config-controller").await;
    let mut controller = Controller::with(cluster, "mco-controller-as-pod", &account, &[], &[]);
    cluster
        .wait("a config is rendered", async || (!cluster.rendered("worker").await.is_empty()).then_some(()))
        .await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "guest", "namespace": "default"},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": "joins"}, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "example.com/c"}]}});
    let file = cluster.lab.folder().join("guest.json");
    std::fs::write(&file, pod.to_string()).unwrap();
    cluster
        .wait("a pod can be made", async || {
            let said = cluster.kubectl(&["create", "-f", &file.display().to_string()]).await;
            (said.code == 0).then_some(())
        })
        .await;
    let guest = async || -> Value {
        let said = cluster.kubectl(&["get", "pod", "guest", "-o", "json"]).await;
        serde_json::from_str(&said.out).unwrap_or_default()
    };
    // The same name twice: a Node that was deleted and registers again.
    for round in 1..=2 {
        let identity = cluster.lab.control_plane().identity("system:node:joins", &["system:nodes"]).unwrap();
        let client = lab::client(&identity).await.unwrap();
        let kubelet = FakeKubelet::start(client, NodeSpec::new("joins")).await.unwrap();
        let node = cluster.get("Node", "joins").await;
        let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
        assert_eq!(joining(&taints), 1, "round {round}: {node}");
        // The node is Ready, and nothing but this taint keeps the pod away.
        cluster
            .wait("only the joining taint keeps the pod away", async || {
                let node = cluster.get("Node", "joins").await;
                assert!(
                    guest().await["spec"]["nodeName"].is_null(),
                    "round {round}: it was scheduled: {node}"
                );
                let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                let why = text(&guest().await["status"]["conditions"][0]["message"]);
                (taints.len() == 1 && why.contains("untolerated taint")).then_some(())
            })
            .await;
        // The agent reports that the node is in its pool's config.
        let config = cluster.rendered("worker").await;
        let done = json!({"metadata": {"annotations": {
            "machineconfiguration.openshift.io/currentConfig": config,
            "machineconfiguration.openshift.io/desiredConfig": config,
            "machineconfiguration.openshift.io/state": "Done",
        }}});
        cluster.patch("Node", "joins", done).await;
        cluster
            .wait("the node has no taint and the pod", async || {
                let node = cluster.get("Node", "joins").await;
                let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
                (joining(&taints) == 0 && guest().await["spec"]["nodeName"] == "joins").then_some(())
            })
            .await;
        controller.lives();
        drop(kubelet);
        cluster.delete("Node", "joins").await;
        let gone = cluster
            .kubectl(&["delete", "pod", "guest", "--force", "--grace-period=0", "--ignore-not-found"])
            .await;
        assert_eq!(gone.code, 0, "{gone:?}");
        let again = cluster.kubectl(&["create", "-f", &file.display().to_string()]).await;
        assert_eq!(again.code, 0, "{again:?}");
    }
    let gone = cluster
        .kubectl(&["delete", "pod", "guest", "--force", "--grace-period=0", "--ignore-not-found"])
        .await;
    assert_eq!(gone.code, 0, "{gone:?}");
    let log = controller.log();
    controller.stop().await;
    assert!(!log.contains("forbidden"), "{log}");
}

/// While no controller is running that would remove the taint, nodes register without it.
async fn fails_open(cluster: &Cluster) {
    set(cluster, json!({"managementState": "Unmanaged"})).await;
    says(cluster, "Progressing", "False", &["Unmanaged"]).await;
    let scale = async |replicas: &str| {
        let said = cluster
            .kubectl(&[
                "-n",
                "openshift-machine-config-operator",
                "scale",
                "deployment/machine-config-controller",
                &format!("--replicas={replicas}"),
            ])
            .await;
        assert_eq!(said.code, 0, "{said:?}");
    };
    scale("0").await;
    cluster
        .wait("without a controller there is no taint", async || {
            (registered(cluster, "none-runs").await == 0).then_some(())
        })
        .await;
    assert!(
        !policy(cluster).await.is_empty()
            && !own_object(cluster, "poddisruptionbudget", "machine-config-controller").await.is_null()
    );
    scale("1").await;
    cluster
        .wait("with a controller there is one again", async || {
            (registered(cluster, "one-runs").await == 1).then_some(())
        })
        .await;
    set(cluster, json!({"managementState": "Managed"})).await;
}
