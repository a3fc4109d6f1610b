//! Nodes as k3s sets them up: roles with the value `true` or none at all, the kubelet's credentials in k3s's own
//! folder, no unit for the kubelet. Agents as pods find those credentials; nothing is done on the hosts by hand.

use crate::product::{
    Cluster, LIMIT, delivered, machine_config, note, one_file, repository, text, with_controller,
};
use lab::{Kubelet, Layout, PRODUCT_IMAGE, product_image};

#[tokio::test(flavor = "multi_thread")]
async fn agents_work_on_hosts_laid_out_by_k3s() {
    if !lab::require_root() {
        return;
    }
    let Some(program) = delivered() else { return };
    let Some(builder) = with_controller() else { return };
    let builder = builder.nodes(1).masters(1).real().kubelet(Kubelet::Real).layout(Layout::K3s).daemon(false);
    let cluster = Cluster::start(builder.controller_manager(true).scheduler(true)).await;
    let folder = cluster.lab.folder().make("image").unwrap();
    let archive = product_image(&program, &repository().join("templates"), &folder).await.unwrap();
    for node in cluster.lab.nodes() {
        assert_ne!(node.exec(["ls", "/var/lib/kubelet/kubeconfig"]).await.unwrap().code, 0, "not k3s's way");
        node.load_image(&archive).await.unwrap();
    }
    let worker = cluster.get("Node", "worker-0").await;
    let labels = worker["metadata"]["labels"].as_object().unwrap();
    assert!(!labels.keys().any(|key| key.starts_with("node-role")), "{labels:?}");
    let server = cluster.get("Node", "master-0").await;
    assert_eq!(server["metadata"]["labels"]["node-role.kubernetes.io/control-plane"], "true");

    let said = cluster.mco(&["install", "--daemon-image", PRODUCT_IMAGE]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for (pool, index) in [("worker", 0), ("master", 1)] {
        let name = format!("50-{pool}-k3s");
        let path = format!("/etc/by-{pool}");
        cluster.create(machine_config(&name, pool, one_file(&path, "yes"))).await;
        let config = cluster.settled(pool, 1, &[&name], &[]).await;
        let node = cluster.lab.node(index);
        assert_eq!(node.read_file(&path).await.unwrap(), "yes");
        let object = cluster.get("Node", node.name()).await;
        assert_eq!(
            note(&object, "currentConfig"),
            config,
            "{} is in another pool",
            text(&object["metadata"]["name"])
        );
        node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    }
    cluster.no_panic();
    cluster.stop().await;
}
