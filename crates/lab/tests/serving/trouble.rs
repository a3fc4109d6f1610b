//! Errors of an installation: each is reported by a condition that names object and remedy, a second run completes
//! whatever was left half done, and the running parts are not touched.
//!
//! Here: a kubeconfig without rights, an API server that refuses some of the objects, an image that cannot be pulled,
//! definitions of a newer version, settings with nonsense (refused where they are written, and those that the API server has
//! let through), an operator of an old version or of another image, and an installation that is killed at any moment.
//!
//! What it is not: an upgrade that is killed at each step (see `upgrade`), certificates and user data that are deleted (see
//! `parts`), and waits of the loop (unit tests of `operator::sync`).

use crate::installation::{IMAGE, URL, here, installed, operator, says, set, settings};
use crate::parts::Part;
use crate::product::{Cluster, Said, lab, machine_config, one_file, pool, text};
use api::names::annotation::GENERATED_BY_CONTROLLER;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const NAMESPACE: &str = "openshift-machine-config-operator";
const WORKER: &str = "machineconfiguration.openshift.io/role";

async fn put(cluster: &Cluster, verb: &[&str], object: &Value) -> Said {
    let file = cluster.lab.folder().join("object.json");
    std::fs::write(&file, object.to_string()).unwrap();
    let file = file.display().to_string();
    cluster.kubectl(&[verb, &["-f", &file]].concat()).await
}

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
    old_operator(&cluster, dir.path(), &account).await;
    without_rights(&cluster, dir.path()).await;
    cluster.stop().await;
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
    assert_eq!(put(cluster, &["create"], &policy).await.code, 0);
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

