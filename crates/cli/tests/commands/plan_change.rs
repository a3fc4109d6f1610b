//! `mco plan -f` as a user runs it: what a change would do to a cluster that is described by files, what it costs, and
//! the form of the answer for programs.

use crate::clusters::{MCO, config, dump, mco, pool, with_configs, write};
use serde_json::{Value, json};
use std::path::Path;

/// Every key of every object in the value.
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
fn json_output_names_its_version_and_has_camel_case_fields() {
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
        (
            &["lint", "-f", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/commands/render/good.yaml")],
            "FindingList",
        ),
    ];
    for (args, kind) in rows {
        let mut all = vec![];
        for format in ["json", "yaml"] {
            let said = mco(&[args, &["-o", format]].concat());
            let value: Value = api::formats::yaml::from_str(&said.out)
                .unwrap_or_else(|e| panic!("{args:?}: {e}{}", said.err));
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

/// Secrets in files, units, drop-ins and kernel arguments: neither the diff of `render` nor `plan` shows any, in any
/// format, unless asked to.
#[test]
fn secrets_are_shown_only_with_show_secrets() {
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
    let rendered: Value = api::formats::yaml::from_str(&mco(&["render", "-f", &from_text]).out).unwrap();
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
fn a_plan_shows_cost_and_order_and_a_refusal_sets_the_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    with_configs(&from, "");
    let from_text = from.to_str().unwrap();
    // The pool's current config is rendered from its own manifests.
    let now = mco(&["render", "-f", from_text]);
    assert_eq!(now.code, 0, "{}", now.err);
    let rendered: Value = api::formats::yaml::from_str(&now.out).unwrap();
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
    // Drains the node, but does not reboot it.
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
    // The cluster's node disruption policy is applied.
    let free = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration", "metadata": {"name": "cluster"},
        "spec": {"nodeDisruptionPolicy": {"files": [{"path": "/etc/motd", "actions": [{"type": "None"}]}]}}});
    write(&from.join("free.yaml"), &[free]);
    let said = mco(&["plan", "--from", from_text, "-f", &motd, "--refuse", "reload"]);
    assert!(said.code == 0 && said.out.contains("disruption: none"), "{}{}", said.out, said.err);
    // A change that no running host can apply is refused, also without `--refuse`.
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
    // Without templates, a change of a setting is not reported as no change; with templates it is planned like any
    // other.
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

/// A cluster as the controller leaves it: templates and settings are rendered into MachineConfigs, and the pools name
/// their rendered configs.
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
    let pools: Value = api::formats::yaml::from_str(
        &std::fs::read_to_string(out.join("machine-pools/worker.yaml")).unwrap(),
    )
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
        assert!(!said.out.contains("is not what these templates generate"), "{}", said.out);
    }
    // There is no plan for an invalid setting.
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
    assert!(said.out.contains("50-away does not exist"), "{}", said.out);
    assert_eq!(mco(&["plan", "--from", from, "--delete"]).code, 2);
}

#[test]
fn the_plan_of_a_deletion_restores_originals_and_a_changed_pool_moves_its_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    with_configs(&from, "");
    let extra = config("50-motd", "/etc/motd", "hello%0A");
    write(&from.join("extra.yaml"), std::slice::from_ref(&extra));
    let from_text = from.to_str().unwrap();
    let rendered: Value = api::formats::yaml::from_str(&mco(&["render", "-f", from_text]).out).unwrap();
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
    // A new pool takes a node that is in the pool worker now.
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
