//! What an administrator does in the middle of a rollout: pausing and resuming, taking a bad MachineConfig back,
//! changing `maxUnavailable`, adding and removing nodes and pools. Each behaves as they would expect, with never more
//! nodes out of service than the pool allows.
//!
//! What it is not: outages (`product_outages.rs`, `product_faults.rs`), or who leads (`product_leader.rs`).
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod product;

use product::controllers::{middle, progress};
use product::observer::Observer;
use product::{Cluster, is_done, with_controller};
use serde_json::json;
use std::time::{Duration, Instant};

/// What a simulated reboot takes: long enough to meet a rollout in its middle.
const REBOOT: Duration = Duration::from_millis(800);
/// A pause holds new nodes back by then.
const STOPS_WITHIN: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_stops_and_goes_back() {
    let Some(builder) = with_controller() else { return };
    let cluster = Cluster::start(builder.nodes(8).simulated().reboot_time(REBOOT)).await;
    cluster.add_pool("pause", &["worker-0", "worker-1", "worker-2", "worker-3", "worker-4"]).await;
    cluster.settled("pause", 5, &["00-worker"], &[]).await;
    pause_and_resume(&cluster).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// No new node after a second; those on their way arrive; then the rest.
async fn pause_and_resume(cluster: &Cluster) {
    let observer = Observer::start(cluster, "pause", 2).await;
    cluster.patch("MachineConfigPool", "pause", json!({"spec": {"maxUnavailable": 2}})).await;
    let scenario = async {
        middle(cluster, "50-pause", "pause", 1).await;
        cluster.patch("MachineConfigPool", "pause", json!({"spec": {"paused": true}})).await;
        let paused = Instant::now();
        tokio::time::sleep(STOPS_WITHIN).await;
        let started = observer.starts();
        let late = started.iter().map(|s| s.at.saturating_duration_since(paused)).max().unwrap();
        eprintln!("the last node was sent {late:?} after the pause");
        // Those on their way arrive.
        cluster
            .wait("the running nodes to arrive", async || {
                let (_, moving) = progress(cluster, "pause").await;
                (moving.is_empty() && observer.out().is_empty()).then_some(())
            })
            .await;
        let (done, _) = progress(cluster, "pause").await;
        assert!(done.len() < 5, "nothing is left to hold back: {done:?}");
        // Long enough for many passes.
        tokio::time::sleep(STOPS_WITHIN * 2).await;
        assert_eq!(observer.starts().len(), started.len(), "a node was sent on its way during the pause");
        assert!(cluster.list("Node").await.iter().all(is_done));
        cluster.patch("MachineConfigPool", "pause", json!({"spec": {"paused": false}})).await;
        cluster.settled("pause", 5, &["50-pause"], &[]).await;
    };
    observer.guard(scenario).await;
}