/// The same for an operator that runs as a pod, as in a cluster: its own Deployment meets the image first. It goes on with the image
/// that it has, says what is wrong, and changes no other part.
async fn no_image_of_its_own(cluster: &Cluster, dir: &Path, account: &Path) {
    let of_pod = ["operator", "start", "--image=registry.example.com/mco:1"];
    let running = Part::start(dir, "of-pod", account, &of_pod);
    for node in ["worker-0", "worker-1"] {
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
    for node in ["worker-0", "worker-1"] {
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
    for node in ["worker-0", "worker-1"] {
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
    for node in ["worker-0", "worker-1"] {
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

/// An installation that follows a release's payload takes its image from there: another one is refused before anything is
/// written, with both ways out.
async fn follows_a_payload(cluster: &Cluster) {
    let images = json!({"machineConfigOperator": "registry.example.com/mco:1"}).to_string();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"images.json": images},
        "metadata": {"name": "machine-config-operator-images", "namespace": NAMESPACE}});
    assert_eq!(put(cluster, &["create"], &map).await.code, 0);
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

/// Settings that the API server lets through and that make no sense: nothing is changed, and the condition names each entry.
async fn nonsense(cluster: &Cluster, dir: &Path) {
    let controller = async || {
        here(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"].clone()
    };
    let before = controller().await;
    set(cluster, json!({"image": "registry.example.com/mco:3", "pools": ["master", "worker", "Bad_Pool"]}))
        .await;
    let why = says(cluster, "Degraded", "True", &["SettingsFailed", "MachineConfigOperator cluster"]).await;
    assert!(why.contains("spec.pools[2] \"Bad_Pool\" is no name of a pool; use a-z, 0-9 and -"), "{why}");
    assert_eq!(controller().await, before, "the running parts are not changed, though the image is valid");
    says(cluster, "Available", "True", &[]).await;
    // A machine that joins meanwhile is let in.
    crate::installation::joins(cluster, dir).await;
    set(cluster, json!({"image": "registry.example.com/mco:1", "pools": ["master", "worker"]})).await;
    says(cluster, "Degraded", "False", &[]).await;
}

/// A kubelet that the next version of Kubernetes would not take, and then a pool that is degraded: no upgrade is begun by `mco
/// install`, and nothing is written, until it is mended or somebody insists.
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
    // No controller runs here, so no pass has come to its end. What was never complete is corrected, not upgraded.
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
    assert_eq!(put(cluster, &["create"], &account).await.code, 0);
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
async fn invalid_objects_are_refused_by_admission_policies() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    older_than_the_policies(&cluster).await;
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    // A cluster administrator who is not in system:masters, and so is subject to the policies.
    let bound = ["create", "clusterrolebinding", "jane", "--clusterrole=cluster-admin", "--user=jane"];
    assert_eq!(cluster.kubectl(&bound).await.code, 0);

    let config = |name: &str, config: Value| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name, "labels": {WORKER: "worker"}}, "spec": {"config": config}})
    };
    let with = |key: &str, value: Value| {
        let mut config = json!({"ignition": {"version": "3.5.0"}});
        config[key] = value;
        config
    };
    let files = |file: Value| with("storage", json!({"files": [{"path": "/etc/fine"}, file]}));
    let units = |name: &str| {
        with("systemd", json!({"units": [{"name": name, "enabled": false, "contents": "[Unit]\n"}]}))
    };
    let pool = |name: &str, selector: Value| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"machineConfigSelector": selector, "nodeSelector": {"matchLabels": {"a": "b"}}}})
    };
    let role = |values: Value, operator: &str| json!({"matchExpressions": [{"key": WORKER, "operator": operator, "values": values}]});
    let rows = [
        ("", config("fine", files(json!({"path": "/etc/also fine", "mode": 420})))),
        ("", config("fine-units", units("dev-disk-by\\x2did.swap"))),
        ("", config("nothing", json!({}))),
        (
            "spec.config.ignition.version \"9.9.9\"",
            config("version", json!({"ignition": {"version": "9.9.9"}})),
        ),
        ("has the path \"etc/motd\"", config("relative", files(json!({"path": "etc/motd"})))),
        ("has the path \"/etc/../motd\"", config("dots", files(json!({"path": "/etc/../motd"})))),
        ("has the path \"/etc/\"", config("slash", files(json!({"path": "/etc/"})))),
        ("has the mode 77777", config("mode", files(json!({"path": "/etc/motd", "mode": 77777})))),
        ("has the name \"a/b.service\"", config("unit", units("a/b.service"))),
        ("has the name \"foo\"", config("type", units("foo"))),
        ("the controller makes it", config("rendered-worker-1", with("storage", json!({})))),
        ("", pool("infra", role(json!(["worker", "infra"]), "In"))),
        ("does not select the MachineConfigs of worker", pool("alone", role(json!(["alone"]), "In"))),
        ("cannot be read", pool("sideways", role(json!(["worker"]), "Sideways"))),
        (
            "there is one, named cluster",
            json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "other"},
                "spec": {"managementState": "Managed"}}),
        ),
        // Invalid settings of the operator.
        (
            "is each machine's own address",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
                "spec": {"image": "x", "apiServer": {"url": "https://127.0.0.1:6443"}}}),
        ),
        (
            "name it cluster",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "second"},
                "spec": {"image": "x"}}),
        ),
        (
            "a name without spaces",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
                "spec": {"image": "a b"}}),
        ),
        (
            "an IP address or a range",
            json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator", "metadata": {"name": "cluster"},
                "spec": {"image": "x", "configServer": {"proxyProtocolFrom": ["10.0.0.0/99"]}}}),
        ),
    ];
    for (why, object) in &rows {
        let said = put(&cluster, &["apply", "--as=jane", "--dry-run=server"], object).await;
        let name = text(&object["metadata"]["name"]);
        if why.is_empty() {
            assert_eq!(said.code, 0, "{name}: {said:?}");
            continue;
        }
        assert!(
            said.code != 0 && said.err.contains(why) && said.err.contains(&name),
            "{name}: {why}: {said:?}"
        );
        // The policies have the same rules as lint, so lint refuses it too.
        if object["kind"] == "MachineConfig" && !name.starts_with("rendered-") {
            let file = cluster.lab.folder().join("linted.json");
            std::fs::write(&file, object.to_string()).unwrap();
            let lint =
                tokio::process::Command::new(::lab::built_mco().unwrap()).arg("lint").arg(&file).output();
            let lint = lint.await.unwrap();
            assert!(!lint.status.success(), "{name}: {}", String::from_utf8_lossy(&lint.stdout));
        }
    }
    // A large config stays within the policy's cost limit.
    let many: Vec<Value> =
        (0..2000).map(|i| json!({"path": format!("/etc/many/{i}"), "mode": 420})).collect();
    let said =
        put(&cluster, &["create", "--as=jane"], &config("large", with("storage", json!({"files": many}))))
            .await;
    assert_eq!(said.code, 0, "{said:?}");
    a_migration_is_let_through(&cluster).await;
    own_approvals(&cluster).await;
    only_builds(&cluster).await;
    streams_are_kept(&cluster).await;
    running.stop().await;
    cluster.stop().await;
}

