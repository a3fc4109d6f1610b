//! Outages during a rollout: of the API server, the controller, or a node. The other parts continue, and the rollout
//! completes.

use crate::product::controllers::{Controller, all_well, middle, slow};
use crate::product::{Cluster, defined, note};
use lab::{Fault, FaultProxy};
use std::time::{Duration, Instant};

const NODES: usize = 6;
/// How long the API server is unreachable: longer than any request waits for an answer.
const OUTAGE: Duration = Duration::from_secs(20);

/// How long no traffic reaches the controller.
const SILENCE: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_the_loss_of_the_api_server_of_the_controller_and_of_a_node() {
    let Some(builder) = defined() else { return };
    let builder = builder.nodes(NODES).simulated().reboot_time(Duration::from_secs(1));
    let cluster = Cluster::start(builder).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let mut running = Controller::alone(&cluster, cluster.lab.kubeconfig());
    cluster.settled("worker", NODES, &["00-worker"], &[]).await;

    // The printed times are for people: nothing depends on them.
    let start = Instant::now();
    let say = |what: &str| eprintln!("{what} after {:.1} s", start.elapsed().as_secs_f64());

    // The API server becomes unreachable for everybody at once.
    middle(&cluster, "50-outage", "worker", 1).await;
    cluster.lab.control_plane().stop_api_server().await;
    tokio::time::sleep(OUTAGE).await;
    running.lives();
    cluster.lab.control_plane().start_api_server().await.unwrap();
    say("API server back");
    cluster.settled("worker", NODES, &["50-outage"], &[]).await;
    say("rollout through");
    running.lives();

    // The controller is killed and restarted.
    middle(&cluster, "50-killed", "worker", 1).await;
    running.kill().await;
    // A change made while no controller runs is rolled out too.
    cluster.create(slow("50-meanwhile", "worker")).await;
    running = Controller::alone(&cluster, cluster.lab.kubeconfig());
    cluster.settled("worker", NODES, &["50-killed", "50-meanwhile"], &[]).await;

    say("killed controller made good for");

    // A node is deleted during its update: the others continue, and the pool no longer counts it.
    let gone = middle(&cluster, "50-vanished", "worker", 1).await.remove(0);
    cluster.delete("Node", &gone).await;
    cluster.settled("worker", NODES - 1, &["50-vanished"], &[]).await;
    let pool = cluster.get("MachineConfigPool", "worker").await;
    assert_eq!(pool["status"]["degradedMachineCount"], 0, "{pool}");
    cluster
        .wait("its MachineConfigNode is gone", async || {
            cluster.get("MachineConfigNode", &gone).await.is_null().then_some(())
        })
        .await;

    say("deleted node made good for");

    // Every remaining node has the file of each of the changes.
    let left: Vec<usize> = (0..NODES).filter(|i| format!("worker-{i}") != gone).collect();
    all_well(&cluster, &left, &["50-outage", "50-killed", "50-meanwhile", "50-vanished"]).await;
    running.kill().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_resumes_after_its_network_dropped_all_packets() {
    let Some(builder) = defined() else { return };
    let builder = builder.nodes(3).simulated().reboot_time(Duration::from_secs(1));
    let cluster = Cluster::start(builder).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let plane = cluster.lab.control_plane();
    let proxy = FaultProxy::start(plane.server().ip(), plane.server()).await.unwrap();
    let kubeconfig = plane.identity_via("controller", &["system:masters"], &proxy.url()).unwrap();
    let mut running = Controller::alone(&cluster, &kubeconfig);
    cluster.settled("worker", 3, &["00-worker"], &[]).await;

    // Traffic is dropped and no connection ends; then all connections are cut, and everything works again.
    middle(&cluster, "50-silence", "worker", 1).await;
    proxy.set(Fault::Blackhole);
    // The nodes still reach the API server: the one that is being updated asks for its next step and gets no answer.
    tokio::time::sleep(SILENCE).await;
    running.lives();
    let target = cluster.rendered("worker").await;
    let waits = cluster.list("Node").await.iter().filter(|n| note(n, "currentConfig") != target).count();
    assert!(waits > 0, "the rollout continued without a controller");
    proxy.set(Fault::Cut);
    proxy.set(Fault::None);
    cluster.settled("worker", 3, &["50-silence"], &[]).await;
    running.kill().await;
    cluster.stop().await;
}
