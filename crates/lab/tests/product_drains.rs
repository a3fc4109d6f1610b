//! Drains with the real disruption controller: what a node says while a budget holds a pod, cordons of people, and a
//! node that is deleted in the middle of its drain.
//!
//! What it is not: real terminations; those are in `product_real.rs`. Pods here are run by the kubelets' stand-ins.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod product;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use product::controllers::{all_well, slow};
use product::observer::Observer;
use product::{Cluster, is_done, note, text, with_controller};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn drains_wait_for_budgets_and_say_so() {
    let Some(builder) = with_controller() else { return };
    let builder =
        builder.nodes(8).simulated().reboot_time(Duration::from_millis(300)).controller_manager(true);
    let cluster = Cluster::start(builder).await;
    cluster.add_pool("held", &["worker-0", "worker-1"]).await;
    cluster.add_pool("person", &["worker-2"]).await;
    cluster.add_pool("twice", &["worker-3"]).await;
    cluster.add_pool("frees", &["worker-4"]).await;
    cluster.add_pool("breaks", &["worker-6", "worker-7"]).await;
    for (pool, nodes) in [("held", 2), ("person", 1), ("twice", 1), ("frees", 1), ("breaks", 2)] {
        cluster.settled(pool, nodes, &["00-worker"], &[]).await;
    }
    tokio::join!(
        deleted_in_the_middle(&cluster),
        a_persons_cordon_stays(&cluster),
        two_budgets_for_one_pod(&cluster),
        a_budget_that_comes_to_allow_it(&cluster),
        broken_after_its_drain(&cluster)
    );
    cluster.no_panic();
    cluster.stop().await;
}

/// A running pod of this app, bound to the node.
async fn pod(cluster: &Cluster, name: &str, app: &str, node: &str) {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "example.com/none"}],
        },
    }))
    .unwrap();
    // Refused until the controller manager has made the service account.
    cluster
        .wait("the pod is taken", async || pods.create(&PostParams::default(), &pod).await.ok().map(drop))
        .await;
    cluster
        .wait("the pod runs", async || {
            (pods.get_opt(name).await.ok()??.status?.phase? == "Running").then_some(())
        })
        .await;
}

fn budgets(cluster: &Cluster) -> Api<PodDisruptionBudget> {
    Api::namespaced(cluster.client.clone(), "default")
}

/// A budget, counted by the disruption controller.
async fn budget(cluster: &Cluster, name: &str, app: &str, min_available: i32, healthy: i32) {
    let object = json!({
        "metadata": {"name": name},
        "spec": {"minAvailable": min_available, "selector": {"matchLabels": {"app": app}}},
    });
    let object = serde_json::from_value(object).unwrap();
    budgets(cluster).create(&PostParams::default(), &object).await.unwrap();
    cluster
        .wait("the budget is counted", async || {
            let status = budgets(cluster).get(name).await.ok()?.status?;
            (status.current_healthy == Some(healthy)).then_some(())
        })
        .await;
}

async fn is_there(cluster: &Cluster, pod: &str) -> bool {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    pods.get_opt(pod).await.unwrap().is_some()
}

/// A condition's message of a MachineConfigNode, whatever its status.
async fn step(cluster: &Cluster, node: &str, condition: &str) -> String {
    let object = cluster.get("MachineConfigNode", node).await;
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().find(|c| c["type"] == condition).map(|c| text(&c["message"])).unwrap_or_default()
}

/// Waits until the node says all of this in its three places: annotation, MachineConfigNode, event.
async fn says(cluster: &Cluster, node: &str, words: &[&str]) {
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
    assert!(took < Duration::from_secs(60), "{node} is silent for {took:?}");
}

/// Which pod, which budget, how many disruptions; then the node is deleted, and the pool goes on without it.
async fn deleted_in_the_middle(cluster: &Cluster) {
    for (name, node) in [("held-0", "worker-0"), ("held-1", "worker-1")] {
        pod(cluster, name, "held", node).await;
    }
    budget(cluster, "keep-both", "held", 2, 2).await;
    let observer = Observer::start(cluster, "held", 1).await;
    let scenario = async {
        cluster.create(slow("50-held", "held")).await;
        let first =
            cluster.wait("a node is sent", async || observer.starts().first().map(|s| s.node.clone())).await;
        let (own, other) = if first == "worker-0" { ("held-0", "worker-1") } else { ("held-1", "worker-0") };
        let pod_name = format!("default/{own}");
        says(cluster, &first, &[&pod_name, "default/keep-both", "allows 0 disruptions"]).await;
        let said = cluster.mco(&["status", "held"]).await;
        assert!(said.out.contains(own) && said.out.contains("keep-both"), "{}", said.out);
        assert!(is_there(cluster, own).await, "the budget did not hold");
        assert_eq!(observer.starts().len(), 1, "its slot is taken");

        cluster.delete("Node", &first).await;
        // The other one gets the slot, and its pod, now that the first one's is no hindrance.
        budgets(cluster).delete("keep-both", &DeleteParams::default()).await.unwrap();
        cluster.settled("held", 1, &["50-held"], &[]).await;
        cluster
            .wait("its MachineConfigNode is gone", async || {
                cluster.get("MachineConfigNode", &first).await.is_null().then_some(())
            })
            .await;
        let pool = cluster.get("MachineConfigPool", "held").await;
        assert_eq!(pool["status"]["degradedMachineCount"], 0, "{pool}");
        let node = cluster.get("Node", other).await;
        assert!(is_done(&node) && node["spec"].get("unschedulable").is_none(), "{node}");
        let log = std::fs::read_to_string(cluster.lab.controller_log()).unwrap();
        assert!(log.contains("deleted while it was drained"), "the drain is not forgotten\n{log}");
    };
    observer.guard(scenario).await;
}

