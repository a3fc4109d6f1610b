//! Pools, MachineConfigs and Ignition configs as JSON, and what of a config a simulated node has.
//!
//! Not here: requests about objects (`objects`).

use lab::NodeHandle;
use serde_json::{Value, json};

use super::{MCO, text};

/// A pool that inherits from worker.
pub fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {
            "machineConfigSelector": {
                "matchExpressions": [{"key": format!("{MCO}role"), "operator": "In", "values": ["worker", name]}],
            },
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        },
    })
}

/// A MachineConfig with this Ignition config, valid or not.
pub fn machine_config(name: &str, role: &str, config: Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {format!("{MCO}role"): role}},
        "spec": {"config": config},
    })
}

/// The MachineConfiguration `cluster` with these policies for changes of files.
pub fn disruption_policies(files: Value) -> Value {
    json!({
        "apiVersion": "operator.openshift.io/v1",
        "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"},
        "spec": {"managementState": "Managed", "nodeDisruptionPolicy": {"files": files}},
    })
}

/// An Ignition config with one file.
pub fn one_file(path: &str, content: &str) -> Value {
    json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [
            {"path": path, "mode": 0o644, "overwrite": true, "contents": {"source": format!("data:,{content}")}},
        ]},
    })
}

/// An Ignition config with one unit.
pub fn one_unit(name: &str, content: &str) -> Value {
    json!({
        "ignition": {"version": "3.4.0"},
        "systemd": {"units": [{"name": name, "enabled": true, "contents": content}]},
    })
}

/// The bytes of a `data:,` URL.
pub fn percent_decoded(source: &str) -> Vec<u8> {
    let rest = source.strip_prefix("data:,").expect("the tests read plain data URLs only").as_bytes();
    let (mut out, mut i) = (Vec::new(), 0);
    while i < rest.len() {
        if rest[i] == b'%' {
            let hex = std::str::from_utf8(&rest[i + 1..i + 3]).unwrap();
            out.push(u8::from_str_radix(hex, 16).unwrap());
            i += 3;
        } else {
            out.push(rest[i]);
            i += 1;
        }
    }
    out
}

/// Compares a MachineConfig with a simulated node's folder: bytes and modes of files, units, drop-ins and SSH keys.
/// `None` if everything is there.
pub fn missing_on(node: &NodeHandle, machine_config: &Value) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let root = node.root();
    let config = &machine_config["spec"]["config"];
    let each = |path: &str| config.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut wanted: Vec<(String, Vec<u8>, u64)> = vec![];
    for file in each("/storage/files") {
        let source = text(&file["contents"]["source"]);
        wanted.push((text(&file["path"]), percent_decoded(&source), file["mode"].as_u64().unwrap()));
    }
    for unit in each("/systemd/units") {
        let path = format!("/etc/systemd/system/{}", text(&unit["name"]));
        wanted.push((path.clone(), text(&unit["contents"]).into_bytes(), 0o644));
        for dropin in unit["dropins"].as_array().into_iter().flatten() {
            let path = format!("{path}.d/{}", text(&dropin["name"]));
            wanted.push((path, text(&dropin["contents"]).into_bytes(), 0o644));
        }
        if unit["enabled"] == true {
            let target = text(&unit["contents"]);
            let target = target.lines().find_map(|l| l.strip_prefix("WantedBy=")).unwrap();
            let link = root.join(format!("etc/systemd/system/{target}.wants/{}", text(&unit["name"])));
            if std::fs::symlink_metadata(&link).is_err() {
                return Some(format!("{} is not enabled: no {}", unit["name"], link.display()));
            }
        }
    }
    for (path, content, mode) in wanted {
        let at = root.join(path.trim_start_matches('/'));
        let Ok(found) = std::fs::read(&at) else { return Some(format!("no {path}")) };
        if found != content {
            return Some(format!("{path} is {:?}", String::from_utf8_lossy(&found)));
        }
        let has = u64::from(std::fs::metadata(&at).unwrap().permissions().mode() & 0o7777);
        if has != mode {
            return Some(format!("{path} has mode {has:#o}, not {mode:#o}"));
        }
    }
    let keys =
        std::fs::read_to_string(root.join("home/core/.ssh/authorized_keys.d/ignition")).unwrap_or_default();
    for key in each("/passwd/users")
        .iter()
        .flat_map(|u| u["sshAuthorizedKeys"].as_array().cloned().unwrap_or_default())
    {
        if !keys.lines().any(|line| json!(line) == key) {
            return Some(format!("no key {key} in {keys:?}"));
        }
    }
    None
}
