//! Errors of an installation: each is reported by a condition that names object and remedy, a second run completes
//! whatever was left half done, and the running parts are not touched.
//!
//! Here: a kubeconfig without permissions, an API server that refuses some of the objects, an image that cannot be pulled, CRDs
//! of a newer version, invalid settings that the API server accepts, settings that are deleted, a namespace that is deleted, a
//! controller that no node takes, an operator of an old version or of another image, and an installation that is killed at any
//! moment.
//!
//! Not here: objects that admission policies refuse (`admission_policies`), an upgrade that is killed at each step (`upgrade`),
//! deleted certificates and user data (`own_rights`), and the retries of the loop (unit tests of `operator::sync`).

use crate::installation::{IMAGE, URL, here, installed, operator, says, set, settings};
use crate::parts::Part;
use crate::product::{Cluster, lab, text};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NAMESPACE: &str = "openshift-machine-config-operator";
const NODES: [&str; 2] = ["worker-0", "worker-1"];

#[tokio::test(flavor = "multi_thread")]
async fn problems_of_an_installation_are_reported_with_remedy_and_resolve_by_themselves() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    interrupted(&cluster, dir.path(), &account).await;
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    refused_objects(&cluster).await;
    no_image(&cluster).await;
    newer_definitions(&cluster).await;
    follows_a_payload(&cluster).await;
    nonsense(&cluster, dir.path()).await;
    running.stop().await;
    not_upgradeable(&cluster, dir.path(), &account).await;
    no_image_of_its_own(&cluster, dir.path(), &account).await;
    without_settings(&cluster, dir.path(), &account).await;
    without_a_namespace(&cluster, dir.path(), &account).await;
    old_operator(&cluster, dir.path(), &account).await;
    without_rights(&cluster, dir.path()).await;
    cluster.stop().await;
}

/// A tool prunes the settings: user data keeps its token, and an operator goes on when they are there again.
async fn without_settings(cluster: &Cluster, dir: &Path, account: &Path) {
    let of_pod = ["operator", "start", "--image=registry.example.com/mco:1"];
    let running = Part::start(dir, "pruned", account, &of_pod);
    says(cluster, "Degraded", "False", &[]).await;
    let user_data = async || {
        let name = ["-n", "openshift-machine-api", "get", "secret", "worker-user-data-managed"];
        let said = cluster.kubectl(&[&name[..], &["-o", "jsonpath={.data}"]].concat()).await;
        assert_eq!(said.code, 0, "{said:?}");
        said.out
    };
    let before = user_data().await;
    assert!(!before.is_empty());
    cluster.delete("MachineConfigOperator", "cluster").await;
    cluster
        .wait("the operator says why it does nothing", async || {
            running
                .log()
                .contains("SettingsFailed: MachineConfigOperator cluster does not exist")
                .then_some(())
        })
        .await;
    assert_eq!(user_data().await, before);
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    says(cluster, "Available", "True", &[]).await;
    assert_eq!(user_data().await, before);
    // The controller's pod is gone, and no node takes another one.
    for node in NODES {
        assert_eq!(cluster.kubectl(&["cordon", node]).await.code, 0);
    }
    let pods = ["-n", NAMESPACE, "delete", "pods", "-l", "k8s-app=machine-config-controller"];
    assert_eq!(cluster.kubectl(&[&pods[..], &["--wait=false"]].concat()).await.code, 0);
    says(cluster, "Available", "False", &["ControllerNotRunning"]).await;
    for node in NODES {
        assert_eq!(cluster.kubectl(&["uncordon", node]).await.code, 0);
    }
    says(cluster, "Available", "True", &[]).await;
    running.stop().await;
}

