//! The agent on a machine that boots: drift, power cuts that are recovered before the kubelet starts, and a change
//! that cuts its own node off from the network.

use std::time::{Duration, Instant};

use crate::product::{Cluster, LIMIT, machine_config, note, with_controller};
use lab::{DAEMON_UNIT, MachineState, RECOVER_UNIT};
use serde_json::{Value, json};

/// The time limit for a report of drift. The promise is one second, which `cargo xtask bench host` measures. A loaded
/// machine may need longer, but far less than a periodic check would.
const SOON: Duration = Duration::from_secs(15);
/// A kubelet that records whether a change was half done when it started, and how much of it was done.
const KUBELET: &str = "[Unit]\nDescription=Stub of kubelet\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
    ExecStart=/bin/sh -c '\
    if [ -e /var/lib/machine-config-daemon/journal/begin.json ]; then echo between; else echo whole; fi >> /var/kubelet.log; \
    ls -A /etc/many 2>/dev/null | wc -l >> /var/kubelet.log'\n\
    [Install]\nWantedBy=multi-user.target\n";

#[tokio::test(flavor = "multi_thread")]
async fn drift_is_reported_at_once_and_a_power_cut_is_recovered_before_the_kubelet_starts() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).real().node_service("kubelet.service", KUBELET);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    changed_by_hand(&cluster).await;
    power_cut(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

async fn changed_by_hand(cluster: &Cluster) {
    let node = cluster.lab.node(0);
    let unit = "[Service]\nType=oneshot\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/etc/app/one.conf", "contents": {"source": "data:,good"}}]},
        "systemd": {"units": [{"name": "one.service", "contents": unit, "enabled": true}]},
    });
    cluster.create(machine_config("50-drift", "worker", config)).await;
    let name = cluster.settled("worker", 1, &["50-drift"], &[]).await;
    // The event is written as soon as the API server accepts it.
    cluster
        .wait("the start of the watch is told", async || {
            let events = events(cluster, "worker-0", "ConfigDriftMonitorStarted").await;
            events.iter().any(|e| e.contains(&name)).then_some(())
        })
        .await;
    // The agent's own changes are not drift.
    assert_eq!(events(cluster, "worker-0", "ConfigDriftDetected").await, Vec::<String>::new());

    let file = "/etc/app/one.conf";
    let link = "/etc/systemd/system/multi-user.target.wants/one.service";
    let damage = [
        ("other contents", file, "printf bad > /etc/app/one.conf", "printf good > /etc/app/one.conf"),
        ("other mode", file, "chmod 600 /etc/app/one.conf", "chmod 644 /etc/app/one.conf"),
        ("gone", file, "mv /etc/app /etc/away", "mv /etc/away /etc/app"),
        ("disabled", "one.service", &format!("mv {link} /root/link"), &format!("mv /root/link {link}")),
    ];
    for (about, path, harm, repair) in damage {
        node.run(["sh", "-c", harm]).await.unwrap();
        let reason = says(cluster, about, "Degraded").await;
        assert!(reason.contains(path), "{about}: {reason}");
        let differs = reason.contains("-good (no newline at the end)\n+bad");
        assert_eq!(differs, about == "other contents", "{about}: {reason}");
        node.run(["sh", "-c", repair]).await.unwrap();
        assert_eq!(says(cluster, about, "Done").await, "", "{about}");
    }
    by_rules(cluster, file, link).await;
    // An update that writes the file again needs no repair first.
    node.run(["sh", "-c", "printf bad > /etc/app/one.conf"]).await.unwrap();
    // That program has changed the file hundreds of times, so the agent compares the disk only from time to time.
    until(cluster, "drift before an update", |n| note(n, "state") == "Degraded").await;
    let better = json!([{"path": "/etc/app/one.conf", "contents": {"source": "data:,better"}}]);
    // A degraded node counts as unavailable, so the pool has to allow one more.
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let patch = json!({"spec": {"config": {"storage": {"files": better}}}});
    cluster.patch("MachineConfig", "50-drift", patch).await;
    let start = Instant::now();
    while node.read_file(file).await.unwrap_or_default() != "better" {
        assert!(start.elapsed() < LIMIT, "the update is blocked: {}", cluster.state().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.settled("worker", 1, &["50-drift"], &[]).await;
    cluster.told("worker-0", "ConfigDriftDetected", &[file]).await;
    let pid = node.run(["systemctl", "show", "--value", "--property=MainPID", DAEMON_UNIT]).await.unwrap();
    let ticks = async || {
        let stat = format!("cut -d ' ' -f 14,15 /proc/{}/stat", pid.trim());
        let text = node.run(["sh", "-c", &stat]).await.unwrap();
        text.split_whitespace().map(|n| n.parse::<u64>().unwrap()).sum::<u64>()
    };
    // The agent may still have something to report at first.
    let mut least = u64::MAX;
    for _ in 0..5 {
        let before = ticks().await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        least = least.min(ticks().await - before);
        if least <= 5 {
            break;
        }
    }
    assert!(least <= 5, "it does not rest while nothing happens: {least} ticks");
}

/// The pool's drift rules: paths with the rule repair are repaired without a report, paths with the rule ignore are
/// ignored, and a program that keeps changing a path is reported.
async fn by_rules(cluster: &Cluster, file: &str, link: &str) {
    let node = cluster.lab.node(0);
    let rules = |text: &str| {
        let rules = if text.is_empty() { Value::Null } else { json!(text) };
        json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/drift": rules}}})
    };
    cluster.patch("MachineConfigPool", "worker", rules("repair /etc/app/** ; repair /etc/systemd/**")).await;
    until(cluster, "the rules arrive", |n| !note(n, "drift").is_empty()).await;
    for (about, harm, whole) in [
        ("contents", "printf bad > /etc/app/one.conf", "grep -qx good /etc/app/one.conf"),
        ("gone", "rm -r /etc/app", "grep -qx good /etc/app/one.conf"),
        ("disabled", &format!("rm {link}"), &format!("test -L {link}")),
    ] {
        node.run(["sh", "-c", harm]).await.unwrap();
        let start = Instant::now();
        while node.run(["sh", "-c", whole]).await.is_err() {
            assert!(
                start.elapsed() < SOON,
                "{about}: not repaired: {}",
                cluster.get("Node", "worker-0").await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        println!("{about}: repaired after {:?}", start.elapsed());
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let node_object = cluster.get("Node", "worker-0").await;
    assert_eq!(note(&node_object, "state"), "Done", "{}", node_object["metadata"]["annotations"]);
    let repaired = told(cluster, "ConfigDriftRepaired").await;
    assert!(repaired.iter().any(|e| e.contains(file)), "{repaired:?}");

    // A program that keeps changing the file back.
    let war = "for i in $(seq 3000); do printf bad > /etc/app/one.conf; sleep 0.1; done";
    node.run(["systemd-run", "--unit=war", "sh", "-c", war]).await.unwrap();
    let given_up =
        until(cluster, "it is given up", |n| note(n, "reason").contains("was repaired 5 times within 10"))
            .await;
    assert_eq!(note(&given_up, "state"), "Degraded");
    let events = told(cluster, "ConfigDriftRepairGivenUp").await;
    assert_eq!(events.len(), 1, "{events:?}");
    node.run(["systemctl", "stop", "war"]).await.unwrap();

    cluster.patch("MachineConfigPool", "worker", rules("ignore /etc/app/*")).await;
    says(cluster, "ignored", "Done").await;
    cluster.patch("MachineConfigPool", "worker", rules("mend /etc")).await;
    let reason = says(cluster, "bad rules report all drift", "Degraded").await;
    assert!(reason.contains(file), "{reason}");
    let bad = told(cluster, "DriftPolicyInvalid").await;
    assert!(bad.iter().any(|e| e.contains("\"mend\" is not report, repair or ignore")), "{bad:?}");
    cluster.patch("MachineConfigPool", "worker", rules("")).await;
    node.run(["sh", "-c", "printf good > /etc/app/one.conf"]).await.unwrap();
    says(cluster, "all is as before", "Done").await;
}

/// Waits until the Node satisfies the condition, and returns it.
async fn until(cluster: &Cluster, about: &str, is: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let node = cluster.get("Node", "worker-0").await;
        if is(&node) {
            println!("{about}: after {:?}", start.elapsed());
            return node;
        }
        assert!(start.elapsed() < LIMIT, "{about}: {}", node["metadata"]["annotations"]);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for a short time until the node's reason contains this, and returns the reason.
async fn says(cluster: &Cluster, about: &str, state: &str) -> String {
    let start = Instant::now();
    loop {
        let node = cluster.get("Node", "worker-0").await;
        if note(&node, "state") == state {
            println!("{about}: {state} after {:?}", start.elapsed());
            return note(&node, "reason");
        }
        assert!(
            start.elapsed() < SOON,
            "{about}: not {state} within {SOON:?}: {}",
            node["metadata"]["annotations"]
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until there are events with this reason, and returns them. Events are written asynchronously.
async fn told(cluster: &Cluster, reason: &str) -> Vec<String> {
    let start = Instant::now();
    loop {
        let events = events(cluster, "worker-0", reason).await;
        if !events.is_empty() {
            return events;
        }
        assert!(start.elapsed() < LIMIT, "no event {reason}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn events(cluster: &Cluster, about: &str, reason: &str) -> Vec<String> {
    cluster.events(about).await.into_iter().filter(|e| e.starts_with(reason)).collect()
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
        "[Unit]\nDescription=Stub of {name}\n\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
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
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder
        .nodes(1)
        .real()
        .node_service("kubelet.service", slow("kubelet"))
        .node_service("containerd.service", slow("containerd"));
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    cut_while_services_restart(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_cuts_itself_off_reboots_after_the_time_limit() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder
        .nodes(1)
        .real()
        .node_file("/etc/systemd/system/cut.path", 0o644, CUT_PATH)
        .node_file("/etc/systemd/system/cut.service", 0o644, CUT_SERVICE)
        .node_unit("cut.path");
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
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
        .create(json!({
            "apiVersion": "operator.openshift.io/v1",
            "kind": "MachineConfiguration",
            "metadata": {"name": "cluster"},
            "spec": {"managementState": "Managed", "nodeDisruptionPolicy": {"files": [
                {"path": "/etc/told.conf", "actions": actions},
            ]}},
        }))
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
