//! Rollouts while objects are lost: nodes and configs that are deleted, annotations that are missing or invalid, and an etcd
//! that is restored from a backup. An independent observer checks that never more nodes are out of service than the pool
//! allows.
//!
//! Not here: what an administrator does during a rollout (`tests/cluster/pause_and_revert.rs`).

use crate::product::controllers::{Controller, all_well, middle, slow};
use crate::product::observer::Observer;
use crate::product::{Cluster, MCO, defined, is_done, note, text, with_controller};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a simulated reboot takes.
const REBOOT: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_deleted_nodes_and_configs_and_invalid_annotations() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(14).simulated().reboot_time(REBOOT)).await;
    let workers: Vec<String> = (0..14).map(|i| format!("worker-{i}")).collect();
    let some = |from: usize, to: usize| workers[from..to].iter().map(String::as_str).collect::<Vec<_>>();
    cluster.add_pool("again", &some(0, 5)).await;
    cluster.add_pool("nonsense", &some(5, 10)).await;
    cluster.add_pool("vanish", &some(10, 14)).await;
    for (pool, nodes) in [("again", 5), ("nonsense", 5), ("vanish", 4)] {
        cluster.patch("MachineConfigPool", pool, json!({"spec": {"maxUnavailable": 2}})).await;
        cluster.settled(pool, nodes, &["00-worker"], &[]).await;
    }
    tokio::join!(
        deleted_and_made_again(&cluster),
        without_and_with_bad_annotations(&cluster),
        a_rendered_config_vanishes(&cluster)
    );
    cluster.no_panic();
    cluster.stop().await;
}

/// A Node without annotations, as a kubelet registers it.
fn bare(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "node-role.kubernetes.io/worker": "", format!("node-role.kubernetes.io/{pool}"): "",
            "kubernetes.io/os": "linux", "kubernetes.io/hostname": name,
        }},
    })
}

/// Creates the Node and makes it Ready.
async fn register(cluster: &Cluster, node: Value, boot_id: &str) {
    let name = text(&node["metadata"]["name"]);
    cluster.create(node).await;
    let status = json!({"status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {
            "bootID": boot_id, "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": "",
            "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        },
    }});
    let patch = kube::api::Patch::Merge(status);
    cluster.api("Node").patch_status(&name, &kube::api::PatchParams::default(), &patch).await.unwrap();
}

/// A node that is being updated and one that waits are deleted and registered again under their names.
async fn deleted_and_made_again(cluster: &Cluster) {
    let observer = Observer::start(cluster, "again", 2).await;
    let scenario = async {
        let moving = middle(cluster, "50-again", "again", 1).await;
        let target = cluster.rendered("again").await;
        let nodes = cluster.list("Node").await;
        let waits = nodes.iter().find(|n| {
            note(n, "desiredConfig") != target && note(n, "desiredConfig").starts_with("rendered-again-")
        });
        let waiting = waits.map(|n| text(&n["metadata"]["name"]));
        eprintln!("deleted and made again: {} on its way, {waiting:?} waiting", moving[0]);
        for name in [Some(moving[0].clone()), waiting].into_iter().flatten() {
            observer.by_hand(&name);
            let before = cluster.get("Node", &name).await;
            let boot_id = text(&before["status"]["nodeInfo"]["bootID"]);
            // A deleted node has no slot, so another node is updated in its place. That one may finish before the
            // controller knows that the name exists again; until then, one more node may be out of service.
            observer.set_max(3);
            cluster.delete("Node", &name).await;
            register(cluster, bare(&name, "again"), &boot_id).await;
            let after = cluster.get("Node", &name).await;
            assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
            too_late(cluster, &name, &before["metadata"]["uid"]).await;
            owned(cluster, &name).await;
            observer.set_max(2);
        }
        cluster.settled("again", 5, &["50-again"], &[]).await;
    };
    observer.guard(scenario).await;
    all_well(cluster, &[0, 1, 2, 3, 4], &["50-again"]).await;
    for i in 0..5 {
        owned(cluster, &format!("worker-{i}")).await;
    }
}

/// A write that was meant for the Node of before does not change the one that has its name now. Agents bind theirs to the UID.
async fn too_late(cluster: &Cluster, name: &str, uid: &Value) {
    let late = json!({"metadata": {"uid": uid, "annotations": {format!("{MCO}reason"): "too late"}}});
    let (api, params) = (cluster.api("Node"), kube::api::PatchParams::default());
    let patch = kube::api::Patch::Strategic(late);
    let answer = client::call(|| format!("changing Node {name}"), api.patch(name, &params, &patch)).await;
    let error = answer.unwrap_err();
    assert!(error.is_other_object() && error.is_conflict(), "{:?}", error.status());
    assert_ne!(note(&cluster.get("Node", name).await, "reason"), "too late");
}

/// Waits until the owner of the node's MachineConfigNode is the current Node.
async fn owned(cluster: &Cluster, name: &str) {
    cluster
        .wait("its MachineConfigNode belongs to the new Node", async || {
            let (node, own) = (cluster.get("Node", name).await, cluster.get("MachineConfigNode", name).await);
            let owner = own["metadata"]["ownerReferences"].as_array()?.first()?.clone();
            (owner["uid"] == node["metadata"]["uid"]).then_some(())
        })
        .await;
}

