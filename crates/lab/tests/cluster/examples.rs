//! Every file in `examples/`, applied as a user applies it.

use crate::product;
use crate::product::{Cluster, condition, is_done, missing_on, note, text, with_controller};
use std::path::PathBuf;
use std::time::Duration;

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(product::repository().join("examples")).unwrap().flatten();
    let mut files: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "yaml")).collect();
    // By name, in the order in which they are merged: without the suffix `50-a` comes before `50-a-b`.
    files.sort_by_key(|p| p.with_extension(""));
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_arrives_on_the_node_or_is_refused_with_a_remedy() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).simulated().reboot_time(Duration::from_millis(50));
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let node = cluster.lab.node(0);
    let files = examples();
    assert!(files.len() >= 10, "{files:?}");
    let mut refused = vec![];
    for file in &files {
        let said = cluster.kubectl(&["apply", "-f", &file.to_string_lossy(), "-o", "name"]).await;
        assert_eq!(said.code, 0, "{}: {said:?}", file.display());
        let name = said.out.trim().rsplit('/').next().unwrap().to_owned();
        assert_eq!(file.file_stem().unwrap().to_string_lossy(), name, "a file is named after its object");
        let object = cluster.get("MachineConfig", &name).await;
        if object["spec"].get("kernelArguments").is_some() {
            // This one applies to all nodes: it would block the examples after it.
            cluster.delete("MachineConfig", &name).await;
            refused.push(file);
            continue;
        }
        cluster.settled("worker", 1, &[&name], &[]).await;
        assert_eq!(missing_on(&node, &object), None, "{name}");
    }
    assert_eq!(refused.len(), 1, "{refused:?}");
    kernel_arguments(&cluster, &refused[0].to_string_lossy()).await;
    // Without any of them the node is as before.
    for file in files.iter().filter(|f| !refused.contains(f)) {
        assert_eq!(cluster.kubectl(&["delete", "-f", &file.to_string_lossy()]).await.code, 0);
    }
    cluster.settled("worker", 1, &["00-worker"], &["50-worker-chrony", "50-worker-timer"]).await;
    for path in [
        "etc/motd",
        "etc/chrony.conf",
        "etc/systemd/system/hello-mco.service",
        "etc/systemd/system/hello-mco.service.d/10-greeted.conf",
    ] {
        assert!(!node.root().join(path).exists(), "{path} is left");
    }
    cluster.no_panic();
    cluster.stop().await;
}

/// A host without rpm-ostree or bootc refuses kernel arguments, reports where they are set and what to do, and changes
/// nothing.
async fn kernel_arguments(cluster: &Cluster, file: &str) {
    let before = cluster.settled("worker", 1, &[], &["50-worker-kernel-arguments"]).await;
    let disk = cluster.lab.node(0).read_file("/etc/machine-config-daemon/currentconfig").await.unwrap();
    assert_eq!(cluster.kubectl(&["apply", "-f", file]).await.code, 0);
    let message = cluster.complains("worker", "NodeDegraded", &["worker-0", "kernelArguments"]).await;
    assert!(message.contains("rpm-ostree") && message.contains("bootc"), "no remedy: {message}");
    let node = cluster.get("Node", "worker-0").await;
    assert!(["Unreconcilable", "Degraded"].contains(&note(&node, "state").as_str()), "{node}");
    assert!(note(&node, "reason").contains("kernelArguments"), "{node}");
    assert_eq!(note(&node, "currentConfig"), before);
    assert_eq!(node["spec"].get("unschedulable"), None, "it was drained for nothing");
    let now = cluster.lab.node(0).read_file("/etc/machine-config-daemon/currentconfig").await.unwrap();
    assert_eq!(disk, now);
    let pool = cluster.get("MachineConfigPool", "worker").await;
    assert!(condition(&pool, "Degraded").is_some(), "{pool}");
    assert_eq!(pool["status"]["degradedMachineCount"], 1);
    let said = cluster.mco(&["status", "--exit-code", "-o", "json"]).await;
    assert_eq!(said.code, 3, "{said:?}");
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let worker = shown["pools"].as_array().unwrap().iter().find(|p| p["name"] == "worker").unwrap().clone();
    assert_eq!((&worker["degraded"], &worker["machines"]), (&1.into(), &1.into()), "{worker}");
    assert!(text(&worker["nodes"][0]["why"]).contains("kernelArguments"), "{worker}");

    // Deleting the MachineConfig releases the node, which still has its old config.
    cluster.delete("MachineConfig", "50-worker-kernel-arguments").await;
    assert_eq!(cluster.settled("worker", 1, &[], &["50-worker-kernel-arguments"]).await, before);
    assert!(is_done(&cluster.get("Node", "worker-0").await));
    cluster
        .wait("the pool is healthy again", async || {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            (condition(&pool, "NodeDegraded").is_none() && condition(&pool, "Degraded").is_none())
                .then_some(())
        })
        .await;
    let said = cluster.mco(&["status", "--exit-code"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}
