//! The agents of the lab's simulated nodes start, and report for their nodes.
//!
//! Not here: how agents work (`agents.rs`).

use crate::product::{Cluster, with_controller};

#[tokio::test(flavor = "multi_thread")]
async fn simulated_nodes_join_their_pool() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(20).simulated()).await;
    cluster.settled("worker", 20, &["00-worker"], &[]).await;
    assert!(cluster.lab.node(19).read_file("/etc/machine-config-daemon/currentconfig").await.is_ok());
    cluster.no_panic();
    cluster.stop().await;
}
