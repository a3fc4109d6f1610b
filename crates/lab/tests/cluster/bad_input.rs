//! Bad input: each case gets a condition or an event that names the object, the field and the remedy. Other pools
//! continue, and none of it reaches a node.

use crate::product::{
    Cluster, MCO, condition, is_done, machine_config, note, one_file, one_unit, pool, text, with_controller,
};
use serde_json::{Value, json};
use std::time::Duration;

/// A MachineConfig that no host could apply, and the words that its pool's condition must contain.
struct Bad {
    pool: &'static str,
    config: Value,
    words: &'static [&'static str],
}

fn bad() -> [Bad; 8] {
    let unit = "[Unit]\nDescription=x\n";
    let file = |mut file: Value| {
        file["overwrite"] = json!(true);
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}})
    };
    let version = |version: &str| json!({"ignition": {"version": version}});
    [
        Bad {
            pool: "no-parse",
            config: json!({"ignition": {"version": "3.4.0"}, "storage": {"files": "not a list"}}),
            words: &["spec.config", "storage.files", "expected a list"],
        },
        Bad {
            pool: "not-ignition",
            config: json!({"storage": {"files": []}}),
            words: &["spec.config", "ignition.version"],
        },
        Bad { pool: "version", config: version("9.9.9"), words: &["spec.config", "9.9.9", "3."] },
        Bad {
            pool: "unit-name",
            config: one_unit("no good.service", unit),
            words: &["spec.config.systemd.units[0].name", "systemd-escape"],
        },
        Bad {
            pool: "relative",
            config: file(json!({"path": "etc/relative", "mode": 420, "contents": {"source": "data:,x"}})),
            words: &["spec.config.storage.files[0].path", "absolute"],
        },
        Bad {
            pool: "mode",
            config: file(json!({"path": "/etc/mode", "mode": 0o4755, "contents": {"source": "data:,x"}})),
            words: &["spec.config.storage.files[0].mode", "/etc/mode", "0777"],
        },
        Bad {
            pool: "remote",
            config: file(
                json!({"path": "/etc/remote", "mode": 420, "contents": {"source": "https://192.0.2.1/x"}}),
            ),
            words: &["spec.config.storage.files[0].contents", "/etc/remote", "data:"],
        },
        Bad {
            pool: "user",
            config: json!({"ignition": {"version": "3.4.0"}, "passwd": {"users": [{"name": "root", "passwordHash": "$6$secret"}]}}),
            words: &["spec.config.passwd.users", "root", "only the user core"],
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_cannot_be_applied_is_reported_with_path_and_remedy_and_blocks_no_other_node() {
    let Some(builder) = with_controller() else { return };
    let bad = bad();
    // One node for each bad config, one healthy one, and one that two pools select.
    let count = bad.len() + 2;
    let builder = builder.nodes(count).simulated().reboot_time(Duration::from_millis(50));
    let cluster = Cluster::start(builder).await;
    for (i, case) in bad.iter().enumerate() {
        cluster.add_pool(case.pool, &[&format!("worker-{i}")]).await;
    }
    let healthy = format!("worker-{}", bad.len());
    let wanted_twice = format!("worker-{}", bad.len() + 1);
    cluster.add_pool("healthy", &[&healthy]).await;
    let mut before = vec![];
    for case in &bad {
        before.push(cluster.settled(case.pool, 1, &["00-worker"], &[]).await);
    }
    cluster.settled("healthy", 1, &["00-worker"], &[]).await;

    // All of them at once.
    for case in &bad {
        let name = format!("50-{}", case.pool);
        cluster.create(machine_config(&name, case.pool, case.config.clone())).await;
    }
    selects_nothing(&cluster).await;
    two_pools(&cluster, &wanted_twice).await;
    for case in &bad {
        let name = format!("MachineConfig 50-{}", case.pool);
        let words: Vec<&str> = case.words.iter().copied().chain([name.as_str()]).collect();
        let message = cluster.complains(case.pool, "RenderDegraded", &words).await;
        assert!(!message.contains("secret"), "{message}");
        cluster.complains(case.pool, "Degraded", &words[..1]).await;
    }
    // The other pools continue.
    cluster.create(machine_config("50-good", "healthy", one_file("/etc/good", "good"))).await;
    cluster.settled("healthy", 1, &["50-good"], &[]).await;
    assert_eq!(cluster.lab.node(bad.len()).read_file("/etc/good").await.unwrap(), "good");
    // No node was updated, and none reports a failure.
    for (i, case) in bad.iter().enumerate() {
        let node = cluster.get("Node", &format!("worker-{i}")).await;
        assert!(is_done(&node), "{}: {node}", case.pool);
        assert_eq!(note(&node, "currentConfig"), before[i], "{}", case.pool);
        assert_eq!(node["spec"].get("unschedulable"), None);
        for path in ["etc/relative", "etc/mode", "etc/remote"] {
            assert!(!cluster.lab.node(i).root().join(path).exists(), "{path}");
        }
    }
    // `mco status` gives the same text to scripts.
    let said = cluster.mco(&["status", "mode", "--exit-code"]).await;
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("spec.config.storage.files[0].mode"), "{}", said.out);
    assert_eq!(cluster.mco(&["status", "healthy", "--exit-code"]).await.code, 0);

    // Deleting or correcting the object heals the pool.
    for case in &bad[1..] {
        cluster.delete("MachineConfig", &format!("50-{}", case.pool)).await;
    }
    let mended = json!({"spec": {"config": one_file("/etc/mended", "x")}});
    cluster.patch("MachineConfig", "50-no-parse", mended).await;
    for (i, case) in bad.iter().enumerate() {
        let source: &[&str] = if i == 0 { &["50-no-parse"] } else { &[] };
        let now = cluster.settled(case.pool, 1, source, &[]).await;
        assert_eq!(now == before[i], i > 0, "{}", case.pool);
        cluster
            .wait(&format!("pool {} is healthy", case.pool), async || {
                let pool = cluster.get("MachineConfigPool", case.pool).await;
                let healthy = ["RenderDegraded", "Degraded"].iter().all(|c| condition(&pool, c).is_none());
                healthy.then_some(())
            })
            .await;
    }
    cluster.no_panic();
    let log = std::fs::read_to_string(cluster.lab.controller_log()).unwrap();
    assert!(!log.contains("$6$secret"), "a password hash is in the log");
    cluster.stop().await;
}

/// Pools with empty selectors, or selectors that match nothing.
async fn selects_nothing(cluster: &Cluster) {
    let mut all = pool("selects-all");
    all["spec"]["machineConfigSelector"] = json!({});
    all["spec"]["nodeSelector"] = json!({});
    cluster.create(all).await;
    let mut no_configs = pool("no-configs");
    no_configs["spec"]["machineConfigSelector"] = json!({"matchLabels": {format!("{MCO}role"): "nobody"}});
    cluster.create(no_configs).await;
    cluster.create(pool("no-nodes")).await;

    // A pool without nodes is not an error.
    cluster.settled("no-nodes", 0, &["00-worker"], &[]).await;
    cluster.complains("no-configs", "RenderDegraded", &["no-configs", "spec.machineConfigSelector"]).await;
    // An empty selector would select everything, so it selects nothing; that must be reported.
    cluster
        .wait("an event about the selector of pool selects-all", async || {
            let events = cluster.events("selects-all").await;
            events.into_iter().find(|e| e.starts_with("SelectingAll") && e.contains("spec.")).map(drop)
        })
        .await;
    let pool = cluster.get("MachineConfigPool", "selects-all").await;
    assert!(pool["status"]["machineCount"].as_i64().unwrap_or_default() == 0, "{pool}");
    assert_eq!(text(&pool["spec"]["configuration"]["name"]), "", "{pool}");
    let said = cluster.mco(&["status", "selects-all"]).await;
    assert!(said.out.contains("nodeSelector"), "{}", said.out);
}

/// A node that two custom pools select belongs to neither.
async fn two_pools(cluster: &Cluster, node: &str) {
    let before = note(&cluster.get("Node", node).await, "desiredConfig");
    cluster.add_pool("left", &[node]).await;
    cluster.settled("left", 1, &["00-worker"], &[]).await;
    cluster.add_pool("right", &[node]).await;
    for pool in ["left", "right"] {
        cluster.complains(pool, "MembershipConflict", &[node, "left", "right", "remove"]).await;
        cluster
            .wait("an event about it", async || {
                let events = cluster.events(pool).await;
                events.into_iter().find(|e| e.starts_with("MembershipConflict") && e.contains(node)).map(drop)
            })
            .await;
    }
    // Neither pool's change is applied to it.
    let held = note(&cluster.get("Node", node).await, "desiredConfig");
    assert!(held.starts_with("rendered-left-") || held == before, "{held}");
    cluster.create(machine_config("50-left", "left", one_file("/etc/left", "x"))).await;
    cluster.settled("left", 0, &["50-left"], &[]).await;
    assert_eq!(note(&cluster.get("Node", node).await, "desiredConfig"), held);
    let said = cluster.mco(&["status"]).await;
    assert!(said.out.contains(&format!("node {node} matches 2 custom pools")), "{}", said.out);
    // With one label less, it is updated.
    let label = "node-role.kubernetes.io/right";
    cluster.patch("Node", node, json!({"metadata": {"labels": {label: null}}})).await;
    cluster.settled("left", 1, &["50-left"], &[]).await;
    cluster
        .wait("the conflict is over", async || {
            let pool = cluster.get("MachineConfigPool", "left").await;
            condition(&pool, "MembershipConflict").is_none().then_some(())
        })
        .await;
}
