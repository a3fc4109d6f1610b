//! `mco uninstall` on a real API server: it takes away all that an installation made and nothing else, and an installation
//! works again afterwards.
//!
//! What it is not: hosts, which keep their files.

use crate::installation::{IMAGE, URL, installed, operator, says};
use crate::product::{Cluster, lab, text};
use serde_json::{Value, json};

/// All objects of these kinds that are ours by their names.
async fn left(cluster: &Cluster) -> Vec<String> {
    let mut found = vec![];
    for kinds in [
        "customresourcedefinitions",
        "clusterroles,clusterrolebindings",
        "validatingadmissionpolicies,validatingadmissionpolicybindings",
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
    for namespace in ["kube-system", "kube-public"] {
        let said = cluster.kubectl(&["-n", namespace, "get", "roles,rolebindings", "-o", "name"]).await;
        found.extend(said.out.lines().filter(|l| l.contains("machine-config")).map(str::to_owned));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_it_goes_and_what_others_made_stays() {
    let Some((cluster, dir, account)) = installed(&[]).await else { return };
    let running = operator(dir.path(), "operator", &account);
    says(&cluster, "Available", "True", &[]).await;
    // Held by a controller that will be gone, and a note of ours on a Node.
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
    // The simulated agent would write its notes again.
    cluster.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "another"}})).await;
    cluster.patch("Node", "another", notes("rendered-2")).await;

    let said = cluster.mco(&["uninstall", "--yes"]).await;
    assert!(
        said.code == 1 && said.err.contains("Node another is on its way from rendered-1 to rendered-2"),
        "{said:?}"
    );
    cluster.patch("Node", "another", notes("rendered-1")).await;
    let before = left(&cluster).await;
    assert!(before.len() > 30, "{before:?}");
    let said = cluster.mco(&["uninstall"]).await;
    assert!(said.code == 2 && said.err.contains("Add --yes"), "{said:?}");
    let said = cluster.mco(&["uninstall", "--dry-run", "-o", "json"]).await;
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(plan["actions"][0]["object"], "Deployment machine-config-operator", "{}", said.out);
    assert_eq!(left(&cluster).await, before, "nothing was removed yet");

    // The operator's pods end with their Deployment.
    running.stop().await;
    let force: &[&str] = &["uninstall", "--yes", "--force"];
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

    // And it can be installed again.
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_another_operator_runs_is_left_alone_until_it_is_taken_over() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;
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
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait", "--take-over"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let said = cluster.mco(&["install", IMAGE, "--no-wait"]).await;
    assert_eq!(said.code, 0, "it is ours now: {said:?}");
    cluster.stop().await;
}
