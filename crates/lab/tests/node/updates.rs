//! Updates on machines that boot: their results, drains that really wait, and updates that are interrupted.

use crate::product;
use crate::product::{Cluster, LIMIT, machine_config, note, one_file, text, with_controller};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use lab::{DAEMON_UNIT, MachineState};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn real_machines_drain_change_reboot_and_survive_power_cuts() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(2).real().controller_manager(true)).await;
    cluster.add_pool("cuts", &["worker-1"]).await;
    tokio::join!(drained_and_rebooted(&cluster), cut_off(&cluster));
    cluster.no_panic();
    cluster.stop().await;
}

/// The demo's own example, on a node with pods.
async fn drained_and_rebooted(cluster: &Cluster) {
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let node = cluster.lab.node(0);
    let boot = node.boot_id().await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let budgets: Api<PodDisruptionBudget> = Api::namespaced(cluster.client.clone(), "default");
    let budget = json!({
        "metadata": {"name": "keep-one"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
    });
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    for (name, app) in [("held", "held"), ("free", "free")] {
        pod(&pods, name, app).await;
    }
    let is_running = async |name: &str| {
        let pod = pods.get_opt(name).await.ok()??;
        (pod.status?.phase? == "Running").then_some(())
    };
    for name in ["held", "free"] {
        cluster.wait(&format!("pod {name} runs"), async || is_running(name).await).await;
    }
    cluster
        .wait("the budget is counted", async || {
            let status = budgets.get("keep-one").await.ok()?.status?;
            (status.current_healthy == Some(1) && status.disruptions_allowed == Some(0)).then_some(())
        })
        .await;

    let said = cluster.kubectl(&["apply", "-f", "examples/50-worker-motd-and-unit.yaml"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    // One pod is evicted; the other is blocked, and the node reports by which budget.
    cluster
        .wait("pod free is evicted", async || pods.get_opt("free").await.ok()?.is_none().then_some(()))
        .await;
    cluster
        .wait("the drain names the budget", async || {
            let why = note(&cluster.get("Node", "worker-0").await, "drainWaitsFor");
            (why.contains("held") && why.contains("keep-one")).then_some(())
        })
        .await;
    cluster
        .wait("an event names the budget", async || {
            let events = cluster.events("worker-0").await;
            events.into_iter().find(|e| e.starts_with("DrainWaiting") && e.contains("keep-one")).map(drop)
        })
        .await;
    let said = cluster.mco(&["status", "worker"]).await;
    assert!(said.out.contains("keep-one"), "{}", said.out);
    let held = cluster.get("Node", "worker-0").await;
    assert_eq!(held["spec"]["unschedulable"], true);
    assert!(is_running("held").await.is_some(), "the budget did not hold");
    assert_eq!(node.boot_id().await.unwrap(), boot, "it rebooted before it was drained");
    assert!(!node.read_file("/etc/motd").await.unwrap_or_default().contains("Machine Config Operator"));

    // Without the budget the drain completes.
    budgets.delete("keep-one", &DeleteParams::default()).await.unwrap();
    cluster.settled("worker", 1, &["50-worker-motd-and-unit"], &[]).await;
    assert!(pods.get_opt("held").await.unwrap().is_none());
    let now = cluster.get("Node", "worker-0").await;
    assert_eq!(now["spec"].get("unschedulable"), None, "{now}");
    assert_eq!(note(&now, "drainWaitsFor"), "");

    // The checks read the machine's own state, not what objects report.
    assert_ne!(node.boot_id().await.unwrap(), boot, "it did not reboot");
    let object = cluster.get("MachineConfig", "50-worker-motd-and-unit").await;
    let config = &object["spec"]["config"];
    let source = text(&config["storage"]["files"][0]["contents"]["source"]);
    let motd = node.read_file("/etc/motd").await.unwrap();
    assert_eq!(motd.as_bytes(), product::percent_decoded(&source));
    assert_eq!(node.run(["stat", "-c", "%a %u %g", "/etc/motd"]).await.unwrap().trim(), "644 0 0");
    let unit = &config["systemd"]["units"][0];
    let file = "/etc/systemd/system/hello-mco.service";
    assert_eq!(node.read_file(file).await.unwrap(), text(&unit["contents"]));
    let dropin = node.read_file(&format!("{file}.d/10-greeted.conf")).await.unwrap();
    assert_eq!(dropin, text(&unit["dropins"][0]["contents"]));
    for (verb, want) in [("is-enabled", "enabled"), ("is-active", "active")] {
        cluster
            .wait(&format!("systemctl {verb}"), async || {
                (node.exec(["systemctl", verb, "hello-mco.service"]).await.ok()?.stdout.trim() == want)
                    .then_some(())
            })
            .await;
    }
    // The drop-in is in effect.
    assert_eq!(node.read_file("/run/hello-mco").await.unwrap(), "hello, node\n");
    let keys = "/home/core/.ssh/authorized_keys.d/ignition";
    let key = text(&config["passwd"]["users"][0]["sshAuthorizedKeys"][0]);
    assert_eq!(node.read_file(keys).await.unwrap().trim(), key);
    assert_eq!(node.run(["stat", "-c", "%a %U", keys]).await.unwrap().trim(), "600 core");
}

/// A pod for the fake kubelet, bound to the node.
async fn pod(pods: &Api<Pod>, name: &str, app: &str) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": app}},
        "spec": {
            "nodeName": "worker-0",
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "c", "image": "example.com/none"}],
        },
    }))
    .unwrap();
    let end = Instant::now() + LIMIT;
    // Creating a pod fails until the controller manager has created the service account.
    while let Err(error) = pods.create(&PostParams::default(), &pod).await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Enough files that a power cut interrupts the update.
