//! Settings from a time when agents were services of their hosts by default: an upgrade to a version with another default does
//! not change them.
//!
//! Not here: how the operator uses the settings (`installation`).

use crate::installation::{IMAGE, URL, set, settings};
use crate::product::{Cluster, lab, text};
use serde_json::json;

const CRD: &str = "machineconfigoperators.machineconfig.dev";

async fn run_as(cluster: &Cluster) -> String {
    text(&settings(cluster).await["spec"]["agents"]["runAs"])
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_of_hosts_stay_so_when_the_default_changes() {
    let Some(builder) = lab() else { return };
    let cluster = Cluster::start(builder).await;
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(run_as(&cluster).await, "Pods", "a new installation");
    // The cluster as a version with the older default left it.
    cluster.delete("MachineConfigOperator", "cluster").await;
    let mut definition = cluster.get("CustomResourceDefinition", CRD).await;
    let agents = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["agents"];
    agents["default"] = json!({"runAs": "HostServices"});
    agents["properties"]["runAs"]["default"] = json!("HostServices");
    for key in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
        definition["metadata"].as_object_mut().unwrap().remove(key);
    }
    definition.as_object_mut().unwrap().remove("status");
    cluster.must_put(&["apply", "--server-side", "--force-conflicts"], &definition).await;
    // The settings as they are kept in Git: without a field about agents.
    let in_git = json!({"apiVersion": "machineconfig.dev/v1alpha1", "kind": "MachineConfigOperator",
        "metadata": {"name": "cluster"}, "spec": {"image": "registry.example.com/mco:1"}});
    cluster
        .wait("the older default is in force", async || {
            cluster.must_put(&["apply", "--server-side"], &in_git).await;
            let older = run_as(&cluster).await == "HostServices";
            if !older {
                cluster.delete("MachineConfigOperator", "cluster").await;
            }
            older.then_some(())
        })
        .await;

    // This version is installed over it, in each of the possible ways.
    let said = cluster.mco(&["install", IMAGE, URL, "--no-wait"]).await;
    assert_eq!(said.code, 0, "{said:?}");
    let new = cluster.get("CustomResourceDefinition", CRD).await;
    assert!(new.to_string().contains("\"runAs\":\"Pods\""), "the new default is there: {new}");
    assert_eq!(run_as(&cluster).await, "HostServices", "`mco install`");
    cluster.must_put(&["apply", "--server-side", "--force-conflicts"], &in_git).await;
    assert_eq!(run_as(&cluster).await, "HostServices", "`kubectl apply --server-side`");
    set(&cluster, json!({"image": "registry.example.com/mco:2"})).await;
    assert_eq!(run_as(&cluster).await, "HostServices", "a patch");
    // An administrator sets it explicitly.
    let said =
        cluster.mco(&["install", "--daemon-image=registry.example.com/mco:1", IMAGE, URL, "--no-wait"]).await;
    assert!(said.code == 0 && run_as(&cluster).await == "Pods", "{said:?}");
    let said = cluster.mco(&["install", "--agents-of-hosts", IMAGE, URL, "--no-wait"]).await;
    assert!(said.code == 0 && run_as(&cluster).await == "HostServices", "{said:?}");
    cluster.stop().await;
}
