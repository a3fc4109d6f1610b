//! Drains against the real disruption controller: pods of one name in two namespaces, a budget that is named within a
//! minute, a person's cordon that stays, a node that goes away mid-drain, lists that are refused; and on a machine with a
//! real kubelet, pods that really end.
//!
//! What it is not: the drain of the demo's machines (`product_real.rs`), or the rules (`rollout`'s own tests).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod product;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lab::Kubelet;
use product::{Cluster, LIMIT, machine_config, note, one_file, with_controller};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An administrator is told by then.
const TOLD_WITHIN: Duration = Duration::from_secs(60);

async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).unwrap();
    let end = Instant::now() + LIMIT;
    // Refused until the controller manager has made the service account.
    while let Err(error) = api.create(&PostParams::default(), &object).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn pod(name: &str, app: &str, node: &str, image: &str, grace: i64) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "nodeName": node,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "c", "image": image, "imagePullPolicy": "Never"}],
        },
    })
}

async fn budget(cluster: &Cluster, namespace: &str, name: &str, app: &str) -> Api<PodDisruptionBudget> {
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), namespace);
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": app}}});
    create(&budgets, json!({"metadata": {"name": name}, "spec": spec})).await;
    cluster
        .wait("the budget is counted", async || {
            let status = budgets.get(name).await.ok()?.status?;
            (status.current_healthy == Some(1) && status.disruptions_allowed == Some(0)).then_some(())
        })
        .await;
    budgets
}

async fn running(cluster: &Cluster, pods: &Api<Pod>, name: &str) {
    cluster
        .wait(&format!("pod {name} runs"), async || {
            let status = pods.get_opt(name).await.ok()??.status?;
            let ready = status.conditions?.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            (status.phase? == "Running" && ready).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn drains_wait_for_budgets_and_keep_what_people_did() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(4).simulated().reboot_time(Duration::from_millis(300));
    let cluster = Cluster::start(builder.controller_manager(true)).await;
    for (pool, node) in [("held", "worker-0"), ("kept", "worker-1"), ("gone", "worker-2")] {
        cluster.add_pool(pool, &[node]).await;
        cluster.settled(pool, 1, &["00-worker"], &[]).await;
    }
    tokio::join!(held_by_a_budget(&cluster), a_persons_cordon(&cluster), deleted_in_its_drain(&cluster));
    cluster.no_panic();
    cluster.stop().await;
}

/// Two pods of one name, in two namespaces; the budget of one of them, beside another budget of the same name.
async fn held_by_a_budget(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    for name in ["left", "right"] {
        create(&namespaces, json!({"metadata": {"name": name}})).await;
    }
    let pods = |namespace: &str| -> Api<Pod> { Api::namespaced(cluster.client.clone(), namespace) };
    for namespace in ["left", "right"] {
        create(&pods(namespace), pod("web-0", namespace, "worker-0", "example.com/none", 1)).await;
        running(cluster, &pods(namespace), "web-0").await;
    }
    let budgets = budget(cluster, "left", "web", "left").await;
    // Of the same name, and about other pods.
    let other: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "right");
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "nobody"}}});
    create(&other, json!({"metadata": {"name": "web"}, "spec": spec})).await;

    let asked = Instant::now();
    cluster.create(machine_config("50-held", "held", one_file("/etc/held", "x"))).await;
    let right = pods("right");
    cluster
        .wait("the free one leaves", async || right.get_opt("web-0").await.ok()?.is_none().then_some(()))
        .await;
    let words = ["left/web-0", "left/web", "0"];
    let all = |text: &str| words.iter().all(|w| text.contains(w));
    cluster
        .wait("the Node says what it waits for", async || {
            all(&note(&cluster.get("Node", "worker-0").await, "drainWaitsFor")).then_some(())
        })
        .await;
    cluster
        .wait("the MachineConfigNode says so", async || {
            let object = cluster.get("MachineConfigNode", "worker-0").await;
            let conditions = object["status"]["conditions"].as_array()?;
            let drained = conditions.iter().find(|c| c["type"] == "Drained")?;
            (drained["status"] == "Unknown" && all(drained["message"].as_str()?)).then_some(())
        })
        .await;
    cluster
        .wait("an event says so", async || {
            let events = cluster.events("worker-0").await;
            events.iter().any(|e| e.starts_with("DrainWaiting") && all(e)).then_some(())
        })
        .await;
    let took = asked.elapsed();
    eprintln!("told of budget, pod and number after {:.1} s", took.as_secs_f64());
    assert!(took < TOLD_WITHIN, "{took:?}");
    let said = cluster.mco(&["status", "held"]).await;
    assert!(said.out.contains("left/web-0"), "{}", said.out);
    assert!(pods("left").get_opt("web-0").await.unwrap().is_some(), "the budget did not hold");
    assert_eq!(cluster.get("Node", "worker-0").await["spec"]["unschedulable"], true);
    // Another change meanwhile: the node goes on to its result, and never to the first one.
    let first = cluster.rendered("held").await;
    cluster.create(machine_config("51-held", "held", one_file("/etc/held-too", "y"))).await;
    cluster
        .wait("the node is sent on", async || {
            let node = cluster.get("Node", "worker-0").await;
            let asked = note(&node, "desiredDrain");
            let config = cluster.rendered("held").await;
            (config != first && note(&node, "desiredConfig") == config && asked == format!("drain-{config}"))
                .then_some(())
        })
        .await;
    budgets.delete("web", &DeleteParams::default()).await.unwrap();
    cluster.settled("held", 1, &["50-held", "51-held"], &[]).await;
    let reached = |e: &String| (e.starts_with("NodeDone") || e.starts_with("Reboot")) && e.contains(&first);
    let events = cluster.events("worker-0").await;
    assert!(!events.iter().any(reached), "{events:#?}");
    assert!(events.iter().any(|e| e.starts_with("NodeDone")), "{events:#?}");
    assert!(pods("left").get_opt("web-0").await.unwrap().is_none());
    let node = cluster.get("Node", "worker-0").await;
    assert_eq!((node["spec"].get("unschedulable"), note(&node, "drainWaitsFor").as_str()), (None, ""));
}

