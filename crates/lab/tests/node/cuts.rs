//! Power and network cuts on a machine that boots: power cuts that are recovered before the kubelet starts, and a change that
//! cuts its own node off from the network.
//!
//! Not here: drift (`drift`), which is checked on the first of these machines.

use std::time::{Duration, Instant};

use crate::drift;
use crate::product::{Cluster, LIMIT, disruption_policies, machine_config, note, one_machine};
use lab::{DAEMON_UNIT, LabBuilder, MachineState, RECOVER_UNIT};
use serde_json::{Value, json};

/// A kubelet that records whether a change was half done when it started, and how much of it was done.
const FAKE_KUBELET: &str = "[Unit]\nDescription=Fake kubelet\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c '\
    if [ -e /var/lib/machine-config-daemon/journal/begin.json ]; then echo between; else echo whole; fi >> /var/kubelet.log; \
    ls -A /etc/many 2>/dev/null | wc -l >> /var/kubelet.log'\n\
    [Install]\nWantedBy=multi-user.target\n";

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_reported_at_once_and_a_power_cut_is_recovered_before_the_kubelet_starts() {
    let Some(cluster) = one_machine(|lab| lab.node_service("kubelet.service", FAKE_KUBELET)).await else {
        return;
    };
    drift::changed_by_hand(&cluster).await;
    power_cut(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

async fn power_cut(cluster: &Cluster) {
    let node = cluster.lab.node(0);
    let machine = cluster.lab.real_node(0).unwrap().machine();
    let files: Vec<Value> = (0..2000)
        .map(|i| json!({"path": format!("/etc/many/{i}"), "contents": {"source": format!("data:,{i}")}}))
        .collect();
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    let upper = cluster.lab.folder().join("nodes/worker-0/upper");
    let before = node.read_file("/var/kubelet.log").await.unwrap();
    assert!(!before.contains("between"), "{before}");
    cluster.create(machine_config("60-many", "worker", config)).await;
    let many = upper.join("etc/many");
    let start = Instant::now();
    while !many.exists() {
        assert!(start.elapsed() < LIMIT, "it is never applied");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    machine.power_cut().await.unwrap();
    assert!(
        upper.join("var/lib/machine-config-daemon/journal/begin.json").exists(),
        "cut too late: the change was complete"
    );
    machine.power_on();
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    let recovered = node.logs(RECOVER_UNIT).await.unwrap();
    assert!(recovered.contains("undone: "), "{recovered}");
    // The update is completed after the power cut.
    cluster.settled("worker", 1, &["60-many"], &[]).await;
    let count = node.run(["sh", "-c", "ls -A /etc/many | wc -l"]).await.unwrap();
    assert_eq!(count.trim(), "2000");
    let log = node.read_file("/var/kubelet.log").await.unwrap();
    let new: Vec<&str> = log.lines().skip(before.lines().count()).collect();
    // After the power cut the kubelet saw the old state; after the update's own reboot, the new one.
    assert_eq!(new, ["whole", "0", "whole", "2000"], "{log}");
}

/// A service that records whether a change was half done when it started. While `/var/slow` exists, its start takes long.
fn slow(name: &str) -> String {
    format!(
        "[Unit]\nDescription=Fake {name}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
         ExecStart=/bin/sh -c 'if [ -e /var/lib/machine-config-daemon/journal/begin.json ]; then echo between; else echo whole; fi >> /var/{name}.log; \
         if [ -e /var/slow ]; then sleep 300; fi'\n[Install]\nWantedBy=multi-user.target\n"
    )
}

/// A path unit that disconnects the machine's network once, as soon as a file exists.
const CUT_PATH: &str = "[Path]\nPathExists=/etc/cut/0\n[Install]\nWantedBy=multi-user.target\n";
const CUT_SERVICE: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c 'test -e /var/cut || { touch /var/cut; ip link set host0 down; }'\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_during_service_restarts_is_recovered_at_boot_without_waiting_for_services() {
    let slow_services = |lab: LabBuilder| {
        lab.node_service("kubelet.service", slow("kubelet"))
            .node_service("containerd.service", slow("containerd"))
    };
    let Some(cluster) = one_machine(slow_services).await else { return };
    cut_while_services_restart(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cuts_itself_off_reboots_after_the_time_limit() {
    let cut = |lab: LabBuilder| {
        lab.node_service("cut.path", CUT_PATH).node_file(
            "/etc/systemd/system/cut.service",
            0o644,
            CUT_SERVICE,
        )
    };
    let Some(cluster) = one_machine(cut).await else { return };
    cut_off_by_its_own_change(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// The recovery at boot runs before the services that the change was reloading, so it must not wait for their start.
async fn cut_while_services_restart(cluster: &Cluster) {
    let node = cluster.lab.node(0);
    let machine = cluster.lab.real_node(0).unwrap().machine();
    let restart = |unit: &str| json!({"type": "Restart", "restart": {"serviceName": unit}});
    let actions = ["containerd.service", "kubelet.service"].map(restart);
    cluster
        .create(disruption_policies(json!([
            {"path": "/etc/told.conf", "actions": actions},
        ])))
        .await;
    let boot = node.boot_id().await.unwrap();
    let log = async |name: &str| {
        let log = node.read_file(&format!("/var/{name}.log")).await.unwrap();
        log.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = (log("containerd").await, log("kubelet").await);
    node.run(["touch", "/var/slow"]).await.unwrap();
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/told.conf", "contents": {"source": "data:,x"}}]},
    });
    cluster.create(machine_config("50-told", "worker", config)).await;
    cluster
        .wait("containerd is restarted", async || {
            let log = node.read_file("/var/containerd.log").await.ok()?;
            (log.lines().last()? == "between").then_some(())
        })
        .await;
    machine.power_cut().await.unwrap();
    let upper = cluster.lab.folder().join("nodes/worker-0/upper");
    let journal = upper.join("var/lib/machine-config-daemon/journal");
    assert!(journal.join("begin.json").exists() && journal.join("services").exists(), "cut at another time");
    std::fs::remove_file(upper.join("var/slow")).unwrap();
    machine.power_on();
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    assert_ne!(node.boot_id().await.unwrap(), boot);
    let recovered = node.logs(RECOVER_UNIT).await.unwrap();
    assert!(recovered.contains("undone: "), "{recovered}");
    assert!(!["no answer", "refused"].iter().any(|bad| recovered.contains(bad)), "{recovered}");
    // The update is completed in the same boot.
    let boot = node.boot_id().await.unwrap();
    cluster.settled("worker", 1, &["50-told"], &[]).await;
    assert_eq!(node.read_file("/etc/told.conf").await.unwrap(), "x");
    assert_eq!(node.boot_id().await.unwrap(), boot);
    // containerd was restarted during the interrupted change, after the recovery, and during the completed change. The
    // interrupted change did not reach the kubelet.
    assert_eq!(log("containerd").await[before.0.len()..], ["between", "whole", "between"]);
    assert_eq!(log("kubelet").await[before.1.len()..], ["whole", "between"]);
}

/// The agent's own change makes the API server unreachable. The agent waits for the API server; after five minutes it reboots
/// anyway. The network is back in that boot, so the change is confirmed.
async fn cut_off_by_its_own_change(cluster: &Cluster) {
    let node = cluster.lab.node(0);
    let machine = cluster.lab.real_node(0).unwrap().machine();
    let boot = node.boot_id().await.unwrap();
    let mut files: Vec<Value> = (0..2000)
        .map(|i| json!({"path": format!("/etc/cut/{i}"), "contents": {"source": format!("data:,{i}")}}))
        .collect();
    files.push(json!({"path": "/etc/systemd/network/90-none.network", "contents": {"source": "data:,"}}));
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    cluster.create(machine_config("60-cut", "worker", config)).await;
    cluster.wait("the network is away", async || node.read_file("/var/cut").await.ok()).await;
    cluster
        .wait("the reboot is owed", async || {
            node.read_file("/var/lib/machine-config-daemon/reboot.json").await.ok()
        })
        .await;
    let mut state = machine.watch();
    state.borrow_and_update();
    let told = cluster.get("Node", "worker-0").await;
    assert_eq!(
        (note(&told, "post-config-action").as_str(), &told["spec"]["unschedulable"]),
        ("", &json!(true))
    );
    assert_eq!(node.boot_id().await.unwrap(), boot);
    // A restarted agent reads from the disk that it waits for the API server.
    node.run(["systemctl", "restart", DAEMON_UNIT]).await.unwrap();
    let start = Instant::now();
    let away = state.wait_for(|s| !matches!(s, MachineState::Running { .. }));
    let patience = Duration::from_secs(20 * 60);
    tokio::time::timeout(patience, away).await.expect("it never reboots").unwrap();
    println!("it reboots {:?} after its agent was started again", start.elapsed());
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    cluster.settled("worker", 1, &["60-cut"], &[]).await;
    assert_ne!(node.boot_id().await.unwrap(), boot);
    let log = node.logs(DAEMON_UNIT).await.unwrap();
    assert!(
        log.contains("without announcing it: no request to the API server has succeeded for 5 minutes"),
        "{log}"
    );
    assert!(log.contains("the change is confirmed"), "{log}");
    let left = node.run(["sh", "-c", "ls /var/lib/machine-config-daemon/journal"]).await.unwrap();
    assert_eq!(left.trim(), "", "the undo is not kept any more");
    cluster.told("worker-0", "Reboot", &["without announcing"]).await;
    let now = cluster.get("Node", "worker-0").await;
    assert_eq!((note(&now, "post-config-action").as_str(), now["spec"].get("unschedulable")), ("", None));
}