/// A person cordons a node before its update: pods leave all the same, and the cordon is theirs to end.
async fn a_persons_cordon_stays(cluster: &Cluster) {
    cluster.patch("MachineConfigPool", "person", json!({"spec": {"paused": true}})).await;
    let before = cluster.rendered("person").await;
    cluster.create(slow("50-person", "person")).await;
    let target = cluster
        .wait("the pool is rendered", async || {
            let now = cluster.rendered("person").await;
            (now != before).then_some(now)
        })
        .await;
    pod(cluster, "person", "person", "worker-2").await;
    assert_eq!(cluster.kubectl(&["cordon", "worker-2"]).await.code, 0);
    // A cordoned node is not sent by itself: somebody sends it by hand.
    let key = format!("{}desiredConfig", product::MCO);
    cluster.patch("Node", "worker-2", json!({"metadata": {"annotations": {key: target}}})).await;
    cluster
        .wait("the node is through", async || {
            let node = cluster.get("Node", "worker-2").await;
            (is_done(&node) && note(&node, "currentConfig") == target).then_some(())
        })
        .await;
    assert!(!is_there(cluster, "person").await, "the pod was not evicted");
    // What comes after Done, if anything, comes within this.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let node = cluster.get("Node", "worker-2").await;
    assert_eq!(node["spec"]["unschedulable"], Value::Bool(true), "a person's cordon was ended");
    assert_eq!(cluster.kubectl(&["uncordon", "worker-2"]).await.code, 0);
    cluster.patch("MachineConfigPool", "person", json!({"spec": {"paused": false}})).await;
    cluster.settled("person", 1, &["50-person"], &[]).await;
    all_well(cluster, &[2], &["50-person"]).await;
}

/// The API server refuses every eviction of a pod with two budgets: the node says so, until one is gone.
async fn two_budgets_for_one_pod(cluster: &Cluster) {
    pod(cluster, "twice", "twice", "worker-3").await;
    budget(cluster, "twice-a", "twice", 0, 1).await;
    budget(cluster, "twice-b", "twice", 0, 1).await;
    cluster.create(slow("50-twice", "twice")).await;
    says(cluster, "worker-3", &["default/twice", "PodDisruptionBudget"]).await;
    budgets(cluster).delete("twice-a", &DeleteParams::default()).await.unwrap();
    cluster.settled("twice", 1, &["50-twice"], &[]).await;
    assert!(!is_there(cluster, "twice").await);
    all_well(cluster, &[3], &["50-twice"]).await;
}

/// A second pod becomes healthy elsewhere: the budget allows one disruption, and the drain goes on by itself.
async fn a_budget_that_comes_to_allow_it(cluster: &Cluster) {
    pod(cluster, "frees", "frees", "worker-4").await;
    budget(cluster, "frees", "frees", 1, 1).await;
    cluster.create(slow("50-frees", "frees")).await;
    says(cluster, "worker-4", &["default/frees", "default/frees allows 0 disruptions", "1 pods healthy"])
        .await;
    // On a node that is not drained.
    pod(cluster, "frees-too", "frees", "worker-5").await;
    cluster.settled("frees", 1, &["50-frees"], &[]).await;
    assert!(!is_there(cluster, "frees").await);
    let said = note(&cluster.get("Node", "worker-4").await, "drainWaitsFor");
    assert_eq!(said, "", "it waits for nothing any more");
    all_well(cluster, &[4], &["50-frees"]).await;
}

/// A node is drained, and then cannot apply the config: deleting the MachineConfig gives it back to its pods.
async fn broken_after_its_drain(cluster: &Cluster) {
    for (name, node) in [("breaks-6", "worker-6"), ("breaks-7", "worker-7")] {
        pod(cluster, name, "breaks", node).await;
    }
    budget(cluster, "breaks", "breaks", 2, 2).await;
    let before = cluster.rendered("breaks").await;
    let observer = Observer::start(cluster, "breaks", 1).await;
    let scenario = async {
        cluster.create(slow("50-breaks", "breaks")).await;
        let node = cluster
            .wait("a node waits for its drain", async || {
                let sent = observer.starts().first().map(|s| s.node.clone())?;
                (cluster.get("Node", &sent).await["spec"]["unschedulable"] == true).then_some(sent)
            })
            .await;
        // All was well when it was planned. Now a folder comes to stand where the file is to be.
        let index = node.trim_start_matches("worker-").parse().unwrap();
        let folder = cluster.lab.node(index).root().join("etc/50-breaks/kept");
        std::fs::create_dir_all(&folder).unwrap();
        budgets(cluster).delete("breaks", &DeleteParams::default()).await.unwrap();
        cluster
            .wait("the node says that it fails, drained", async || {
                let node = cluster.get("Node", &node).await;
                let cordoned = node["spec"]["unschedulable"] == true;
                (note(&node, "state") == "Degraded" && cordoned).then_some(())
            })
            .await;
        cluster.complains("breaks", "NodeDegraded", &[&node, "50-breaks"]).await;
        assert_eq!(observer.starts().len(), 1, "its slot is taken");
        cluster.delete("MachineConfig", "50-breaks").await;
        assert_eq!(cluster.settled("breaks", 2, &["00-worker"], &["50-breaks"]).await, before);
        cluster.wait("the node takes pods again", async || observer.out().is_empty().then_some(())).await;
        assert!(folder.exists(), "the host's own folder is gone");
    };
    observer.guard(scenario).await;
    all_well(cluster, &[6, 7], &[]).await;
}
