//! Drains with the real disruption controller: what a node reports while a PodDisruptionBudget blocks a pod, pods and budgets
//! of one name in two namespaces, cordons by people, a node that is deleted during its drain, one that fails after it, one that
//! its policy puts aside, pods that are deleted past their budget; and a single control-plane node, whose pods have nowhere to
//! go.
//!
//! Not here: drains of machines (`tests/node/drain.rs`, `tests/node/updates.rs`), and the rules (`rollout`'s own
//! tests).

mod scenarios;
mod single_control_plane;

use crate::product::{Cluster, with_controller};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn drains_wait_for_budgets_report_it_and_keep_cordons_of_people() {
    let Some(builder) = with_controller() else { return };
    let builder =
        builder.nodes(12).simulated().reboot_time(Duration::from_millis(300)).controller_manager(true);
    let cluster = Cluster::start(builder).await;
    let pools: [(&str, &[&str]); 8] = [
        ("held", &["worker-0", "worker-1"]),
        ("person", &["worker-2"]),
        ("twice", &["worker-3"]),
        ("frees", &["worker-4"]),
        ("breaks", &["worker-6", "worker-7"]),
        ("spaces", &["worker-8"]),
        ("aside", &["worker-9", "worker-10"]),
        ("past", &["worker-11"]),
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
        scenarios::one_name_in_two_namespaces(&cluster),
        scenarios::put_aside(&cluster),
        scenarios::past_its_budget(&cluster)
    );
    cluster.no_panic();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_control_plane_node_takes_a_change_though_nothing_may_leave_it() {
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).masters(1).simulated().reboot_time(Duration::from_millis(300));
    let cluster = Cluster::start(builder.controller_manager(true).scheduler(true)).await;
    single_control_plane::single(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}
