//! What an administrator does during a rollout: pausing and resuming, reverting a bad MachineConfig, changing
//! `maxUnavailable`, adding and removing nodes and pools. Each has the expected effect, and never more nodes are out
//! of service than the pool allows.
//!
//! Not here: outages and leader election (`tests/faults`).

use crate::product::controllers::{all_well, middle, progress, slow};
use crate::product::observer::Observer;
use crate::product::{Cluster, condition, is_done, note, one_file, text, with_controller};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a simulated reboot takes: long enough to act during a rollout.
const REBOOT: Duration = Duration::from_millis(800);
/// A pause takes effect within this time: within a second, and one second more for us to see it on a loaded machine.
/// `cargo xtask bench rollout --pause` measures it with a thousand nodes.
const STOPS_WITHIN: Duration = Duration::from_secs(2);

/// Each scenario's pool and its number of nodes, in the order of the nodes.
const POOLS: [(&str, usize); 6] =
    [("pause", 5), ("revert", 3), ("mend", 3), ("bound", 8), ("members", 4), ("pools", 4)];

/// The range of a pool's nodes.
fn nodes_of(pool: &str) -> std::ops::Range<usize> {
    let before = POOLS.iter().take_while(|(name, _)| *name != pool).map(|(_, n)| n).sum();
    let count = POOLS.iter().find(|(name, _)| *name == pool).map_or(0, |(_, n)| *n);
    before..before + count
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_pauses_and_reverts_a_rollout() {
    let Some(builder) = with_controller() else { return };
    let count = POOLS.iter().map(|(_, n)| n).sum();
    let cluster = Cluster::start(builder.nodes(count).simulated().reboot_time(REBOOT)).await;
    for (pool, _) in POOLS {
        let nodes: Vec<String> = nodes_of(pool).map(|i| format!("worker-{i}")).collect();
        cluster.add_pool(pool, &nodes.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
    for (pool, nodes) in POOLS {
        cluster.settled(pool, nodes, &["00-worker"], &[]).await;
    }
    tokio::join!(
        pause_and_resume(&cluster),
        a_bad_config_is_taken_back(&cluster),
        a_bad_config_is_mended(&cluster),
        another_bound(&cluster),
        nodes_may_join_and_leave_during_a_rollout(&cluster),
        pools_come_and_go(&cluster)
    );
    cluster.no_panic();
    cluster.stop().await;
}

/// A second after the pause no new node begins; nodes being updated finish; after the resume the rest follows.
async fn pause_and_resume(cluster: &Cluster) {
    let observer = Observer::start(cluster, "pause", 2).await;
    cluster.patch("MachineConfigPool", "pause", json!({"spec": {"maxUnavailable": 2}})).await;
    let scenario = async {
        middle(cluster, "50-pause", "pause", 1).await;
        cluster.patch("MachineConfigPool", "pause", json!({"spec": {"paused": true}})).await;
        let paused = Instant::now();
        seen(cluster, "pause").await;
        tokio::time::sleep(STOPS_WITHIN).await;
        let started = observer.starts();
        let late = started.iter().map(|s| s.at.saturating_duration_since(paused)).max().unwrap();
        eprintln!("the last node was sent {late:?} after the pause");
        // Nodes that are being updated finish.
        cluster
            .wait("the running nodes to arrive", async || {
                let (_, moving) = progress(cluster, "pause").await;
                (moving.is_empty() && observer.out().is_empty()).then_some(())
            })
            .await;
        let (done, _) = progress(cluster, "pause").await;
        assert!(done.len() < 5, "nothing is left to hold back: {done:?}");
        // Long enough for many passes of the controller.
        tokio::time::sleep(STOPS_WITHIN * 2).await;
        assert_eq!(observer.starts().len(), started.len(), "a node was sent during the pause");
        let nodes = cluster.list("Node").await;
        let held = |n: &&Value| nodes_of("pause").any(|i| n["metadata"]["name"] == format!("worker-{i}"));
        assert!(nodes.iter().filter(held).all(is_done));
        cluster.patch("MachineConfigPool", "pause", json!({"spec": {"paused": false}})).await;
        cluster.settled("pause", 5, &["50-pause"], &[]).await;
    };
    observer.guard(scenario).await;
}

/// A config that a node of the pool cannot apply: at its file's path there is a folder that is not empty.
async fn break_a_node(cluster: &Cluster, name: &str, pool: &str) -> String {
    for i in nodes_of(pool) {
        let folder = cluster.lab.node(i).root().join(format!("etc/{name}/kept"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), "the host's own").unwrap();
    }
    cluster.create(slow(name, pool)).await;
    cluster
        .wait(&format!("a node that cannot apply {name}"), async || {
            let nodes = cluster.list("Node").await;
            let broken = nodes.iter().find(|n| {
                note(n, "state") == "Degraded"
                    && note(n, "desiredConfig").starts_with(&format!("rendered-{pool}-"))
            })?;
            eprintln!("{pool}: {}", note(broken, "reason"));
            Some(text(&broken["metadata"]["name"]))
        })
        .await
}

/// Only the broken node was given the config, and the pool reports it.
async fn no_more_than_one_is_broken(cluster: &Cluster, pool: &str, broken: &str) {
    let bad = cluster.rendered(pool).await;
    cluster.complains(pool, "NodeDegraded", &[broken]).await;
    // Long enough for many passes of the controller.
    tokio::time::sleep(STOPS_WITHIN * 2).await;
    for i in nodes_of(pool) {
        let node = cluster.get("Node", &format!("worker-{i}")).await;
        let sent = note(&node, "desiredConfig") == bad;
        assert_eq!(sent, text(&node["metadata"]["name"]) == broken, "{node}");
    }
}

/// To revert, deleting the bad MachineConfig is enough.
async fn a_bad_config_is_taken_back(cluster: &Cluster) {
    let before = cluster.rendered("revert").await;
    let observer = Observer::start(cluster, "revert", 1).await;
    let scenario = async {
        let broken = break_a_node(cluster, "50-revert", "revert").await;
        no_more_than_one_is_broken(cluster, "revert", &broken).await;
        cluster.delete("MachineConfig", "50-revert").await;
        assert_eq!(cluster.settled("revert", 3, &["00-worker"], &["50-revert"]).await, before);
        cluster.wait("the node to be free", async || observer.out().is_empty().then_some(())).await;
    };
    observer.guard(scenario).await;
    all_well(cluster, &nodes_of("revert").collect::<Vec<_>>(), &[]).await;
    // No other node was touched, and the pool is healthy again.
    assert_eq!(observer.starts().iter().map(|s| &s.node).collect::<BTreeSet<_>>().len(), 1);
    cluster
        .wait("the pool is healthy", async || {
            let pool = cluster.get("MachineConfigPool", "revert").await;
            ["NodeDegraded", "Degraded"].iter().all(|c| condition(&pool, c).is_none()).then_some(())
        })
        .await;
    for i in nodes_of("revert") {
        let kept = cluster.lab.node(i).read_file("/etc/50-revert/kept/file").await.unwrap();
        assert_eq!(kept, "the host's own");
    }
}

/// A node that fails to apply one config accepts the next, corrected one.
async fn a_bad_config_is_mended(cluster: &Cluster) {
    let observer = Observer::start(cluster, "mend", 1).await;
    let scenario = async {
        let broken = break_a_node(cluster, "50-mend", "mend").await;
        no_more_than_one_is_broken(cluster, "mend", &broken).await;
        let better = json!({"spec": {"config": one_file("/etc/50-mended", "50-mended")}});
        cluster.patch("MachineConfig", "50-mend", better).await;
        cluster.settled("mend", 3, &["50-mend"], &[]).await;
        let first = observer.starts();
        let next = first.iter().find(|s| s.config != first[0].config).unwrap();
        assert_eq!(next.node, broken, "the broken node is updated first: {first:?}");
    };
    observer.guard(scenario).await;
    all_well(cluster, &nodes_of("mend").collect::<Vec<_>>(), &["50-mended"]).await;
}

/// `maxUnavailable` is raised and then lowered during one rollout.
async fn another_bound(cluster: &Cluster) {
    let set = async |max: usize| {
        cluster.patch("MachineConfigPool", "bound", json!({"spec": {"maxUnavailable": max}})).await;
    };
    set(1).await;
    let observer = Observer::start(cluster, "bound", 1).await;
    let scenario = async {
        middle(cluster, "50-bound", "bound", 1).await;
        assert_eq!(observer.peak(), 1);
        observer.set_max(3);
        set(3).await;
        cluster.wait("three at once", async || (observer.out().len() == 3).then_some(())).await;
        set(1).await;
        // A patch of an earlier plan may still be in flight.
        seen(cluster, "bound").await;
        tokio::time::sleep(STOPS_WITHIN).await;
        observer.set_max(1);
        let sent = observer.starts().len();
        assert!(sent < 8, "nothing is left to hold back");
        cluster.settled("bound", 8, &["50-bound"], &[]).await;
    };
    observer.guard(scenario).await;
    assert_eq!(observer.starts().len(), 8, "each node is updated once");
    all_well(cluster, &nodes_of("bound").collect::<Vec<_>>(), &["50-bound"]).await;
}

/// During a rollout, a node is added to the pool, a waiting one is removed, and so is one that is being updated.
async fn nodes_may_join_and_leave_during_a_rollout(cluster: &Cluster) {
    let label = "node-role.kubernetes.io/members";
    let out_of = async |node: &str| {
        cluster.patch("Node", node, json!({"metadata": {"labels": {label: null}}})).await;
    };
    let all: Vec<String> = nodes_of("members").map(|i| format!("worker-{i}")).collect();
    // One of them leaves the pool before the rollout.
    out_of(&all[3]).await;
    cluster.settled("members", 3, &["00-worker"], &[]).await;
    let observer = Observer::start(cluster, "members", 1).await;
    let scenario = async {
        let moving = middle(cluster, "50-members", "members", 0).await;
        let target = cluster.rendered("members").await;
        cluster.put_into(&all[3], "members").await;
        let waiting = all[..3].iter().find(|n| !moving.contains(n)).unwrap();
        out_of(waiting).await;
        out_of(&moving[0]).await;
        eprintln!(
            "members: {} comes, {waiting} goes while it waits, {} while it is on its way",
            all[3], moving[0]
        );
        cluster.settled("members", 2, &["50-members"], &[]).await;
        // The others belong to worker again, and get its config.
        let worker = cluster.rendered("worker").await;
        for node in [waiting, &moving[0]] {
            cluster
                .wait(&format!("{node} is a worker again"), async || {
                    let node = cluster.get("Node", node).await;
                    (note(&node, "currentConfig") == worker && is_done(&node)).then_some(())
                })
                .await;
        }
        for node in [waiting, &moving[0]] {
            let i = node.trim_start_matches("worker-").parse().unwrap();
            assert!(
                !cluster.lab.node(i).root().join("etc/50-members").exists(),
                "{node} has the pool's file"
            );
            all_well(cluster, &[i], &[]).await;
        }
        assert_ne!(worker, target);
    };
    observer.guard(scenario).await;
}

/// During a rollout of one pool, another pool is created that takes over some of its nodes; then the first pool is
/// deleted.
async fn pools_come_and_go(cluster: &Cluster) {
    let all: Vec<String> = nodes_of("pools").map(|i| format!("worker-{i}")).collect();
    let observer = Observer::start(cluster, "pools", 1).await;
    let scenario = async {
        let moving = middle(cluster, "50-pools", "pools", 0).await;
        let taken = all.iter().rev().find(|n| !moving.contains(n)).unwrap();
        let old = json!({"metadata": {"labels": {"node-role.kubernetes.io/pools": null}}});
        cluster.patch("Node", taken, old).await;
        cluster.add_pool("newer", &[taken]).await;
        cluster.create(slow("50-newer", "newer")).await;
        cluster.settled("newer", 1, &["50-newer"], &["50-pools"]).await;
        // Its nodes keep their labels, but only worker selects them now.
        let (done, _) = progress(cluster, "pools").await;
        eprintln!("pools: deleted when {done:?} were through");
        cluster.delete("MachineConfigPool", "pools").await;
        let worker = cluster.rendered("worker").await;
        for node in all.iter().filter(|n| *n != taken) {
            cluster
                .wait(&format!("{node} is a worker again"), async || {
                    let node = cluster.get("Node", node).await;
                    (note(&node, "currentConfig") == worker && is_done(&node)).then_some(())
                })
                .await;
            let i = node.trim_start_matches("worker-").parse().unwrap();
            assert!(!cluster.lab.node(i).root().join("etc/50-pools").exists(), "{node} has the pool's file");
        }
    };
    observer.guard(scenario).await;
    all_well(cluster, &nodes_of("pools").collect::<Vec<_>>(), &[]).await;
}

/// Waits until the pool's status belongs to its current spec: the controller has seen the spec, and has sent what it
/// had planned before.
async fn seen(cluster: &Cluster, pool: &str) {
    cluster
        .wait("the controller has seen the pool's new spec", async || {
            let pool = cluster.get("MachineConfigPool", pool).await;
            (pool["status"]["observedGeneration"] == pool["metadata"]["generation"]).then_some(())
        })
        .await;
}
