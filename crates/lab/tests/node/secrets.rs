//! Secrets in MachineConfigs on a machine that boots: whatever is wrong with the file or unit that contains a secret,
//! the secret is not disclosed.
//!
//! Not here: the masking of differences (`desired::mask`).

use crate::product::{Cluster, condition, is_done, machine_config, note, one_machine};
use kube::api::PostParams;
use lab::{DAEMON_UNIT, NodeHandle};
use serde_json::{Value, json};

const NODE: &str = "worker-0";

/// A part of every value that is a secret in these tests.
const MARKER: &str = "hunter2";

/// A secret in each kind of input, valid and invalid, and then drift of paths that contain one.
#[tokio::test(flavor = "multi_thread")]
async fn no_log_event_or_status_holds_a_secret() {
    let Some(cluster) = one_machine(|lab| lab).await else { return };
    tell_nothing(&cluster, &cluster.lab.node(0)).await;
    cluster.no_panic();
    cluster.stop().await;
}

async fn tell_nothing(cluster: &Cluster, node: &NodeHandle) {
    for (what, config) in marked_and_bad() {
        let name = format!("50-marked-{what}");
        cluster.create(machine_config(&name, "worker", config)).await;
        cluster
            .wait(&format!("{name} is refused"), async || {
                let pool = cluster.get("MachineConfigPool", "worker").await;
                let found = cluster.get("Node", NODE).await;
                let refused = ["Degraded", "Unreconcilable"].contains(&note(&found, "state").as_str());
                (refused || condition(&pool, "RenderDegraded").is_some_and(|m| !m.is_empty())).then_some(())
            })
            .await;
        silent(cluster, node, &name).await;
        cluster.delete("MachineConfig", &name).await;
        done(cluster, &name).await;
    }
    for (what, user) in
        [("map", json!({"evictionHard": "hunter2"})), ("text", json!("a: hunter2\n b: [hunter2"))]
    {
        let name = format!("marked-{what}");
        let pool = "pools.operator.machineconfiguration.openshift.io/worker";
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "KubeletConfig",
            "metadata": {"name": name},
            "spec": {"machineConfigPoolSelector": {"matchLabels": {pool: ""}}, "kubeletConfig": user},
        });
        let object = serde_json::from_value(object).unwrap();
        // The API server may refuse the object by its schema; then none of our programs has seen it.
        if cluster.api("KubeletConfig").create(&PostParams::default(), &object).await.is_err() {
            continue;
        }
        let status = cluster
            .wait(&format!("KubeletConfig {name} is refused"), async || {
                let found = cluster.get("KubeletConfig", &name).await;
                found["status"]["conditions"].as_array().filter(|c| !c.is_empty())?;
                Some(found["status"].to_string())
            })
            .await;
        assert!(!status.contains(MARKER), "{status}");
        silent(cluster, node, &name).await;
        cluster.delete("KubeletConfig", &name).await;
    }
    cluster.create(machine_config("50-marked", "worker", marked())).await;
    cluster.settled("worker", 1, &["50-marked"], &[]).await;
    assert!(node.run(["cat", "/etc/shadow"]).await.unwrap().contains(MARKER), "the hash has not arrived");
    for path in ["/etc/marked", "/etc/marked.conf", "/etc/systemd/system/marked.service"] {
        sh(node, &format!("cp -p {path} /root/kept; sed -i 's/hunter2/other/' {path}")).await;
        cluster
            .wait(&format!("drift of {path} is told"), async || {
                let reason = note(&cluster.get("Node", NODE).await, "reason");
                (reason.contains(path) && reason.contains("content mismatch")).then_some(())
            })
            .await;
        silent(cluster, node, path).await;
        sh(node, &format!("cat /root/kept > {path}")).await;
        done(cluster, path).await;
    }
    cluster.delete("MachineConfig", "50-marked").await;
    cluster.settled("worker", 1, &["00-worker"], &["50-marked"]).await;
    silent(cluster, node, "at the end").await;
}

