//! A drain on a machine with a real kubelet: the processes of evicted pods really end.
//!
//! Not here: all kinds of PodDisruptionBudgets (`tests/cluster/drains`).

use crate::product::pods::{Place, budget, budgets, pod, pods};
use crate::product::{machine_config, note, one_file, one_machine};
use kube::api::DeleteParams;
use lab::Kubelet;

#[tokio::test(flavor = "multi_thread")]
async fn a_real_kubelet_terminates_evicted_pods() {
    let Some(cluster) = one_machine(|lab| lab.kubelet(Kubelet::Real).controller_manager(true)).await else {
        return;
    };
    let pods = pods(&cluster, "default");
    for name in ["held", "free"] {
        let place = Place { image: lab::PAUSE_IMAGE, grace: 5, ..Place::on("worker-0") };
        pod(&cluster, name, name, place).await;
    }
    budget(&cluster, "default", ("keep", "held"), 1, 1).await;
    let node = cluster.lab.node(0);
    let containers = async || {
        let said = node.run(["ctr", "-n", "k8s.io", "tasks", "ls", "-q"]).await.unwrap();
        said.lines().count()
    };
    let before = containers().await;
    let boot = node.boot_id().await.unwrap();
    cluster.create(machine_config("50-real", "worker", one_file("/etc/real", "x"))).await;
    cluster
        .wait("the free pod has ended", async || pods.get_opt("free").await.ok()?.is_none().then_some(()))
        .await;
    cluster
        .wait("the node says what it waits for", async || {
            let why = note(&cluster.get("Node", "worker-0").await, "drainWaitsFor");
            (why.contains("default/held") && why.contains("default/keep")).then_some(())
        })
        .await;
    // The sandbox and the container of one pod.
    assert_eq!(containers().await, before - 2, "its processes run on");
    assert_eq!(node.boot_id().await.unwrap(), boot, "it rebooted before it was drained");
    budgets(&cluster, "default").delete("keep", &DeleteParams::default()).await.unwrap();
    cluster.settled("worker", 1, &["50-real"], &[]).await;
    assert!(pods.get_opt("held").await.unwrap().is_none());
    assert_ne!(node.boot_id().await.unwrap(), boot);
    assert_eq!(node.read_file("/etc/real").await.unwrap(), "x");
    assert_eq!(cluster.get("Node", "worker-0").await["spec"].get("unschedulable"), None);
    cluster.no_panic();
    cluster.stop().await;
}
