//! Objects of any cluster as JSON: reads them, checks whether a pool is settled, and reports the state for people.
//!
//! Not here: waiting, and the cluster itself (`mod.rs`, `node/kubeadm`).

use super::{MCO, condition, is_done, note, text};
use kube::api::{DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Requests about objects of this kind.
pub fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let (group, version, plural) = match kind {
        "Node" => ("", "v1", "nodes"),
        "Namespace" => ("", "v1", "namespaces"),
        "MachineConfigOperator" => ("machineconfig.dev", "v1alpha1", "machineconfigoperators"),
        "ClusterOperator" => ("config.openshift.io", "v1", "clusteroperators"),
        "ClusterRole" => ("rbac.authorization.k8s.io", "v1", "clusterroles"),
        "RolloutPolicy" => ("machineconfig.dev", "v1alpha1", "rolloutpolicies"),
        "MachineConfig" => ("machineconfiguration.openshift.io", "v1", "machineconfigs"),
        "MachineConfigPool" => ("machineconfiguration.openshift.io", "v1", "machineconfigpools"),
        "MachineConfigNode" => ("machineconfiguration.openshift.io", "v1", "machineconfignodes"),
        "MachineConfiguration" => ("operator.openshift.io", "v1", "machineconfigurations"),
        "MachineOSConfig" => ("machineconfiguration.openshift.io", "v1", "machineosconfigs"),
        "MachineOSBuild" => ("machineconfiguration.openshift.io", "v1", "machineosbuilds"),
        "PinnedImageSet" => ("machineconfiguration.openshift.io", "v1", "pinnedimagesets"),
        "OSImageStream" => ("machineconfiguration.openshift.io", "v1", "osimagestreams"),
        "ControllerConfig" => ("machineconfiguration.openshift.io", "v1", "controllerconfigs"),
        "KubeletConfig" => ("machineconfiguration.openshift.io", "v1", "kubeletconfigs"),
        "ContainerRuntimeConfig" => ("machineconfiguration.openshift.io", "v1", "containerruntimeconfigs"),
        "ImageDigestMirrorSet" => ("config.openshift.io", "v1", "imagedigestmirrorsets"),
        "ImageTagMirrorSet" => ("config.openshift.io", "v1", "imagetagmirrorsets"),
        "Image" => ("config.openshift.io", "v1", "images"),
        "ClusterImagePolicy" => ("config.openshift.io", "v1", "clusterimagepolicies"),
        "FeatureGate" => ("config.openshift.io", "v1", "featuregates"),
        "APIServer" => ("config.openshift.io", "v1", "apiservers"),
        "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
        other => panic!("the helper does not know the kind {other}"),
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    Api::all_with(client.clone(), &resource)
}

/// The object, or null if there is none.
pub async fn get(client: &Client, kind: &str, name: &str) -> Value {
    match api(client, kind).get_opt(name).await {
        Ok(object) => object.map_or(Value::Null, |o| json!(o)),
        // Some tests make the API server unavailable on purpose; each wait has its own time limit.
        Err(error) => {
            eprintln!("get {kind} {name}: {error}");
            Value::Null
        }
    }
}

/// All objects of a kind; empty when the API server does not answer.
pub async fn list(client: &Client, kind: &str) -> Vec<Value> {
    let list = api(client, kind).list(&ListParams::default()).await;
    list.map(|l| l.items.into_iter().map(|o| json!(o)).collect()).unwrap_or_default()
}

/// The pool's config, if the pool has this many nodes, is Updated with a config that is made from all of `with` and
/// none of `without`, and each of its nodes is Done with it.
pub async fn settled(
    client: &Client,
    pool: &str,
    nodes: usize,
    with: &[&str],
    without: &[&str],
) -> Option<String> {
    let found = get(client, "MachineConfigPool", pool).await;
    let configuration = &found["spec"]["configuration"];
    let name = text(&configuration["name"]);
    let sources: Vec<String> =
        configuration["source"].as_array().into_iter().flatten().map(|s| text(&s["name"])).collect();
    let has = |one: &&str| sources.iter().any(|s| s == one);
    let made = !name.is_empty() && with.iter().all(&has) && !without.iter().any(has);
    let status = &found["status"];
    let counted = status["machineCount"] == json!(nodes) && status["updatedMachineCount"] == json!(nodes);
    let said = condition(&found, "Updated").is_some_and(|m| m.contains(&name));
    if !made || !counted || !said || status["configuration"]["name"] != json!(name) {
        return None;
    }
    let all = list(client, "Node").await;
    let inside = all.iter().filter(|n| note(n, "currentConfig") == name && is_done(n)).count();
    (inside >= nodes).then_some(name)
}

/// Pools and nodes, to explain a failure.
pub async fn state(client: &Client) -> String {
    let mut out = String::new();
    for pool in list(client, "MachineConfigPool").await {
        out += &format!("pool {}: {}\n", pool["metadata"]["name"], pool["spec"]["configuration"]["name"]);
        let conditions = pool["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for c in conditions.iter().filter(|c| c["status"] == "True") {
            out += &format!("    {} {} {}\n", c["type"], c["reason"], c["message"]);
        }
    }
    for node in list(client, "Node").await {
        let notes = node["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
        out +=
            &format!("node {} unschedulable={}\n", node["metadata"]["name"], node["spec"]["unschedulable"]);
        for (key, value) in notes.iter().filter(|(key, _)| key.starts_with(MCO)) {
            out += &format!("    {} {value}\n", key.trim_start_matches(MCO));
        }
    }
    out
}
