//! Whole agents of the `daemon` crate against a real API server, on folders with a fake systemd. The test acts as the
//! controller.
//!
//! They are here and not in the `daemon` crate because they need a control plane, which only this crate's tests may
//! start.

use crate::definitions::install_definitions;
use anyhow::{Context, Result, bail};
use api::k8s::Node;
use api::names::annotation as a;
use api::v1::{MachineConfig, MachineConfigNode, MachineConfigPool};
use daemon::{AgentOptions, Exit, run_with};
use host::fault::NoFaults;
use host::{FakeSystemd, Host, Options, Root, Unsupported};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Everything here takes a second or two; a loaded machine may need longer.
const PATIENCE: Duration = Duration::from_secs(40);

/// Frequent enough for the tests, and long enough that nothing else depends on it.
const DRIFT_PERIOD: Duration = Duration::from_millis(500);

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

/// One node: its Node object, its disk, its agent, and its reboots.
pub(crate) struct Sim {
    client: Client,
    name: String,
    dir: Arc<TempDir>,
    watch_disk: bool,
    stop: CancellationToken,
    runs: JoinHandle<Result<()>>,
}

fn machine(dir: &Path) -> Result<(Host, FakeSystemd)> {
    let root = Root::open_with(dir, Options { sync: false, owners: false }, Arc::new(NoFaults))?;
    let systemd = FakeSystemd::new(&root);
    let host = Host::new(root, Box::new(systemd.clone()), Box::new(Unsupported::default()));
    Ok((host, systemd))
}

fn run(
    client: Client,
    name: String,
    dir: Arc<TempDir>,
    watch_disk: bool,
    stop: CancellationToken,
) -> JoinHandle<Result<()>> {
    tokio::spawn(async move {
        loop {
            let (host, mut systemd) = machine(dir.path())?;
            let parts = AgentOptions {
                drift_period: Some(DRIFT_PERIOD),
                watch_disk,
                ..AgentOptions::new(&name, host)
            };
            match run_with(client.clone(), parts, stop.clone()).await? {
                Exit::Stopped => return Ok(()),
                Exit::Rebooting => systemd.complete_reboot()?,
            }
        }
    })
}

impl Sim {
    pub(crate) async fn start(client: &Client, name: &str, ready: bool) -> Result<Self> {
        Self::start_with(client, name, ready, false).await
    }

    async fn start_with(client: &Client, name: &str, ready: bool, watch_disk: bool) -> Result<Self> {
        let _ = tracing_subscriber::fmt().with_env_filter("daemon=debug").with_test_writer().try_init();
        let nodes: Api<Node> = Api::all(client.clone());
        let _ = nodes.delete(name, &DeleteParams::default()).await;
        let progress: Api<MachineConfigNode> = Api::all(client.clone());
        let _ = progress.delete(name, &DeleteParams::default()).await;
        let node = json!({"metadata": {"name": name, "labels": {format!("pool-{name}"): ""}}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let ready = if ready { "True" } else { "False" };
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        let dir = Arc::new(TempDir::new()?);
        std::fs::create_dir_all(dir.path().join("etc"))?;
        let stop = CancellationToken::new();
        let runs = run(client.clone(), name.to_owned(), dir.clone(), watch_disk, stop.clone());
        Ok(Self { client: client.clone(), name: name.to_owned(), dir, watch_disk, stop, runs })
    }

    pub(crate) async fn config(&self, suffix: &str, config: &Value) -> Result<String> {
        let name = format!("rendered-{}-{suffix}", self.name);
        let mut full = config.clone();
        full["ignition"] = json!({"version": "3.5.0"});
        let spec = api::v1::MachineConfigSpec { config: Some(full), ..Default::default() };
        let api: Api<MachineConfig> = Api::all(self.client.clone());
        let _ = api.delete(&name, &DeleteParams::default()).await;
        api.create(&PostParams::default(), &MachineConfig::new(&name, spec)).await?;
        Ok(name)
    }

    pub(crate) async fn pool(&self, config: &str) -> Result<()> {
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": self.name},
            "spec": {"nodeSelector": {"matchLabels": {format!("pool-{}", self.name): ""}}, "configuration": {"name": config}},
        });
        let api: Api<MachineConfigPool> = Api::all(self.client.clone());
        api.patch(&self.name, &PatchParams::apply("daemon-tests").force(), &Patch::Apply(&pool)).await?;
        Ok(())
    }

