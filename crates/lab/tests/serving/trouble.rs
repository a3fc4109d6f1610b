//! What goes wrong with an installation: each ends with a condition that names object and remedy, nothing stays half
//! installed that a second run does not mend, and the running parts are left in peace.
//!
//! What it is not: certificates and user data that are deleted (see `parts`), and waits of the loop (unit tests of
//! `operator::keep`).

use crate::installation::{IMAGE, URL, here, installed, operator, says, set, settings};
use crate::parts::Part;
use crate::product::{Cluster, Said, lab, text};
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
async fn what_goes_wrong_is_told_with_its_remedy_and_mends_itself_afterwards() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    interrupted(&cluster, dir.path(), &account).await;
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    refused_objects(&cluster).await;
    no_image(&cluster).await;
    newer_definitions(&cluster).await;
    running.stop().await;
    old_operator(&cluster, dir.path(), &account).await;
    without_rights(&cluster, dir.path()).await;
    cluster.stop().await;
}

/// The power goes at any moment of an installation: the next operator takes it up.
async fn interrupted(cluster: &Cluster, dir: &Path, account: &Path) {
    for step in 1..12_u64 {
        let killed = Part::start(dir, "killed", account, &["operator", "start", "--leader-elect=false"]);
        tokio::time::sleep(Duration::from_millis(step * 70)).await;
        killed.kill().await;
    }
    let said = cluster.kubectl(&["get", "clusterroles", "-o", "name"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// The API server refuses some of the objects: the others are there, and the condition names the first one.
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
    // It takes the API server a moment to follow a policy.
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
    assert!(!cluster.get("ClusterRole", "machine-config-server").await.is_null(), "the others are there");
    let now =
        here(cluster, "deployment", "machine-config-controller").await["metadata"]["generation"].clone();
    assert_eq!(now, pods, "the running parts are left in peace");
    says(cluster, "Available", "True", &[]).await;
    cluster.told("cluster", "OperatorDegraded", &["RightsFailed"]).await;
    let gone = cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "no-roles"]).await;
    assert_eq!(gone.code, 0, "{gone:?}");
    says(cluster, "Degraded", "False", &[]).await;
    for role in roles {
        assert!(!cluster.get("ClusterRole", role).await.is_null(), "{role}");
    }
}

/// An image that no node can pull: the old pods go on, and the condition names the pod, the image and the setting.
async fn no_image(cluster: &Cluster) {
    // Pods that wait for a place stand for pods that wait for their image: their status is written as a kubelet does.
    for node in ["worker-0", "worker-1"] {
        assert_eq!(cluster.kubectl(&["cordon", node]).await.code, 0);
    }
    set(cluster, json!({"image": "registry.example.com/none:2"})).await;
    let selector = ["-n", NAMESPACE, "get", "pods", "-l", "k8s-app=machine-config-controller", "-o", "json"];
    let waiting = cluster
        .wait("a new pod waits", async || {
            let pods: Value = serde_json::from_str(&cluster.kubectl(&selector).await.out).ok()?;
            let new = |p: &&Value| p["spec"]["containers"][0]["image"] == "registry.example.com/none:2";
            pods["items"].as_array()?.iter().find(new).map(|p| text(&p["metadata"]["name"]))
        })
        .await;
    let status = json!({"status": {"containerStatuses": [{
        "name": "machine-config-controller", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]}});
    let patch = status.to_string();
    let patched =
        ["-n", NAMESPACE, "patch", "pod", &waiting, "--subresource=status", "--type=merge", "-p", &patch];
    let said = cluster.kubectl(&patched).await;
    assert_eq!(said.code, 0, "{said:?}");
    let why = says(cluster, "Degraded", "True", &["MachineConfigControllerFailed", "ImagePullBackOff"]).await;
    assert!(why.contains(&waiting) && why.contains("spec.image") && why.contains("none:2"), "{why}");
    says(cluster, "Available", "True", &[]).await;
    let server = here(cluster, "daemonset", "machine-config-server").await;
    let image = &server["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "registry.example.com/mco:1", "the next part waits for the one before");
    // `mco install` says the same, and fails.
    let said = cluster.mco(&["install", "--image=registry.example.com/none:2", "--timeout=60s"]).await;
    assert!(said.code == 1 && said.err.contains("ImagePullBackOff"), "{said:?}");
    for node in ["worker-0", "worker-1"] {
        assert_eq!(cluster.kubectl(&["uncordon", node]).await.code, 0);
    }
    set(cluster, json!({"image": "registry.example.com/mco:1"})).await;
    says(cluster, "Degraded", "False", &[]).await;
}

/// Definitions of a newer version are never written over.
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

/// Without rights nothing is written, and the answer names what is missing.
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
    }
    assert_eq!(settings(cluster).await["metadata"]["generation"], before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_work_is_refused_where_it_is_written() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    // A cluster's administrator, who is no member of system:masters.
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
        // Settings with nonsense.
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
        // What is refused here is refused by lint, too: the rules are the same.
        if object["kind"] == "MachineConfig" && !name.starts_with("rendered-") {
            let file = cluster.lab.folder().join("linted.json");
            std::fs::write(&file, object.to_string()).unwrap();
            let lint =
                tokio::process::Command::new(::lab::built_mco().unwrap()).arg("lint").arg(&file).output();
            let lint = lint.await.unwrap();
            assert!(!lint.status.success(), "{name}: {}", String::from_utf8_lossy(&lint.stdout));
        }
    }
    // A large config is not too much for the policy.
    let many: Vec<Value> =
        (0..2000).map(|i| json!({"path": format!("/etc/many/{i}"), "mode": 420})).collect();
    let said =
        put(&cluster, &["create", "--as=jane"], &config("large", with("storage", json!({"files": many}))))
            .await;
    assert_eq!(said.code, 0, "{said:?}");
    running.stop().await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_is_refused_leaves_a_clear_word_and_a_second_run_mends_it() {
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
