//! `mco uninstall` on a real API server: it removes everything that an installation created and nothing else, even if earlier
//! runs were killed at every kind of write. Installing again works afterwards, also with as many kills.
//!
//! Not here: hosts, which keep their files.

use crate::installation::{IMAGE, URL, installed, operator, own_object, says, settings};
use crate::killed_commands;
use crate::parts::Part;
use crate::product::{Cluster, lab, text};
use api::names::NAMESPACE;
use api::names::own::{LEAVE, LEFT};
use serde_json::{Value, json};

/// The names of our objects of these kinds.
async fn left(cluster: &Cluster) -> Vec<String> {
    let mut found = vec![];
    for kinds in [
        "customresourcedefinitions",
        "clusterroles,clusterrolebindings",
        "validatingadmissionpolicies,validatingadmissionpolicybindings",
        "mutatingadmissionpolicies,mutatingadmissionpolicybindings",
        "namespaces",
    ] {
        let said = cluster.kubectl(&["get", kinds, "-o", "name"]).await;
        assert_eq!(said.code, 0, "{said:?}");
        let ours = |l: &&str| {
            [
                "machineconfig",
                "machine-config",
                "machine-api",
                "mcn-guards",
                "osimagestream",
                "system-bootstrap-node",
            ]
            .iter()
            .any(|word| l.contains(word))
        };
        found.extend(said.out.lines().filter(ours).map(str::to_owned));
    }
    for namespace in ["kube-system", "kube-public", "registry"] {
        let said = cluster.kubectl(&["-n", namespace, "get", "roles,rolebindings", "-o", "name"]).await;
        found.extend(said.out.lines().filter(|l| l.contains("machine-config")).map(str::to_owned));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_removes_everything_of_ours_and_nothing_else() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    // The right to read a pull secret elsewhere.
    cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "registry"}})).await;
    let named = json!({"spec": {"pullSecret": {"namespace": "registry", "name": "pull"}}});
    cluster.patch("ControllerConfig", "machine-config-controller", named).await;
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let given = ["-n", "registry", "get", "roles,rolebindings", "-o", "name"];
    let said = cluster.kubectl(&given).await;
    assert_eq!(said.out.lines().count(), 2, "{said:?}");
    // A KubeletConfig with the finalizer of a controller that will be gone, and our annotations on a Node.
    cluster
        .create(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
            "metadata": {"name": "held", "finalizers": ["99-worker-generated-kubelet"]},
            "spec": {"kubeletConfig": {"maxPods": 111}},
        }))
        .await;
    let notes = |desired: &str| {
        json!({"metadata": {"annotations": {
            "machineconfiguration.openshift.io/currentConfig": "rendered-1",
            "machineconfiguration.openshift.io/desiredConfig": desired,
            "machineconfiguration.openshift.io/state": "Done",
            "example.com/theirs": "x",
        }}})
    };
    // This Node has no agent that would write its annotations again.
    cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}})).await;
    cluster.patch("Node", "another", notes("rendered-2")).await;

    let said = cluster.mco(&["uninstall", "--yes"]).await;
    assert!(
        said.code == 1 && said.err.contains("Node another is on its way from rendered-1 to rendered-2"),
        "{said:?}"
    );
    cluster.patch("Node", "another", notes("rendered-1")).await;
    somebodys_secret(&cluster).await;
    resumed_meanwhile(&cluster).await;
    let before = left(&cluster).await;
    assert!(before.len() > 30, "{before:?}");
    let said = cluster.mco(&["uninstall"]).await;
    assert!(said.code == 2 && said.err.contains("Add --yes"), "{said:?}");
    let said = cluster.mco(&["uninstall", "--dry-run", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(plan["actions"][0]["object"], "Deployment machine-config-operator", "{}", said.out);
    assert_eq!(left(&cluster).await, before, "nothing was removed yet");

    // In a real cluster the operator's pods end with their Deployment.
    running.stop().await;
    let force: &[&str] = &["uninstall", "--yes", "--force", "--delete-secrets"];
    let agent = tokio::spawn(play_agent(cluster.client.clone()));
    killed_commands::at_each_write(&cluster, dir.path(), force, &killed_commands::REMOVAL).await;
    agent.abort();
    let said = cluster.mco(force).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.ends_with("uninstalled; hosts keep their files\n"), "{}", said.out);
    assert_eq!(left(&cluster).await, Vec::<String>::new());
    let node = cluster.get("Node", "another").await;
    let notes = node["metadata"]["annotations"].as_object().unwrap();
    assert!(!notes.keys().any(|k| k.starts_with("machineconfiguration.openshift.io/")), "{node}");
    assert_eq!(text(&node["metadata"]["annotations"]["example.com/theirs"]), "x");
    let said = cluster.mco(&["uninstall", "--yes"]).await;
    assert_eq!(said.code, 0, "once more: {said:?}");

    // It can be installed again.
    let install: &[&str] = &["install", IMAGE, URL, "--no-wait"];
    killed_commands::at_each_write(&cluster, dir.path(), install, &killed_commands::INSTALLATION).await;
    let said = cluster.mco(install).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(settings(&cluster).await["spec"]["image"], "registry.example.com/mco:1");
    assert!(!own_object(&cluster, "deployment", "machine-config-operator").await.is_null());
    cluster.stop().await;
}

