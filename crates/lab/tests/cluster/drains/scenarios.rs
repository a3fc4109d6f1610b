//! The scenarios of drains. Each has a pool of its own, and all run at the same time.
//!
//! Not here: the cluster that they share (`mod.rs`).

use crate::product::controllers::{all_well, slow};
use crate::product::observer::Observer;
use crate::product::pods::{NO_IMAGE, Place, budget, budgets, create, is_there, pod, pods, says};
use crate::product::{self, Cluster, is_done, machine_config, note, one_file};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use std::time::Duration;

/// The report names the pod, the budget and the allowed disruptions; then the node is deleted, and the pool continues
/// without it.
pub(crate) async fn deleted_in_the_middle(cluster: &Cluster) {
    for (name, node) in [("held-0", "worker-0"), ("held-1", "worker-1")] {
        pod(cluster, name, "held", Place::on(node)).await;
    }
    budget(cluster, "default", ("keep-both", "held"), 2, 2).await;
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
        assert!(is_there(cluster, "default", own).await, "the budget did not hold");
        assert_eq!(observer.starts().len(), 1, "its slot is taken");

        cluster.delete("Node", &first).await;
        // The other node gets the slot, and its pod, now that the first one's pod no longer blocks.
        budgets(cluster, "default").delete("keep-both", &DeleteParams::default()).await.unwrap();
        cluster.settled("held", 1, &["50-held"], &[]).await;
        cluster
            .wait("its MachineConfigNode is gone", async || {
                cluster.get("MachineConfigNode", &first).await.is_null().then_some(())
            })
            .await;
        let pool = cluster.get("MachineConfigPool", "held").await;
        let status = &pool["status"];
        assert_eq!(
            (&status["degradedMachineCount"], &status["machineCount"]),
            (&json!(0), &json!(1)),
            "{pool}"
        );
        let node = cluster.get("Node", other).await;
        assert!(is_done(&node) && node["spec"].get("unschedulable").is_none(), "{node}");
        let log = std::fs::read_to_string(cluster.lab.controller_log()).unwrap();
        assert!(log.contains("deleted while it was drained"), "the drain is not forgotten\n{log}");
    };
    observer.guard(scenario).await;
}

/// A node that a person has cordoned waits whatever the limit is, and `mco status` says so; it is updated when it is
/// uncordoned. A node that is cordoned during its update is still drained, and the cordon is left for the person to
/// remove.
pub(crate) async fn a_persons_cordon_stays(cluster: &Cluster) {
    assert_eq!(cluster.kubectl(&["cordon", "worker-2"]).await.code, 0);
    cluster.patch("MachineConfigPool", "person", json!({"spec": {"maxUnavailable": 2}})).await;
    cluster.create(machine_config("50-waits", "person", one_file("/etc/waits", "x"))).await;
    let waits = cluster
        .wait("the plan's word on a cordoned node", async || {
            let said = cluster.mco(&["status", "person", "-o", "json"]).await;
            let shown: Value = serde_json::from_str(&said.out).ok()?;
            let node = shown["pools"][0]["nodes"][0].clone();
            (node["phase"] != "done").then_some(node)
        })
        .await;
    assert!(waits["why"].as_str().unwrap().contains("cordoned"), "{waits}");
    assert_eq!(cluster.kubectl(&["uncordon", "worker-2"]).await.code, 0);
    cluster.settled("person", 1, &["50-waits"], &[]).await;
    assert_eq!(cluster.get("Node", "worker-2").await["spec"].get("unschedulable"), None);

    cluster.patch("MachineConfigPool", "person", json!({"spec": {"paused": true}})).await;
    let before = cluster.rendered("person").await;
    cluster.create(slow("50-person", "person")).await;
    let target = cluster
        .wait("the pool is rendered", async || {
            let now = cluster.rendered("person").await;
            (now != before).then_some(now)
        })
        .await;
    pod(cluster, "person", "person", Place::on("worker-2")).await;
    // A cordoned node is not updated automatically: the test sets its desired config, and cordons it before its daemon
    // requests the drain.
    let key = format!("{}desiredConfig", product::MCO);
    let both = json!({"metadata": {"annotations": {key: target}}, "spec": {"unschedulable": true}});
    cluster.patch("Node", "worker-2", both).await;
    cluster
        .wait("the node is through", async || {
            let node = cluster.get("Node", "worker-2").await;
            (is_done(&node) && note(&node, "currentConfig") == target).then_some(())
        })
        .await;
    assert!(!is_there(cluster, "default", "person").await, "the pod was not evicted");
    // Anything that might still follow Done would follow within this time.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let node = cluster.get("Node", "worker-2").await;
    assert_eq!(node["spec"]["unschedulable"], Value::Bool(true), "a person's cordon was ended");
    assert_eq!(note(&node, "cordon"), "", "{node}");
    assert_eq!(cluster.kubectl(&["uncordon", "worker-2"]).await.code, 0);
    cluster.patch("MachineConfigPool", "person", json!({"spec": {"paused": false}})).await;
    cluster.settled("person", 1, &["50-person"], &[]).await;
    all_well(cluster, &[2], &["50-person"]).await;
}

