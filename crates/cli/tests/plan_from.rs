//! `mco plan --from` as a user runs it: the recorded situations of `tests/conformance/rollout` as plain YAML, each with the
//! answer of the reference; a dump with pods and budgets; what a change would do. What it is not: a cluster.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const MCO: &str = "machineconfiguration.openshift.io/";

struct Said {
    code: i32,
    out: String,
    err: String,
}

fn mco(arguments: &[&str]) -> Said {
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

fn write(path: &Path, objects: &[Value]) {
    let text: Vec<String> = objects.iter().map(|o| api::yaml::to_string(o).unwrap()).collect();
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text.join("---\n")).unwrap();
}

fn pool(name: &str, spec: &Value) -> Value {
    let mut spec = spec.clone();
    spec["configuration"] = json!({"name": "NEW"});
    spec["machineConfigSelector"] = json!({"matchLabels": {format!("{MCO}role"): name}});
    spec["nodeSelector"] = json!({"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}});
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "generation": 1}, "spec": spec,
        "status": {"conditions": [{"type": "RenderDegraded", "status": "False", "reason": "", "message": "",
                                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

/// As the recording put them into its cluster: made a second apart, in one List.
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
        // The node life cycle's own taints are no decision.
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

/// A line `CASE NODE reason` of `accept-rollout.txt`: that node of the case goes to the new config in the slot that it holds.
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
fn every_recorded_situation_has_the_references_answer() {
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

/// A worker pool with three nodes: one that drains, one in the config, one that is to go.
fn dump(dir: &Path) {
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
    // An older copy of a node stands beside the newer one, as in dumps.
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

#[test]
fn a_dump_is_answered_as_the_controller_would() {
    let dir = tempfile::tempdir().unwrap();
    dump(dir.path());
    let said = mco(&["plan", "--from", dir.path().to_str().unwrap()]);
    assert_eq!(said.code, 0, "{}", said.err);
    insta::assert_snapshot!(said.out);
}

/// The same dump in another shape gives the same answer: a tree as `oc adm must-gather` leaves it, nodes packed and one a
/// file, pods as the API server's own list, logs, events and archives between them.
#[test]
fn a_must_gather_tree_gives_the_same_answer_and_says_what_it_passed_over() {
    let (plain, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    dump(plain.path());
    let root = tree.path().join("must-gather.local.1/quay-io-sha256-1");
    let objects = |file: &str| -> Vec<Value> {
        api::yaml::documents(&std::fs::read_to_string(plain.path().join(file)).unwrap()).unwrap()
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
        let mut answer = api::yaml::from_str::<Value>(&said.out).unwrap();
        // Each plan says when it was made.
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
    for word in ["alarm.json: passed over", "archives are not looked into", "insights.tar.gz"] {
        assert!(notes.contains(word), "{word} in {notes}");
    }
    assert!(!notes.contains("alerts.json") && !notes.contains("kubelet.log"), "{notes}");
}

#[test]
fn what_cannot_be_read_and_what_is_not_there_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    dump(dir.path());
    let said = mco(&["plan", "--from", path, "--pool", "nope"]);
    assert!(said.code == 1 && said.err.contains("there is: worker"), "{}", said.err);
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

/// A cluster of two pools as a dump with its MachineConfigs.
fn with_configs(dir: &Path, current: &str) {
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

fn config(name: &str, path: &str, content: &str) -> Value {
    json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {format!("{MCO}role"): "worker"}},
        "spec": {"config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [
            {"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{content}")}}]}}}})
}

/// Every key of every object, but for those that are data and not fields.
fn keys(value: &Value, found: &mut std::collections::BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.insert(key.clone());
                keys(value, found);
            }
        }
        Value::Array(list) => list.iter().for_each(|v| keys(v, found)),
        _ => {}
    }
}