const FILES: usize = 300;

/// Many files and a unit: an update that takes long enough to be interrupted.
fn many_files(name: &str) -> Value {
    let files: Vec<Value> = (0..FILES)
        .map(|i| one_file(&format!("/etc/{name}/{i}"), name)["storage"]["files"][0].clone())
        .collect();
    let unit = json!({"name": format!("{name}.service"), "enabled": true,
        "contents": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"});
    let config =
        json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}, "systemd": {"units": [unit]}});
    machine_config(&format!("50-{name}"), "cuts", config)
}

/// The daemon is killed during one update; then the machine loses its power during another one.
async fn cut_off(cluster: &Cluster) {
    cluster.settled("cuts", 1, &["00-worker"], &[]).await;
    let node = cluster.lab.node(1);
    let machine = cluster.lab.real_node(1).unwrap().machine();

    cluster.create(many_files("killed")).await;
    applying(cluster, "killed").await;
    // If this test was delayed, the machine may already be shutting down.
    if let Err(error) = node.run(["systemctl", "kill", "--signal=KILL", "--kill-whom=all", DAEMON_UNIT]).await
    {
        eprintln!("too late to kill it: {error}");
    }
    arrived(cluster, "killed").await;

    let boot = node.boot_id().await.unwrap();
    cluster.create(many_files("cut")).await;
    applying(cluster, "cut").await;
    machine.power_cut().await.unwrap();
    assert!(matches!(machine.state(), MachineState::Off { .. }));
    // Every existing file is complete. How many exist differs from run to run.
    let upper = cluster.lab.folder().join("nodes/worker-1/upper/etc/cut");
    let mut found = 0;
    for file in std::fs::read_dir(&upper).into_iter().flatten().flatten() {
        found += 1;
        let name = file.file_name().to_string_lossy().into_owned();
        // Files that are being written have temporary names.
        if name.parse::<u32>().is_ok() {
            assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "cut", "{name} is half-written");
        }
    }
    eprintln!("the power was cut after {found} of {FILES} files");
    machine.power_on();
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    arrived(cluster, "cut").await;
    assert_ne!(node.boot_id().await.unwrap(), boot);
}

/// Waits until the node has begun to change its disk. It polls often, because the change takes only a moment.
async fn applying(cluster: &Cluster, name: &str) {
    let folder = cluster.lab.folder().join("nodes/worker-1/upper/etc").join(name);
    let end = Instant::now() + LIMIT;
    while !folder.exists() {
        assert!(Instant::now() < end, "{name} is not applied\n{}", cluster.state().await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn arrived(cluster: &Cluster, name: &str) {
    cluster.settled("cuts", 1, &[&format!("50-{name}")], &[]).await;
    let node = cluster.lab.node(1);
    let script = format!("cat /etc/{name}/* | tr -d '\\n'; ls -A /etc/{name} | wc -l");
    let said = node.run(["sh", "-c", &script]).await.unwrap();
    assert_eq!(said.trim(), format!("{}{FILES}", name.repeat(FILES)), "files of {name}");
    let unit = format!("{name}.service");
    assert_eq!(node.run(["systemctl", "is-enabled", &unit]).await.unwrap().trim(), "enabled");
    let object = cluster.get("Node", "worker-1").await;
    assert_eq!(object["spec"].get("unschedulable"), None, "it is left cordoned");
}
