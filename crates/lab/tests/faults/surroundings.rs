//! Rollouts under faults of everything around the controller: the API server unreachable, connections and answers that
//! fail, wrong clocks, nodes and configs that are deleted. Each rollout ends in the right state, and an independent
//! observer checks that never more nodes are out of service than the pool allows.
//!
//! Not here: faults of the controller itself (`leader.rs`), and actions of an administrator
//! (`tests/cluster/stop_and_go.rs`).

use crate::product::controllers::{Controller, all_well, faketime, middle, slow};
use crate::product::observer::Observer;
use crate::product::{Cluster, MCO, is_done, lab, machine_config, note, one_file, text, with_controller};
use lab::{ApiProxy, Call, Verdict};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a simulated reboot takes.
const REBOOT: Duration = Duration::from_millis(300);
/// How long the API server is unreachable.
const OUTAGE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_two_minutes_without_the_api_server() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder.nodes(6).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let mut controller = Controller::alone(&cluster, cluster.lab.kubeconfig());
    cluster.settled("worker", 6, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "worker", 2).await;
    let rollout = async {
        let moving = middle(&cluster, "50-outage", "worker", 1).await;
        cluster.lab.control_plane().stop_api_server().await;
        eprintln!("the API server goes while {moving:?} are on their way");
        tokio::time::sleep(OUTAGE).await;
        controller.lives();
        cluster.lab.control_plane().start_api_server().await.unwrap();
        let back = Instant::now();
        cluster.settled("worker", 6, &["50-outage"], &[]).await;
        eprintln!("through {:.1} s after the API server came back", back.elapsed().as_secs_f64());
    };
    observer.guard(rollout).await;
    all_well(&cluster, &[0, 1, 2, 3, 4, 5], &["50-outage"]).await;
    controller.stop().await;
    cluster.stop().await;
}

/// Every third of the requests that the filter selects.
fn every_third(
    filter: impl Fn(&Call<'_>) -> bool + Send + Sync + 'static,
    verdict: Verdict,
) -> impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static {
    let count = AtomicU64::new(0);
    move |call| {
        let hit = filter(call) && count.fetch_add(1, Ordering::Relaxed) % 3 == 2;
        if hit { verdict } else { Verdict::Pass }
    }
}

/// One rollout for each fault. The fault lasts from beginning to end, for the controller and the daemons.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_failing_requests_and_watches() {
    let Some(builder) = lab() else { return };
    let builder = builder.nodes(6).simulated().reboot_time(REBOOT).daemon_faults(true);
    let cluster = Cluster::start(builder).await;
    let daemons = cluster.lab.daemon_faults().unwrap();
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let proxy = ApiProxy::start(cluster.lab.control_plane()).await.unwrap();
    let kubeconfig = proxy.kubeconfig(cluster.lab.control_plane(), "controller").unwrap();
    let mut controller = Controller::alone(&cluster, &kubeconfig);
    cluster.settled("worker", 6, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "worker", 2).await;
    let mut all: Vec<&'static str> = vec![];
    let write = |call: &Call<'_>| call.is_write();
    let step = async |name: &'static str, fault: &dyn Fn(), tick: &dyn Fn()| {
        fault();
        let start = Instant::now();
        cluster.create(slow(name, "worker")).await;
        let ticking = async {
            loop {
                tokio::time::sleep(Duration::from_millis(250)).await;
                tick();
            }
        };
        let with = [name];
        let settled = observer.guard(cluster.settled("worker", 6, &with, &[]));
        tokio::select! {
            () = ticking => {}
            _ = settled => {}
        }
        let hits = (proxy.hits(), daemons.hits());
        proxy.heal();
        daemons.heal();
        let took = start.elapsed().as_secs_f64();
        eprintln!(
            "{name}: through in {took:.1} s, {} requests of the controller hit, {} of daemons",
            hits.0, hits.1
        );
        hits
    };

    all.push("50-cut");
    let cut = || {
        proxy.cut();
        daemons.cut();
    };
    step("50-cut", &|| (), &cut).await;

    // Open watches are answered with 410, and so is every third new one; then the continuations of lists, too.
    all.push("50-gone");
    let gone = || {
        let again = |call: &Call<'_>| call.is_watch() || call.query.contains("continue=");
        proxy.set(every_third(again, Verdict::Refuse(410, "Expired")));
    };
    assert!(step("50-gone", &gone, &|| proxy.expire_watches()).await.0 > 0);

    for (name, verdict) in [
        ("50-conflict", Verdict::Refuse(409, "Conflict")),
        ("50-lost", Verdict::LoseAnswer),
        ("50-busy", Verdict::Refuse(429, "TooManyRequests")),
        ("50-fault", Verdict::Refuse(500, "InternalError")),
    ] {
        all.push(name);
        let both = || {
            proxy.set(every_third(write, verdict));
            daemons.set(every_third(write, verdict));
        };
        let hits = step(name, &both, &|| ()).await;
        assert!(hits.0 > 0 && hits.1 > 0, "{name} hit nothing");
    }

    // The caches are out of date: every watch is cut again and again, and new ones start late. Writes are quick.
    all.push("50-stale");
    let late = || {
        proxy.set(
            |call| if call.is_write() { Verdict::Pass } else { Verdict::Late(Duration::from_millis(900)) },
        );
        proxy.cut();
    };
    let ticks = AtomicU64::new(0);
    let cut = || {
        if ticks.fetch_add(1, Ordering::Relaxed) % 8 == 7 {
            proxy.cut();
        }
    };
    assert!(step("50-stale", &late, &cut).await.0 > 0);

    controller.lives();
    all_well(&cluster, &[0, 1, 2, 3, 4, 5], &all).await;
    the_observer_sees_one_too_many(&cluster).await;
    controller.stop().await;
    cluster.stop().await;
}