#[test]
fn what_programs_read_says_its_form_and_has_fields_in_camel_case() {
    let dir = tempfile::tempdir().unwrap();
    let (full, small) = (dir.path().join("full"), dir.path().join("small"));
    dump(&full);
    with_configs(&small, "");
    let (full, small) = (full.to_str().unwrap(), small.to_str().unwrap());
    let change = dir.path().join("change.yaml");
    write(&change, &[config("50-motd", "/etc/motd", "hello%0A")]);
    let change = change.to_str().unwrap();
    let rows: [(&[&str], &str); 3] = [
        (&["plan", "--from", full], "Forecast"),
        (&["plan", "--from", small, "-f", change], "ChangePlan"),
        (&["lint", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/render/good.yaml")], "FindingList"),
    ];
    for (args, kind) in rows {
        let mut all = vec![];
        for format in ["json", "yaml"] {
            let said = mco(&[args, &["-o", format]].concat());
            let value: Value =
                api::yaml::from_str(&said.out).unwrap_or_else(|e| panic!("{args:?}: {e}{}", said.err));
            assert_eq!(
                (&value["apiVersion"], &value["kind"]),
                (&json!("cli.machineconfig.dev/v1"), &json!(kind))
            );
            let mut found = std::collections::BTreeSet::new();
            keys(&value, &mut found);
            for key in &found {
                let camel = key.starts_with(|c: char| c.is_ascii_lowercase())
                    && key.chars().all(|c| c.is_ascii_alphanumeric());
                assert!(camel, "{args:?}: the field {key:?} in {}", said.out);
            }
            assert!(found.len() > 4, "{args:?}: {found:?}");
            all.push(found);
        }
        assert_eq!(all[0], all[1], "{args:?}");
    }
}

/// Secrets in files, units, drop-ins and kernel arguments: neither `render`'s diff nor `plan` shows any, in any format,
/// unless it is told to.
#[test]
fn secrets_are_shown_only_to_who_asks_for_them() {
    const SECRET: &str = "hunter2";
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    with_configs(&from, "");
    let manifests = |tail: &str| -> Value {
        let file = |path: &str, mode: u32, text: String| json!({"path": path, "mode": mode, "contents": {"source": format!("data:,{text}")}});
        let body = format!("[Service]\nEnvironment=\"SMTP_PASS={SECRET}{tail}\"\n");
        json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "50-mail", "labels": {format!("{MCO}role"): "worker"}},
            "spec": {"kernelArguments": [format!("nbd.password={SECRET}{tail}")],
                "config": {"ignition": {"version": "3.4.0"},
                "storage": {"files": [
                    file("/etc/mail.conf", 0o644, format!("SMTP_PASS%3D{SECRET}{tail}%0A")),
                    file("/etc/mail.private", 0o600, format!("{SECRET}{tail}")),
                    file("/etc/ssl/private/mail", 0o644, format!("{SECRET}{tail}")),
                ]},
                "systemd": {"units": [{"name": "a.service", "contents": body,
                    "dropins": [{"name": "x.conf", "contents": body}]}]}}}})
    };
    write(&from.join("mail.yaml"), &[manifests("")]);
    let from_text = from.to_str().unwrap().to_owned();
    let rendered: Value = api::yaml::from_str(&mco(&["render", "-f", &from_text]).out).unwrap();
    with_configs(&from, rendered["metadata"]["name"].as_str().unwrap());
    write(&from.join("rendered.yaml"), &[rendered]);
    let empty = "data:,";
    let mut emptied = manifests("");
    for i in 0..3 {
        emptied["spec"]["config"]["storage"]["files"][i]["contents"]["source"] = json!(empty);
    }
    for (name, changed) in [("other", manifests("x")), ("emptied", emptied)] {
        let to = dir.path().join(format!("{name}.yaml"));
        write(&to, &[changed]);
        let to = to.to_str().unwrap();
        let old = from.join("mail.yaml");
        let old = old.to_str().unwrap();
        for arguments in [
            &["render", "-f", to, "--diff-with", old][..],
            &["render", "-f", old, "--diff-with", to],
            &["plan", "-f", to, "--from", &from_text],
            &["plan", "-f", to, "--from", &from_text, "-o", "json"],
        ] {
            let said = mco(arguments);
            assert!(said.out.contains("/etc/mail.conf"), "{arguments:?}: {}{}", said.out, said.err);
            assert!(!said.out.contains(SECRET) && !said.err.contains(SECRET), "{arguments:?}: {}", said.out);
            let shown = mco(&[arguments, &["--show-secrets"]].concat());
            assert!(shown.out.contains(SECRET), "{arguments:?}: {}{}", shown.out, shown.err);
        }
    }
}

