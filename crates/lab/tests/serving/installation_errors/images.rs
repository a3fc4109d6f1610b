//! Images that no node can pull: the running parts stay, and the condition names pod, image and setting.
//!
//! Not here: images that an installation does not take, because it is of another version or follows a payload (`versions`).

use super::{NAMESPACE, NODES};
use crate::installation::{own_object, says, set};
use crate::parts::Part;
use crate::product::{Cluster, text};
use serde_json::{Value, json};
use std::path::Path;

/// Waits for a pod of this part with the image that does not exist, and sets its status as a kubelet would. Returns its name.
async fn cannot_pull(cluster: &Cluster, part: &str) -> String {
    let label = format!("k8s-app={part}");
    let selector = ["-n", NAMESPACE, "get", "pods", "-l", &label, "-o", "json"];
    let waiting = cluster
        .wait("a new pod waits", async || {
            let pods: Value = serde_json::from_str(&cluster.kubectl(&selector).await.out).ok()?;
            let new = |p: &&Value| p["spec"]["containers"][0]["image"] == "registry.example.com/none:2";
            pods["items"].as_array()?.iter().find(new).map(|p| text(&p["metadata"]["name"]))
        })
        .await;
    let status = json!({"status": {"containerStatuses": [{
        "name": part, "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]}});
    let patch = status.to_string();
    let patched =
        ["-n", NAMESPACE, "patch", "pod", &waiting, "--subresource=status", "--type=merge", "-p", &patch];
    let said = cluster.kubectl(&patched).await;
    assert_eq!(said.code, 0, "{said:?}");
    waiting
}

/// The same for an operator that runs as a pod: its own Deployment is the first to get the image. It continues with the image
/// that it has, reports the cause, and changes no other part.
pub(super) async fn no_image_of_its_own(cluster: &Cluster, dir: &Path, account: &Path) {
    let of_pod = ["operator", "start", "--image=registry.example.com/mco:1"];
    let running = Part::start(dir, "of-pod", account, &of_pod);
    for node in NODES {
        assert_eq!(cluster.kubectl(&["cordon", node]).await.code, 0);
    }
    set(cluster, json!({"image": "registry.example.com/none:2"})).await;
    let waiting = cannot_pull(cluster, "machine-config-operator").await;
    let why = says(cluster, "Degraded", "True", &["MachineConfigOperatorFailed", "ImagePullBackOff"]).await;
    assert!(why.contains(&waiting) && why.contains("spec.image") && why.contains("none:2"), "{why}");
    says(cluster, "Available", "True", &[]).await;
    let controller = own_object(cluster, "deployment", "machine-config-controller").await;
    let image = &controller["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "registry.example.com/mco:1", "everything else is left to the operator of that image");
    for node in NODES {
        assert_eq!(cluster.kubectl(&["uncordon", node]).await.code, 0);
    }
    set(cluster, json!({"image": "registry.example.com/mco:1"})).await;
    says(cluster, "Degraded", "False", &[]).await;
    running.stop().await;
}

/// An image that no node can pull: the old pods keep running, and the condition names the pod, the image and the
/// setting.
pub(super) async fn no_image(cluster: &Cluster) {
    // No kubelet pulls images here. So the nodes are cordoned to keep the new pods waiting, and a pod's status is set
    // as a kubelet would set it.
    for node in NODES {
        assert_eq!(cluster.kubectl(&["cordon", node]).await.code, 0);
    }
    set(cluster, json!({"image": "registry.example.com/none:2"})).await;
    let waiting = cannot_pull(cluster, "machine-config-controller").await;
    let why = says(cluster, "Degraded", "True", &["MachineConfigControllerFailed", "ImagePullBackOff"]).await;
    assert!(why.contains(&waiting) && why.contains("spec.image") && why.contains("none:2"), "{why}");
    says(cluster, "Available", "True", &[]).await;
    let server = own_object(cluster, "daemonset", "machine-config-server").await;
    let image = &server["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "registry.example.com/mco:1", "each part waits for the previous one");
    // `mco install` says the same, and fails.
    let said = cluster.mco(&["install", "--image=registry.example.com/none:2", "--timeout=60s"]).await;
    assert!(said.code == 1 && said.err.contains("ImagePullBackOff"), "{said:?}");
    for node in NODES {
        assert_eq!(cluster.kubectl(&["uncordon", node]).await.code, 0);
    }
    set(cluster, json!({"image": "registry.example.com/mco:1"})).await;
    says(cluster, "Degraded", "False", &[]).await;
}
