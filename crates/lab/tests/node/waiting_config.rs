//! A person reboots a machine while its pool's change waits for a window. The change is applied with that reboot, so one reboot
//! does for both, and the node is not drained again.
//!
//! Not here: which nodes may do this (`rollout::policy`), and windows that open (its tests).

use crate::product::policies::in_force;
use crate::product::{is_done, machine_config, note, one_file, one_machine, text};
use serde_json::json;
use std::time::Duration;

/// Counts the boots of its machine.
const COUNT: &str = "[Unit]\nDescription=Count boots\n\n[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo boot >> /var/boots'\n\
    \n[Install]\nWantedBy=multi-user.target\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_a_person_reboots_takes_what_waits_for_a_window() {
    let Some(cluster) = one_machine(|lab| lab.node_service("count.service", COUNT)).await else { return };
    let before = cluster.rendered("worker").await;
    let node = cluster.lab.node(0);
    cluster
        .create(json!({
            "apiVersion": "machineconfig.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "workers"},
            "spec": {"pools": {"names": ["worker"]}, "windows": [{"name": "new-year", "cron": "0 0 1 1 *", "duration": "1m"}]},
        }))
        .await;
    in_force(&cluster).await;
    cluster.create(machine_config("50-waits", "worker", one_file("/etc/waits", "here"))).await;
    let new = cluster
        .wait("the node to be told what waits", async || {
            let new = cluster.rendered("worker").await;
            let object = cluster.get("Node", node.name()).await;
            let waits = text(&object["metadata"]["annotations"]["machineconfig.dev/waiting"]);
            (new != before && waits == new).then_some(new)
        })
        .await;
    let boots = async || node.read_file("/var/boots").await.unwrap_or_default().lines().count();
    let earlier = boots().await;
    assert_eq!(note(&cluster.get("Node", node.name()).await, "desiredConfig"), before, "the window is shut");
    // The agent knows what its watch has brought when it is told to stop. No person is faster than that.
    tokio::time::sleep(Duration::from_secs(2)).await;

    node.run(["systemctl", "--no-block", "reboot"]).await.unwrap();
    cluster
        .wait("the node to be back in the new config", async || {
            let object = cluster.get("Node", node.name()).await;
            let is_there = is_done(&object) && note(&object, "currentConfig") == new;
            (is_there && object["spec"]["unschedulable"] != true).then_some(())
        })
        .await;
    assert_eq!(boots().await, earlier + 1, "one reboot is enough for both");
    assert_eq!(node.read_file("/etc/waits").await.unwrap(), "here");
    cluster.told(node.name(), "WaitingConfigTaken", &[&new]).await;
    let drained =
        cluster.events(node.name()).await.into_iter().find(|e| e.starts_with("Drain") && e.contains(&new));
    assert_eq!(drained, None);
    // Nothing is left to wait for.
    cluster
        .wait("the mark to be gone", async || {
            let object = cluster.get("Node", node.name()).await;
            object["metadata"]["annotations"]["machineconfig.dev/waiting"].is_null().then_some(())
        })
        .await;
    cluster.no_panic();
    cluster.stop().await;
}
