//! What an installation does not change, because it is of another version, of another image, or not ready for the next one: CRDs of a
//! newer version, a payload's image, kubelets that lag behind, a build that was interrupted, an operator that is old.
//!
//! Not here: an upgrade that is killed at each step (`upgrade`).

use super::NAMESPACE;
use crate::installation::{IMAGE, URL, operator, own_object, says, set, settings};
use crate::parts::Part;
use crate::product::{Cluster, text};
use serde_json::{Value, json};
use std::path::Path;

/// CRDs of a newer version are never overwritten.
pub(super) async fn newer_definitions(cluster: &Cluster) {
    let name = "machineconfigs.machineconfiguration.openshift.io";
    let note = |version: &str| json!({"metadata": {"annotations": {"machineconfig.dev/version": version}}});
    cluster.patch("CustomResourceDefinition", name, note("v99.0.0")).await;
    cluster.patch("MachineConfigPool", "worker", json!({"metadata": {"labels": {"touched": "yes"}}})).await;
    let why = says(cluster, "Degraded", "True", &["CustomResourceDefinitionsFailed"]).await;
    assert!(why.contains(name) && why.contains("`mco install` of v99.0.0 or newer"), "{why}");
    let before = cluster.get("CustomResourceDefinition", name).await["metadata"]["generation"].clone();
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert!(
        said.code == 1 && said.err.contains("v99.0.0") && said.err.contains("Nothing was written"),
        "{said:?}"
    );
    assert_eq!(cluster.get("CustomResourceDefinition", name).await["metadata"]["generation"], before);
    cluster.patch("CustomResourceDefinition", name, note("v0.0.1")).await;
    says(cluster, "Degraded", "False", &[]).await;
}

/// An installation that follows a release payload takes its image from there: another image is refused before anything is
/// written, and the error names both ways out.
pub(super) async fn follows_a_payload(cluster: &Cluster) {
    let images = json!({"machineConfigOperator": "registry.example.com/mco:1"}).to_string();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"images.json": images},
        "metadata": {"name": "machine-config-operator-images", "namespace": NAMESPACE}});
    assert_eq!(cluster.put(&["create"], &map).await.code, 0);
    set(cluster, json!({"imageFrom": "ReleasePayload"})).await;
    says(cluster, "Degraded", "False", &[]).await;
    let before = settings(cluster).await["metadata"]["generation"].clone();
    let said = cluster.mco(&["install", "--image=registry.example.com/mco:2", URL, "--no-wait"]).await;
    for words in
        ["names the image registry.example.com/mco:1", "Nothing was written", "\"imageFrom\":\"Settings\""]
    {
        assert!(said.code == 1 && said.err.contains(words), "{words}: {said:?}");
    }
    assert_eq!(settings(cluster).await["metadata"]["generation"], before);
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "the payload's own: {said:?}");
    assert_eq!(settings(cluster).await["spec"]["imageFrom"], "ReleasePayload", "it is the administrator's");
    set(cluster, json!({"imageFrom": "Settings"})).await;
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert!(said.code == 0 && settings(cluster).await["spec"]["imageFrom"] == "Settings", "{said:?}");
    let gone = ["-n", NAMESPACE, "delete", "configmap", "machine-config-operator-images"];
    assert_eq!(cluster.kubectl(&gone).await.code, 0);
    says(cluster, "Degraded", "False", &[]).await;
}

/// A kubelet that the next version of Kubernetes would not support, and then a degraded pool: `mco install` begins no upgrade
/// and writes nothing, until that is corrected or somebody insists.
pub(super) async fn not_upgradeable(cluster: &Cluster, dir: &Path, account: &Path) {
    let kubelet = async |version: &str| {
        let patch = json!({"status": {"nodeInfo": {"kubeletVersion": version}}});
        let (params, patch) = (kube::api::PatchParams::default(), kube::api::Patch::Merge(patch));
        cluster.api("Node").patch_status("worker-1", &params, &patch).await.unwrap();
    };
    let present = text(&cluster.get("Node", "worker-1").await["status"]["nodeInfo"]["kubeletVersion"]);
    kubelet("v1.33.7").await;
    let running = operator(dir, "skewed", account);
    let why = says(cluster, "Upgradeable", "False", &["KubeletSkew"]).await;
    assert!(why.contains("worker-1 (1.33); bring them to 1.36 first"), "{why}");
    let degraded = async |status: &str| {
        let time = "2026-01-01T00:00:00Z";
        let condition = json!({"type": "Degraded", "status": status, "reason": "R", "message": "m", "lastTransitionTime": time});
        let (params, patch) = (
            kube::api::PatchParams::default(),
            kube::api::Patch::Merge(json!({"status": {"conditions": [condition]}})),
        );
        cluster.api("MachineConfigPool").patch_status("worker", &params, &patch).await.unwrap();
    };
    degraded("True").await;
    says(cluster, "Upgradeable", "False", &["DegradedPool", "worker; mco status says why"]).await;
    // No controller runs here, so no pass has completed. An incomplete installation may be corrected, since that is no upgrade;
    // so the status claims a complete one.
    let status = json!({"status": {"versions": [{"name": "operator", "version": "v0.0.1"}]}}).to_string();
    let patch =
        ["patch", "machineconfigoperator", "cluster", "--subresource=status", "--type=merge", "-p", &status];
    let said = cluster.kubectl(&patch).await;
    assert_eq!(said.code, 0, "{said:?}");
    let before = settings(cluster).await["metadata"]["generation"].clone();
    let upgrade = ["install", "--image=registry.example.com/mco:2", "--no-wait"];
    let said = cluster.mco(&upgrade).await;
    for words in
        ["(DegradedPool): these pools are degraded: worker", "Nothing was written", "--allow-not-upgradeable"]
    {
        assert!(said.code == 1 && said.err.contains(words), "{words}: {said:?}");
    }
    assert_eq!(settings(cluster).await["metadata"]["generation"], before);
    let said = cluster.mco(&["install", IMAGE, "--no-wait"]).await;
    assert_eq!(said.code, 0, "the same image is no upgrade: {said:?}");
    degraded("False").await;
    interrupted_build(cluster).await;
    kubelet(&present).await;
    running.stop().await;
    let running = operator(dir, "level", account);
    says(cluster, "Upgradeable", "True", &[]).await;
    running.stop().await;
}