/// The API server refuses every eviction of a pod with two budgets: the node reports it until one budget is gone.
pub(crate) async fn two_budgets_for_one_pod(cluster: &Cluster) {
    pod(cluster, "twice", "twice", Place::on("worker-3")).await;
    budget(cluster, "default", ("twice-a", "twice"), 0, 1).await;
    budget(cluster, "default", ("twice-b", "twice"), 0, 1).await;
    cluster.create(slow("50-twice", "twice")).await;
    says(cluster, "worker-3", &["default/twice", "PodDisruptionBudget"]).await;
    budgets(cluster, "default").delete("twice-a", &DeleteParams::default()).await.unwrap();
    cluster.settled("twice", 1, &["50-twice"], &[]).await;
    assert!(!is_there(cluster, "default", "twice").await);
    all_well(cluster, &[3], &["50-twice"]).await;
}

/// A second pod becomes healthy on another node: now the budget allows one disruption, and the drain continues.
pub(crate) async fn a_budget_that_comes_to_allow_it(cluster: &Cluster) {
    pod(cluster, "frees", "frees", Place::on("worker-4")).await;
    budget(cluster, "default", ("frees", "frees"), 1, 1).await;
    cluster.create(slow("50-frees", "frees")).await;
    says(cluster, "worker-4", &["default/frees", "default/frees allows 0 disruptions", "1 pods healthy"])
        .await;
    // This node is not being drained.
    pod(cluster, "frees-too", "frees", Place::on("worker-5")).await;
    cluster.settled("frees", 1, &["50-frees"], &[]).await;
    assert!(!is_there(cluster, "default", "frees").await);
    let said = note(&cluster.get("Node", "worker-4").await, "drainWaitsFor");
    assert_eq!(said, "", "the node no longer waits");
    all_well(cluster, &[4], &["50-frees"]).await;
}