async fn sh(node: &NodeHandle, command: &str) {
    node.run(["sh", "-c", command]).await.unwrap();
}

async fn done(cluster: &Cluster, about: &str) {
    cluster
        .wait(&format!("{about}: the node is done"), async || {
            let found = cluster.get("Node", NODE).await;
            let there = note(&found, "currentConfig") == cluster.rendered("worker").await;
            (is_done(&found) && there && note(&found, "reason").is_empty()).then_some(())
        })
        .await;
}

fn with(part: &Value) -> Value {
    let mut config = json!({"ignition": {"version": "3.4.0"}});
    config.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
    config
}

/// Configs that cannot be rendered or applied, each with a secret.
fn marked_and_bad() -> [(&'static str, Value); 7] {
    let core = |user: Value| with(&json!({"passwd": {"users": [user]}}));
    let file = |source: &str| {
        let file = json!({"path": "/etc/marked", "mode": 384, "contents": {"source": source}});
        with(&json!({"storage": {"files": [file]}}))
    };
    let unit = json!({"name": "marked.service", "contents": "[Service]\nhunter2\n", "enabled": true});
    let key = "environment=\"P=hunter2\" ssh-ed25519 AAAA";
    [
        ("file", file("hunter2:hunter2")),
        ("escape", file("data:,hunter2%zz")),
        ("hash", core(json!({"name": "core", "passwordHash": "hunter2:x"}))),
        ("type", core(json!({"name": "core", "passwordHash": ["hunter2"]}))),
        ("keys", core(json!({"name": "core", "sshAuthorizedKeys": [key, key]}))),
        ("unit", with(&json!({"systemd": {"units": [unit]}}))),
        ("version", json!({"ignition": {"version": "hunter2"}})),
    ]
}

/// A config that is applied, with secrets in files, a unit, a password hash and the settings of registries.
fn marked() -> Value {
    let unit = "[Service]\nType=oneshot\nEnvironment=TOKEN=hunter2\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    with(&json!({
        "storage": {"files": [
            {"path": "/etc/marked", "mode": 384, "contents": {"source": "data:,hunter2%0A"}},
            {"path": "/etc/marked.conf", "mode": 420, "contents": {"source": "data:,password=hunter2%0Aa=1%0A"}},
            // This is not valid TOML.
            {"path": "/etc/containers/registries.conf", "mode": 420,
                "contents": {"source": "data:,%5B%5Bregistry%5D%5D%0Aprefix%20=%20hunter2"}},
        ]},
        "systemd": {"units": [{"name": "marked.service", "enabled": true, "contents": unit}]},
        "passwd": {"users": [{"name": "core", "passwordHash": "$6$hunter2$hunter2"}]},
    }))
}

/// Checks that the secret appears nowhere but in MachineConfigs and in the host's files.
async fn silent(cluster: &Cluster, node: &NodeHandle, about: &str) {
    let mut seen = vec![];
    for kind in ["Node", "MachineConfigPool", "MachineConfigNode"] {
        seen.extend(cluster.list(kind).await.iter().map(ToString::to_string));
    }
    let events = cluster.kubectl(&["get", "events", "-A", "-o", "json"]).await;
    let controller = std::fs::read_to_string(cluster.lab.controller_log()).unwrap();
    assert!(events.out.contains(NODE) && !controller.is_empty(), "no output to search");
    seen.extend([events.out, controller, node.logs(DAEMON_UNIT).await.unwrap()]);
    for text in seen {
        if let Some((before, after)) = text.split_once(MARKER) {
            let before: String =
                before.chars().rev().take(600).collect::<Vec<_>>().into_iter().rev().collect();
            let after: String = after.chars().take(300).collect();
            panic!("{about}: a secret is shown: …{before}{MARKER}{after}…");
        }
    }
}
