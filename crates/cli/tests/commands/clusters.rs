//! Runs `mco` for the tests, and writes clusters as files for it.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

pub(crate) const MCO: &str = "machineconfiguration.openshift.io/";

pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn mco(arguments: &[&str]) -> Said {
    let out = Command::new(env!("CARGO_BIN_EXE_mco"))
        .args(arguments)
        .args(["--log", "off"])
        .env_remove("KUBECONFIG")
        .output()
        .unwrap();
    Said {
        code: out.status.code().unwrap(),
        out: String::from_utf8(out.stdout).unwrap(),
        err: String::from_utf8(out.stderr).unwrap(),
    }
}

pub(crate) fn write(path: &Path, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(|o| api::formats::yaml::to_string(o).unwrap()).collect();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text.join("---\n")).unwrap();
}

pub(crate) fn pool(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["configuration"] = json!({"name": "NEW"});
    spec["machineConfigSelector"] = json!({"matchLabels": {format!("{MCO}role"): name}});
    spec["nodeSelector"] = json!({"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}});
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "generation": 1}, "spec": spec,
        "status": {"conditions": [{"type": "RenderDegraded", "status": "False", "reason": "", "message": "",
                                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// A worker pool with three nodes: one draining, one updated, one still to be updated.
pub(crate) fn dump(dir: &Path) {
    let node = |i: usize, current: &str, desired: &str, state: &str, more: Value| {
        let mut notes = json!({format!("{MCO}currentConfig"): current, format!("{MCO}desiredConfig"): desired,
                               format!("{MCO}state"): state});
        for (key, value) in more.as_object().unwrap() {
            notes[format!("{MCO}{key}")] = value.clone();
        }
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("w{i}"), "uid": format!("u{i}"), "resourceVersion": "1",
                         "creationTimestamp": format!("2026-01-01T00:00:0{i}Z"),
                         "labels": {"node-role.kubernetes.io/worker": ""}, "annotations": notes},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let drain = json!({"desiredDrain": "drain-NEW", "lastAppliedDrain": "uncordon-OLD"});
    let pod = |name: &str, owner: Value| {
        json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "uid": name, "labels": {"app": name},
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": true}]},
            "spec": {"nodeName": "w0", "containers": []}, "status": {"phase": "Running"}})
    };
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    write(&dir.join("a/pools.yaml"), &[pool("worker", &json!({"maxUnavailable": 1}))]);
    // Dumps may contain an older copy of a node beside the newer one.
    let mut old = node(2, "NEW", "NEW", "Done", json!({}));
    old["metadata"]["resourceVersion"] = json!("0");
    write(
        &dir.join("a/b/core/nodes.yaml"),
        &[json!({"apiVersion": "v1", "kind": "NodeList", "items": [
            node(0, "OLD", "NEW", "Working", drain),
            node(1, "NEW", "NEW", "Done", json!({})),
            node(2, "OLD", "OLD", "Done", json!({})),
            old,
        ]})],
    );
    write(
        &dir.join("a/b/namespaces/shop/core.yaml"),
        &[pod("web", json!("ReplicaSet")), pod("log", json!("DaemonSet")), pod("job", json!("Job")), budget],
    );
}

/// A dump of a cluster with two pools and their MachineConfigs.
pub(crate) fn with_configs(dir: &Path, current: &str) {
    let mut worker = pool("worker", &json!({"maxUnavailable": 2}));
    worker["spec"]["configuration"]["name"] = json!(current);
    let node = |i: usize| {
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("w{i}"), "uid": format!("u{i}"), "creationTimestamp": format!("2026-01-01T00:00:0{}Z", 9 - i),
                         "labels": {"node-role.kubernetes.io/worker": ""},
                         "annotations": {format!("{MCO}currentConfig"): current, format!("{MCO}desiredConfig"): current,
                                         format!("{MCO}state"): "Done"}},
            "status": {"conditions": [{"type": "Ready", "status": if i == 0 { "False" } else { "True" }}]}})
    };
    write(&dir.join("pools.yaml"), &[worker]);
    write(&dir.join("nodes.yaml"), &(0..4).map(node).collect::<Vec<_>>());
    write(&dir.join("configs.yaml"), &[config("00-worker", "/etc/base", "one%0Atwo%0A")]);
}

pub(crate) fn config(name: &str, path: &str, content: &str) -> Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {format!("{MCO}role"): "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{content}")}}]}}}})
}