/// Writes to one node are never answered, as when an admission webhook hangs. Its pool reports it, and the other nodes
/// continue.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_unanswered_patches_blocks_no_other_pool() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder.nodes(4).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let proxy = ApiProxy::start(cluster.lab.control_plane()).await.unwrap();
    let kubeconfig = proxy.kubeconfig(cluster.lab.control_plane(), "controller").unwrap();
    let mut controller = Controller::alone(&cluster, &kubeconfig);
    cluster.settled("worker", 4, &["00-worker"], &[]).await;
    cluster.add_pool("hung", &["worker-0", "worker-1"]).await;
    cluster.settled("hung", 2, &["00-worker"], &[]).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "hung", 1).await;
    proxy.set(|call| {
        let hangs = call.method == "PATCH" && call.path == "/api/v1/nodes/worker-0";
        if hangs { Verdict::Swallow } else { Verdict::Pass }
    });
    let scenario = async {
        cluster.create(slow("50-hung", "hung")).await;
        cluster.create(slow("50-free", "worker")).await;
        // Pool `hung` also selects the MachineConfigs for workers.
        cluster.complains("hung", "Updating", &["does not answer", "worker-0"]).await;
        cluster.settled("worker", 2, &["50-free"], &[]).await;
        let target = cluster.rendered("hung").await;
        for name in ["worker-0", "worker-1"] {
            let node = cluster.get("Node", name).await;
            assert_ne!(note(&node, "desiredConfig"), target, "{name}: the slot is kept");
        }
        assert!(proxy.hits() > 0);
        proxy.heal();
        proxy.cut();
        cluster.settled("hung", 2, &["50-free", "50-hung"], &[]).await;
    };
    observer.guard(scenario).await;
    controller.lives();
    all_well(&cluster, &[0, 1, 2, 3], &["50-free"]).await;
    controller.stop().await;
    cluster.stop().await;
}

