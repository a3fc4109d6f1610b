//! OS images that are on the nodes before the first one is drained, with controller, agents and an API server. OSTree is the
//! lab's fake, whose pull takes as long as the test wants.
//!
//! Not here: a pull from a registry (`tests/vm`), and which nodes prefetch at once (unit tests of `rollout`).

use crate::product::{Cluster, is_done, machine_config, note, with_controller};
use lab::{NodeHandle, OSTREE_PULL};
use serde_json::json;

const PREFETCH: &str = "machineconfig.dev/prefetch";
const PREFETCHED: &str = "machineconfig.dev/prefetched";
const OS_IMAGES: &str = "machineconfig.dev/os-images";
const AS_THEY_ARE: &str = "as-they-are";
/// The first pull is refused; the next ones wait for the image.
const PULL: &str = "#!/bin/sh\ns=/var/lib/lab-ostree\necho pull >>$s/pulls\n\
    if [ ! -e $s/login ]; then : >$s/login; echo 'reading manifest: unauthorized: authentication required' >&2; exit 1; fi\n\
    echo 'layers already present: 0; layers needed: 1 (5.0 MB)'\n\
    until [ -e $s/arrived ]; do sleep 0.1; done\n";

/// An annotation of this product's own group.
fn own(node: &serde_json::Value, key: &str) -> String {
    node["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
}

async fn pulls(node: &NodeHandle) -> usize {
    let pulls = node.exec(["cat", "/var/lib/lab-ostree/pulls"]).await.unwrap();
    pulls.stdout.lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_fetch_the_next_image_one_after_the_other_and_none_goes_without_it() {
    if !lab::require_root() {
        return;
    }
    let Some(builder) = with_controller() else { return };
    let builder =
        builder.nodes(2).real().fake_ostree("registry.lab/os:a").node_file(OSTREE_PULL, 0o755, PULL);
    let cluster = Cluster::start(builder).await;
    cluster.settled("worker", 2, &["00-worker"], &[]).await;
    // The registry in the image's name does not exist, so the controller must not inspect the image.
    let wish = json!({"metadata": {"annotations": {PREFETCH: "1", OS_IMAGES: AS_THEY_ARE}}});
    cluster.patch("MachineConfigPool", "worker", wish).await;
    let mut config = machine_config("50-os", "worker", json!({"ignition": {"version": "3.4.0"}}));
    config["spec"]["osImageURL"] = json!("registry.lab/os:b");
    cluster.create(config).await;

    // Each pull fails once, and the node says why. Meanwhile nothing is drained.
    for (node, handle) in [("worker-0", cluster.lab.node(0)), ("worker-1", cluster.lab.node(1))] {
        let answer = cluster
            .wait("a node says that it cannot fetch the image", async || {
                Some(own(&cluster.get("Node", node).await, PREFETCHED)).filter(|answer| answer.contains("; "))
            })
            .await;
        assert!(answer.contains("pull secret") && answer.contains("spec.osImageURL"), "{answer}");
        assert!(pulls(&handle).await > 0);
    }
    let said = cluster.mco(&["status", "worker"]).await;
    assert!(said.out.contains("cannot fetch the next OS image"), "{said:?}");
    let untouched = async |node: &str| {
        let found = cluster.get("Node", node).await;
        let stays = note(&found, "desiredConfig") == note(&found, "currentConfig");
        assert!(
            stays && found["spec"].get("unschedulable").is_none() && note(&found, "state") == "Done",
            "{found}"
        );
    };
    untouched("worker-0").await;
    untouched("worker-1").await;

    // The image arrives on one node: that node is updated, and the other one continues to fetch.
    let first = cluster
        .wait("a node tries again", async || {
            for index in 0..2 {
                if pulls(&cluster.lab.node(index)).await > 1 {
                    return Some(index);
                }
            }
            None
        })
        .await;
    let (first, second) = (cluster.lab.node(first), cluster.lab.node(1 - first));
    first.run(["touch", "/var/lib/lab-ostree/arrived"]).await.unwrap();
    cluster
        .wait("the node with the image goes", async || {
            let found = cluster.get("Node", first.name()).await;
            let goes = note(&found, "desiredConfig") != note(&found, "currentConfig");
            // The same write removes the request and its answer.
            goes.then(|| assert_eq!((own(&found, PREFETCH), own(&found, PREFETCHED)), Default::default()))
        })
        .await;
    untouched(second.name()).await;
    second.run(["touch", "/var/lib/lab-ostree/arrived"]).await.unwrap();
    let wanted = cluster.rendered("worker").await;
    for node in [first, second] {
        cluster
            .wait("the node is in the new config", async || {
                let found = cluster.get("Node", node.name()).await;
                (is_done(&found) && note(&found, "currentConfig") == wanted).then_some(())
            })
            .await;
        let origin = node.run(["sh", "-c", "cat /ostree/deploy/debian/deploy/22*.0.origin"]).await.unwrap();
        assert!(origin.contains("registry.lab/os:b"), "{origin}");
        let found = cluster.get("Node", node.name()).await;
        assert_eq!((own(&found, PREFETCH), own(&found, PREFETCHED)), Default::default(), "{found}");
    }

    // Another image; and `mco undo` brings the one before.
    let off = json!({"metadata": {"annotations": {PREFETCH: null}}});
    cluster.patch("MachineConfigPool", "worker", off).await;
    cluster.patch("MachineConfig", "50-os", json!({"spec": {"osImageURL": "registry.lab/os:c"}})).await;
    let next = cluster
        .wait("the pool has the next config", async || {
            Some(cluster.rendered("worker").await).filter(|next| *next != wanted)
        })
        .await;
    boots(&cluster, &next, '3', "registry.lab/os:c").await;
    let said = cluster.mco(&["undo", "worker", "--yes"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    boots(&cluster, &wanted, '4', "registry.lab/os:b").await;
    cluster.no_panic();
    cluster.stop().await;
}

/// Both nodes are in this config, and have booted its image: the deployment whose checksum is made of this character.
async fn boots(cluster: &Cluster, config: &str, checksum: char, image: &str) {
    for index in 0..2 {
        let node = cluster.lab.node(index);
        cluster
            .wait("the node is in the config", async || {
                let found = cluster.get("Node", node.name()).await;
                (is_done(&found) && note(&found, "currentConfig") == config).then_some(())
            })
            .await;
        let status = node.run(["ostree", "admin", "status"]).await.unwrap();
        assert!(status.contains(&format!("* debian {checksum}{checksum}")), "{status}");
        let origin = format!("cat /ostree/deploy/debian/deploy/{checksum}{checksum}*.0.origin");
        let origin = node.run(["sh", "-c", &origin]).await.unwrap();
        assert!(origin.contains(image), "{origin}");
    }
}
