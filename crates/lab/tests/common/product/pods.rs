//! Pods, PodDisruptionBudgets, and a node's report of its drain.
//!
//! Not here: the scenarios.

use super::{Cluster, LIMIT, note, text};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The time limit within which an administrator must be informed.
const TOLD_WITHIN: Duration = Duration::from_secs(60);
/// An image that does not exist: the fake kubelets do not pull it.
pub(crate) const NO_IMAGE: &str = "example.com/none";

pub(crate) fn pods(cluster: &Cluster, namespace: &str) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), namespace)
}

pub(crate) fn budgets(cluster: &Cluster, namespace: &str) -> Api<PodDisruptionBudget> {
    Api::namespaced(cluster.client.clone(), namespace)
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    let end = Instant::now() + LIMIT;
    // Creating a pod fails until the controller manager has created the service account.
    while let Err(error) = api.create(&PostParams::default(), &object).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Where a pod runs, and how.
pub(crate) struct Place<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) node: &'a str,
    pub(crate) image: &'a str,
    /// The pod's grace period in seconds.
    pub(crate) grace: i64,
}

impl<'a> Place<'a> {
    /// A pod in the namespace `default` on a simulated node.
    pub(crate) fn on(node: &'a str) -> Self {
        Self { namespace: "default", node, image: NO_IMAGE, grace: 1 }
    }
}

/// Creates a running pod of this app on the node.
pub(crate) async fn pod(cluster: &Cluster, name: &str, app: &str, place: Place<'_>) {
    let Place { namespace, node, image, grace } = place;
    let pods = pods(cluster, namespace);
    let object = json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "image": image, "imagePullPolicy": "Never"}],
        },
    });
    create(&pods, object).await;
    cluster
        .wait(&format!("pod {name} runs"), async || {
            let status = pods.get_opt(name).await.ok()??.status?;
            let ready = status.conditions?.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            (status.phase? == "Running" && ready).then_some(())
        })
        .await;
}

/// Creates a PodDisruptionBudget and waits until the disruption controller has counted this many healthy pods.
pub(crate) async fn budget(
    cluster: &Cluster,
    namespace: &str,
    (name, app): (&str, &str),
    min_available: i32,
    healthy: i32,
) {
    let spec = json!({"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}});
    create(&budgets(cluster, namespace), json!({"metadata": {"name": name}, "spec": spec})).await;
    cluster
        .wait("the budget is counted", async || {
            let status = budgets(cluster, namespace).get(name).await.ok()?.status?;
            (status.current_healthy == Some(healthy)).then_some(())
        })
        .await;
}

pub(crate) async fn is_there(cluster: &Cluster, namespace: &str, pod: &str) -> bool {
    pods(cluster, namespace).get_opt(pod).await.unwrap().is_some()
}

/// The message of a MachineConfigNode's condition that is in progress.
async fn step(cluster: &Cluster, node: &str, condition: &str) -> String {
    let object = cluster.get("MachineConfigNode", node).await;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let open = conditions.iter().find(|c| c["type"] == condition && c["status"] == "Unknown");
    open.map(|c| text(&c["message"])).unwrap_or_default()
}

/// Waits until the node reports all of these words in three places: annotation, MachineConfigNode and event.
pub(crate) async fn says(cluster: &Cluster, node: &str, words: &[&str]) {
    let start = Instant::now();
    let all = |said: &str| words.iter().all(|w| said.contains(w));
    cluster
        .wait(&format!("{node} says {words:?} in an annotation"), async || {
            all(&note(&cluster.get("Node", node).await, "drainWaitsFor")).then_some(())
        })
        .await;
    cluster
        .wait(&format!("{node} says {words:?} in a condition"), async || {
            all(&step(cluster, node, "Drained").await).then_some(())
        })
        .await;
    cluster
        .wait(&format!("{node} says {words:?} in an event"), async || {
            let events = cluster.events(node).await;
            events.iter().find(|e| e.starts_with("DrainWaiting") && all(e)).map(drop)
        })
        .await;
    let took = start.elapsed();
    eprintln!(
        "{node} says after {:.0} s: {}",
        took.as_secs_f64(),
        note(&cluster.get("Node", node).await, "drainWaitsFor")
    );
    assert!(took < TOLD_WITHIN, "{node} reports nothing for {took:?}");
}