#[test]
fn a_change_is_shown_with_its_cost_and_order_and_refused_by_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    with_configs(&from, "");
    let from_text = from.to_str().unwrap();
    // What the pool is in now is rendered from its own manifests.
    let now = mco(&["render", "-f", from_text]);
    assert_eq!(now.code, 0, "{}", now.err);
    let rendered: Value = api::yaml::from_str(&now.out).unwrap();
    with_configs(&from, rendered["metadata"]["name"].as_str().unwrap());
    write(&from.join("rendered.yaml"), &[rendered]);
    let change = |name: &str, object: Value| {
        let path = dir.path().join(name);
        write(&path, &[object]);
        path.to_str().unwrap().to_owned()
    };
    let motd = change("motd.yaml", config("50-motd", "/etc/motd", "hello%0A"));
    let said = mco(&["plan", "--from", from_text, "-f", &motd]);
    assert_eq!(said.code, 0, "{}", said.err);
    insta::assert_snapshot!(said.out);
    for (refuse, code) in [("reboot", 3), ("drain", 3), ("reload", 3)] {
        assert_eq!(
            mco(&["plan", "--from", from_text, "-f", &motd, "--refuse", refuse]).code,
            code,
            "{refuse}"
        );
    }
    // A drain, and no reboot.
    let drains = change("drains.yaml", config("50-drains", "/etc/drains.conf", "x"));
    let actions = json!([{"type": "Drain"}, {"type": "Restart", "restart": {"serviceName": "crio.service"}}]);
    let files = json!([{"path": "/etc/drains.conf", "actions": actions}]);
    let drain = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"files": files}}});
    write(&from.join("drain.yaml"), &[drain]);
    for (refuse, code) in [("reboot", 0), ("drain", 3), ("restart", 3), ("reload", 3)] {
        let said = mco(&["plan", "--from", from_text, "-f", &drains, "--refuse", refuse]);
        assert_eq!(said.code, code, "{refuse}: {}{}", said.out, said.err);
    }
    std::fs::remove_file(from.join("drain.yaml")).unwrap();
    let policy = change("policy.yaml", config("50-policy", "/etc/containers/policy.json", "%7B%7D"));
    for (refuse, code) in [("reboot", 0), ("drain", 0), ("restart", 0), ("reload", 3)] {
        assert_eq!(
            mco(&["plan", "--from", from_text, "-f", &policy, "--refuse", refuse]).code,
            code,
            "{refuse}"
        );
    }
    let said = mco(&["plan", "--from", from_text, "-f", &policy, "-o", "json"]);
    let said: Value = serde_json::from_str(&said.out).unwrap();
    let cost = &said["pools"][0]["costs"][0]["applied"];
    assert_eq!(cost["severity"], "reload", "{said}");
    assert_eq!(cost["disruption"]["services"][0]["because"][0], "/etc/containers/policy.json", "{said}");
    // The cluster's disruption policy counts.
    let free = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}]}}});
    write(&from.join("free.yaml"), &[free]);
    let said = mco(&["plan", "--from", from_text, "-f", &motd, "--refuse", "reload"]);
    assert!(said.code == 0 && said.out.contains("disruption: none"), "{}{}", said.out, said.err);
    // What no running host can do is refused whatever is asked.
    let mut disks = config("50-disks", "/etc/a", "x");
    disks["spec"]["config"]["storage"]["disks"] = json!([{"device": "/dev/sdb", "wipeTable": true}]);
    let disks = change("disks.yaml", disks);
    let said = mco(&["plan", "--from", from_text, "-f", &disks]);
    assert!(
        said.code == 3 && said.out.contains("cannot be applied to a running host"),
        "{}{}",
        said.out,
        said.err
    );
    // What needs templates is not called no change, and with them it is a change like any other.
    let kubelet = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "KubeletConfig",
        "metadata": {"name": "more"}, "spec": {"machineConfigPoolSelector": {"matchLabels": {"pool": "worker"}},
        "kubeletConfig": {"maxPods": 9}}});
    let kubelet = change("kubelet.yaml", kubelet);
    let said = mco(&["plan", "--from", from_text, "-f", &kubelet]);
    assert!(said.code == 1 && said.err.contains("--templates DIR"), "{}", said.err);
    let same = change("same.yaml", config("00-worker", "/etc/base", "one%0Atwo%0A"));
    let said = mco(&["plan", "--from", from_text, "-f", &same, "--refuse", "reload"]);
    assert!(said.code == 0 && said.out.starts_with("no pool's config changes"), "{}{}", said.out, said.err);
}