/// A build of a pool's image whose Job somebody has deleted: no upgrade while it is not built again. One that is still under way is
/// no obstacle, and neither is one of an earlier Containerfile.
async fn interrupted_build(cluster: &Cluster) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
        "metadata": {"name": "worker", "annotations": {"machineconfiguration.openshift.io/current-machine-os-build": "worker-1"}},
        "spec": {
            "machineConfigPool": {"name": "worker"}, "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"}, "renderedImagePushSpec": "r.example.com/team/os:latest",
        },
    });
    cluster.create(config).await;
    let build = |name: &str| {
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSBuild",
            "metadata": {"name": name, "labels": {
                "machineconfiguration.openshift.io/machine-os-config": "worker",
                "machineconfiguration.openshift.io/target-machine-config-pool": "worker",
            }},
            "spec": {
                "machineConfig": {"name": "rendered-worker-1"}, "machineOSConfig": {"name": "worker"},
                "renderedImagePushSpec": format!("r.example.com/team/os:{name}"),
            },
        })
    };
    let state = async |name: &str, state: &str| {
        let time = "2026-01-01T00:00:00Z";
        let conditions: Vec<Value> = ["Prepared", "Building", "Failed", "Interrupted", "Succeeded"]
            .map(|type_| {
                let status = if type_ == state { "True" } else { "False" };
                json!({"type": type_, "status": status, "reason": type_, "message": "m", "lastTransitionTime": time})
            })
            .to_vec();
        let (params, patch) = (
            kube::api::PatchParams::default(),
            kube::api::Patch::Merge(json!({"status": {"conditions": conditions}})),
        );
        cluster.api("MachineOSBuild").patch_status(name, &params, &patch).await.unwrap();
    };
    for name in ["worker-0", "worker-1"] {
        cluster.create(build(name)).await;
    }
    // An earlier one, and the one in force while it goes on: what is left to say is the kubelet.
    state("worker-0", "Interrupted").await;
    state("worker-1", "Building").await;
    says(cluster, "Upgradeable", "False", &["KubeletSkew"]).await;
    state("worker-1", "Interrupted").await;
    let why = says(cluster, "Upgradeable", "False", &["InterruptedBuild"]).await;
    assert!(why.contains("worker (worker-1)") && why.contains("/rebuild on the MachineOSConfig"), "{why}");
    let upgrade = ["install", "--image=registry.example.com/mco:2", "--no-wait"];
    let said = cluster.mco(&upgrade).await;
    assert!(said.code == 1 && said.err.contains("(InterruptedBuild)"), "{said:?}");
    // Built again.
    cluster.delete("MachineOSBuild", "worker-1").await;
    cluster.create(build("worker-1")).await;
    state("worker-1", "Succeeded").await;
    says(cluster, "Upgradeable", "False", &["KubeletSkew"]).await;
    cluster.delete("MachineOSConfig", "worker").await;
    for name in ["worker-0", "worker-1"] {
        cluster.delete("MachineOSBuild", name).await;
    }
}

/// An operator of an old version, or of another image, changes nothing.
pub(super) async fn old_operator(cluster: &Cluster, dir: &Path, account: &Path) {
    let service = ["-n", NAMESPACE, "delete", "service", "machine-config-server"];
    assert_eq!(cluster.kubectl(&service).await.code, 0);
    let old = Part::start(
        dir,
        "other-image",
        account,
        &["operator", "start", "--image=registry.example.com/mco:0"],
    );
    let why = says(cluster, "Progressing", "True", &["MachineConfigOperator"]).await;
    assert!(
        why.contains("registry.example.com/mco:1 is to take over from the one of registry.example.com/mco:0"),
        "{why}"
    );
    assert!(own_object(cluster, "service", "machine-config-server").await.is_null());
    old.stop().await;
    let status = json!({"status": {"versions": [{"name": "operator", "version": "v99.0.0"}]}}).to_string();
    let patch =
        ["patch", "machineconfigoperator", "cluster", "--subresource=status", "--type=merge", "-p", &status];
    let said = cluster.kubectl(&patch).await;
    assert_eq!(said.code, 0, "{said:?}");
    let old = operator(dir, "old", account);
    let why = says(cluster, "Degraded", "True", &["SettingsFailed", "v99.0.0"]).await;
    assert!(why.contains("it changes nothing"), "{why}");
    assert!(own_object(cluster, "service", "machine-config-server").await.is_null());
    old.stop().await;
}
