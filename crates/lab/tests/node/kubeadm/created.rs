//! The cluster itself: what kubeadm sets up on its nodes, a reboot of the only control-plane node, and nothing left
//! behind afterwards.

use super::watchers::Quorum;
use crate::common;
use crate::product::LIMIT;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, ResourceExt};
use lab::{Kubeadm, MachineState, Reporter};

#[tokio::test(flavor = "multi_thread")]
async fn kubeadm_makes_a_cluster_that_survives_a_reboot_and_leaves_nothing() {
    if !lab::require_root() {
        return;
    }
    let cluster =
        Kubeadm::builder().control_planes(1).workers(1).progress(Reporter::stderr()).start().await.unwrap();
    let client = cluster.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let first = nodes.get("control-plane-0").await.unwrap();
    assert_eq!(first.labels().get("node-role.kubernetes.io/control-plane").map(String::as_str), Some(""));
    assert_eq!(first.labels().get("node-role.kubernetes.io/master"), None);
    let worker = nodes.get("worker-0").await.unwrap();
    let roles: Vec<_> = worker.labels().keys().filter(|key| key.contains("node-role")).collect();
    assert!(roles.is_empty(), "{roles:?}");
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let config = maps.get("kubeadm-config").await.unwrap().data.unwrap();
    assert!(config["ClusterConfiguration"].contains("controlPlaneEndpoint"), "{config:?}");

    let node = cluster.handles().remove(0);
    let mut state = cluster.nodes()[0].machine().watch();
    let boot = node.boot_id().await.unwrap();
    let quorum = Quorum::start(cluster.etcd_members());
    node.run(["systemctl", "reboot"]).await.unwrap();
    let up = state.wait_for(|state| matches!(state, MachineState::Running { boot: 2, .. }));
    tokio::time::timeout(LIMIT, up).await.unwrap().unwrap();
    cluster.wait_ready(LIMIT).await.unwrap();
    // The only etcd member was down during the reboot, so `Quorum` must have recorded the loss.
    assert!(quorum.lost().is_some());
    assert_ne!(node.boot_id().await.unwrap(), boot);
    // The control groups of the last boot's pods were removed before the kubelet started.
    let left =
        node.run(["journalctl", "-b", "-u", "lab-kubelet-prepare.service", "--no-pager"]).await.unwrap();
    assert!(!left.contains("rmdir: failed"), "{left}");

    let folder = cluster.folder().path().to_owned();
    let bridge = cluster.bridge().name().to_owned();
    let numbers = bridge.trim_start_matches("mcl").to_owned();
    let mark = format!("m{numbers}-");
    let ours = |name: &str| name == bridge || name.contains(&mark);
    let up = common::traces(&folder, &ours);
    assert!(up.interfaces.len() == 3 && !up.groups.is_empty(), "{up:?}");
    drop(client);
    cluster.stop().await;
    let after = common::traces(&folder, &ours);
    assert!(after.interfaces.is_empty() && after.groups.is_empty() && after.machines.is_empty(), "{after:?}");
    assert!(after.mounts.is_empty() && !folder.exists(), "{after:?}");
    assert_eq!(common::users(&folder), Vec::<String>::new());
}