/// A cluster as the controller leaves it: templates and settings are rendered into MachineConfigs, pools name their configs.
fn settled(dir: &Path, templates: &str, settings: &[Value]) {
    let name = |v: &Value| v["metadata"]["name"].as_str().unwrap().to_owned();
    let mut worker = pool("worker", &json!({"maxUnavailable": 2}));
    worker["metadata"]["labels"] = json!({"pool": "worker", format!("{MCO}mco-built-in"): ""});
    let controller = mco(&["install", "--dry-run", "-o", "json"]);
    let list: Value = serde_json::from_str(&controller.out).unwrap();
    let config = list["items"].as_array().unwrap().iter().find(|o| o["kind"] == "ControllerConfig").unwrap();
    let mut config = config.clone();
    config["metadata"]["annotations"][format!("{MCO}template-layers")] = json!("kubeadm");
    let manifests = dir.join("manifests");
    write(&manifests.join("pool.yaml"), &[worker.clone()]);
    write(&manifests.join("config.yaml"), &[config]);
    if !settings.is_empty() {
        write(&manifests.join("settings.yaml"), settings);
    }
    let out = dir.join("out");
    let secret = dir.join("secret.yaml");
    write(
        &secret,
        &[json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "s"}, "data": {".dockerconfigjson": "e30="}})],
    );
    let text = |p: &Path| p.to_str().unwrap().to_owned();
    let args = [
        "controller",
        "bootstrap",
        "--manifest-dir",
        &text(&manifests),
        "--dest-dir",
        &text(&out),
        "--pull-secret",
        &text(&secret),
        "--templates",
        templates,
    ];
    let said = mco(&args);
    assert_eq!(said.code, 0, "{}", said.err);
    let pools: Value =
        api::yaml::from_str(&std::fs::read_to_string(out.join("machine-pools/worker.yaml")).unwrap())
            .unwrap();
    let current = &pools["spec"]["configuration"]["name"];
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "w0", "uid": "u", "labels": {"node-role.kubernetes.io/worker": ""}, "annotations": {
            format!("{MCO}currentConfig"): current, format!("{MCO}desiredConfig"): current, format!("{MCO}state"): "Done"}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    write(&out.join("node.yaml"), &[node]);
    for setting in settings {
        write(&out.join(format!("setting-{}.yaml", name(setting))), std::slice::from_ref(setting));
    }
}

