//! Drift on a machine that boots: it is reported within a second, an update needs no repair first, and the pool's drift rules
//! repair or ignore it.
//!
//! Not here: drift that no watch of the folder sees (`services`).

use std::time::{Duration, Instant};

use crate::product::{Cluster, LIMIT, machine_config, note};
use lab::DAEMON_UNIT;
use serde_json::{Value, json};

/// The time limit for a report of drift. The promise is one second, which `cargo xtask bench host` measures. A loaded
/// machine may need longer, but far less than a periodic check would.
const SOON: Duration = Duration::from_secs(15);

pub(crate) async fn changed_by_hand(cluster: &Cluster) {
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
