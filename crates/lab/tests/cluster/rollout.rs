//! How a rollout behaves: never more nodes at once than allowed, none while paused; edits of our objects are reverted,
//! and what a user deletes is removed from nodes.

use crate::product;
use crate::product::observer::Observer;
use crate::product::{Cluster, LIMIT, is_done, machine_config, missing_on, one_file, text, with_controller};
use futures::TryStreamExt;
use kube::runtime::watcher;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The number of nodes in pool worker.
const WORKERS: usize = 10;
const MAX_UNAVAILABLE: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn rollouts_obey_the_settings_of_their_pool() {
    let Some(builder) = with_controller() else { return };
    // Two more nodes, each in a pool of its own; and two in one.
    let builder = builder.nodes(WORKERS + 4).simulated().reboot_time(Duration::from_millis(500));
    let cluster = Cluster::start(builder).await;
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": MAX_UNAVAILABLE}})).await;
    let (paused, undo) = (format!("worker-{WORKERS}"), format!("worker-{}", WORKERS + 1));
    cluster.add_pool("paused", &[&paused]).await;
    cluster.add_pool("undo", &[&undo]).await;
    let drift = [format!("worker-{}", WORKERS + 2), format!("worker-{}", WORKERS + 3)];
    cluster.add_pool("drift", &[&drift[0], &drift[1]]).await;
    cluster.settled("drift", 2, &["00-worker"], &[]).await;
    cluster.settled("paused", 1, &["00-worker"], &[]).await;
    cluster.settled("undo", 1, &["00-worker"], &[]).await;
    cluster.settled("worker", WORKERS, &["00-worker"], &[]).await;
    tokio::join!(
        max_unavailable(&cluster),
        a_paused_pool(&cluster),
        what_is_taken_away(&cluster, WORKERS + 1),
        a_drifted_node_is_mended_by_the_next_config(&cluster, &drift)
    );
    an_edit_of_a_template_is_put_back(&cluster).await;
    status(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// Follows every change of every node through a rollout and counts those that are being updated. The change requires a
/// drain and a reboot.
async fn max_unavailable(cluster: &Cluster) {
    let names: BTreeSet<String> = (0..WORKERS).map(|i| format!("worker-{i}")).collect();
    let events = watcher(cluster.api("Node"), watcher::Config::default());
    let mut events = std::pin::pin!(events);
    let mut away: BTreeMap<String, bool> = BTreeMap::new();
    let mut seen: Vec<BTreeSet<String>> = vec![];
    let mut started = false;
    let follow = async {
        loop {
            let event = events.try_next().await.unwrap().unwrap();
            let node: Value = match event {
                watcher::Event::InitApply(node) | watcher::Event::Apply(node) => json!(node),
                watcher::Event::InitDone => {
                    // All nodes are in service, and from here on every change is seen.
                    assert!(away.values().all(|away| !away), "{away:?}");
                    let config = json!({
                        "ignition": {"version": "3.4.0"},
                        "storage": one_file("/etc/rolled", "rolled")["storage"],
                        "systemd": {"units": [{"name": "rolled.service", "contents": "[Service]\nExecStart=/bin/true\n"}]},
                    });
                    cluster.create(machine_config("50-rolled", "worker", config)).await;
                    continue;
                }
                watcher::Event::Init => continue,
                watcher::Event::Delete(node) => panic!("{node:?}"),
            };
            let name = text(&node["metadata"]["name"]);
            if !names.contains(&name) {
                continue;
            }
            let ready = node["status"]["conditions"].as_array().into_iter().flatten();
            let ready = ready.filter(|c| c["type"] == "Ready").all(|c| c["status"] == "True");
            let cordoned = node["spec"]["unschedulable"] == true;
            away.insert(name, !is_done(&node) || !ready || cordoned);
            let now: BTreeSet<String> =
                away.iter().filter(|(_, away)| **away).map(|(n, _)| n.clone()).collect();
            started |= !now.is_empty();
            seen.push(now);
            if started && away.values().all(|away| !away) {
                let rolled = cluster.rendered("worker").await;
                let nodes = cluster.list("Node").await;
                let inside = |n: &&Value| product::note(n, "currentConfig") == rolled;
                if nodes.iter().filter(inside).count() == WORKERS {
                    return;
                }
            }
        }
    };
    if tokio::time::timeout(LIMIT, follow).await.is_err() {
        panic!("the rollout does not end\n{}", cluster.state().await);
    }
    let most = seen.iter().max_by_key(|now| now.len()).unwrap();
    assert!(most.len() <= MAX_UNAVAILABLE, "{most:?} at once");
    assert_eq!(most.len(), MAX_UNAVAILABLE, "the slots are not used");
    let moved: BTreeSet<&String> = seen.iter().flatten().collect();
    assert_eq!(moved.len(), WORKERS);
    cluster.settled("worker", WORKERS, &["50-rolled"], &[]).await;
    let object = cluster.get("MachineConfig", "50-rolled").await;
    for i in 0..WORKERS {
        assert_eq!(missing_on(&cluster.lab.node(i), &object), None, "worker-{i}");
    }
}

/// One of two nodes drifts and so takes the pool's only slot. It gets the next config first, and then the other node
/// does.
async fn a_drifted_node_is_mended_by_the_next_config(cluster: &Cluster, nodes: &[String; 2]) {
    cluster.create(machine_config("50-drift", "drift", one_file("/etc/drift", "first"))).await;
    cluster.settled("drift", 2, &["50-drift"], &[]).await;
    let observer = Observer::start(cluster, "drift", 1).await;
    // The later one of the two: the earlier one would be first in any case.
    observer.by_hand(&nodes[1]);
    let root = cluster.lab.node(WORKERS + 3).root();
    std::fs::write(root.join("etc/drift"), "changed by hand").unwrap();
    cluster
        .wait("the node to say that it has drifted", async || {
            let node = cluster.get("Node", &nodes[1]).await;
            (product::note(&node, "state") == "Degraded").then_some(())
        })
        .await;
    let next = json!({"spec": {"config": one_file("/etc/drift", "second")}});
    observer
        .guard(async {
            cluster.patch("MachineConfig", "50-drift", next).await;
            cluster.settled("drift", 2, &["50-drift"], &[]).await;
        })
        .await;
    let order: Vec<String> = observer.starts().into_iter().map(|s| s.node).collect();
    assert_eq!(order, [nodes[1].clone(), nodes[0].clone()], "it is updated in the slot that it holds");
}

/// A change is rendered, but no node is updated until the pool is resumed.
async fn a_paused_pool(cluster: &Cluster) {
    let node = format!("worker-{WORKERS}");
    cluster.patch("MachineConfigPool", "paused", json!({"spec": {"paused": true}})).await;
    // Another part of this test changes what all pools of workers are rendered to. Until the controller sees that the pool is paused,
    // it may send the node there.
    cluster
        .wait("the controller to see that the pool is paused", async || {
            let pool = cluster.get("MachineConfigPool", "paused").await;
            (pool["status"]["observedGeneration"] == pool["metadata"]["generation"]).then_some(())
        })
        .await;
    let before = product::note(&cluster.get("Node", &node).await, "desiredConfig");
    cluster.create(machine_config("50-paused", "paused", one_file("/etc/paused", "x"))).await;
    cluster
        .wait("pool paused is rendered and says that it is held", async || {
            let pool = cluster.get("MachineConfigPool", "paused").await;
            let target = text(&pool["spec"]["configuration"]["name"]);
            let conditions = pool["status"]["conditions"].as_array()?;
            let updating = conditions.iter().find(|c| c["type"] == "Updating")?;
            let says = text(&updating["message"]);
            (target != before
                && updating["status"] == "False"
                && says.contains("paused")
                && says.contains(&target))
            .then_some(())
        })
        .await;
    let said = cluster.mco(&["status", "paused"]).await;
    assert!(said.out.contains("the pool is paused"), "{}", said.out);
    // Once a change in another pool is complete, the controller has run many passes.
    cluster.settled("undo", 1, &["00-worker"], &[]).await;
    let held = cluster.get("Node", &node).await;
    assert!(is_done(&held), "{held}");
    assert_eq!(product::note(&held, "desiredConfig"), before);
    cluster.patch("MachineConfigPool", "paused", json!({"spec": {"paused": false}})).await;
    cluster.settled("paused", 1, &["50-paused"], &[]).await;
    assert_eq!(cluster.lab.node(WORKERS).read_file("/etc/paused").await.unwrap(), "x");
}

/// The host's own file is restored; the unit and the folder of its drop-ins are removed.
async fn what_is_taken_away(cluster: &Cluster, index: usize) {
    use std::os::unix::fs::PermissionsExt;
    let node = cluster.lab.node(index);
    let own = node.root().join("etc/own.conf");
    std::fs::write(&own, "the host's own\n").unwrap();
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o640)).unwrap();
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": one_file("/etc/own.conf", "ours")["storage"],
        "systemd": {"units": [{
            "name": "undo.service", "enabled": true,
            "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n",
            "dropins": [{"name": "10-more.conf", "contents": "[Service]\nNice=5\n"}],
        }]},
    });
    cluster.create(machine_config("50-undo", "undo", config)).await;
    cluster.settled("undo", 1, &["50-undo"], &[]).await;
    assert_eq!(missing_on(&node, &cluster.get("MachineConfig", "50-undo").await), None);
    cluster.delete("MachineConfig", "50-undo").await;
    cluster.settled("undo", 1, &["00-worker"], &["50-undo"]).await;
    assert_eq!(node.read_file("/etc/own.conf").await.unwrap(), "the host's own\n");
    assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o7777, 0o640);
    let units = node.root().join("etc/systemd/system");
    for path in ["undo.service", "undo.service.d/10-more.conf", "multi-user.target.wants/undo.service"] {
        assert!(std::fs::symlink_metadata(units.join(path)).is_err(), "{path} is left");
    }
}