/// The key that somebody signs images with is in our namespace, and goes with it: not without --delete-secrets.
async fn somebodys_secret(cluster: &Cluster) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "os-signing", "namespace": NAMESPACE},
        "stringData": {"cosign.key": "hunter2"}});
    cluster.must_put(&["create"], &secret).await;
    for mode in [&["uninstall", "--yes"][..], &["uninstall", "--yes", "--force"]] {
        let said = cluster.mco(mode).await;
        assert!(said.code == 1 && said.err.contains("somebody else made: Secret os-signing. "), "{said:?}");
        assert!(said.err.contains("again with --delete-secrets"), "{said:?}");
        assert!(
            !said.err.contains("hunter2") && said.err.contains("get secret os-signing -o yaml"),
            "{said:?}"
        );
    }
    let said = cluster.mco(&["uninstall", "--dry-run"]).await;
    let line = "goes with the namespace: Secret os-signing, which somebody else made\n";
    assert!(said.code == 0 && said.out.contains(line), "{said:?}");
    let said = cluster.kubectl(&["-n", NAMESPACE, "delete", "secret", "os-signing"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// An uninstall deletes the operator's Deployment first. On a busy node its pod works on for seconds, sees that, and must not make it
/// again. The process here is one that never ends.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_whose_deployment_is_deleted_does_not_make_it_again() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    let args = ["operator", "start", "--log=info", IMAGE];
    let running = Part::start(dir.path(), "operator", &account, &args);
    says(&cluster, "Available", "True", &[]).await;
    let name = "machine-config-operator";
    let uid = own_object(&cluster, "deployment", name).await["metadata"]["uid"].clone();
    let said = cluster.kubectl(&["-n", NAMESPACE, "delete", "deployment", name]).await;
    assert_eq!(said.code, 0, "{said:?}");
    says(&cluster, "Degraded", "True", &["Deployment machine-config-operator is gone", "mco install"]).await;
    // Neither by a pass that a change begins.
    cluster
        .patch("MachineConfigPool", "worker", json!({"metadata": {"labels": {"example.com/a": "b"}}}))
        .await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert!(own_object(&cluster, "deployment", name).await.is_null());
    // What a pass had read before is bound to the object that is gone.
    let late = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {
        "name": name, "namespace": NAMESPACE, "uid": uid}});
    let said = cluster.put(&["apply", "--server-side"], &late).await;
    assert!(said.code != 0 && said.err.contains("uid mismatch"), "{said:?}");
    running.stop().await;
    cluster.stop().await;
}

/// Acts as the agent of that Node when it is asked to leave its host.
async fn play_agent(client: kube::Client) {
    let api: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client);
    loop {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let Ok(node) = api.get("another").await else { continue };
        let notes = node.metadata.annotations.unwrap_or_default();
        let Some(request) = notes.get(LEAVE).filter(|request| notes.get(LEFT) != Some(*request)) else {
            continue;
        };
        let patch = json!({"metadata": {"annotations": {LEFT: request}}});
        // The request is repeated until there is an answer.
        let params = kube::api::PatchParams::default();
        let _ = api.patch("another", &params, &kube::api::Patch::Merge(patch)).await;
    }
}

/// Somebody resumes a pool while hosts are being restored: no further node is sent, nothing is removed, and the error names the
/// pool and who did it.
async fn resumed_meanwhile(cluster: &Cluster) {
    let restore = cluster.mco(&["uninstall", "--restore-hosts", "--yes"]);
    let resume = async {
        let desired = async || {
            text(
                &cluster.get("Node", "another").await["metadata"]["annotations"]["machineconfiguration.openshift.io/desiredConfig"],
            )
        };
        cluster.wait("the node is sent", async || (desired().await == "mco-empty-mc").then_some(())).await;
        let open =
            ["patch", "machineconfigpool", "worker", "--type=merge", "-p", "{\"spec\":{\"paused\":false}}"];
        let said = cluster.kubectl(&open).await;
        assert_eq!(said.code, 0, "{said:?}");
    };
    let (said, ()) = tokio::join!(restore, resume);
    assert!(
        said.code == 1
            && said.err.contains(
                "nothing was removed: MachineConfigPool worker (resumed by kubectl-patch) is not paused"
            ),
        "{said:?}"
    );
    let back = json!({"metadata": {"annotations": {"machineconfiguration.openshift.io/desiredConfig": "rendered-1"}}});
    cluster.patch("Node", "another", back).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_of_another_operator_is_left_alone_until_take_over() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;
    kept_by_another_program(&cluster).await;
    let theirs = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-machine-config-operator"}},
        {"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "machine-config-operator", "namespace": "openshift-machine-config-operator"},
            "spec": {"selector": {"matchLabels": {"k8s-app": "machine-config-operator"}}, "template": {
                "metadata": {"labels": {"k8s-app": "machine-config-operator"}},
                "spec": {"containers": [{"name": "machine-config-operator", "image": "theirs", "command": ["/usr/bin/machine-config-operator"]}]}}}},
    ]});
    let file = cluster.lab.folder().join("theirs.json");
    std::fs::write(&file, theirs.to_string()).unwrap();
    let said = cluster.kubectl(&["create", "-f", &file.display().to_string()]).await;
    assert_eq!(said.code, 0, "{said:?}");
    for mode in [&["install"][..], &["install", IMAGE, URL, "--no-wait"]] {
        let said = cluster.mco(mode).await;
        assert!(said.code == 1 && said.err.contains("Deployment machine-config-operator runs"), "{said:?}");
        assert!(said.err.contains("Nothing was written") && said.err.contains("--take-over"), "{said:?}");
    }
    let said = cluster.kubectl(&["get", "customresourcedefinitions", "-o", "name"]).await;
    assert!(!said.out.contains("machineconfig"), "{}", said.out);
    nothing_is_removed(&cluster).await;
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait", "--take-over"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.mco(&["install", IMAGE, "--no-wait"]).await;
    assert_eq!(said.code, 0, "it is ours now: {said:?}");
    cluster.stop().await;
}

