//! A single control-plane node: it runs two controllers with their PodDisruptionBudget, and still takes a change that
//! needs a reboot. With a second control-plane node it behaves as on larger clusters.
//!
//! Not here: the rule by which nodes are counted (see `rollout::topology`).

use crate::product::controllers::slow;
use crate::product::pods::{Place, budget, is_there, pod, says};
use crate::product::{Cluster, note};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

const NAMESPACE: &str = "openshift-machine-config-operator";
const CONTROLLER: &str = "machine-config-controller";
const MASTER: &str = "master-0";

async fn topology(cluster: &Cluster, want: [&str; 2]) {
    cluster
        .wait(&format!("the topology is {want:?}"), async || {
            let config = cluster.get("ControllerConfig", CONTROLLER).await;
            let status = &config["spec"]["infra"]["status"];
            let has = [&status["controlPlaneTopology"], &status["infrastructureTopology"]];
            (has == want.map(|w| json!(w)).each_ref()).then_some(())
        })
        .await;
}

async fn replicas(cluster: &Cluster, want: i32) {
    let api: Api<Deployment> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    cluster
        .wait(&format!("{want} controllers"), async || {
            let deployment = api.get(CONTROLLER).await.ok()?;
            (deployment.spec?.replicas? == want).then_some(())
        })
        .await;
}

/// Names of the running pods of the controller.
async fn running(cluster: &Cluster, want: usize) -> Vec<String> {
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    cluster
        .wait(&format!("{want} controllers run"), async || {
            let list =
                api.list(&ListParams::default().labels("k8s-app=machine-config-controller")).await.ok()?;
            let is_ready = |p: &Pod| {
                let conditions = p.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
                conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
            };
            let names: Vec<String> =
                list.items.iter().filter(|p| is_ready(p)).filter_map(|p| p.metadata.name.clone()).collect();
            (names.len() == want).then_some(names)
        })
        .await
}

/// Installs the product without waiting for it: nothing can pull its image.
async fn install(cluster: &Cluster) {
    let url = "--api-server-url=https://api.example.com:6443";
    let said = cluster.mco(&["install", "--image=example.com/none", url, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

pub(crate) async fn single(cluster: &Cluster) {
    topology(cluster, ["SingleReplica", "SingleReplica"]).await;
    install(cluster).await;
    let log = std::fs::File::create(cluster.lab.folder().join("logs/operator.log")).unwrap();
    let mut operator = tokio::process::Command::new(lab::built_mco().unwrap())
        .args(["operator", "start", "--kubeconfig"])
        .arg(cluster.lab.kubeconfig())
        .stdout(std::process::Stdio::null())
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    replicas(cluster, 1).await;
    // An administrator scales to two. The budget allows one disruption, but the second pod has no other node to go to.
    let scaled = cluster.kubectl(&["-n", NAMESPACE, "scale", "deployment", CONTROLLER, "--replicas=2"]).await;
    assert_eq!(scaled.code, 0, "{scaled:?}");
    let before = running(cluster, 2).await;

    cluster.create(slow("50-single", "master")).await;
    cluster.settled("master", 1, &["50-single"], &[]).await;
    let node = cluster.get("Node", MASTER).await;
    assert_eq!(note(&node, "controlPlaneTopology"), "SingleReplica");
    assert!(!note(&node, "desiredDrain").starts_with("drain-"), "{node}");
    let events = cluster.events(MASTER).await;
    assert!(!events.iter().any(|e| e.starts_with("Drain:") || e.starts_with("Cordon:")), "{events:?}");
    assert_eq!(running(cluster, 2).await, before, "nobody was evicted");

    // The worker is drained as usual: its pods may fit on other nodes.
    pod(cluster, "guest", "guest", Place::on("worker-0")).await;
    budget(cluster, "default", ("stays", "guest"), 1, 1).await;
    cluster.create(slow("50-worker", "worker")).await;
    says(cluster, "worker-0", &["default/guest", "default/stays"]).await;
    assert_eq!(note(&cluster.get("Node", "worker-0").await, "controlPlaneTopology"), "");
    assert!(is_there(cluster, "default", "guest").await);
    let free = cluster.kubectl(&["delete", "poddisruptionbudget", "stays"]).await;
    assert_eq!(free.code, 0, "{free:?}");
    cluster.settled("worker", 1, &["50-worker"], &[]).await;

    follows(cluster).await;
    operator.kill().await.unwrap();
}

/// The topology follows the number of control-plane nodes, and the number of controllers follows the topology. What
/// administrators set is kept.
async fn follows(cluster: &Cluster) {
    install(cluster).await;
    replicas(cluster, 2).await;
    // An administrator had set two replicas, which the operator keeps. Once it is scaled back to the operator's number,
    // the operator manages it again.
    let scaled = cluster.kubectl(&["-n", NAMESPACE, "scale", "deployment", CONTROLLER, "--replicas=1"]).await;
    assert_eq!(scaled.code, 0, "{scaled:?}");
    let role =
        |value: Value| json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": value}}});
    cluster.patch("Node", "worker-0", role(json!("true"))).await;
    topology(cluster, ["HighlyAvailable", "HighlyAvailable"]).await;
    replicas(cluster, 2).await;
    cluster.settled("master", 2, &["50-single"], &[]).await;
    cluster.patch("Node", "worker-0", role(Value::Null)).await;
    topology(cluster, ["SingleReplica", "SingleReplica"]).await;
    replicas(cluster, 1).await;
    // An administrator can set the topology to get drains on a single control-plane node.
    let own = json!({"spec": {"infra": {"status": {"controlPlaneTopology": "HighlyAvailable"}}}});
    cluster.patch("ControllerConfig", CONTROLLER, own).await;
    replicas(cluster, 2).await;
    cluster
        .wait("the node is told", async || {
            let node = cluster.get("Node", MASTER).await;
            (note(&node, "controlPlaneTopology") == "HighlyAvailable").then_some(())
        })
        .await;
    topology(cluster, ["HighlyAvailable", "SingleReplica"]).await;
}