async fn an_edit_of_a_template_is_put_back(cluster: &Cluster) {
    let before = cluster.get("MachineConfig", "00-worker").await;
    let rendered = cluster.rendered("worker").await;
    let edit = json!({"spec": {"config": one_file("/etc/edited", "by hand")}});
    cluster.patch("MachineConfig", "00-worker", edit).await;
    cluster
        .wait("00-worker is put back", async || {
            let now = cluster.get("MachineConfig", "00-worker").await;
            (now["spec"] == before["spec"]).then_some(())
        })
        .await;
    cluster.delete("MachineConfig", "00-worker").await;
    cluster
        .wait("00-worker is made again", async || {
            let now = cluster.get("MachineConfig", "00-worker").await;
            (now["spec"] == before["spec"]).then_some(())
        })
        .await;
    assert_eq!(cluster.settled("worker", WORKERS, &["00-worker"], &[]).await, rendered);
    for node in cluster.lab.nodes() {
        assert!(!node.root().join("etc/edited").exists(), "the edit has reached {}", node.name());
    }
}

/// `mco status` for scripts.
async fn status(cluster: &Cluster) {
    let said = cluster.mco(&["status", "worker", "-o", "json", "--exit-code"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let shown: Value = serde_json::from_str(&said.out).unwrap();
    let pools = shown["pools"].as_array().unwrap();
    assert_eq!(pools.len(), 1, "{shown}");
    let row = &pools[0];
    assert_eq!(row["config"], json!(cluster.rendered("worker").await));
    for (key, want) in
        [("machines", WORKERS), ("updated", WORKERS), ("moving", 0), ("degraded", 0), ("maxUnavailable", 3)]
    {
        assert_eq!(row[key], json!(want), "{key}: {row}");
    }
    let nodes = row["nodes"].as_array().unwrap();
    assert!(
        nodes.len() == WORKERS && nodes.iter().all(|n| n["state"] == "Done" && n["why"] == "done"),
        "{row}"
    );
    let said = cluster.mco(&["status", "no-such-pool"]).await;
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("no-such-pool"), "{said:?}");
    // It exits at once if everything is updated.
    let said = cluster.mco(&["status", "--watch", "--until-updated", "worker", "paused", "undo"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}
