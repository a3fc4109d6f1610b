//! What goes away in the middle of a rollout: the API server, the controller, a node. What is left goes on, and the
//! rollout comes to its end.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod product;

use lab::{Fault, FaultProxy};
use product::{Cluster, lab, machine_config, note, one_file, repository};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

const NODES: usize = 6;
/// How long the API server is away: longer than any one request waits for an answer.
const OUTAGE: Duration = Duration::from_secs(20);

/// How long nothing gets through to the controller.
const SILENCE: Duration = Duration::from_secs(15);

/// A controller that this test may kill, started as the lab starts its own. The kernel ends it with this process.
fn controller(kubeconfig: &Path, log: &Path) -> Child {
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(lab::built_mco().unwrap())
        .args(["controller", "start", "--metrics-listen=off", "--leader-elect=false"])
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .arg("--templates")
        .arg(repository().join("templates"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(log))
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// A config whose files need a reboot: a rollout of it takes a while.
fn slow(name: &str) -> Value {
    machine_config(name, "worker", one_file(&format!("/etc/{name}"), name))
}

/// Waits until the rollout of `name` is in its middle: at least this many nodes through, and one on its way. Returns
/// the one on its way.
async fn middle(cluster: &Cluster, name: &str, through: usize) -> String {
    cluster
        .wait(&format!("the rollout of {name} is in its middle"), async || {
            let nodes = cluster.list("Node").await;
            let root = |n: &Value| {
                cluster.lab.folder().join("nodes").join(product::text(&n["metadata"]["name"])).join("root")
            };
            let done = nodes
                .iter()
                .filter(|n| root(n).join("etc").join(name).exists() && product::is_done(n))
                .count();
            let moving = nodes.iter().find(|n| note(n, "currentConfig") != note(n, "desiredConfig"))?;
            (done >= through && done + 1 < nodes.len()).then(|| product::text(&moving["metadata"]["name"]))
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_survives_the_loss_of_the_api_server_of_the_controller_and_of_a_node() {
    let Some(builder) = lab() else { return };
    let builder = builder.nodes(NODES).simulated().reboot_time(Duration::from_secs(1));
    let cluster = Cluster::start(builder).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let log = cluster.lab.controller_log();
    let mut running = controller(cluster.lab.kubeconfig(), &log);
    cluster.settled("worker", NODES, &["00-worker"], &[]).await;

    // Times are for people who read the log: nothing depends on them.
    let start = Instant::now();
    let say = |what: &str| eprintln!("{what} after {:.1} s", start.elapsed().as_secs_f64());

    // The API server goes away, for everybody at once.
    cluster.create(slow("50-outage")).await;
    middle(&cluster, "50-outage", 1).await;
    cluster.lab.control_plane().stop_api_server().await;
    tokio::time::sleep(OUTAGE).await;
    assert!(running.try_wait().unwrap().is_none(), "the controller has ended\n{}", product::tail(&log));
    cluster.lab.control_plane().start_api_server().await.unwrap();
    say("API server back");
    cluster.settled("worker", NODES, &["50-outage"], &[]).await;
    say("rollout through");
    assert!(running.try_wait().unwrap().is_none(), "the controller has ended\n{}", product::tail(&log));

    // The controller is killed and comes again.
    cluster.create(slow("50-killed")).await;
    middle(&cluster, "50-killed", 1).await;
    running.start_kill().unwrap();
    running.wait().await.unwrap();
    // The change that is made meanwhile counts too.
    cluster.create(slow("50-meanwhile")).await;
    running = controller(cluster.lab.kubeconfig(), &log);
    cluster.settled("worker", NODES, &["50-killed", "50-meanwhile"], &[]).await;

    say("killed controller made good for");

    // A node is deleted while it is on its way: the others go on, and the pool no longer counts it.
    cluster.create(slow("50-vanished")).await;
    let gone = middle(&cluster, "50-vanished", 1).await;
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

    // For each of them every node that is left has every file.
    for i in (0..NODES).filter(|i| format!("worker-{i}") != gone) {
        for name in ["50-outage", "50-killed", "50-meanwhile", "50-vanished"] {
            let found = cluster.lab.node(i).read_file(&format!("/etc/{name}")).await;
            assert_eq!(found.unwrap(), name, "worker-{i}");
        }
        let node = cluster.get("Node", &format!("worker-{i}")).await;
        assert_eq!(node["spec"].get("unschedulable"), None, "worker-{i} is left cordoned");
        let taints = node["spec"].get("taints").cloned().unwrap_or(json!([]));
        assert!(!taints.to_string().contains("UpdateInProgress"), "{taints}");
    }
    assert!(running.try_wait().unwrap().is_none(), "the controller has ended\n{}", product::tail(&log));
    cluster.no_panic();
    running.start_kill().unwrap();
    running.wait().await.unwrap();
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_whose_network_swallows_everything_goes_on_when_it_is_back() {
    let Some(builder) = lab() else { return };
    let builder = builder.nodes(3).simulated().reboot_time(Duration::from_secs(1));
    let cluster = Cluster::start(builder).await;
    assert_eq!(cluster.mco(&["install"]).await.code, 0);
    let plane = cluster.lab.control_plane();
    let proxy = FaultProxy::start(plane.server().ip(), plane.server()).await.unwrap();
    let kubeconfig = plane.identity_via("controller", &["system:masters"], &proxy.url()).unwrap();
    let log = cluster.lab.controller_log();
    let mut running = controller(&kubeconfig, &log);
    cluster.settled("worker", 3, &["00-worker"], &[]).await;

    // Nothing gets through, no connection ends: then all are cut, and all is well again.
    cluster.create(slow("50-silence")).await;
    middle(&cluster, "50-silence", 1).await;
    proxy.set(Fault::Blackhole);
    // The nodes reach the API server: the one that was on its way asks for its next step, and nobody answers.
    tokio::time::sleep(SILENCE).await;
    assert!(running.try_wait().unwrap().is_none(), "the controller has ended\n{}", product::tail(&log));
    let target = cluster.rendered("worker").await;
    let waits = cluster.list("Node").await.iter().filter(|n| note(n, "currentConfig") != target).count();
    assert!(waits > 0, "the rollout went on without a controller");
    proxy.set(Fault::Cut);
    proxy.set(Fault::None);
    cluster.settled("worker", 3, &["50-silence"], &[]).await;
    cluster.no_panic();
    running.start_kill().unwrap();
    running.wait().await.unwrap();
    cluster.stop().await;
}
