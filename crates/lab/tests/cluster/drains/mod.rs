//! Drains with the real disruption controller: what a node reports while a budget blocks a pod, pods and budgets of
//! one name in two namespaces, cordons by people, a node that is deleted during its drain, one that fails after it;
//! and a single control-plane node, whose pods have nowhere to go.
//!
//! Not here: drains of machines (`tests/node/drain.rs`, `tests/node/drained.rs`), or the rules (`rollout`'s own
//! tests).

mod scenarios;
mod single;

use crate::product::{Cluster, with_controller};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn drains_wait_for_budgets_say_so_and_keep_what_people_did() {
    let Some(builder) = with_controller() else { return };
    let builder =
        builder.nodes(9).simulated().reboot_time(Duration::from_millis(300)).controller_manager(true);
    let cluster = Cluster::start(builder).await;
    let pools: [(&str, &[&str]); 6] = [
        ("held", &["worker-0", "worker-1"]),
        ("person", &["worker-2"]),
        ("twice", &["worker-3"]),
        ("frees", &["worker-4"]),
        ("breaks", &["worker-6", "worker-7"]),
        ("spaces", &["worker-8"]),
    ];
    for (pool, nodes) in pools {
        cluster.add_pool(pool, nodes).await;
    }
    for (pool, nodes) in pools {
        cluster.settled(pool, nodes.len(), &["00-worker"], &[]).await;
    }
    tokio::join!(
        scenarios::deleted_in_the_middle(&cluster),
        scenarios::a_persons_cordon_stays(&cluster),
        scenarios::two_budgets_for_one_pod(&cluster),
        scenarios::a_budget_that_comes_to_allow_it(&cluster),
        scenarios::broken_after_its_drain(&cluster),
        scenarios::one_name_in_two_namespaces(&cluster)
    );
    cluster.no_panic();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_control_plane_node_takes_a_change_though_nothing_may_leave_it() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).masters(1).simulated().reboot_time(Duration::from_millis(300));
    let cluster = Cluster::start(builder.controller_manager(true).scheduler(true)).await;
    single::single(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}
