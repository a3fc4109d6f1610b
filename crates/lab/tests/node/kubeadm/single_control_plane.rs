//! One control-plane node and one worker: the guide from its first command to its last, including the removal.

use super::installed_cluster::InstalledCluster;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lab::{MachineState, RealNode};
use serde_json::Value;

fn boots(node: &RealNode) -> u32 {
    match node.machine().state() {
        MachineState::Running { boot, .. } => boot,
        other => panic!("{}: {other:?}", node.name()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_installs_from_an_image_and_rolls_through_worker_and_master() {
    let Some(site) = InstalledCluster::start(1, 1).await else { return };
    site.install().await;
    let (master, worker) = (&site.cluster.control_planes()[0], &site.cluster.workers()[0]);
    // With one control-plane node there is one controller: a second one would have no other node to go to during the
    // reboot.
    let controllers = site.ours("deployments").await;
    let controller =
        controllers.iter().find(|d| d["metadata"]["name"] == "machine-config-controller").unwrap();
    assert_eq!(controller["spec"]["replicas"], 1, "{controller}");

    facts_are_those_of_kubeadm(&site, master).await;

    let before = [boots(master), boots(worker)];
    for role in ["worker", "master"] {
        let name = site.apply_the_guides_change(&[role]).await.remove(0);
        site.changed(role, &[if role == "master" { master } else { worker }], &name).await;
    }
    site.until_updated().await;
    let after = [boots(master), boots(worker)];
    assert!(after[0] > before[0] && after[1] > before[1], "no reboot: {before:?}, {after:?}");
    for node in site.ours("pods").await {
        assert_eq!(node["spec"].get("unschedulable"), None);
    }
    site.no_panic().await;
    // The guide's change costs nothing by itself, and neither does its removal.
    let patch = r#"{"spec": {"nodeDisruptionPolicy": null}}"#;
    site.kubectl(&["patch", "machineconfiguration", "cluster", "--type=merge", "-p", patch]).await;
    site.uninstall(&[master, worker]).await;
    site.stop().await;
}

/// The facts that the operator finds in kubeadm's objects are the values with which kubeadm made the cluster.
async fn facts_are_those_of_kubeadm(site: &InstalledCluster, master: &RealNode) {
    let config = site.read(&["get", "controllerconfig", "machine-config-controller", "-o", "json"]).await;
    let config: Value = serde_json::from_str(&config).unwrap();
    let spec = &config["spec"];
    let dns = spec["clusterDNSIP"].as_str().unwrap();
    let kubelet = site
        .read(&["-n", "kube-system", "get", "cm", "kubelet-config", "-o", "jsonpath={.data.kubelet}"])
        .await;
    assert!(kubelet.lines().any(|line| line.trim() == format!("- {dns}")), "{dns}: {kubelet}");
    let ca = master.handle().read_file("/etc/kubernetes/pki/ca.crt").await.unwrap();
    let kept = spec["kubeAPIServerServingCAData"].as_str().unwrap();
    let kept = String::from_utf8(STANDARD.decode(kept).unwrap()).unwrap();
    assert!(kept.contains(ca.trim()), "the API server's CA is another one: {kept}");
    let url = spec["infra"]["status"]["apiServerInternalURI"].as_str().unwrap();
    let kubeadm = site
        .read(&["-n", "kube-public", "get", "cm", "cluster-info", "-o", "jsonpath={.data.kubeconfig}"])
        .await;
    assert!(kubeadm.contains(&format!("server: {url}")), "{url}: {kubeadm}");
}
