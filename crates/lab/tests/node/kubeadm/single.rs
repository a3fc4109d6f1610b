//! One control-plane node and one worker: the guide from its first command to its last.

use super::site::Site;
use lab::{MachineState, RealNode};

fn boots(node: &RealNode) -> u32 {
    match node.machine().state() {
        MachineState::Running { boot, .. } => boot,
        other => panic!("{}: {other:?}", node.name()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_installs_from_an_image_and_rolls_through_worker_and_master() {
    let Some(site) = Site::start(1, 1).await else { return };
    site.install().await;
    let (master, worker) = (&site.cluster.control_planes()[0], &site.cluster.workers()[0]);
    // With one control-plane node there is one controller: a second one would have no other node to go to during the
    // reboot.
    let controllers = site.ours("deployments").await;
    let controller =
        controllers.iter().find(|d| d["metadata"]["name"] == "machine-config-controller").unwrap();
    assert_eq!(controller["spec"]["replicas"], 1, "{controller}");

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
    site.stop().await;
}
