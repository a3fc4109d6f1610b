//! Agents and controllers of neighbouring versions work together. During an upgrade, the controller has the new version and the
//! agents the old one; during a downgrade it is the other way round.
//!
//! The previous version is a recording: `tests/compatibility/VERSION/protocol.json` holds all writes of its controller and its
//! agent to one Node and its MachineConfigNode, in a rollout with a drain and a reboot. One of the two is replayed from it, the
//! other one is this build's. A recording is made once for each release, before work on the next version begins: `cargo test -p
//! lab --test cluster -- --ignored records_the_protocol` writes it to `target/compatibility/`.
//!
//! Not here: the state that agents keep on hosts (`crates/host/tests/folder/earlier_version.rs`), and settings and Secrets of the
//! previous version (beside the code that reads them, in `operator`).

mod record;
mod replay;

use crate::agents::{FolderAgent, costly};
use crate::definitions::install_definitions;
use crate::product::{Cluster, machine_config, one_file, repository, text, with_controller};
use anyhow::{Context as _, Result};
use replay::{Party, Play};
use serde_json::Value;

/// The releases with whose agents and controllers this version must work.
const BEFORE: [&str; 1] = ["v0.1.0"];

/// A recording, split where the second config first appears.
fn recording(version: &str) -> (Vec<Value>, Vec<Value>) {
    let path = repository().join(format!("tests/compatibility/{version}/protocol.json"));
    let recorded = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines: Vec<Value> = serde_json::from_str(&recorded).unwrap();
    let at = lines.iter().position(|line| line.to_string().contains("SECOND")).unwrap();
    let second = lines.split_off(at);
    for party in ["agent", "controller"] {
        let written = second.iter().filter(|line| line["by"] == party && line["to"] == "nodes").count();
        assert!(written > 0, "{version}: the recording has no writes of the {party}");
    }
    (lines, second)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes target/compatibility/protocol.json, to be kept when a version is released"]
async fn records_the_protocol_of_this_version() {
    let dir = tempfile::tempdir().unwrap();
    let Some(lines) = record::record(dir.path()).await else { return };
    let to = repository().join("target/compatibility");
    std::fs::create_dir_all(&to).unwrap();
    let lines = serde_json::to_string_pretty(&lines).unwrap() + "\n";
    std::fs::write(to.join("protocol.json"), lines).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_the_version_before_goes_through_a_rollout_of_this_controller() {
    for version in BEFORE {
        let Some(builder) = with_controller() else { return };
        let cluster = Cluster::start(builder.nodes(1).fake()).await;
        let (joins, updates) = recording(version);
        let configuration = async |with: &str| {
            let pool = cluster.get("MachineConfigPool", "worker").await;
            let configuration = &pool["spec"]["configuration"];
            configuration["source"].to_string().contains(with).then(|| text(&configuration["name"]))
        };
        let first =
            cluster.wait("a config of the templates", async || configuration("00-worker").await).await;
        let mut play = Play {
            client: &cluster.client,
            party: Party::Agent,
            node: record::NODE,
            words: vec![("FIRST", first)],
            expected: vec![],
            written: 0,
        };
        play.play(&joins).await;
        cluster.settled("worker", 1, &["00-worker"], &[]).await;
        let config = one_file("/etc/app.conf", "of-the-second");
        cluster.create(machine_config("50-app", "worker", config)).await;
        let second = cluster.wait("the second config", async || configuration("50-app").await).await;
        play.words.push(("SECOND", second.clone()));
        play.play(&updates).await;
        play.end().await;
        assert!(play.written > 5, "{version}: {}", play.written);
        assert_eq!(cluster.settled("worker", 1, &["50-app"], &[]).await, second);
        // The controller has finished with the node: its marks are gone, and the MachineConfigNode has the same desired config.
        cluster
            .wait("the Node is as it was before", async || {
                let node = cluster.get("Node", record::NODE).await;
                let free = node["spec"]["unschedulable"] != true
                    && !node["spec"]["taints"].to_string().contains("Update");
                let told = cluster.get("MachineConfigNode", record::NODE).await;
                (free && told["spec"]["configVersion"]["desired"] == *second).then_some(())
            })
            .await;
        cluster.no_panic();
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn this_agent_goes_through_a_rollout_of_a_controller_of_the_version_before() -> Result<()> {
    for version in BEFORE {
        let client = lab::shared().await?.client().await?;
        install_definitions(&client, "daemon-tests").await;
        let (joins, updates) = recording(version);
        let name = format!("of-{}", version.replace('.', "-"));
        let node = FolderAgent::start(&client, &name, true).await?;
        let first = node.config("1", &costly("of-the-first")).await?;
        node.pool(&first).await?;
        let mut play = Play {
            client: &client,
            party: Party::Controller,
            node: &name,
            words: vec![("FIRST", first.clone())],
            expected: vec![],
            written: 0,
        };
        play.play(&joins).await;
        node.reaches(&first, "Done").await?;
        let second = node.config("2", &costly("of-the-second")).await?;
        node.pool(&second).await?;
        play.words.push(("SECOND", second.clone()));
        play.play(&updates).await;
        play.end().await;
        assert!(play.written > 3, "{version}: {}", play.written);
        node.reaches(&second, "Done").await?;
        assert_eq!(node.read("etc/app.conf").as_deref(), Some("of-the-second"), "{version}");
        assert_eq!(node.boots()?, 2, "{version}: each config needs one reboot");
        let told = node.progress(&second).await?;
        let updated = told.status.and_then(|s| s.conditions).context("conditions")?;
        assert!(updated.iter().any(|c| c.type_ == "Updated" && c.status == "True"), "{version}: {updated:?}");
        node.end().await?;
    }
    Ok(())
}