/// A pool names a stream that there is, and the OSImageStream stays.
async fn streams_are_kept(cluster: &Cluster) {
    cluster
        .create(json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
            "metadata": {"name": "cluster"}, "spec": {"defaultStream": "nine"}}))
        .await;
    let image = format!("r.example.com/os@sha256:{}", "a".repeat(64));
    let status = json!({"status": {"defaultStream": "nine",
        "availableStreams": [{"name": "nine", "osImage": image, "osExtensionsImage": image}]}});
    let params = kube::api::PatchParams::default();
    let patch = kube::api::Patch::Merge(status);
    cluster.api("OSImageStream").patch_status("cluster", &params, &patch).await.unwrap();
    let pool = |stream: &str| {
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "streamed"}, "spec": {"osImageStream": {"name": stream},
            "machineConfigSelector": {"matchExpressions": [{"key": WORKER, "operator": "In", "values": ["worker", "streamed"]}]},
            "nodeSelector": {"matchLabels": {"a": "b"}}}})
    };
    let tried =
        async |stream: &str| put(cluster, &["apply", "--as=jane", "--dry-run=server"], &pool(stream)).await;
    // The API server sees the OSImageStream a moment after it was written, and allows every pool before.
    cluster
        .wait("a stream that there is not is refused", async || {
            let said = tried("eleven").await;
            (said.code != 0).then_some(said)
        })
        .await;
    let said = tried("eleven").await;
    let words =
        "MachineConfigPool streamed: spec.osImageStream.name eleven is no stream of OSImageStream cluster";
    assert!(said.err.contains(words), "{said:?}");
    let said = tried("nine").await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.kubectl(&["delete", "osimagestream", "cluster", "--as=jane"]).await;
    assert!(said.code != 0 && said.err.contains("cannot be deleted; change its spec instead"), "{said:?}");
}

