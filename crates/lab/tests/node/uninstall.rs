//! `mco uninstall` on machines that boot. With `--restore-hosts`, hosts get back the files that they had; a node that does not
//! answer stops the command before anything is removed; a second run continues, and then the rest is removed. Without it, hosts
//! keep their files, but no trial and none of the trial's units.
//!
//! Not here: which objects are removed and which stay (`tests/serving/removal.rs`).

use crate::product::{Cluster, machine_config, with_controller};
use lab::DAEMON_UNIT;
use serde_json::{Value, json};

/// A unit that agents install on a host for its trials.
const BROUGHT: &str = "/etc/systemd/system/machine-config-daemon-emergency.service";

#[tokio::test(flavor = "multi_thread")]
async fn hosts_get_their_own_files_back_before_everything_goes() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(2).real().node_file("/etc/motd", 0o640, "theirs\n");
    let cluster = Cluster::start(builder.controller_manager(true)).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let file = |path: &str| json!({"path": path, "overwrite": true, "contents": {"source": "data:,ours"}});
    let unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "storage": {"files": [file("/etc/motd"), file("/etc/added")]},
        "systemd": {"units": [{"name": "added.service", "enabled": true, "contents": unit}]},
    });
    cluster.create(machine_config("90-restored", "worker", config)).await;
    cluster.settled("worker", 2, &["90-restored"], &[]).await;
    let nodes = [cluster.lab.node(0), cluster.lab.node(1)];
    let names = ["worker-0", "worker-1"];
    let mut boots = vec![];
    for node in &nodes {
        assert_eq!(node.read_file("/etc/motd").await.unwrap(), "ours");
        // The unit is enabled, so the change was on trial.
        node.read_file(BROUGHT).await.unwrap();
        boots.push(node.boot_id().await.unwrap());
    }

    let said = cluster.mco(&["uninstall", "--restore-hosts", "--dry-run", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    let first = json!({"node": "worker-0", "group": "worker", "atOnce": 1, "stand": "ready"});
    assert_eq!(plan["hosts"][0], first, "{}", said.out);
    let said = cluster.mco(&["uninstall", "--restore-hosts"]).await;
    let line = "Node worker-1: goes back to its own files (worker, 1 at a time)\n";
    assert!(said.code == 2 && said.out.contains(line), "{said:?}");

    // The first node does not answer.
    nodes[0].run(["systemctl", "stop", DAEMON_UNIT]).await.unwrap();
    let said = cluster.mco(&["uninstall", "--yes", "--restore-hosts", "--restore-timeout=10s"]).await;
    for words in [
        "Node worker-0: its agent has not answered for 10 s",
        "nothing was removed",
        "Node worker-1: it was not sent",
    ] {
        assert!(said.code == 1 && said.err.contains(words), "{words}: {said:?}");
    }
    assert!(said.out.contains("paused: "), "{said:?}");
    assert!(!cluster.get("MachineConfigPool", "worker").await.is_null(), "something was removed");
    assert_eq!(nodes[1].read_file("/etc/motd").await.unwrap(), "ours", "two at a time");

    // The next run continues.
    nodes[0].run(["systemctl", "start", DAEMON_UNIT]).await.unwrap();
    let said = cluster.mco(&["uninstall", "--yes", "--restore-hosts"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.ends_with("uninstalled; hosts have their own files again\n"), "{}", said.out);
    for ((node, name), boot) in nodes.iter().zip(names).zip(boots) {
        assert!(said.out.contains(&format!("Node {name}: has its own files\n")), "{said:?}");
        assert_eq!(node.read_file("/etc/motd").await.unwrap(), "theirs\n", "{name}");
        assert_eq!(node.run(["stat", "-c", "%a", "/etc/motd"]).await.unwrap().trim(), "640", "{name}");
        for gone in ["/etc/added", "/etc/systemd/system/added.service", BROUGHT] {
            assert!(node.read_file(gone).await.is_err(), "{name} still has {gone}");
        }
        assert_ne!(node.boot_id().await.unwrap(), boot, "{name} did not reboot");
        let object = cluster.get("Node", name).await;
        assert_eq!(object["spec"].get("unschedulable"), None, "{object}");
    }
    cluster.stop().await;
}

/// A kubelet that runs, and is Ready only once somebody reports it.
const KUBELET: &str = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";

#[tokio::test(flavor = "multi_thread")]
async fn hosts_keep_their_files_but_nothing_that_would_undo_them_later() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(2).real().node_service("kubelet.service", KUBELET);
    let cluster = Cluster::start(builder.controller_manager(true)).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let nodes = [cluster.lab.node(0), cluster.lab.node(1)];
    let unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "systemd": {"units": [{"name": "added.service", "enabled": true, "contents": unit}]},
    });
    // The unit is enabled, so the change is on trial.
    cluster.create(machine_config("90-kept", "worker", config)).await;
    cluster.settled("worker", 2, &["90-kept"], &[]).await;
    for node in &nodes {
        node.read_file(BROUGHT).await.unwrap();
    }
    // Another change is on trial during the removal: the kubelet does not run for a while, so it is not confirmed yet.
    let slow = "[Service]\nExecStartPre=/bin/sleep 20\n";
    let config = json!({
        "ignition": {"version": "3.5.0"},
        "systemd": {"units": [{"name": "kubelet.service", "dropins": [{"name": "50-slow.conf", "contents": slow}]}]},
    });
    cluster.create(machine_config("91-tried", "worker", config)).await;
    let clock = "/var/lib/machine-config-daemon/journal/trial.json";
    cluster.wait("a change is on trial", async || nodes[0].read_file(clock).await.ok().map(drop)).await;
    // It is not safe to remove now, unless somebody forces it.
    let said = cluster.mco(&["uninstall", "--yes"]).await;
    assert!(said.code == 1 && said.err.contains("nothing was removed"), "{said:?}");
    // The other node's agent does not run, so it cannot answer.
    nodes[1].run(["systemctl", "stop", DAEMON_UNIT]).await.unwrap();
    let said = cluster.mco(&["uninstall", "--yes", "--force"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.contains("Node worker-1: its agent has not answered"), "{}", said.out);
    assert!(!said.out.contains("Node worker-0: its agent"), "{}", said.out);
    let kept = nodes[0].read_file("/etc/systemd/system/kubelet.service.d/50-slow.conf").await;
    assert!(kept.is_ok(), "the change was confirmed, and stays");
    for gone in [clock, BROUGHT] {
        assert!(nodes[0].read_file(gone).await.is_err(), "{gone} is still there");
    }
    assert!(nodes[0].read_file("/etc/systemd/system/added.service").await.is_ok());
    assert!(nodes[1].read_file(BROUGHT).await.is_ok(), "nobody has taken it away");
    cluster.stop().await;
}
