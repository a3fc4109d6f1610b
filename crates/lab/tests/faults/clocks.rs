//! Agents with wrong clocks: a minute fast or slow during a rollout, and set back by hours while a retry is due.
//!
//! Not here: controllers with wrong clocks (`leader`).

use crate::product::controllers::{all_well, faketime, slow};
use crate::product::observer::Observer;
use crate::product::{Cluster, machine_config, note, one_file, with_controller};

/// Two machines whose agents' clocks are a minute fast and a minute slow: drained, changed, rebooted, and uncordoned.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_works_with_agents_clocks_a_minute_off() {
    if !lab::require_root() {
        return;
    }
    let Some(library) = faketime() else { return };
    let Some(builder) = with_controller() else { return };
    let clock = "[Service]\nEnvironment=LD_PRELOAD=/opt/clock.so FAKETIME_DONT_FAKE_MONOTONIC=1\n\
                 EnvironmentFile=/etc/clock-%H\n";
    let builder = builder
        .nodes(2)
        .real()
        .node_file("/opt/clock.so", 0o644, std::fs::read(library).unwrap())
        .node_file("/etc/clock-worker-0", 0o644, "FAKETIME=+60s\n")
        .node_file("/etc/clock-worker-1", 0o644, "FAKETIME=-60s\n")
        .node_file(&format!("/etc/systemd/system/{}.d/10-clock.conf", lab::DAEMON_UNIT), 0o644, clock);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    for (i, want) in [(0, "+60s"), (1, "-60s")] {
        let script = "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID \"$0\")/environ";
        let environment = cluster.lab.node(i).run(["sh", "-c", script, lab::DAEMON_UNIT]).await.unwrap();
        assert!(environment.contains(&format!("FAKETIME={want}\n")), "{environment}");
    }
    let observer = Observer::start(&cluster, "worker", 1).await;
    let scenario = async {
        cluster.create(slow("50-clock", "worker")).await;
        cluster.settled("worker", 2, &["50-clock"], &[]).await;
        // Then the change is reverted, which needs what the node has recorded about the first one.
        cluster.delete("MachineConfig", "50-clock").await;
        cluster.settled("worker", 2, &["00-worker"], &["50-clock"]).await;
    };
    observer.guard(scenario).await;
    all_well(&cluster, &[0, 1], &[]).await;
    cluster.no_panic();
    cluster.stop().await;
}

/// A machine's clock jumps back by three hours while its agent waits for a retry: the retry is not delayed.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_delays_no_retry() {
    if !lab::require_root() {
        return;
    }
    let Some(library) = faketime() else { return };
    let Some(builder) = with_controller() else { return };
    let clock = "[Service]\nEnvironment=LD_PRELOAD=/opt/clock.so FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_NO_CACHE=1 \
                 FAKETIME_TIMESTAMP_FILE=/etc/clock\n";
    let builder = builder
        .nodes(1)
        .real()
        .node_file("/opt/clock.so", 0o644, std::fs::read(library).unwrap())
        .node_file("/etc/clock", 0o644, "+0s\n")
        .node_file("/etc/in-the-way", 0o644, "a file\n")
        .node_file(&format!("/etc/systemd/system/{}.d/10-clock.conf", lab::DAEMON_UNIT), 0o644, clock);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 1, &["00-worker"], &[]).await;
    let node = cluster.lab.node(0);
    cluster.create(machine_config("50-below", "worker", one_file("/etc/in-the-way/x", "x"))).await;
    cluster
        .wait("the node says what is in the way", async || {
            let reason = note(&cluster.get("Node", "worker-0").await, "reason");
            reason.contains("/etc/in-the-way is not a folder").then_some(())
        })
        .await;
    node.run(["sh", "-c", "echo -3h > /etc/clock"]).await.unwrap();
    node.run(["rm", "/etc/in-the-way"]).await.unwrap();
    cluster.settled("worker", 1, &["50-below"], &[]).await;
    assert_eq!(node.read_file("/etc/in-the-way/x").await.unwrap(), "x");
    cluster.no_panic();
    cluster.stop().await;
}