/// A node is drained, and then cannot apply the config: deleting the MachineConfig releases the node.
pub(crate) async fn broken_after_its_drain(cluster: &Cluster) {
    for (name, node) in [("breaks-6", "worker-6"), ("breaks-7", "worker-7")] {
        pod(cluster, name, "breaks", Place::on(node)).await;
    }
    budget(cluster, "default", ("breaks", "breaks"), 2, 2).await;
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
        // The host had no obstacle when the update was planned. Now a folder is created at the file's path.
        let index = node.trim_start_matches("worker-").parse().unwrap();
        let folder = cluster.lab.node(index).root().join("etc/50-breaks/kept");
        std::fs::create_dir_all(&folder).unwrap();
        budgets(cluster, "default").delete("breaks", &DeleteParams::default()).await.unwrap();
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

/// Two pods of one name in two namespaces: one of them has a budget, and there is another budget of the same name. A
/// further change is made in the meantime: the node gets the final config, and never the first one.
pub(crate) async fn one_name_in_two_namespaces(cluster: &Cluster) {
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    for name in ["left", "right"] {
        create(&namespaces, json!({"metadata": {"name": name}})).await;
        pod(cluster, "web-0", name, Place { namespace: name, node: "worker-8", image: NO_IMAGE, grace: 1 })
            .await;
    }
    budget(cluster, "left", ("web", "left"), 1, 1).await;
    // A budget of the same name, but for other pods.
    budget(cluster, "right", ("web", "nobody"), 1, 0).await;

    cluster.create(machine_config("50-spaces", "spaces", one_file("/etc/spaces", "x"))).await;
    let right = pods(cluster, "right");
    cluster
        .wait("the free one leaves", async || right.get_opt("web-0").await.ok()?.is_none().then_some(()))
        .await;
    says(cluster, "worker-8", &["left/web-0", "left/web", "0"]).await;
    let said = cluster.mco(&["status", "spaces"]).await;
    assert!(said.out.contains("left/web-0"), "{}", said.out);
    assert!(is_there(cluster, "left", "web-0").await, "the budget did not hold");
    assert_eq!(cluster.get("Node", "worker-8").await["spec"]["unschedulable"], true);
    let first = cluster.rendered("spaces").await;
    cluster.create(machine_config("51-spaces", "spaces", one_file("/etc/spaces-too", "y"))).await;
    cluster
        .wait("the node is sent on", async || {
            let node = cluster.get("Node", "worker-8").await;
            let asked = note(&node, "desiredDrain");
            let config = cluster.rendered("spaces").await;
            (config != first && note(&node, "desiredConfig") == config && asked == format!("drain-{config}"))
                .then_some(())
        })
        .await;
    budgets(cluster, "left").delete("web", &DeleteParams::default()).await.unwrap();
    cluster.settled("spaces", 1, &["50-spaces", "51-spaces"], &[]).await;
    let reached = |e: &String| (e.starts_with("NodeDone") || e.starts_with("Reboot")) && e.contains(&first);
    // The events are written as soon as the API server accepts them, and in order.
    let events = cluster
        .wait("the end of the update is told", async || {
            let events = cluster.events("worker-8").await;
            let last = cluster.rendered("spaces").await;
            events.iter().any(|e| e.starts_with("NodeDone") && e.contains(&last)).then_some(events)
        })
        .await;
    assert!(!events.iter().any(reached), "{events:#?}");
    assert!(!is_there(cluster, "left", "web-0").await);
    let node = cluster.get("Node", "worker-8").await;
    assert_eq!((node["spec"].get("unschedulable"), note(&node, "drainWaitsFor").as_str()), (None, ""));
}

/// The pod of one of two nodes cannot leave, so that node goes last. Its drain does not end: it is put aside, is named in the
/// status, takes pods again, and is updated when its pod can leave.
pub(crate) async fn put_aside(cluster: &Cluster) {
    pod(cluster, "aside", "aside", Place::on("worker-9")).await;
    budget(cluster, "default", ("aside", "aside"), 1, 1).await;
    let policy = json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "aside"},
        "spec": {"pools": {"names": ["aside"]}, "drain": {"after": "2s", "then": "Quarantine"}},
    });
    cluster.create(policy).await;
    let observer = Observer::start(cluster, "aside", 1).await;
    let aside = |node: &Value| node["metadata"]["annotations"]["machineconfig.dev/quarantine"].clone();
    let scenario = async {
        cluster.create(machine_config("50-aside", "aside", one_file("/etc/50-aside", "50-aside"))).await;
        let config = cluster
            .wait("the node is put aside, and takes pods again", async || {
                let node = cluster.get("Node", "worker-9").await;
                let in_service = node["spec"].get("unschedulable").is_none() && is_done(&node);
                aside(&node).as_str().map(str::to_owned).filter(|_| in_service)
            })
            .await;
        assert_eq!(config, cluster.rendered("aside").await);
        assert_eq!(observer.starts()[0].node, "worker-10", "the node that can drain goes first");
        assert!(is_there(cluster, "default", "aside").await, "the budget did not hold");
        let said = cluster.mco(&["status", "aside"]).await;
        assert!(said.out.contains("put aside, because"), "{}", said.out);
        budgets(cluster, "default").delete("aside", &DeleteParams::default()).await.unwrap();
        cluster.settled("aside", 2, &["50-aside"], &[]).await;
    };
    observer.guard(scenario).await;
    assert!(aside(&cluster.get("Node", "worker-9").await).is_null());
    all_well(cluster, &[9, 10], &["50-aside"]).await;
}

/// A policy allows pods to be deleted past their budget after a time: until then the budget holds, and an event reports the
/// deletion.
pub(crate) async fn past_its_budget(cluster: &Cluster) {
    pod(cluster, "past", "past", Place::on("worker-11")).await;
    budget(cluster, "default", ("past", "past"), 1, 1).await;
    let policy = json!({
        "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "past"},
        "spec": {"pools": {"names": ["past"]}, "drain": {"after": "12s", "then": "DeletePods"}},
    });
    cluster.create(policy).await;
    cluster.create(slow("50-past", "past")).await;
    says(cluster, "worker-11", &["default/past", "allows 0 disruptions"]).await;
    assert!(is_there(cluster, "default", "past").await, "the budget did not hold");
    cluster.settled("past", 1, &["50-past"], &[]).await;
    assert!(!is_there(cluster, "default", "past").await);
    cluster
        .told(
            "worker-11",
            "DrainThresholdExceeded",
            &["pods are deleted although their budgets do not allow it"],
        )
        .await;
    all_well(cluster, &[11], &["50-past"]).await;
}
