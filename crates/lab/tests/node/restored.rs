//! `mco uninstall --restore-hosts` on machines that boot: hosts get back the files that they had, a node that does not answer
//! ends it before anything is removed, a second run continues, and then the rest goes.
//!
//! What it is not: what goes and what stays (`tests/serving/removal.rs`).

use crate::product::{Cluster, machine_config, with_controller};
use lab::DAEMON_UNIT;
use serde_json::{Value, json};

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
    // The unit is enabled, so the change was on trial, for which the agent brought this one.
    let brought = "/etc/systemd/system/machine-config-daemon-emergency.service";
    for node in &nodes {
        assert_eq!(node.read_file("/etc/motd").await.unwrap(), "ours");
        node.read_file(brought).await.unwrap();
        boots.push(node.boot_id().await.unwrap());
    }

    let said = cluster.mco(&["uninstall", "--restore-hosts", "--dry-run", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    let first = json!({"node": "worker-0", "group": "worker", "atOnce": 1, "stand": "ready"});
    assert_eq!(plan["hosts"][0], first, "{}", said.out);
    let said = cluster.mco(&["uninstall", "--restore-hosts"]).await;
    let line = "Node worker-1: goes back to its own files (worker, 1 at a time)\n";
    assert!(said.code == 2 && said.out.contains(line), "{said:?}");

    // The first one does not answer.
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
        for gone in ["/etc/added", "/etc/systemd/system/added.service", brought] {
            assert!(node.read_file(gone).await.is_err(), "{name} still has {gone}");
        }
        assert_ne!(node.boot_id().await.unwrap(), boot, "{name} did not reboot");
        let object = cluster.get("Node", name).await;
        assert_eq!(object["spec"].get("unschedulable"), None, "{object}");
    }
    cluster.stop().await;
}