/// An observer with a lower limit than the pool's must report a violation. Otherwise nothing would prove that observers
/// can fail at all.
async fn the_observer_sees_one_too_many(cluster: &Cluster) {
    let strict = Observer::start(cluster, "worker", 1).await;
    cluster.create(slow("50-strict", "worker")).await;
    cluster.settled("worker", 6, &["50-strict"], &[]).await;
    let said = strict.violation().unwrap_or_default();
    assert!(said.contains("only 1 may be"), "{said}");
}

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

/// Two machines whose agents' clocks are a minute fast and a minute slow: drained, changed, rebooted, and uncordoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_works_with_agents_clocks_a_minute_off() {
    if !lab::require_root() {
        return;
    }
    let Some(library) = faketime() else { return };
    let Some(builder) = with_controller() else { return };
    let clock = "[Service]\nEnvironment=LD_PRELOAD=/opt/clock.so FAKETIME_DONT_FAKE_MONOTONIC=1\n\
                 EnvironmentFile=/etc/clock-%H\n";
    let builder = builder
        .nodes(2)
        .real()
        .node_file("/opt/clock.so", 0o644, std::fs::read(library).unwrap())
        .node_file("/etc/clock-worker-0", 0o644, "FAKETIME=+60s\n")
        .node_file("/etc/clock-worker-1", 0o644, "FAKETIME=-60s\n")
        .node_file(&format!("/etc/systemd/system/{}.d/10-clock.conf", lab::DAEMON_UNIT), 0o644, clock);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    for (i, want) in [(0, "+60s"), (1, "-60s")] {
        let script = "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID \"$0\")/environ";
        let environment = cluster.lab.node(i).run(["sh", "-c", script, lab::DAEMON_UNIT]).await.unwrap();
        assert!(environment.contains(&format!("FAKETIME={want}\n")), "{environment}");
    }
    let observer = Observer::start(&cluster, "worker", 1).await;
    let scenario = async {
        cluster.create(slow("50-clock", "worker")).await;
        cluster.settled("worker", 2, &["50-clock"], &[]).await;
        // Then the change is reverted, which needs what the node has recorded about the first one.
        cluster.delete("MachineConfig", "50-clock").await;
        cluster.settled("worker", 2, &["00-worker"], &["50-clock"]).await;
    };
    observer.guard(scenario).await;
    all_well(&cluster, &[0, 1], &[]).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// etcd is restored to its state of some thousand writes ago. Agents that have seen higher resource versions follow the
/// restored cluster, and nobody restarts them.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_a_restore_of_etcd() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = lab() else { return };
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

/// A machine's clock jumps back by three hours while its agent waits for a retry: the retry is not delayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_delays_no_retry() {
    if !lab::require_root() {
        return;
    }
    let Some(library) = faketime() else { return };
    let Some(builder) = with_controller() else { return };
    let clock = "[Service]\nEnvironment=LD_PRELOAD=/opt/clock.so FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1 \
                 FAKETIME_TIMESTAMP_FILE=/etc/clock\n";
    let builder = builder
        .nodes(1)
        .real()
        .node_file("/opt/clock.so", 0o644, std::fs::read(library).unwrap())
        .node_file("/etc/clock", 0o644, "+0s\n")
        .node_file("/etc/in-the-way", 0o644, "a file\n")
        .node_file(&format!("/etc/systemd/system/{}.d/10-clock.conf", lab::DAEMON_UNIT), 0o644, clock);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let node = cluster.lab.node(0);
    cluster.create(machine_config("50-below", "worker", one_file("/etc/in-the-way/x", "x"))).await;
    cluster
        .wait("the node says what is in the way", async || {
            let reason = note(&cluster.get("Node", "worker-0").await, "reason");
            reason.contains("/etc/in-the-way is not a folder").then_some(())
        })
        .await;
    node.run(["sh", "-c", "echo -3h > /etc/clock"]).await.unwrap();
    node.run(["rm", "/etc/in-the-way"]).await.unwrap();
    cluster.settled("worker", 1, &["50-below"], &[]).await;
    assert_eq!(node.read_file("/etc/in-the-way/x").await.unwrap(), "x");
    cluster.no_panic();
    cluster.stop().await;
}