/// Cordoned before the update: still so after it, and a cordon that is taken away is not put back.
async fn a_persons_cordon(cluster: &Cluster) {
    let said = cluster.kubectl(&["cordon", "worker-1"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    // A node that is out of service takes no slot of its own when another bound is free: it is updated all the same.
    cluster.patch("MachineConfigPool", "kept", json!({"spec": {"maxUnavailable": 2}})).await;
    cluster.create(machine_config("50-kept", "kept", one_file("/etc/kept", "x"))).await;
    let waits = cluster
        .wait("the plan's word on a cordoned node", async || {
            let said = cluster.mco(&["status", "kept", "-o", "json"]).await;
            let shown: Value = serde_json::from_str(&said.out).ok()?;
            let node = shown["pools"][0]["nodes"][0].clone();
            (node["phase"] != "done").then_some(node)
        })
        .await;
    assert!(waits["why"].as_str().unwrap().contains("cordoned"), "{waits}");
    // As the reference: a cordoned node waits. It goes when it is given back; a cordon put on while it is drained stays.
    let said = cluster.kubectl(&["uncordon", "worker-1"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster.settled("kept", 1, &["50-kept"], &[]).await;
    assert_eq!(cluster.get("Node", "worker-1").await["spec"].get("unschedulable"), None);
    // Sent, and cordoned by a person before its daemon asks for the drain.
    cluster.patch("MachineConfigPool", "kept", json!({"spec": {"paused": true}})).await;
    cluster.create(machine_config("51-kept", "kept", one_file("/etc/kept2", "x"))).await;
    let target = cluster
        .wait("the change is rendered", async || {
            let pool = cluster.get("MachineConfigPool", "kept").await;
            let sources = pool["spec"]["configuration"]["source"].to_string();
            sources.contains("51-kept").then(|| product::text(&pool["spec"]["configuration"]["name"]))
        })
        .await;
    let key = format!("{}desiredConfig", product::MCO);
    let both = json!({"metadata": {"annotations": {key: target}}, "spec": {"unschedulable": true}});
    cluster.patch("Node", "worker-1", both).await;
    cluster
        .wait("the update goes through", async || {
            let node = cluster.get("Node", "worker-1").await;
            (note(&node, "currentConfig") == target && product::is_done(&node)).then_some(())
        })
        .await;
    let node = cluster.get("Node", "worker-1").await;
    assert_eq!(node["spec"]["unschedulable"], true, "a person's cordon is lost: {node}");
    assert_eq!(note(&node, "cordon"), "", "{node}");
}

/// The node is deleted while its drain waits: the controller forgets it, and its budget holds nobody up.
async fn deleted_in_its_drain(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    create(&namespaces, json!({"metadata": {"name": "gone"}})).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "gone");
    create(&pods, pod("stays", "stays", "worker-2", "example.com/none", 1)).await;
    running(cluster, &pods, "stays").await;
    budget(cluster, "gone", "stays", "stays").await;
    cluster.create(machine_config("50-gone", "gone", one_file("/etc/gone", "x"))).await;
    cluster
        .wait("the drain waits", async || {
            let node = cluster.get("Node", "worker-2").await;
            note(&node, "drainWaitsFor").contains("gone/stays").then_some(())
        })
        .await;
    cluster.delete("Node", "worker-2").await;
    cluster
        .wait("it is forgotten", async || {
            let pool = cluster.get("MachineConfigPool", "gone").await;
            let log = std::fs::read_to_string(cluster.lab.controller_log()).unwrap_or_default();
            let said =
                log.lines().any(|l| l.contains("worker-2") && l.contains("deleted while it was drained"));
            let gone = cluster.get("MachineConfigNode", "worker-2").await.is_null();
            (pool["status"]["machineCount"] == 0 && said && gone).then_some(())
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kubelet_ends_what_a_drain_evicts() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).real().kubelet(Kubelet::Real).controller_manager(true);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    for (name, app) in [("held", "held"), ("free", "free")] {
        create(&pods, pod(name, app, "worker-0", lab::PAUSE_IMAGE, 5)).await;
        running(&cluster, &pods, name).await;
    }
    let budgets = budget(&cluster, "default", "keep", "held").await;
    let node = cluster.lab.node(0);
    let containers = async || {
        let said = node.run(["ctr", "-n", "k8s.io", "tasks", "ls", "-q"]).await.unwrap();
        said.lines().count()
    };
    let before = containers().await;
    let boot = node.boot_id().await.unwrap();
    cluster.create(machine_config("50-real", "worker", one_file("/etc/real", "x"))).await;
    cluster
        .wait("the free pod has ended", async || pods.get_opt("free").await.ok()?.is_none().then_some(()))
        .await;
    cluster
        .wait("the node says what it waits for", async || {
            let why = note(&cluster.get("Node", "worker-0").await, "drainWaitsFor");
            (why.contains("default/held") && why.contains("default/keep")).then_some(())
        })
        .await;
    // The sandbox and the container of one pod.
    assert_eq!(containers().await, before - 2, "its processes run on");
    assert_eq!(node.boot_id().await.unwrap(), boot, "it rebooted before it was drained");
    budgets.delete("keep", &DeleteParams::default()).await.unwrap();
    cluster.settled("worker", 1, &["50-real"], &[]).await;
    assert!(pods.get_opt("held").await.unwrap().is_none());
    assert_ne!(node.boot_id().await.unwrap(), boot);
    assert_eq!(node.read_file("/etc/real").await.unwrap(), "x");
    assert_eq!(cluster.get("Node", "worker-0").await["spec"].get("unschedulable"), None);
    cluster.no_panic();
    cluster.stop().await;
}