    async fn set(&self, key: &str, value: &str) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": {key: value}}});
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    async fn note(&self, key: &str) -> Result<String> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.get(&self.name).await?;
        Ok(node.metadata.annotations.and_then(|a| a.get(key).cloned()).unwrap_or_default())
    }

    /// Acts as the drain controller until the Node reaches this state; returns the drain requests that it received.
    async fn until(&self, config: &str, state: &str) -> Result<Vec<String>> {
        let mut asked = vec![];
        let end = Instant::now() + PATIENCE;
        loop {
            // The agent writes the changes of one moment together, so all are in this object.
            let node = Api::<Node>::all(self.client.clone()).get(&self.name).await?;
            let notes = node.metadata.annotations.unwrap_or_default();
            let note = |key: &str| notes.get(key).cloned().unwrap_or_default();
            let wanted = note(a::DESIRED_DRAIN);
            if wanted != note(a::LAST_APPLIED_DRAIN) {
                asked.push(wanted.clone());
                self.set(a::LAST_APPLIED_DRAIN, &wanted).await?;
            }
            let now = (note(a::CURRENT_CONFIG), note(a::STATE));
            if now == (config.to_owned(), state.to_owned()) {
                return Ok(asked);
            }
            if Instant::now() > end {
                bail!("{}: {now:?}, not {config} {state}: {}", self.name, self.note(a::REASON).await?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the Node reaches this state. Somebody else plays the controller.
    pub(crate) async fn reaches(&self, config: &str, state: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = (self.note(a::CURRENT_CONFIG).await?, self.note(a::STATE).await?);
            if now == (config.to_owned(), state.to_owned()) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("{}: {now:?}, not {config} {state}: {}", self.name, self.note(a::REASON).await?);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The MachineConfigNode, once it reports that the node has this config. It does so after Done.
    pub(crate) async fn progress(&self, config: &str) -> Result<MachineConfigNode> {
        let api: Api<MachineConfigNode> = Api::all(self.client.clone());
        let end = Instant::now() + PATIENCE;
        loop {
            // The object is created asynchronously.
            let found = api.get_opt(&self.name).await?;
            let status = found.as_ref().and_then(|object| object.status.as_ref());
            let version = status.and_then(|s| s.config_version.as_ref());
            let done = status.into_iter().flat_map(|s| s.conditions.iter().flatten());
            let done = done.into_iter().any(|c| c.type_ == "Updated" && c.status == "True");
            if done
                && version.is_some_and(|v| v.current == config)
                && let Some(object) = found
            {
                return Ok(object);
            }
            anyhow::ensure!(Instant::now() < end, "not told: {status:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.dir.path().join(path)).ok()
    }

    pub(crate) fn boots(&self) -> Result<u64> {
        Ok(machine(self.dir.path())?.1.boots()?)
    }

    async fn restart(&mut self) -> Result<()> {
        self.stop.cancel();
        (&mut self.runs).await??;
        self.stop = CancellationToken::new();
        self.runs =
            run(self.client.clone(), self.name.clone(), self.dir.clone(), self.watch_disk, self.stop.clone());
        Ok(())
    }

    pub(crate) async fn end(self) -> Result<()> {
        self.stop.cancel();
        self.runs.await?
    }
}

#[tokio::test]
async fn a_node_joins_at_once_where_that_costs_nothing_and_is_updated_without_a_reboot() -> Result<()> {
    let client = cluster().await?;
    let node = Sim::start(&client, "joins", true).await?;
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
    let mut node = Sim::start(&client, "costly", true).await?;
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
    let node = Sim::start(&client, "fresh", false).await?;
    let one = node.config("1", &costly("one")).await?;
    node.pool(&one).await?;
    node.until(&one, "Done").await?;
    assert_eq!(node.boots()?, 1);
    node.end().await
}

#[tokio::test]
async fn a_node_that_cannot_reach_a_config_says_why_and_goes_to_another() -> Result<()> {
    let client = cluster().await?;
    let node = Sim::start(&client, "failing", true).await?;
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
    let node = Sim::start(&client, "imaged", true).await?;
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
    let node = Sim::start(&client, "drifting", true).await?;
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
    let node = Sim::start_with(&client, "looping", true, true).await?;
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
    let mut node = Sim::start(&client, "served", true).await?;
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
    let node = Sim::start(&client, "again", true).await?;
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
    let mut node = Sim::start(&client, "forced", true).await?;
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
    let node = Sim::start(&client, "undoes", true).await?;
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