/// Nobody approves a wave in another person's name. Who names nobody, or takes an approval away, may do so.
async fn own_approvals(cluster: &Cluster) {
    let tried = async |notes: &[&str]| {
        let all =
            [&["annotate", "--as=jane", "--overwrite", "--dry-run=server", "mcp", "worker"], notes].concat();
        cluster.kubectl(&all).await
    };
    let what = "machineconfig.dev/approve=rendered-worker-1/canary";
    for by in ["machineconfig.dev/approved-by=jane", "machineconfig.dev/approved-by-"] {
        let said = tried(&[what, by]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    let said = tried(&[what, "machineconfig.dev/approved-by=paul"]).await;
    let words = "the annotation machineconfig.dev/approved-by says paul, and this is sent by jane";
    assert!(said.code != 0 && said.err.contains(words), "{said:?}");
}

/// The controller's right to create Jobs is for builds of images: with its account nobody gets at what the installation keeps.
async fn only_builds(cluster: &Cluster) {
    let controller = format!("--as=system:serviceaccount:{NAMESPACE}:machine-config-controller");
    let build = json!({"metadata": {"name": "infra-0", "uid": "5d2c1f1e-0000-4000-8000-000000000000"}, "spec": {
        "machineConfig": {"name": "rendered-infra-1"}, "machineOSConfig": {"name": "infra"},
        "renderedImagePushSpec": "r.example.com/os:infra-0"}});
    let build: api::v1::MachineOSBuild = serde_json::from_value(build).unwrap();
    let config = json!({"metadata": {"name": "infra", "annotations": {"machineconfig.dev/signing-secret": "os-signing"}},
            "spec": {"renderedImagePushSecret": {"name": "push"}}});
    let config: api::v1::MachineOSConfig = serde_json::from_value(config).unwrap();
    let rendered = json!({"metadata": {"name": "rendered-infra-1"},
        "spec": {"osImageURL": "r.example.com/base@sha256:1", "config": {"ignition": {"version": "3.5.0"}}}});
    let rendered: api::v1::MachineConfig = serde_json::from_value(rendered).unwrap();
    let now = api::k8s::Time(jiff::Timestamp::UNIX_EPOCH);
    let inputs = build::objects::Inputs {
        pool: "infra",
        build: &build,
        config: &config,
        rendered: &rendered,
        cluster: None,
        builder: "r.example.com/buildah:1",
        now: &now,
    };
    let mut job = build::objects::of(inputs).unwrap().job;
    job["metadata"]["namespace"] = json!(NAMESPACE);
    let create = ["create", &controller, "--dry-run=server"];
    let said = put(cluster, &create, &job).await;
    assert_eq!(said.code, 0, "a real build: {said:?}");
    let with = |path: &str, value: Value| {
        let mut other = job.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = other.pointer_mut(&format!("/spec/template/spec{parent}")).unwrap();
        match parent {
            Value::Array(list) => list.push(value),
            parent => parent[key] = value,
        }
        other
    };
    let secret = |name: &str| json!({"name": "x", "secret": {"secretName": name}});
    let usual =
        with("/containers/0/securityContext", json!({"capabilities": {"add": ["SETFCAP"], "drop": ["ALL"]}}));
    let said = put(cluster, &create, &usual).await;
    assert_eq!(said.code, 0, "what every container has: {said:?}");
    for (why, job) in [
        ("a build has no rights", with("/serviceAccountName", json!("machine-config-operator"))),
        ("a build has no rights", with("/automountServiceAccountToken", json!(true))),
        ("nothing of its host", with("/hostPID", json!(true))),
        ("nothing of its host", with("/containers/0/securityContext", json!({"privileged": true}))),
        (
            "no capabilities but the usual ones",
            with("/containers/0/securityContext", json!({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}})),
        ),
        (
            "nothing of its host",
            with(
                "/initContainers",
                json!([{"name": "i", "image": "i", "securityContext": {"privileged": true}}]),
            ),
        ),
        ("volumes of ConfigMaps", with("/volumes/-", json!({"name": "x", "hostPath": {"path": "/"}}))),
        (
            "volumes of ConfigMaps",
            with(
                "/volumes/-",
                json!({"name": "x", "projected": {"sources": [{"secret": {"name": "push"}}]}}),
            ),
        ),
        ("none of the Secrets", with("/volumes/-", secret("machine-config-server-ca"))),
        ("none of the Secrets", with("/volumes/-", secret("node-bootstrapper-token"))),
        ("none of the Secrets", with("/volumes/-", secret("machine-config-operator-metrics-tls"))),
        (
            "none of the Secrets",
            with(
                "/containers/0/env/-",
                json!({"name": "X", "valueFrom": {"secretKeyRef": {"name": "push", "key": "k"}}}),
            ),
        ),
        ("none of the Secrets", with("/containers/0/envFrom", json!([{"secretRef": {"name": "push"}}]))),
    ] {
        let said = put(cluster, &create, &job).await;
        assert!(
            said.code != 0 && said.err.contains(why) && said.err.contains("build-infra-0"),
            "{why}: {said:?}"
        );
        // Of others it is not asked.
        let said = put(cluster, &["create", "--as=jane", "--dry-run=server"], &job).await;
        assert_eq!(said.code, 0, "{why}: {said:?}");
    }
}

/// Two objects that are older than the policies, by which both would be refused.
async fn older_than_the_policies(cluster: &Cluster) {
    let mut rendered = machine_config("rendered-worker-2", "worker", one_file("etc/relative", "b"));
    rendered["metadata"]["annotations"] = json!({GENERATED_BY_CONTROLLER: "of-the-version-before"});
    cluster.create(rendered).await;
    let mut alone = pool("older");
    alone["spec"]["machineConfigSelector"] = json!({"matchLabels": {WORKER: "older"}});
    cluster.create(alone).await;
}

/// Whoever migrates a kind to another stored version writes each object as it is, also rendered configs and objects that are
/// refused today. That is let through, from whomever it comes. A change is not, not even the operator's, and of the two
/// policies for MachineConfigs one refuses.
async fn a_migration_is_let_through(cluster: &Cluster) {
    let operator = format!("system:serviceaccount:{NAMESPACE}:machine-config-operator");
    let patch = async |who: &str, kind: &str, name: &str, patch: &Value| {
        let (who, patch) = (format!("--as={who}"), patch.to_string());
        cluster.kubectl(&["patch", kind, name, "--type=merge", "-p", &patch, &who]).await
    };
    let note = json!({"metadata": {"annotations": {"mine": "yes"}}});
    for (kind, name, why) in [
        ("machineconfig", "rendered-worker-2", "the controller makes it"),
        ("machineconfigpool", "older", "does not select the MachineConfigs of worker"),
    ] {
        for who in [operator.as_str(), "jane"] {
            let said = patch(who, kind, name, &json!({})).await;
            assert_eq!(said.code, 0, "{who}: {said:?}");
            let said = patch(who, kind, name, &note).await;
            assert!(said.code != 0 && said.err.contains(why), "{who}: {said:?}");
            assert!(!said.err.contains("etc/relative"), "{who}: {said:?}");
        }
    }
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
    assert_eq!(put(&cluster, &["create"], &quota).await.code, 0);
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
