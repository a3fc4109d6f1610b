//! One node whose disk is a folder: its Node object, a whole agent of the `daemon` crate, and its reboots.
//!
//! Not here: tests (the module above).

use super::PATIENCE;
use anyhow::{Result, bail};
use api::k8s::Node;
use api::names::annotation as a;
use api::v1::{MachineConfig, MachineConfigNode, MachineConfigPool};
use daemon::{AgentOptions, Exit, run_with};
use host::fault::NoFaults;
use host::{FakeSystemd, Host, Options, Root, Unsupported};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Frequent enough for the tests, and long enough that nothing else depends on it.
const DRIFT_PERIOD: Duration = Duration::from_millis(500);

/// One node: its Node object, its disk, its agent, and its reboots.
pub(crate) struct FolderAgent {
    client: Client,
    name: String,
    pub(super) dir: Arc<TempDir>,
    watch_disk: bool,
    stop: CancellationToken,
    runs: JoinHandle<Result<()>>,
}

pub(super) fn machine(dir: &Path) -> Result<(Host, FakeSystemd)> {
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

impl FolderAgent {
    pub(crate) async fn start(client: &Client, name: &str, ready: bool) -> Result<Self> {
        Self::start_with(client, name, ready, false).await
    }

    pub(super) async fn start_with(
        client: &Client,
        name: &str,
        ready: bool,
        watch_disk: bool,
    ) -> Result<Self> {
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

    pub(super) async fn set(&self, key: &str, value: &str) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({"metadata": {"annotations": {key: value}}});
        api.patch(&self.name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    pub(super) async fn note(&self, key: &str) -> Result<String> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.get(&self.name).await?;
        Ok(node.metadata.annotations.and_then(|a| a.get(key).cloned()).unwrap_or_default())
    }

    /// Acts as the drain controller until the Node reaches this state; returns the drain requests that it received.
    pub(super) async fn until(&self, config: &str, state: &str) -> Result<Vec<String>> {
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

    pub(super) async fn restart(&mut self) -> Result<()> {
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
