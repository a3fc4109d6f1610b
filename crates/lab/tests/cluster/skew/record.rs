//! Records what a controller and an agent of one version write for each other, from the API server's audit log: one node takes
//! its first config, and then one that needs a drain and a reboot.
//!
//! Not here: the replay (`replay`).

use crate::product::{Cluster, machine_config, note, one_file, with_controller};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Writes of the two parties about Nodes and MachineConfigNodes, with their bodies.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  users: [mco-controller, mco-daemons]
  verbs: [create, update, patch]
  resources:
  - {group: \"\", resources: [nodes, nodes/status]}
  - {group: machineconfiguration.openshift.io, resources: [machineconfignodes, machineconfignodes/status]}
- level: None
";
/// The node of the recording.
pub(super) const NODE: &str = "worker-0";

/// One write, with the names of this cluster replaced by placeholders.
fn line(event: &Value, words: &[(String, &str)]) -> Option<Value> {
    let by = match event["user"]["username"].as_str()? {
        "mco-controller" => "controller",
        _ => "agent",
    };
    if event["responseStatus"]["code"].as_u64()? >= 300 {
        return None;
    }
    let subresource = event["objectRef"]["subresource"].as_str().map(|s| format!("/{s}")).unwrap_or_default();
    let to = format!("{}{subresource}", event["objectRef"]["resource"].as_str()?);
    let mut body = event["requestObject"].clone();
    // The resourceVersion that a write was bound to has no meaning in another cluster.
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["resourceVersion", "uid", "ownerReferences", "managedFields", "creationTimestamp"] {
            metadata.remove(key);
        }
    }
    let mut text = body.to_string();
    for (name, word) in words {
        text = text.replace(name.as_str(), word);
    }
    let body: Value = serde_json::from_str(&text).ok()?;
    let forced = event["requestURI"].as_str().is_some_and(|uri| uri.contains("force=true"));
    let how = match (event["verb"].as_str()?, &body) {
        ("patch", Value::Array(_)) => "json patch",
        ("patch", _) if forced => "apply",
        ("patch", _) => "merge patch",
        (verb, _) => verb,
    };
    Some(json!({"by": by, "how": how, "to": to, "body": body}))
}

/// Records a rollout of this build's controller and agent; returns their writes in order.
pub(super) async fn record(dir: &Path) -> Option<Vec<Value>> {
    let builder = with_controller()?;
    std::fs::write(dir.join("policy.yaml"), POLICY).unwrap();
    let log = dir.join("audit.log");
    let flags = [
        format!("--audit-policy-file={}", dir.join("policy.yaml").display()),
        format!("--audit-log-path={}", log.display()),
        "--audit-log-mode=blocking".to_owned(),
    ];
    let builder = builder.nodes(1).simulated().reboot_time(Duration::from_millis(200)).api_server_args(flags);
    let cluster = Cluster::start(builder).await;
    let first = cluster.settled("worker", 1, &["00-worker"], &[]).await;
    cluster.create(machine_config("50-app", "worker", one_file("/etc/app.conf", "of-the-second"))).await;
    let second = cluster.settled("worker", 1, &["50-app"], &[]).await;
    // At the end of a rollout the MachineConfigNode reports it, and the node is uncordoned.
    cluster
        .wait("the MachineConfigNode tells of the second config", async || {
            let told = cluster.get("MachineConfigNode", NODE).await;
            let uncordoned =
                note(&cluster.get("Node", NODE).await, "lastAppliedDrain") == format!("uncordon-{second}");
            (told["status"]["configVersion"]["current"] == *second && uncordoned).then_some(())
        })
        .await;
    cluster.stop().await;
    let words = [(first, "FIRST"), (second, "SECOND"), (NODE.to_owned(), "NODE")];
    let text = std::fs::read_to_string(&log).unwrap();
    let events = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    Some(events.filter_map(|event| line(&event, &words)).collect())
}
