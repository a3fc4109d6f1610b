//! `mco plan --from` as a user runs it: the recorded situations of `tests/conformance/rollout` as plain YAML, each
//! compared with the answer of the reference; and a dump with pods and PodDisruptionBudgets. Not here: a running
//! cluster, and planned changes (`plan_change.rs`).

use crate::clusters::{MCO, dump, mco, pool, write};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The nodes as the recording created them in its cluster: a second apart, in one List.
fn nodes(case: &Value) -> Value {
    let id = case["id"].as_str().unwrap();
    let nodes = case["nodes"].as_array().unwrap().iter().enumerate().map(|(i, node)| {
        let mut labels =
            json!({"node-role.kubernetes.io/worker": "", format!("node-role.kubernetes.io/{id}"): ""});
        for (key, value) in node["labels"].as_object().into_iter().flatten() {
            labels[key] = value.clone();
        }
        let notes = node["annotations"].as_object().into_iter().flatten();
        let notes: BTreeMap<String, &Value> = notes.map(|(k, v)| (format!("{MCO}{k}"), v)).collect();
        let ready = json!({"Ready": "True"});
        let conditions = node.get("conditions").unwrap_or(&ready).as_object().unwrap();
        let conditions: Vec<Value> =
            conditions.iter().map(|(t, s)| json!({"type": t, "status": s})).collect();
        let made = format!("2026-01-01T00:{:02}:{:02}Z", i / 60, i % 60);
        json!({"metadata": {"name": format!("{id}-{i}"), "uid": format!("u{i}"), "creationTimestamp": made,
                            "resourceVersion": "1", "labels": labels, "annotations": notes},
            "apiVersion": "v1", "kind": "Node",
            "spec": {"unschedulable": node["unschedulable"], "taints": node["taints"]},
            "status": {"conditions": conditions}})
    });
    json!({"apiVersion": "v1", "kind": "List", "items": nodes.collect::<Vec<_>>()})
}

fn differences(case: &Value, said: &Value) -> Vec<String> {
    let id = case["id"].as_str().unwrap();
    let mut out = vec![];
    let pool = said["pools"].as_array().unwrap().iter().find(|p| p["pool"] == *id).unwrap();
    for (i, want) in case["expect"]["nodes"].as_array().unwrap().iter().enumerate() {
        let node = pool["nodes"].as_array().unwrap().iter().find(|n| n["node"] == format!("{id}-{i}"));
        let mut got = node.unwrap()["after"].clone();
        got.as_object_mut().unwrap().remove("currentConfig");
        // Taints of the node lifecycle controller are not decided by the rollout.
        got["taints"]
            .as_array_mut()
            .unwrap()
            .retain(|t| !t.as_str().unwrap().starts_with("node.kubernetes.io/"));
        if got != *want {
            out.push(format!("node {i}: want {want}, got {got}"));
        }
        let why = node.unwrap()["why"].as_str().unwrap();
        if why.is_empty() {
            out.push(format!("node {i}: nothing is said of it"));
        }
    }
    let conditions = pool["status"]["conditions"].as_array().unwrap();
    for (key, want) in case["expect"]["pool"].as_object().unwrap() {
        if key != "conditions" && pool["status"].get(key).unwrap_or(&json!(0)) != want {
            out.push(format!("pool {key}: want {want}, got {}", pool["status"][key]));
        }
    }
    for (type_, want) in case["expect"]["pool"]["conditions"].as_object().unwrap() {
        let got = conditions.iter().find(|c| c["type"] == **type_).unwrap_or(&Value::Null);
        let text = ["Updated", "Updating"].contains(&type_.as_str());
        if got["status"] != want[0] || (text && got["message"] != want[2]) {
            out.push(format!("condition {type_}: want {want}, got {got}"));
        }
    }
    out
}

/// Reads a line `CASE NODE reason` of `accept-rollout.txt`: here that node is updated in the slot that it already
/// holds.
fn send(case: &mut Value, line: &str) {
    let Some((node, _)) =
        line.strip_prefix(case["id"].as_str().unwrap()).and_then(|l| l.trim().split_once(' '))
    else {
        return;
    };
    let expect = &mut case["expect"];
    let node = &mut expect["nodes"][node.parse::<usize>().unwrap()];
    assert_eq!(node["desiredConfig"], "OLD", "{line}");
    node["desiredConfig"] = json!("NEW");
    node["taints"].as_array_mut().unwrap().retain(|t| *t != "UpdateInProgress:PreferNoSchedule");
    let out = &mut expect["pool"]["unavailableMachineCount"];
    *out = json!(out.as_u64().unwrap() - 1);
}

#[test]
fn every_recorded_situation_is_planned_as_the_reference_did() {
    let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance/rollout");
    let mut files: Vec<_> = std::fs::read_dir(cases).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|f| f.extension().is_some_and(|e| e == "json"));
    files.sort();
    let (dir, mut failed) = (tempfile::tempdir().unwrap(), vec![]);
    let accepted = std::fs::read_to_string(format!("{cases}/../accept-rollout.txt")).unwrap();
    for file in &files {
        let mut case: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        for line in accepted.lines() {
            send(&mut case, line);
        }
        let id = case["id"].as_str().unwrap();
        let from = dir.path().join(id);
        let all = [pool("master", &json!({})), pool("worker", &json!({})), pool(id, &case["pool"])];
        write(&from.join("cluster-scoped-resources/pools.yaml"), &all);
        write(&from.join("cluster-scoped-resources/core/nodes.yaml"), &[nodes(&case)]);
        let said = mco(&["plan", "--from", from.to_str().unwrap(), "-o", "json"]);
        assert_eq!(said.code, 0, "{id}: {}", said.err);
        let said: Value = serde_json::from_str(&said.out).unwrap();
        let about = &case["about"];
        failed.extend(differences(&case, &said).into_iter().map(|d| format!("{id} ({about}): {d}")));
    }
    assert!(failed.is_empty(), "{} differences\n{}", failed.len(), failed.join("\n"));
    assert_eq!(files.len(), 336);
}

