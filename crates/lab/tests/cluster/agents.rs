//! Whole agents of the `daemon` crate against a real API server, on folders with a fake systemd. The test acts as the
//! controller.
//!
//! They are here and not in the `daemon` crate because they need a control plane, which only this crate's tests may
//! start.

mod folder_agent;

use crate::definitions::install_definitions;
use anyhow::{Context as _, Result};
use api::k8s::Node;
use api::names::annotation as a;
use api::v1::{MachineConfig, MachineConfigNode};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub(crate) use folder_agent::FolderAgent;
use folder_agent::machine;

/// Everything here takes a second or two; a loaded machine may need longer.
const PATIENCE: Duration = Duration::from_secs(40);

async fn cluster() -> Result<Client> {
    let client = lab::shared().await?.client().await?;
    install_definitions(&client, "daemon-tests").await;
    Ok(client)
}

fn file(path: &str, text: &str) -> Value {
    json!({"storage": {"files": [{"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}}]}})
}

/// A config that needs no drain and no reboot, by the default disruption policies.
fn free(text: &str) -> Value {
    file("/var/lib/kubelet/config.json", text)
}

/// A config that needs a drain and a reboot.
pub(crate) fn costly(text: &str) -> Value {
    file("/etc/app.conf", text)
}

#[tokio::test]
async fn a_node_joins_at_once_where_that_costs_nothing_and_is_updated_without_a_reboot() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "joins", true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    assert_eq!(node.note(a::DESIRED_CONFIG).await?, one);
    assert_eq!(node.read("var/lib/kubelet/config.json").as_deref(), Some("one"));
    let two = node.config("2", &free("two")).await?;
    node.set(a::DESIRED_CONFIG, &two).await?;
    let asked = node.until(&two, "Done").await?;
    assert!(!asked.iter().any(|d| d.starts_with("drain-")), "{asked:?}");
    assert_eq!(node.read("var/lib/kubelet/config.json").as_deref(), Some("two"));
    assert_eq!(node.boots()?, 0);
    let object = node.progress(&two).await?;
    // The pool and the desired config in it are written by the controller, which does not run here.
    assert_eq!(object.spec.node.name, "joins");
    let status = object.status.context("status")?;
    assert_eq!(status.config_version.context("versions")?.current, two);
    let updated = status.conditions.context("conditions")?;
    assert!(updated.iter().any(|c| c.type_ == "Updated" && c.status == "True"), "{updated:?}");
    node.end().await
}

#[tokio::test]
async fn a_ready_node_gets_a_disruptive_first_config_by_the_rollout() -> Result<()> {
    let client = cluster().await?;
    let mut node = FolderAgent::start(&client, "costly", true).await?;
    let one = node.config("1", &costly("one")).await?;
    node.pool(&one).await?;
    node.until("mco-empty-mc", "Done").await?;
    assert_eq!(node.read("etc/app.conf"), None);
    node.set(a::DESIRED_CONFIG, &one).await?;
    let asked = node.until(&one, "Done").await?;
    // The node has cordoned itself, and uncordons itself.
    assert_eq!(asked, [format!("drain-{one}")]);
    assert_eq!(node.note(a::LAST_APPLIED_DRAIN).await?, format!("uncordon-{one}"));
    let object = Api::<Node>::all(client.clone()).get("costly").await?;
    assert!(!object.spec.and_then(|s| s.unschedulable).unwrap_or_default());
    assert_eq!(node.read("etc/app.conf").as_deref(), Some("one"));
    assert_eq!(node.boots()?, 1);
    assert_eq!(node.note(a::POST_CONFIG_ACTION).await?, "");
    // A restarted agent finds everything unchanged.
    node.restart().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.until(&one, "Done").await?;
    assert_eq!(node.boots()?, 1);
    node.end().await
}

#[tokio::test]
async fn a_node_that_is_not_ready_takes_its_first_config_by_itself() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "fresh", false).await?;
    let one = node.config("1", &costly("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    assert_eq!(node.boots()?, 1);
    node.end().await
}

#[tokio::test]
async fn a_node_that_cannot_reach_a_config_says_why_and_goes_to_another() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "failing", true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    let bad =
        node.config("2", &json!({"storage": {"disks": [{"device": "/dev/vdz", "wipeTable": true}]}})).await?;
    node.set(a::DESIRED_CONFIG, &bad).await?;
    node.until(&one, "Unreconcilable").await?;
    let reason = node.note(a::REASON).await?;
    assert!(reason.contains("storage.disks"), "{reason}");
    // A config that does not exist does not stop the agent either.
    node.set(a::DESIRED_CONFIG, "rendered-failing-none").await?;
    node.until(&one, "Degraded").await?;
    let three = node.config("3", &costly("three")).await?;
    node.set(a::DESIRED_CONFIG, &three).await?;
    node.until(&three, "Done").await?;
    assert_eq!(node.note(a::REASON).await?, "");
    assert_eq!(node.read("etc/app.conf").as_deref(), Some("three"));
    // The file of the first config is removed: the host had none before.
    assert_eq!(node.read("var/lib/kubelet/config.json"), None);
    node.end().await
}

#[tokio::test]
async fn a_node_sent_to_an_unsupported_image_reports_it_and_still_takes_configs() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "imaged", true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    let two = node.config("2", &free("two")).await?;
    node.set(a::DESIRED_IMAGE, "registry.example.com/os@sha256:0").await?;
    node.set(a::DESIRED_CONFIG, &two).await?;
    node.until(&one, "Unreconcilable").await?;
    let reason = node.note(a::REASON).await?;
    assert!(reason.contains("os@sha256:0") && reason.contains("MachineOSConfig"), "{reason}");
    assert_eq!(
        node.read("var/lib/kubelet/config.json").as_deref(),
        Some("one"),
        "the config was applied without its image"
    );
    node.set(a::DESIRED_IMAGE, "").await?;
    node.until(&two, "Done").await?;
    assert_eq!(node.note(a::REASON).await?, "");
    assert_eq!(node.read("var/lib/kubelet/config.json").as_deref(), Some("two"));
    node.end().await
}

#[tokio::test]
async fn a_changed_file_degrades_the_node_until_it_is_put_back() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "drifting", true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    let path = node.dir.path().join("var/lib/kubelet/config.json");
    std::fs::write(&path, "changed by hand")?;
    node.until(&one, "Degraded").await?;
    let events: Api<api::k8s::Event> = Api::namespaced(client.clone(), api::names::NAMESPACE);
    let of_node = ListParams::default().fields("involvedObject.name=drifting,reason=ConfigDriftDetected");
    let end = Instant::now() + PATIENCE;
    while events.list(&of_node).await?.items.is_empty() {
        anyhow::ensure!(Instant::now() < end, "no event tells of it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let reason = node.note(a::REASON).await?;
    // Everybody may read this file, but its path is that of a pull secret, so its contents are not shown.
    assert!(reason.contains("content mismatch") && reason.contains("contents are not shown"), "{reason}");
    assert!(!reason.contains("changed by hand"), "{reason}");
    std::fs::write(&path, "one")?;
    node.until(&one, "Done").await?;
    node.end().await
}

#[tokio::test]
async fn a_file_that_is_written_in_a_loop_is_reported_once() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start_with(&client, "looping", true, true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    node.progress(&one).await?;
    let path = node.dir.path().join("var/lib/kubelet/config.json");
    std::fs::write(&path, "0 by hand")?;
    node.until(&one, "Degraded").await?;
    let reason = node.note(a::REASON).await?;
    let version = async || -> Result<[Option<String>; 2]> {
        let node = Api::<Node>::all(client.clone()).get("looping").await?;
        let progress = Api::<MachineConfigNode>::all(client.clone()).get("looping").await?;
        Ok([node.metadata.resource_version, progress.metadata.resource_version])
    };
    let mut writes = 0;
    let mut last = version().await?;
    for n in 1..60 {
        std::fs::write(&path, format!("{n} by hand"))?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = version().await?;
        writes += last.iter().zip(&now).filter(|(a, b)| a != b).count();
        last = now;
    }
    // The MachineConfigNode follows the Node with a short delay; after that there are no more writes.
    assert!(writes <= 3, "{writes} writes for 60 changes of one file");
    assert_eq!(node.note(a::REASON).await?, reason);
    std::fs::write(&path, "one")?;
    node.until(&one, "Done").await?;
    node.end().await
}

#[tokio::test]
async fn a_machine_that_the_config_server_set_up_is_adopted() -> Result<()> {
    let client = cluster().await?;
    let mut node = FolderAgent::start(&client, "served", true).await?;
    let one = node.config("1", &free("one")).await?;
    // The state that Ignition leaves: the config's files, and the annotations.
    let dir = node.dir.path().to_owned();
    std::fs::create_dir_all(dir.join("etc/machine-config-daemon"))?;
    std::fs::create_dir_all(dir.join("var/lib/kubelet"))?;
    std::fs::write(dir.join("var/lib/kubelet/config.json"), "one")?;
    let notes = json!({a::CURRENT_CONFIG: one, a::DESIRED_CONFIG: one, a::STATE: "Done", "other/key": "x"});
    // The cluster no longer has that config.
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let served = serde_json::to_string(&configs.get(&one).await?)?;
    std::fs::write(dir.join("etc/mcs-machine-config-content.json"), served)?;
    configs.delete(&one, &DeleteParams::default()).await?;
    let left = dir.join("etc/machine-config-daemon/node-annotations.json");
    std::fs::write(&left, notes.to_string())?;
    node.restart().await?;
    node.until(&one, "Done").await?;
    let end = Instant::now() + PATIENCE;
    while left.exists() || node.read("etc/machine-config-daemon/currentconfig").is_none() {
        anyhow::ensure!(Instant::now() < end, "the file stays, or nothing is recorded");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(dir.join("etc/machine-config-daemon/node-annotation.json.bak").exists());
    assert_eq!(node.note("other/key").await?, "", "only our own annotations are copied to the Node");
    node.end().await
}

#[tokio::test]
async fn a_node_that_is_deleted_and_registered_again_keeps_its_config() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "again", true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    // The pool has a newer config, but the node must not update to it by itself.
    node.pool("rendered-again-2").await?;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.delete("again", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let fresh = json!({"metadata": {"name": "again", "labels": {"pool-again": ""}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(fresh)?).await?;
    node.until(&one, "Done").await?;
    assert_eq!(node.note(a::DESIRED_CONFIG).await?, one);
    node.end().await
}

#[tokio::test]
async fn a_force_file_repairs_a_changed_host_with_a_reboot() -> Result<()> {
    let client = cluster().await?;
    let mut node = FolderAgent::start(&client, "forced", true).await?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    std::fs::write(node.dir.path().join("var/lib/kubelet/config.json"), "changed by hand")?;
    node.restart().await?;
    node.until(&one, "Degraded").await?;
    std::fs::create_dir_all(node.dir.path().join("run"))?;
    std::fs::write(node.dir.path().join("run/machine-config-daemon-force"), "")?;
    node.until(&one, "Done").await?;
    assert_eq!(node.read("var/lib/kubelet/config.json").as_deref(), Some("one"));
    assert_eq!(node.boots()?, 1);
    assert_eq!(node.read("run/machine-config-daemon-force"), None);
    node.end().await
}

#[tokio::test]
async fn a_service_that_does_not_reload_undoes_the_update() -> Result<()> {
    let client = cluster().await?;
    let node = FolderAgent::start(&client, "undoes", true).await?;
    let units = node.dir.path().join("usr/lib/systemd/system");
    std::fs::create_dir_all(&units)?;
    std::fs::write(units.join("crio.service"), "[Service]\nExecStart=/bin/true\n")?;
    let one = node.config("1", &free("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    machine(node.dir.path())?.1.set_failing("crio.service", true)?;
    let two = node.config("2", &file("/etc/containers/policy.json", "two")).await?;
    node.set(a::DESIRED_CONFIG, &two).await?;
    node.until(&one, "Degraded").await?;
    let reason = node.note(a::REASON).await?;
    assert!(reason.contains("crio.service"), "{reason}");
    assert_eq!(node.read("etc/containers/policy.json"), None, "no part of the update is left");
    assert_eq!(node.read("var/lib/kubelet/config.json").as_deref(), Some("one"));
    machine(node.dir.path())?.1.set_failing("crio.service", false)?;
    node.until(&two, "Done").await?;
    assert_eq!(node.boots()?, 0);
    node.end().await
}
