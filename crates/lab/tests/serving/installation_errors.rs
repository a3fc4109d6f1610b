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

mod images;
mod versions;

use crate::installation::{IMAGE, URL, installed, operator, own_object, says, set, settings};
use crate::parts::Part;
use crate::product::{Cluster, lab};
use serde_json::json;
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
    images::no_image(&cluster).await;
    versions::newer_definitions(&cluster).await;
    versions::follows_a_payload(&cluster).await;
    nonsense(&cluster, dir.path()).await;
    running.stop().await;
    versions::not_upgradeable(&cluster, dir.path(), &account).await;
    images::no_image_of_its_own(&cluster, dir.path(), &account).await;
    without_settings(&cluster, dir.path(), &account).await;
    without_a_namespace(&cluster, dir.path(), &account).await;
    versions::old_operator(&cluster, dir.path(), &account).await;
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
    let pods = own_object(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"]
        .clone();
    let roles = ["machine-config-controller", "machine-config-server", "machine-config-daemon"];
    for role in roles {
        cluster.delete("ClusterRole", role).await;
    }
    let why = says(cluster, "Degraded", "True", &["RightsFailed", "Sundays"]).await;
    assert!(
        why.contains("ClusterRole machine-config-controller") && why.contains("remove what refuses it"),
        "{why}"
    );
    // A pass may have ended between the deletions: then the next one creates it.
    cluster
        .wait("the other objects exist", async || {
            (!cluster.get("ClusterRole", "machine-config-server").await.is_null()).then_some(())
        })
        .await;
    let now = own_object(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"]
        .clone();
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

/// Invalid settings that the API server accepts: nothing is changed, and the condition names each entry.
async fn nonsense(cluster: &Cluster, dir: &Path) {
    let controller = async || {
        own_object(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"].clone()
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
    assert!(!own_object(&cluster, "deployment", "machine-config-operator").await.is_null());
    assert_eq!(settings(&cluster).await["spec"]["image"], "registry.example.com/mco:1");
    cluster.stop().await;
}
