//! The controller follows RolloutPolicies: a harmful canary goes back, two policies for one pool hold it, and so does what cannot be
//! read.
//!
//! Not here: what the API server refuses (`rollout_policy`), and decisions about waves, windows and gates (beside the code of `rollout`).

use crate::product::observer::Observer;
use crate::product::policies::{in_force, progress, proved};
use crate::product::{Cluster, condition, is_done, machine_config, note, one_file, text, with_controller};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The number of nodes in pool worker.
const NODES: usize = 4;

/// A server on loopback that answers every request with the status that is set.
async fn server() -> (SocketAddr, Arc<AtomicU16>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, status) = (listener.local_addr().unwrap(), Arc::new(AtomicU16::new(200)));
    let says = status.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let says = says.load(Ordering::Relaxed);
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                let answer = format!("HTTP/1.1 {says} -\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = connection.write_all(answer.as_bytes()).await;
            });
        }
    });
    (address, status)
}

/// Waits until the canary needs an approval for the pool's current config, and approves it.
async fn approve(cluster: &Cluster, not: &str) -> String {
    let config = cluster
        .wait("the canary to wait for its approval", async || {
            let progress = progress(cluster).await;
            let waits = text(&progress["held"]).contains("wave canary waits for an approval");
            let config = text(&progress["config"]);
            (waits && config != not).then_some(config)
        })
        .await;
    let nodes = cluster.list("Node").await;
    assert!(nodes.iter().all(|n| note(n, "desiredConfig") != config), "no node goes before that");
    let said = cluster.mco(&["approve", "worker", "--config", not]).await;
    assert!(said.code == 1 && said.err.contains("pool worker no longer has the config"), "{said:?}");
    let said = cluster.mco(&["approve", "worker", "--config", &config]).await;
    assert!(said.code == 0 && said.out.starts_with("wave canary of pool worker is approved"), "{said:?}");
    config
}