/// Nodes without an agent and without annotations, or with invalid ones, hold their own slot and block nothing else.
/// Invalid annotations on a node with an agent are corrected.
async fn without_and_with_bad_annotations(cluster: &Cluster) {
    cluster.patch("MachineConfigPool", "nonsense", json!({"spec": {"maxUnavailable": 4}})).await;
    let observer = Observer::start(cluster, "nonsense", 4).await;
    for name in ["bare", "bad"] {
        observer.by_hand(name);
    }
    register(cluster, bare("bare", "nonsense"), "b").await;
    let mut bad = bare("bad", "nonsense");
    bad["metadata"]["annotations"] = json!({
        format!("{MCO}currentConfig"): "no such thing/../at all",
        format!("{MCO}desiredConfig"): "",
        format!("{MCO}state"): "Confused",
        format!("{MCO}desiredDrain"): "dance-forever",
        format!("{MCO}lastAppliedDrain"): "{\"json\":",
        format!("{MCO}controlPlaneTopology"): "\u{1F600}",
    });
    register(cluster, bad, "b").await;
    let scenario = async {
        middle(cluster, "50-nonsense", "nonsense", 1).await;
        // This node has an agent and was updated. A faulty script of an administrator overwrites its annotations.
        let target = cluster.rendered("nonsense").await;
        let victim = cluster
            .wait("a node that is done", async || {
                let nodes = cluster.list("Node").await;
                let done = nodes.iter().find(|n| note(n, "currentConfig") == target && is_done(n));
                done.map(|n| text(&n["metadata"]["name"]))
            })
            .await;
        observer.by_hand(&victim);
        let nobodys = "rendered-nobody-has-made-this";
        let garbage = json!({"metadata": {"annotations": {
            format!("{MCO}state"): "Whatever", format!("{MCO}desiredDrain"): "nonsense",
            format!("{MCO}desiredConfig"): nobodys,
        }}});
        // Until the controller has seen the change, it counts the node that the script broke as available, so one more
        // may be out of service.
        observer.set_max(5);
        cluster.patch("Node", &victim, garbage).await;
        eprintln!("nonsense is written on {victim}");
        cluster
            .wait("the controller to take back the nonsense", async || {
                (note(&cluster.get("Node", &victim).await, "desiredConfig") != nobodys).then_some(())
            })
            .await;
        observer.set_max(4);
        let nodes: Vec<String> = (5..10).map(|i| format!("worker-{i}")).collect();
        cluster
            .wait("every node with an agent to be done", async || {
                let all = cluster.list("Node").await;
                let well = |n: &&Value| {
                    nodes.contains(&text(&n["metadata"]["name"]))
                        && is_done(n)
                        && note(n, "currentConfig") == target
                };
                (all.iter().filter(well).count() == nodes.len()).then_some(())
            })
            .await;
        // The two nodes without an agent are counted and reported, and do not count as updated.
        cluster
            .wait("the pool counts them", async || {
                let status = cluster.get("MachineConfigPool", "nonsense").await["status"].clone();
                (status["machineCount"] == 7 && status["updatedMachineCount"] == 5).then_some(())
            })
            .await;
    };
    observer.guard(scenario).await;
    let said = cluster.mco(&["status", "nonsense"]).await;
    assert!(said.out.contains("bare") && said.out.contains("bad"), "{}", said.out);
    for name in ["bare", "bad"] {
        cluster.delete("Node", name).await;
    }
    cluster.settled("nonsense", 5, &["50-nonsense"], &[]).await;
}

/// The rendered config that is being rolled out is deleted, and so is the one that waiting nodes still have.
async fn a_rendered_config_vanishes(cluster: &Cluster) {
    let before = cluster.rendered("vanish").await;
    let observer = Observer::start(cluster, "vanish", 2).await;
    let scenario = async {
        middle(cluster, "50-vanish", "vanish", 0).await;
        let target = cluster.rendered("vanish").await;
        cluster.delete("MachineConfig", &target).await;
        cluster.delete("MachineConfig", &before).await;
        cluster
            .wait("the target is made again", async || {
                (!cluster.get("MachineConfig", &target).await.is_null()).then_some(())
            })
            .await;
        assert_eq!(cluster.settled("vanish", 4, &["50-vanish"], &[]).await, target);
    };
    observer.guard(scenario).await;
    all_well(cluster, &[10, 11, 12, 13], &["50-vanish"]).await;
}

/// etcd is restored to its state of some thousand writes ago. Agents that have seen higher resource versions follow the
/// restored cluster, and nobody restarts them.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_a_restore_of_etcd() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = defined() else { return };
    let cluster = Cluster::start(builder.nodes(1).real()).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let controller = Controller::alone(&cluster, cluster.lab.kubeconfig());
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    cluster.lab.control_plane().back_up_etcd().await.unwrap();
    for i in 0..2000 {
        let annotations = json!({"metadata": {"annotations": {"example.com/writes": i.to_string()}}});
        cluster.patch("Namespace", "default", annotations).await;
    }
    cluster.create(slow("50-lost", "worker")).await;
    cluster.settled("worker", 1, &["50-lost"], &[]).await;
    let version = async || {
        let node = cluster.get("Node", "worker-0").await;
        text(&node["metadata"]["resourceVersion"]).parse::<u64>().unwrap()
    };
    let seen = version().await;
    controller.stop().await;
    cluster.lab.control_plane().restore_etcd().await.unwrap();
    let restored = version().await;
    assert!(restored + 1000 < seen, "{restored} is not far below {seen}");
    let controller = Controller::alone(&cluster, cluster.lab.kubeconfig());
    // The restored Node is Done with the config of the backup, but the disk has the later one, which is lost.
    cluster
        .wait("the disk is in the config that the restored cluster knows", async || {
            let node = cluster.get("Node", "worker-0").await;
            let there = cluster.lab.node(0).read_file("/etc/50-lost").await.is_ok();
            (!there && is_done(&node)).then_some(())
        })
        .await;
    cluster.settled("worker", 1, &["00-worker"], &["50-lost"]).await;
    assert!(version().await < seen, "the agent had seen this version before");
    controller.stop().await;
    cluster.no_panic();
    cluster.stop().await;
}