/// Somebody's kubeconfig names the wrong cluster: its own operator's objects and annotations stay as they are.
async fn nothing_is_removed(cluster: &Cluster) {
    let notes = json!({"machineconfiguration.openshift.io/state": "Done"});
    cluster
        .create(
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "theirs", "annotations": notes}}),
        )
        .await;
    let all = async || {
        let said = cluster.kubectl(&["get", "namespaces,deployments,nodes", "-A", "-o", "json"]).await;
        let list: Value = serde_json::from_str(&said.out).unwrap();
        let version = |o: &Value| {
            let (kind, metadata) = (&o["kind"], &o["metadata"]);
            format!("{kind} {} {}", metadata["name"], metadata["resourceVersion"])
        };
        list["items"].as_array().unwrap().iter().map(version).collect::<Vec<_>>()
    };
    let before = all().await;
    assert!(before.len() > 4, "{before:?}");
    for mode in [&["uninstall", "--yes"][..], &["uninstall", "--yes", "--force"], &["uninstall", "--dry-run"]]
    {
        let said = cluster.mco(mode).await;
        assert!(said.code == 1 && said.err.contains("Deployment machine-config-operator runs"), "{said:?}");
        assert!(said.err.contains("nothing was removed"), "{said:?}");
        assert_eq!(all().await, before, "{mode:?}");
    }
    let said = cluster.kubectl(&["delete", "node", "theirs"]).await;
    assert_eq!(said.code, 0, "{said:?}");
}

/// Another Machine Config Operator, recognised only by the owner of its objects' fields (`managedFields`): nothing is written.
async fn kept_by_another_program(cluster: &Cluster) {
    let all = async || {
        let kinds = "customresourcedefinitions,namespaces,clusterroles,clusterrolebindings";
        let said = cluster.kubectl(&["get", kinds, "-o", "json"]).await;
        let list: Value = serde_json::from_str(&said.out).unwrap();
        let version = |o: &Value| {
            format!("{} {} {}", o["kind"], o["metadata"]["name"], o["metadata"]["resourceVersion"])
        };
        let all: Vec<String> = list["items"].as_array().unwrap().iter().map(version).collect();
        assert!(all.len() > 50, "{all:?}");
        all
    };
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "machine-config-controller"},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    });
    let file = cluster.lab.folder().join("role.json");
    std::fs::write(&file, role.to_string()).unwrap();
    let file = file.display().to_string();
    let apply = ["apply", "--server-side", "--field-manager=acme-machine-config", "-f", &file];
    let create = ["create", "--field-manager=machine-config-operator", "-f", &file];
    for (how, manager) in [(&apply[..], "acme-machine-config"), (&create, "machine-config-operator")] {
        let said = cluster.kubectl(how).await;
        assert_eq!(said.code, 0, "{said:?}");
        let before = all().await;
        for mode in [&["install"][..], &["install", IMAGE, URL, "--no-wait"]] {
            let said = cluster.mco(mode).await;
            let words = format!("ClusterRole machine-config-controller is managed by {manager}");
            assert!(said.code == 1 && said.err.contains(&words), "{said:?}");
            assert!(said.err.contains("Nothing was written") && said.err.contains("--take-over"), "{said:?}");
        }
        assert_eq!(all().await, before, "nothing was written");
        let said = cluster.kubectl(&["delete", "clusterrole", "machine-config-controller"]).await;
        assert_eq!(said.code, 0, "{said:?}");
    }
    // It is still there when the installation takes over.
    let said = cluster.kubectl(&apply).await;
    assert_eq!(said.code, 0, "{said:?}");
}