/// A change that applies cleanly and does harm: it reaches one canary, which goes back by itself, and no other node. The
/// corrected change goes through all waves.
#[tokio::test(flavor = "multi_thread")]
async fn a_canary_that_does_harm_goes_back_and_the_fleet_is_not_hit() {
    let Some(builder) = with_controller() else { return };
    let (address, answer) = server().await;
    let builder = builder.nodes(NODES).simulated().reboot_time(Duration::from_millis(500));
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", NODES, &["00-worker"], &[]).await;
    let before = cluster.rendered("worker").await;
    let policy = |soak: &str| {
        json!({
            "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "workers"},
            "spec": {
                "pools": {"names": ["worker"]},
                "waves": [{"name": "canary", "size": 1, "soak": soak, "approval": "Needed"}, {"name": "rest"}],
                "gates": [{
                    "name": "front-page", "when": ["Always"], "interval": "1s", "timeout": "1s", "failureLimit": 1,
                    "http": {"url": format!("http://{address}/healthz")},
                }],
                "onFailure": "Rollback",
            },
        })
    };
    cluster.create(policy("1h")).await;
    proved(&cluster, &before).await;

    let observer = Observer::start(&cluster, "worker", 1).await;
    let bad = observer
        .guard(async {
            cluster.create(machine_config("50-harm", "worker", one_file("/etc/harm", "bad"))).await;
            let bad = approve(&cluster, &before).await;
            cluster
                .wait("the canary to soak", async || {
                    (!progress(&cluster).await["soakUntil"].is_null()).then_some(())
                })
                .await;
            answer.store(500, Ordering::Relaxed);
            cluster
                .wait("all nodes to be in the proved config again", async || {
                    let nodes = cluster.list("Node").await;
                    let pool = cluster.get("MachineConfigPool", "worker").await;
                    let told = condition(&pool, "Degraded").unwrap_or_default();
                    let back = |n: &Value| is_done(n) && note(n, "currentConfig") == before;
                    (nodes.iter().all(back) && told.contains("is rejected: gate front-page fails"))
                        .then_some(())
                })
                .await;
            bad
        })
        .await;
    let hit: BTreeSet<String> = observer.starts().into_iter().map(|s| s.node).collect();
    assert_eq!(hit.len(), 1, "one node and no other was sent anywhere: {hit:?}");
    let pool = cluster.get("MachineConfigPool", "worker").await;
    assert_eq!(pool["spec"]["configuration"]["name"], json!(bad), "spec is not edited");
    let rejected = progress(&cluster).await["rejected"][0].clone();
    assert_eq!(rejected["config"], json!(bad));
    assert!(text(&rejected["reason"]).contains("HTTP status is 500"), "{rejected}");
    let said = cluster.mco(&["status", "worker"]).await;
    assert!(said.out.contains("is rejected"), "{}", said.out);

    // The change is corrected: it is a new config, which needs a new approval. With a short soak, the fleet follows.
    answer.store(200, Ordering::Relaxed);
    let good = json!({"spec": {"config": one_file("/etc/harm", "good")}});
    cluster.patch("MachineConfig", "50-harm", good).await;
    let good = approve(&cluster, &bad).await;
    cluster.patch("RolloutPolicy", "workers", json!({"spec": policy("1s")["spec"]})).await;
    assert_eq!(cluster.settled("worker", NODES, &["50-harm"], &[]).await, good);
    proved(&cluster, &good).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// Two policies for one pool: neither is in force, and the pool holds until one of them is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_two_policies_holds_and_both_say_why() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).simulated().reboot_time(Duration::from_millis(500));
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let policy = |name: &str| {
        json!({
            "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": name},
            "spec": {"pools": {"names": ["worker"]}},
        })
    };
    for name in ["one", "two"] {
        cluster.create(policy(name)).await;
    }
    for name in ["one", "two"] {
        cluster
            .wait("both policies to say that they are not in force", async || {
                let policy = cluster.get("RolloutPolicy", name).await;
                let ready = policy["status"]["conditions"][0].clone();
                (ready["status"] == "False" && ready["reason"] == "SeveralPolicies").then_some(())
            })
            .await;
    }
    let before = cluster.rendered("worker").await;
    cluster.create(machine_config("50-two", "worker", one_file("/etc/two", "x"))).await;
    cluster
        .wait("the pool to say that it holds", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let says = condition(&pool, "Updating").unwrap_or_default();
            says.contains("RolloutPolicies one, two are all for this pool").then_some(())
        })
        .await;
    let node = &cluster.list("Node").await[0];
    assert_eq!(note(node, "desiredConfig"), before);
    let said = cluster.kubectl(&["get", "rop", "one", "--no-headers"]).await;
    let row: Vec<&str> = said.out.split_whitespace().collect();
    assert_eq!(row[..5], ["one", "SeveralPolicies", "Hold", "False", "SeveralPolicies"], "{said:?}");
    cluster.delete("RolloutPolicy", "two").await;
    cluster.settled("worker", 1, &["50-two"], &[]).await;
    picks_nothing(&cluster).await;
    overlapping_waves(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// Waits until a condition of a policy says this.
async fn policy_says(cluster: &Cluster, policy: &str, condition: [&str; 3], words: &str) {
    let [type_, status, reason] = condition;
    cluster
        .wait(&format!("policy {policy} to say {condition:?}: {words}"), async || {
            let policy = cluster.get("RolloutPolicy", policy).await;
            let mut conditions = policy["status"]["conditions"].as_array()?.iter();
            let found = conditions.find(|c| c["type"] == type_)?;
            let says = found["status"] == status && found["reason"] == reason;
            (says && text(&found["message"]).contains(words)).then_some(())
        })
        .await;
}

/// A policy that selects no pool says so, and is in force once a pool has its label.
async fn picks_nothing(cluster: &Cluster) {
    let selector = json!({"matchLabels": {"nobody": "has-this"}});
    cluster
        .create(json!({
            "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "none"},
            "spec": {"pools": {"selector": selector}},
        }))
        .await;
    policy_says(
        cluster,
        "none",
        ["Ready", "False", "NoPool"],
        "it picks no pool; correct spec.pools, or label",
    )
    .await;
    let label = |value: Value| json!({"metadata": {"labels": {"nobody": value}}});
    cluster.patch("MachineConfigPool", "master", label(json!("has-this"))).await;
    policy_says(cluster, "none", ["Ready", "True", "InForce"], "in force for master").await;
    cluster.patch("MachineConfigPool", "master", label(Value::Null)).await;
    cluster.delete("RolloutPolicy", "none").await;
}

/// Waves that select the same nodes: the policy and the pool say so, and the node goes with the first of them.
async fn overlapping_waves(cluster: &Cluster) {
    let wave = |name: &str| {
        let selector = json!({"matchLabels": {"node-role.kubernetes.io/worker": ""}});
        json!({"name": name, "nodeSelector": selector, "approval": "Needed"})
    };
    let waves = json!({"spec": {"waves": [wave("first"), wave("second"), {"name": "rest"}]}});
    cluster.patch("RolloutPolicy", "one", waves).await;
    cluster.create(machine_config("60-waves", "worker", one_file("/etc/waves", "x"))).await;
    let words = "waves first and second select the same nodes";
    policy_says(cluster, "one", ["WavesOverlap", "True", "SameNodes"], words).await;
    cluster
        .wait("the pool to name the waves", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            condition(&pool, "Updating").unwrap_or_default().contains(words).then_some(())
        })
        .await;
    let alone = json!({"spec": {"waves": [{"name": "first", "size": 1}, {"name": "rest"}]}});
    cluster.patch("RolloutPolicy", "one", alone).await;
    policy_says(cluster, "one", ["WavesOverlap", "False", "Distinct"], "each node is in one wave").await;
    cluster.settled("worker", 1, &["60-waves"], &[]).await;
}