#[test]
fn settings_and_deletions_are_planned_like_any_other_change() {
    let templates = concat!(env!("CARGO_MANIFEST_DIR"), "/../../templates");
    let dir = tempfile::tempdir().unwrap();
    let kind = |group: &str, kind: &str, name: &str, spec: Value| json!({"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec});
    let selector = json!({"matchLabels": {"pool": "worker"}});
    let own = "machineconfiguration.openshift.io/v1";
    let kubelet = |pods: u32| {
        kind(
            own,
            "KubeletConfig",
            "more",
            json!({"machineConfigPoolSelector": selector, "kubeletConfig": {"maxPods": pods}}),
        )
    };
    let mirror = |to: &str| {
        kind(
            "config.openshift.io/v1",
            "ImageDigestMirrorSet",
            "m",
            json!({"imageDigestMirrors": [{"source": "registry.example.com/a", "mirrors": [to]}]}),
        )
    };
    let file = |name: &str, object: &Value| {
        let path = dir.path().join(name);
        write(&path, std::slice::from_ref(object));
        path.to_str().unwrap().to_owned()
    };
    let from = dir.path().join("from");
    settled(&from, templates, &[kubelet(9), mirror("one.example.com/a")]);
    let from = from.join("out");
    let from = from.to_str().unwrap();
    let plan = |args: &[&str]| mco(&[&["plan", "--from", from, "--templates", templates], args].concat());
    let more = file("more.yaml", &kubelet(77));
    let other = file("mirror.yaml", &mirror("two.example.com/a"));
    let runtime = kind(
        own,
        "ContainerRuntimeConfig",
        "log",
        json!({"machineConfigPoolSelector": selector,
        "containerRuntimeConfig": {"logLevel": "debug"}}),
    );
    let runtime = file("runtime.yaml", &runtime);
    let image = kind(
        "config.openshift.io/v1",
        "Image",
        "cluster",
        json!({"registrySources": {"insecureRegistries": ["bad.example.com"]}}),
    );
    let image = file("image.yaml", &image);
    let same = file("same.yaml", &kubelet(9));
    let rows: [(&[&str], &[&str]); 7] = [
        (&["-f", &more], &["-maxPods: 9", "+maxPods: 77", "reboot"]),
        (&["-f", &other], &["registries.conf", "two.example.com/a"]),
        (&["-f", &runtime], &["debug"]),
        (&["-f", &image], &["bad.example.com"]),
        (&["-f", &more, "--delete"], &["-maxPods: 9"]),
        (&["-f", &other, "--delete"], &["registries.conf", "one.example.com/a"]),
        (&["-f", &same], &["no pool's config changes"]),
    ];
    for (args, wants) in rows {
        let said = plan(args);
        assert_eq!(said.code, 0, "{args:?}: {}", said.err);
        for want in wants {
            assert!(said.out.contains(want), "{args:?}: {want:?} in {}", said.out);
        }
        assert!(!said.out.contains("are they the controller's?"), "{}", said.out);
    }
    // A setting that is refused is no plan.
    let bad = file(
        "bad.yaml",
        &kind(
            own,
            "KubeletConfig",
            "bad",
            json!({"machineConfigPoolSelector": selector, "kubeletConfig": {"maxPods": "many"}}),
        ),
    );
    let said = plan(&["-f", &bad]);
    assert!(said.code == 1 && said.err.contains("KubeletConfig bad"), "{}{}", said.out, said.err);
    let away = file("away.yaml", &config("50-away", "/etc/away", "x"));
    let said = plan(&["-f", &away, "--delete"]);
    assert!(said.out.contains("50-away is not there"), "{}", said.out);
    assert_eq!(mco(&["plan", "--from", from, "--delete"]).code, 2);
}

#[test]
fn a_deleted_machine_config_gives_back_what_was_before_and_a_changed_pool_takes_its_nodes_along() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    with_configs(&from, "");
    let extra = config("50-motd", "/etc/motd", "hello%0A");
    write(&from.join("extra.yaml"), std::slice::from_ref(&extra));
    let from_text = from.to_str().unwrap();
    let rendered: Value = api::yaml::from_str(&mco(&["render", "-f", from_text]).out).unwrap();
    with_configs(&from, rendered["metadata"]["name"].as_str().unwrap());
    write(&from.join("rendered.yaml"), &[rendered]);
    let file = dir.path().join("gone.yaml");
    write(&file, &[extra]);
    let said =
        mco(&["plan", "--from", from_text, "-f", file.to_str().unwrap(), "--delete", "--refuse", "reboot"]);
    assert!(
        said.code == 3 && said.out.contains("-hello") && said.out.contains("4 nodes"),
        "{}{}",
        said.out,
        said.err
    );
    // A pool of its own for a node that is a worker now.
    let mut own = pool("own", &json!({}));
    own["spec"]["machineConfigSelector"] = json!({"matchExpressions": [
        {"key": format!("{MCO}role"), "operator": "In", "values": ["worker", "own"]}]});
    own["spec"]["nodeSelector"] = json!({"matchLabels": {"node-role.kubernetes.io/worker": ""}});
    own["spec"]["configuration"] = json!({});
    let file = dir.path().join("own.yaml");
    write(
        &file,
        &[own, config("60-own", "/etc/own", "own%0A")].map(|mut v| {
            if v["kind"] == "MachineConfig" {
                v["metadata"]["labels"][format!("{MCO}role")] = json!("own");
            }
            v
        }),
    );
    let said = mco(&["plan", "--from", from_text, "-f", file.to_str().unwrap()]);
    assert!(
        said.code == 0 && said.out.contains("pool own: (none) → rendered-own-"),
        "{}{}",
        said.out,
        said.err
    );
    assert!(said.out.contains("4 nodes, at most 1 at once"), "{}", said.out);
}