/// Somebody deletes the namespace of boot tokens, and the operator's Role with it: it says what it may not read any more, and
/// goes on when an installation has made it again.
async fn without_a_namespace(cluster: &Cluster, dir: &Path, account: &Path) {
    let running = operator(dir, "no-namespace", account);
    says(cluster, "Degraded", "False", &[]).await;
    let said = cluster.kubectl(&["delete", "namespace", "machine-config-boot-tokens", "--timeout=60s"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let why = says(cluster, "Degraded", "True", &["ReadFailed", "mco install"]).await;
    assert!(why.contains("machine-config-boot-tokens"), "{why}");
    says(cluster, "Available", "True", &[]).await;
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    says(cluster, "Degraded", "False", &[]).await;
    running.stop().await;
}

/// A power cut at any moment of an installation: the next operator continues it.
async fn interrupted(cluster: &Cluster, dir: &Path, account: &Path) {
    for step in 1..12_u64 {
        let killed = Part::start(dir, "killed", account, &["operator", "start", "--leader-elect=false"]);
        tokio::time::sleep(Duration::from_millis(step * 70)).await;
        killed.kill().await;
    }
    let said = cluster.kubectl(&["get", "clusterroles", "-o", "name"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// The API server refuses some of the objects: the others are created, and the condition names the first refused one.
async fn refused_objects(cluster: &Cluster) {
    let policy = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-roles"},
            "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [{
                "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["clusterroles"]}]},
                "validations": [{"expression": "!(object.metadata.name in ['machine-config-controller', 'machine-config-daemon'])",
                    "message": "no roles on Sundays"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-roles"},
            "spec": {"policyName": "no-roles", "validationActions": ["Deny"]}},
    ]});
    assert_eq!(cluster.put(&["create"], &policy).await.code, 0);
    // The API server needs a moment to apply a policy.
    cluster
        .wait("the policy is in force", async || {
            let said = cluster
                .kubectl(&["annotate", "clusterrole", "machine-config-controller", "a=b", "--overwrite"])
                .await;
            said.err.contains("Sundays").then_some(())
        })
        .await;
    let pods =
        here(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"].clone();
    let roles = ["machine-config-controller", "machine-config-server", "machine-config-daemon"];
    for role in roles {
        cluster.delete("ClusterRole", role).await;
    }
    let why = says(cluster, "Degraded", "True", &["RightsFailed", "Sundays"]).await;
    assert!(
        why.contains("ClusterRole machine-config-controller") && why.contains("change what refuses it"),
        "{why}"
    );
    // A pass may have ended between the deletions: then the next one creates it.
    cluster
        .wait("the other objects exist", async || {
            (!cluster.get("ClusterRole", "machine-config-server").await.is_null()).then_some(())
        })
        .await;
    let now =
        here(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"].clone();
    assert_eq!(now, pods, "the running parts are not changed");
    says(cluster, "Available", "True", &[]).await;
    cluster.told("cluster", "OperatorDegraded", &["RightsFailed"]).await;
    let gone = cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "no-roles"]).await;
    assert_eq!(gone.code, 0, "{gone:?}");
    says(cluster, "Degraded", "False", &[]).await;
    for role in roles {
        assert!(!cluster.get("ClusterRole", role).await.is_null(), "{role}");
    }
}

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
async fn no_image_of_its_own(cluster: &Cluster, dir: &Path, account: &Path) {
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
    let controller = here(cluster, "deployment", "machine-config-controller").await;
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
async fn no_image(cluster: &Cluster) {
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
    let server = here(cluster, "daemonset", "machine-config-server").await;
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

/// CRDs of a newer version are never overwritten.
async fn newer_definitions(cluster: &Cluster) {
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
async fn follows_a_payload(cluster: &Cluster) {
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

/// Invalid settings that the API server accepts: nothing is changed, and the condition names each entry.
async fn nonsense(cluster: &Cluster, dir: &Path) {
    let controller = async || {
        here(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"].clone()
    };
    let before = controller().await;
    set(cluster, json!({"image": "registry.example.com/mco:3", "pools": ["master", "worker", "Bad_Pool"]}))
        .await;
    let why = says(cluster, "Degraded", "True", &["SettingsFailed", "MachineConfigOperator cluster"]).await;
    assert!(
        why.contains("spec.pools[2] \"Bad_Pool\" is not the name of a pool; use a-z, 0-9 and -"),
        "{why}"
    );
    assert_eq!(controller().await, before, "the running parts are not changed, though the image is valid");
    says(cluster, "Available", "True", &[]).await;
    // A machine that joins in the meantime is approved.
    crate::installation::joins(cluster, dir).await;
    set(cluster, json!({"image": "registry.example.com/mco:1", "pools": ["master", "worker"]})).await;
    says(cluster, "Degraded", "False", &[]).await;
}

/// A kubelet that the next version of Kubernetes would not support, and then a degraded pool: `mco install` begins no upgrade
/// and writes nothing, until that is corrected or somebody insists.
async fn not_upgradeable(cluster: &Cluster, dir: &Path, account: &Path) {
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
async fn old_operator(cluster: &Cluster, dir: &Path, account: &Path) {
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
    assert!(here(cluster, "service", "machine-config-server").await.is_null());
    old.stop().await;
    let status = json!({"status": {"versions": [{"name": "operator", "version": "v99.0.0"}]}}).to_string();
    let patch =
        ["patch", "machineconfigoperator", "cluster", "--subresource=status", "--type=merge", "-p", &status];
    let said = cluster.kubectl(&patch).await;
    assert_eq!(said.code, 0, "{said:?}");
    let old = operator(dir, "old", account);
    let why = says(cluster, "Degraded", "True", &["SettingsFailed", "v99.0.0"]).await;
    assert!(why.contains("it changes nothing"), "{why}");
    assert!(here(cluster, "service", "machine-config-server").await.is_null());
    old.stop().await;
}

/// Without permissions nothing is written, and the error names what is forbidden.
async fn without_rights(cluster: &Cluster, dir: &Path) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": NAMESPACE}});
    assert_eq!(cluster.put(&["create"], &account).await.code, 0);
    let account = crate::parts::speak_as(cluster, dir, "nobody").await;
    let before = settings(cluster).await["metadata"]["generation"].clone();
    for args in
        [&["install", IMAGE, URL, "--no-wait"][..], &["uninstall", "--yes"], &["operator", "start", "--once"]]
    {
        let out = tokio::process::Command::new(::lab::built_mco().unwrap())
            .args(args)
            .arg("--kubeconfig")
            .arg(&account)
            .output()
            .await
            .unwrap();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.code() == Some(1) && err.contains("forbidden"), "{args:?}: {err}");
        let remedy = "system:serviceaccount:openshift-machine-config-operator:nobody may not ";
        assert!(
            err.contains(remedy) && err.contains("an administrator gives this right: kubectl "),
            "{args:?}: {err}"
        );
    }
    assert_eq!(settings(cluster).await["metadata"]["generation"], before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_crd_is_reported_and_a_second_install_completes() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;
    let quota = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-deployments"},
            "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]},
                "validations": [{"expression": "false", "message": "not on this cluster"}]}},
        {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-deployments"},
            "spec": {"policyName": "no-deployments", "validationActions": ["Deny"]}},
    ]});
    assert_eq!(cluster.put(&["create"], &quota).await.code, 0);
    let said = cluster
        .wait("the policy is in force", async || {
            let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
            if said.code == 0 {
                let gone = ["-n", NAMESPACE, "delete", "deployment", "machine-config-operator"];
                assert_eq!(cluster.kubectl(&gone).await.code, 0);
            }
            (said.code != 0).then_some(said)
        })
        .await;
    assert!(
        said.err.contains("apply Deployment machine-config-operator")
            && said.err.contains("not on this cluster"),
        "{said:?}"
    );
    let gone = cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "no-deployments"]).await;
    assert_eq!(gone.code, 0, "{gone:?}");
    cluster
        .wait("a second run mends it", async || {
            (cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await.code == 0).then_some(())
        })
        .await;
    assert!(!here(&cluster, "deployment", "machine-config-operator").await.is_null());
    assert_eq!(settings(&cluster).await["spec"]["image"], "registry.example.com/mco:1");
    cluster.stop().await;
}