/// A Prometheus that refuses every query.
async fn refusing_prometheus() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = connection.read(&mut request).await;
                let body =
                    json!({"status": "error", "errorType": "bad_data", "error": "parse error"}).to_string();
                let answer = format!(
                    "HTTP/1.1 400 -\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = connection.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

/// Policies that hold a pool: each with the condition's reason, and the words that the messages of policy and pool share.
fn holding(
    hangs: SocketAddr,
    away: SocketAddr,
    refuses: SocketAddr,
) -> Vec<(Value, &'static str, &'static str)> {
    let gate = |check: &str, what: Value| {
        json!({"gates": [{
            "name": "asked", "when": ["Always"], "interval": "1s", "timeout": "1s", "failureLimit": 1, check: what,
        }]})
    };
    let query = |address: SocketAddr, query: &str| {
        let bound = json!({"operator": "AtMost", "value": "1"});
        gate("prometheus", json!({"url": format!("http://{address}"), "query": query, "bound": bound}))
    };
    let none = json!({"matchLabels": {"no-node": "has-this"}});
    let approval = json!({"waves": [{"name": "canary", "size": 1, "approval": "Needed"}, {"name": "rest"}]});
    vec![
        (gate("http", json!({"url": format!("http://{hangs}/")})), "GateUnreadable", "no answer within 1 s"),
        (query(away, "up"), "GateUnreadable", "gate asked cannot be read"),
        (
            query(refuses, "up unless"),
            "GateUnreadable",
            "Prometheus refuses the query: parse error; correct it",
        ),
        (
            json!({"waves": [{"name": "canary", "nodeSelector": none}, {"name": "rest"}]}),
            "EmptyWave",
            "correct its nodeSelector, or label a node",
        ),
        (approval.clone(), "ApprovalNeeded", "give it with `mco approve POOL`"),
        (approval, "WrongApproval", "that of rendered-worker-old/canary is for another config or wave"),
        (
            gate("nodeCondition", json!({"type": "NobodyHasIt"})),
            "GateUnreadable",
            "none of its nodes has this condition; correct its type",
        ),
        (
            gate("workloads", json!({"selector": {"matchLabels": {"no": "workload"}}})),
            "GateUnreadable",
            "its selector picks no workload",
        ),
        (
            json!({"gates": [{
                "name": "smoke", "when": ["BeforeWave"], "interval": "1s", "timeout": "1s",
                "job": {"namespace": "default", "cronJob": "missing"},
            }]}),
            "GateUnreadable",
            "cronjob default/missing",
        ),
        (
            json!({"windows": [{"name": "new-year", "cron": "0 0 1 1 *", "duration": "1m"}]}),
            "OutsideWindow",
            "no maintenance window is open",
        ),
        (
            json!({"freezes": [{"from": "2020-01-01T00:00:00Z", "name": "audit", "to": "2099-01-01T00:00:00Z"}]}),
            "Frozen",
            "a freeze is in force until 2099",
        ),
        (
            json!({"windows": [{"name": "never", "cron": "0 0 30 2 *", "duration": "1h"}]}),
            "Invalid",
            "never comes; correct day and month",
        ),
    ]
}

/// What cannot be read never lets a node go, and both the policy and the pool say what to do: a probe that hangs, a Prometheus
/// that is down, a query that it refuses, a wave without nodes, an approval for another config, a window that never opens.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_holds_and_policy_and_pool_say_what_to_do() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(2).simulated().reboot_time(Duration::from_millis(500));
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let before = cluster.rendered("worker").await;
    let free = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    // One accepts connections and never answers; nobody listens at the other one.
    let hangs = free();
    let away = free().local_addr().unwrap();
    let rows = holding(hangs.local_addr().unwrap(), away, refusing_prometheus().await);
    let nothing = json!({"pools": {"names": ["worker"]}, "gates": null, "waves": null, "windows": null,
        "freezes": null});
    let mut created = false;
    for (spec, reason, words) in rows {
        let mut all = nothing.clone();
        all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        if created {
            cluster.patch("RolloutPolicy", "workers", json!({ "spec": all })).await;
        } else {
            let mut spec = spec;
            spec["pools"] = all["pools"].clone();
            cluster
                .create(json!({
                    "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy",
                    "metadata": {"name": "workers"}, "spec": spec,
                }))
                .await;
            in_force(&cluster).await;
            cluster.create(machine_config("50-held", "worker", one_file("/etc/held", "x"))).await;
            created = true;
        }
        if reason == "WrongApproval" {
            let note = json!({"metadata": {"annotations": {"machineconfig.dev/approve": "rendered-worker-old/canary"}}});
            cluster.patch("MachineConfigPool", "worker", note).await;
        }
        cluster
            .wait(&format!("policy and pool to say {reason}: {words}"), async || {
                let policy = cluster.get("RolloutPolicy", "workers").await;
                let conditions = policy["status"]["conditions"].as_array()?.clone();
                let says = |c: &Value| c["reason"] == reason && text(&c["message"]).contains(words);
                let pool = cluster.get("MachineConfigPool", "worker").await;
                let updating = condition(&pool, "Updating").unwrap_or_default();
                (conditions.iter().any(says) && updating.contains(words)).then_some(())
            })
            .await;
    }
    let nodes = cluster.list("Node").await;
    let stays = nodes.iter().all(|n| note(n, "desiredConfig") == before);
    assert!(stays, "no node goes: {nodes:#?}");
    drop(hangs);
    cluster.no_panic();
    cluster.stop().await;
}
