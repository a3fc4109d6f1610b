//! Rollouts under faults of everything around the controller: the API server away, connections and answers that fail,
//! clocks that are wrong, nodes and configs that vanish. Each ends in the right state, and an observer of its own sees
//! to it that never more nodes are out of service than the pool allows.
//!
//! What it is not: faults of the controller itself (`product_leader.rs`) or of an administrator
//! (`product_stop_and_go.rs`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod product;

use product::controllers::{Controller, all_well, middle};
use product::observer::Observer;
use product::{Cluster, lab};
use serde_json::json;
use std::time::{Duration, Instant};

/// What a simulated reboot takes.
const REBOOT: Duration = Duration::from_millis(300);
/// How long the API server is away.
const OUTAGE: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_is_away_for_two_minutes() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder.nodes(6).simulated().reboot_time(REBOOT)).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    cluster.patch("MachineConfigPool", "worker", json!({"spec": {"maxUnavailable": 2}})).await;
    let mut controller = Controller::alone(&cluster, cluster.lab.kubeconfig());
    cluster.settled("worker", 6, &["00-worker"], &[]).await;
    let observer = Observer::start(&cluster, "worker", 2).await;
    let rollout = async {
        let moving = middle(&cluster, "50-outage", "worker", 1).await;
        cluster.lab.control_plane().stop_api_server().await;
        eprintln!("the API server goes while {moving:?} are on their way");
        tokio::time::sleep(OUTAGE).await;
        controller.lives();
        cluster.lab.control_plane().start_api_server().await.unwrap();
        let back = Instant::now();
        cluster.settled("worker", 6, &["50-outage"], &[]).await;
        eprintln!("through {:.1} s after the API server came back", back.elapsed().as_secs_f64());
    };
    observer.guard(rollout).await;
    all_well(&cluster, &[0, 1, 2, 3, 4, 5], &["50-outage"]).await;
    controller.stop().await;
    cluster.stop().await;
}