#[test]
fn a_dump_is_planned_as_the_controller_would() {
    let dir = tempfile::tempdir().unwrap();
    dump(dir.path());
    let said = mco(&["plan", "--from", dir.path().to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    insta::assert_snapshot!(said.out);
}

/// The same dump in another layout gives the same answer: a tree as `oc adm must-gather` writes it, with nodes in one
/// list and one per file, pods as the API server's own list, and logs, events and archives between them.
#[test]
fn a_must_gather_tree_gives_the_same_plan_and_names_skipped_files() {
    let (plain, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    dump(plain.path());
    let root = tree.path().join("must-gather.local.1/quay-io-sha256-1");
    let objects = |file: &str| -> Vec<Value> {
        api::formats::yaml::documents(&std::fs::read_to_string(plain.path().join(file)).unwrap()).unwrap()
    };
    write(
        &root.join(
            "cluster-scoped-resources/machineconfiguration.openshift.io/machineconfigpools/worker.yaml",
        ),
        &objects("a/pools.yaml"),
    );
    for (i, node) in objects("a/b/core/nodes.yaml")[0]["items"].as_array().unwrap().iter().enumerate() {
        let path = root.join(format!("cluster-scoped-resources/core/nodes/{i}.json.gz"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut out =
            flate2::write::GzEncoder::new(std::fs::File::create(path).unwrap(), flate2::Compression::fast());
        serde_json::to_writer_pretty(&mut out, node).unwrap();
        out.finish().unwrap();
    }
    let (mut pods, mut others) = (vec![], vec![]);
    for mut object in objects("a/b/namespaces/shop/core.yaml") {
        if object["kind"] == "Pod" {
            let fields = object.as_object_mut().unwrap();
            fields.retain(|key, _| !["kind", "apiVersion"].contains(&key.as_str()));
            pods.push(object);
        } else {
            others.push(
                json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "shop"}}),
            );
            others.push(object);
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
    write(&root.join("namespaces/shop/core/pods.yaml"), &[list]);
    write(&root.join("namespaces/shop/policy/poddisruptionbudgets.yaml"), &others);
    for (name, text) in [
        ("monitoring/alerts.json", "{\"status\":\"success\",\"data\":[1,2]}"),
        ("host_service_logs/masters/kubelet.log", "kind: Node"),
        ("insights-data/insights.tar.gz", "x"),
        ("etcd_info/alarm.json", "[1, {\"cut\": "),
        ("version", "1"),
    ] {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let answer = |dir: &Path, format: &str| {
        let said = mco(&["plan", "--from", dir.to_str().unwrap(), "-o", format]);
        assert_eq!(said.code, 0, "{}", said.err);
        let mut answer = api::formats::yaml::from_str::<Value>(&said.out).unwrap();
        // Each plan contains the time at which it was made.
        for pool in answer["pools"].as_array_mut().unwrap() {
            for condition in pool["status"]["conditions"].as_array_mut().unwrap() {
                condition.as_object_mut().unwrap().remove("lastTransitionTime");
            }
        }
        answer
    };
    let (want, got) = (answer(plain.path(), "json"), answer(tree.path(), "json"));
    assert_eq!(got, answer(tree.path(), "yaml"));
    assert_eq!((&got["pools"], &got["unmanaged"]), (&want["pools"], &want["unmanaged"]));
    let notes = got["notes"].to_string();
    for word in ["alarm.json: skipped", "archives were skipped", "insights.tar.gz"] {
        assert!(notes.contains(word), "{word} in {notes}");
    }
    assert!(!notes.contains("alerts.json") && !notes.contains("kubelet.log"), "{notes}");
}

#[test]
fn unreadable_and_missing_inputs_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    dump(dir.path());
    let said = mco(&["plan", "--from", path, "--pool", "nope"]);
    assert!(said.code == 1 && said.err.contains("the pools are: worker"), "{}", said.err);
    write(
        &dir.path().join("bad.yaml"),
        &[json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "w9"}, "spec": {"taints": "none"}})],
    );
    let said = mco(&["plan", "--from", path]);
    assert!(said.code == 1 && said.err.contains("bad.yaml: Node w9"), "{}", said.err);
    write(&dir.path().join("bad.yaml"), &[json!({"apiVersion": "v1", "kind": "Node", "metadata": {}})]);
    let said = mco(&["plan", "--from", path]);
    assert!(
        said.code == 0 && said.out.contains("bad.yaml: a Node without a name"),
        "{}{}",
        said.out,
        said.err
    );
    let said = mco(&["plan", "--from", path, "--kubeconfig", "x"]);
    assert_eq!(said.code, 2);
    let said = mco(&["plan", "--from", "/nowhere.yaml"]);
    assert!(said.code == 1 && said.err.contains("/nowhere.yaml"), "{}", said.err);
}
