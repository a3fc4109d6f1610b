//! The agent as a pod of a DaemonSet: it enters its host, and continues after the host's reboot.

use crate::product::{Cluster, LIMIT, delivered, machine_config, one_file, repository, with_controller};
use lab::{Kubelet, MachineState, PRODUCT_IMAGE, product_image};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_in_a_pod_changes_and_reboots_its_host() {
    if !lab::require_root() {
        return;
    }
    let Some(program) = delivered() else { return };
    let Some(builder) = with_controller() else { return };
    let builder =
        builder.nodes(1).real().kubelet(Kubelet::Real).daemon(false).controller_manager(true).scheduler(true);
    let cluster = Cluster::start(builder).await;
    let node = cluster.lab.node(0);
    let folder = cluster.lab.folder().make("image").unwrap();
    let archive = product_image(&program, &repository().join("templates"), &folder).await.unwrap();
    node.load_image(&archive).await.unwrap();
    // The kubeconfig's path with most kubelets.
    node.run(["cp", "/etc/kubernetes/kubelet.kubeconfig", "/var/lib/kubelet/kubeconfig"]).await.unwrap();

    let said = cluster.mco(&["install", "--daemon-image", PRODUCT_IMAGE]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let boot = node.boot_id().await.unwrap();
    cluster.create(machine_config("50-pod", "worker", one_file("/etc/by-a-pod", "yes"))).await;
    cluster.settled("worker", 1, &["50-pod"], &[]).await;
    assert_eq!(node.read_file("/etc/by-a-pod").await.unwrap(), "yes");
    let machine = cluster.lab.real_node(0).unwrap().machine();
    assert!(matches!(machine.state(), MachineState::Running { boot: 2.., .. }), "{:?}", machine.state());
    assert_ne!(node.boot_id().await.unwrap(), boot);

    // It runs from a folder of the host, with the host's file system as its root, and has no service account token.
    node.wait_ready(&cluster.client, LIMIT).await.unwrap();
    let look = "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | grep -q 'daemon start' && \
                readlink $p/exe && ls $p/root/etc/by-a-pod && ls $p/root/var/run/secrets/kubernetes.io 2>&1; done; true";
    let running = node.run(["sh", "-c", look]).await.unwrap();
    assert!(running.contains("/usr/local/bin/mco\n") && running.contains("/etc/by-a-pod"), "{running}");
    assert!(running.contains("No such file"), "{running}");
    let pods =
        cluster.kubectl(&["-n", "openshift-machine-config-operator", "get", "pods", "-o", "json"]).await;
    let pods: Value = serde_json::from_str(&pods.out).unwrap();
    assert_eq!(pods["items"].as_array().map(Vec::len), Some(1), "{pods}");
    cluster.no_panic();
    cluster.stop().await;
}
