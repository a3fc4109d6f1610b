//! The agent that the lab installs on machines: it starts, reports for its node, and comes back after a power cut.
//!
//! Not here: how agents work (the other files here).

use crate::product::{Cluster, LIMIT, with_controller};

#[tokio::test(flavor = "multi_thread")]
async fn real_nodes_join_their_pool_and_survive_the_loss_of_power() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(2).real().controller_manager(true)).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    let node = cluster.lab.node(0);
    assert_eq!(node.run(["systemctl", "is-active", lab::DAEMON_UNIT]).await.unwrap().trim(), "active");
    assert!(!node.logs(lab::DAEMON_UNIT).await.unwrap().is_empty());
    let machine = cluster.lab.real_node(0).unwrap().machine();
    machine.power_cut().await.unwrap();
    machine.power_on();
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    cluster.no_panic();
    cluster.stop().await;
}
