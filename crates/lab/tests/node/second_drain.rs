//! A second drain: a person uncordons a node while its reboot is pending.
//!
//! Not here: what blocks a drain (`tests/cluster/drains`).

use crate::product::pods::{Place, budget, budgets, pod, pods};
use crate::product::{machine_config, note, one_file, one_machine};
use kube::api::DeleteParams;
use lab::DAEMON_UNIT;

const NODE: &str = "worker-0";

/// A person uncordons a machine that does not shut down for its reboot. It is drained once more before it finally
/// reboots; a budget that blocks the second drain proves it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_uncordoned_before_its_reboot_is_drained_again() {
    let Some(cluster) = one_machine(|lab| lab.controller_manager(true)).await else { return };
    let node = cluster.lab.node(0);
    let boot = node.boot_id().await.unwrap();
    let pods = pods(&cluster, "default");
    // Keeps the machine from rebooting. The mask is in /run, so a reboot would remove it.
    node.run(["systemctl", "mask", "--runtime", "reboot.target"]).await.unwrap();
    cluster.create(machine_config("50-again", "worker", one_file("/etc/again", "x"))).await;
    cluster
        .wait("the node says that it does not reboot", async || {
            let found = cluster.get("Node", NODE).await;
            let drained = found["spec"]["unschedulable"] == true
                && note(&found, "lastAppliedDrain").starts_with("drain-");
            let says = note(&found, "state") == "Degraded" && note(&found, "reason").contains("reboot");
            (drained && says).then_some(())
        })
        .await;
    pod(&cluster, "came-back", "came-back", Place::on(NODE)).await;
    budget(&cluster, "default", ("keep-it", "came-back"), 1, 1).await;
    let said = cluster.kubectl(&["uncordon", NODE]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster
        .wait("the node is drained once more", async || {
            let found = cluster.get("Node", NODE).await;
            let waits = note(&found, "drainWaitsFor").contains("keep-it");
            (found["spec"]["unschedulable"] == true && waits).then_some(())
        })
        .await;
    cluster.told(NODE, "Drain", &["once more"]).await;
    // The machine could reboot now, but must not while the pod is there; a restarted agent must not reboot it either.
    node.run(["systemctl", "unmask", "--runtime", "reboot.target"]).await.unwrap();
    node.run(["systemctl", "restart", DAEMON_UNIT]).await.unwrap();
    cluster
        .wait("a new agent has looked at its host", async || {
            let told = cluster.events(NODE).await;
            let waits = note(&cluster.get("Node", NODE).await, "drainWaitsFor").contains("keep-it");
            (waits && told.iter().any(|e| e.contains("once more"))).then_some(())
        })
        .await;
    assert!(pods.get("came-back").await.is_ok(), "the budget did not hold");
    assert_eq!(node.boot_id().await.unwrap(), boot, "it rebooted with the pod on it");
    budgets(&cluster, "default").delete("keep-it", &DeleteParams::default()).await.unwrap();
    cluster.settled("worker", 1, &["50-again"], &[]).await;
    assert!(pods.get_opt("came-back").await.unwrap().is_none(), "it rebooted with the pod on it");
    assert_ne!(node.boot_id().await.unwrap(), boot, "it did not reboot");
    let now = cluster.get("Node", NODE).await;
    assert_eq!(now["spec"].get("unschedulable"), None, "{now}");
    cluster.no_panic();
    cluster.stop().await;
}
