//! `cargo xtask demo`: sets up a real cluster, rolls one MachineConfig through it, and shows the result on the nodes.
//!
//! It starts the product only in the ways that a user has: `mco install`, `mco controller start`, `mco daemon start`.

mod kubeadm;
mod manifest;
mod os;
mod rollout_view;
mod workload;

use crate::kept_lab::{self, interrupt};
use anyhow::{Context, bail};
use api::v1::{MachineConfig, MachineConfigPool};
use clap::{Args, ValueEnum};
use insight::{Snapshot, snapshot};
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use lab::{Kubelet, Lab, NodeHandle, NodeKind, Program, Programs, Reporter};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// The manifest that is rolled out by default.
const EXAMPLE: &str = "examples/50-worker-motd-and-unit.yaml";
/// The pool that the nodes are in.
const POOL: &str = "worker";
/// How often the live view is updated.
const LOOK: Duration = Duration::from_millis(200);
/// The time limit for the start of the dashboard.
const DASHBOARD: Duration = Duration::from_secs(30);
/// The time limit for a rollout, per node: a slower one has stopped.
const PATIENCE_PER_NODE: Duration = Duration::from_secs(120);

/// `cargo xtask demo`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask demo                          three real machines (needs root)\n  cargo xtask demo --simulated --nodes 20   folders instead of machines (no root)\n  cargo xtask demo --kubelet real           with a real kubelet and containerd in every node\n  cargo xtask demo --kubeadm                on a cluster of kubeadm, from an image, as the guide says\n  cargo xtask demo --os                     an OS image, with its boot, on a virtual machine\n  cargo xtask demo --apply my-config.yaml --keep\n  cargo xtask demo --keep --dashboard       follow it in a browser"
)]
pub(crate) struct Demo {
    /// The number of worker nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: u16,
    /// Nodes are folders with our daemon on them; needs no root
    #[arg(long, conflicts_with = "kubelet")]
    simulated: bool,
    /// On a cluster made by kubeadm: everything is installed from an image, by the guide's commands; needs root
    #[arg(long, conflicts_with_all = ["simulated", "kubelet"])]
    kubeadm: bool,
    /// One node, a virtual machine whose OS is replaced by another image, with progress; needs root
    #[arg(long, conflicts_with_all = ["nodes", "simulated", "kubelet", "kubeadm", "keep"])]
    os: bool,
    /// The number of that cluster's control-plane nodes, 1 or 3
    #[arg(long, default_value_t = 1, requires = "kubeadm")]
    control_planes: usize,
    /// The MachineConfig to roll out [default: a small example]
    #[arg(long, value_name = "FILE")]
    apply: Option<PathBuf>,
    /// What plays the kubelet of each node
    #[arg(long, value_enum, default_value = "fake")]
    kubelet: KubeletKind,
    /// Leave everything running afterwards, until `cargo xtask lab down`
    #[arg(long)]
    keep: bool,
    /// Show it in the dashboard, until Ctrl-C
    #[arg(long, requires = "keep", conflicts_with = "kubeadm")]
    dashboard: bool,
}

/// `--kubelet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KubeletKind {
    /// The lab itself: it creates the Node, renews its Lease and reports Ready
    Fake,
    /// A real kubelet with containerd in each node, running pods
    Real,
}

impl From<KubeletKind> for Kubelet {
    fn from(kind: KubeletKind) -> Self {
        match kind {
            KubeletKind::Fake => Self::Fake,
            KubeletKind::Real => Self::Real,
        }
    }
}

/// Finds or builds the control plane's programs, and shows progress.
pub(crate) fn prepare() -> anyhow::Result<()> {
    let programs = Programs::new(&lab::Environment::read())?;
    runtime()?.block_on(programs.ensure(&Program::ALL, &Reporter::stderr()))?;
    Ok(())
}

/// A runtime for the lab.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Builds `mco` and returns its path.
pub(crate) fn build_mco(root: &Path) -> anyhow::Result<PathBuf> {
    println!("building mco (cargo build -p cli) …");
    let output = Command::new(env!("CARGO"))
        .args(["build", "-p", "cli", "--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo build -p cli ended with {}", output.status);
    }
    // Ask cargo where the program is: the target folder may be anywhere.
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok())
        .filter(|m| m.pointer("/target/name").is_some_and(|n| n == "mco"))
        .find_map(|m| m.get("executable").and_then(|e| e.as_str()).map(PathBuf::from))
        .context("cargo did not say where the mco program is")
}

pub(crate) fn run(root: &Path, a: &Demo) -> anyhow::Result<()> {
    if a.os {
        if !lab::is_root() {
            bail!("a virtual machine needs root: run this as root");
        }
        return os::run(root, a, &build_mco(root)?);
    }
    let file = a.apply.clone().unwrap_or_else(|| root.join(EXAMPLE));
    let config = manifest::read(&file)?;
    if !a.simulated && !lab::is_root() {
        bail!("nodes that are real machines need root: run this as root, or with --simulated");
    }
    let mco = build_mco(root)?;
    if a.kubeadm {
        return kubeadm::run(root, a, &mco, &config);
    }
    let builder = Lab::builder()
        .nodes(usize::from(a.nodes))
        .kubelet(a.kubelet.into())
        .mco_binary(mco.clone())
        .templates(root.join("templates"))
        .controller(true)
        .kubectl(true)
        .progress(Reporter::stderr());
    let builder = if a.simulated { builder.simulated() } else { builder.real() };
    runtime()?.block_on(async {
        let start = Instant::now();
        let mut interrupted = std::pin::pin!(interrupt()?);
        if a.keep {
            let request = builder.spec().clone().into();
            let page = std::sync::Mutex::new(None);
            let outcome = kept_lab::keep(&request, |client, lab| {
                let (config, mco, page) = (&config, &mco, &page);
                async move {
                    if a.dashboard {
                        let shown = dashboard(mco, &lab.kubeconfig()).await?;
                        page.lock().unwrap_or_else(std::sync::PoisonError::into_inner).replace(shown);
                    }
                    rollout(&client, &lab.nodes(), config, a.kubelet, start).await
                }
            })
            .await;
            let page = page.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            if let Some((mut child, address)) = page {
                println!("the dashboard, until Ctrl-C: {address}");
                tokio::select! {
                    ended = child.wait() => println!("the dashboard ended: {}", ended?),
                    () = &mut interrupted => child.kill().await?,
                }
            }
            return outcome;
        }
        let lab = tokio::select! {
            lab = builder.start() => lab?,
            _ = &mut interrupted => bail!("interrupted; everything is taken down"),
        };
        println!("the cluster is up after {:.1} s", start.elapsed().as_secs_f64());
        let client = lab.client();
        let nodes = lab.nodes();
        let outcome = tokio::select! {
            outcome = rollout(&client, &nodes, &config, a.kubelet, start) => outcome,
            _ = &mut interrupted => Err(anyhow::anyhow!("interrupted")),
        };
        if outcome.is_err() {
            explain(&lab);
        }
        println!("taking everything down …");
        lab.stop().await;
        outcome
    })
}

/// Starts the dashboard of a cluster and prints its address. Where there is a display, it opens a browser. The dashboard ends
/// together with this program.
async fn dashboard(mco: &Path, kubeconfig: &Path) -> anyhow::Result<(tokio::process::Child, String)> {
    let mut child = tokio::process::Command::new(mco)
        .args(["dashboard", "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot run {}", mco.display()))?;
    let mut lines = BufReader::new(child.stdout.take().context("mco dashboard has no output")?).lines();
    let address = tokio::time::timeout(DASHBOARD, lines.next_line()).await??;
    let address = address.context("mco dashboard ended without an address")?;
    println!("the dashboard: {address}");
    Ok((child, address))
}

/// Waits for the nodes' first config, applies the MachineConfig, follows the rollout, and reads the result from every
/// node.
async fn rollout(
    client: &kube::Client,
    nodes: &[NodeHandle],
    config: &MachineConfig,
    kubelet: KubeletKind,
    start: Instant,
) -> anyhow::Result<()> {
    let mut view = rollout_view::RolloutView::new(start);
    let limit = PATIENCE_PER_NODE * u32::try_from(nodes.len()).unwrap_or(u32::MAX);
    println!("waiting until every node has joined its pool");
    follow(client, &mut view, limit, |now| all_updated(now, nodes.len())).await?;
    let mut pods = BTreeMap::new();
    if kubelet == KubeletKind::Real {
        println!("\nstarting three pods, two of which must always run");
        workload::start(client).await?;
        pods = workload::pods(client).await?;
        pods.iter().for_each(|(pod, node)| println!("  {pod} on {node}"));
    }
    let before = rendered(client).await?;
    let name = config.name_any();
    println!("\napplying MachineConfig {name} at {:.1} s", start.elapsed().as_secs_f64());
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let params = PatchParams::apply("demo").force();
    configs.patch(&name, &params, &Patch::Apply(config)).await.context("the API server refused it")?;
    let applied = Instant::now();
    follow(client, &mut view, limit, |now| {
        let moved = now.pools.iter().any(|p| p.name == POOL && p.config != before);
        refused(now)?;
        Ok(moved && all_updated(now, nodes.len())?)
    })
    .await?;
    println!(
        "\n{name} is on all {} nodes {:.1} s after it was applied, {:.1} s after the start",
        nodes.len(),
        applied.elapsed().as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
    for node in nodes {
        look(node, config).await?;
    }
    if kubelet == KubeletKind::Real {
        let now = workload::pods(client).await?;
        let evicted = pods.keys().filter(|p| !now.contains_key(*p)).count();
        println!("\npods: {evicted} of the first {} were evicted; now:", pods.len());
        now.iter().for_each(|(pod, node)| println!("  {pod} on {node}"));
    }
    Ok(())
}

/// Shows snapshots until `done`.
async fn follow(
    client: &kube::Client,
    view: &mut rollout_view::RolloutView,
    limit: Duration,
    done: impl Fn(&Snapshot) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let only = [POOL.to_owned()];
    let start = Instant::now();
    loop {
        let now = snapshot(client, &only).await?;
        view.show(&now)?;
        if done(&now)? {
            return Ok(());
        }
        if start.elapsed() > limit {
            bail!("no end after {} s; the state is shown above", limit.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn all_updated(now: &Snapshot, nodes: usize) -> anyhow::Result<bool> {
    let pool = now.pools.iter().find(|p| p.name == POOL);
    Ok(pool.is_some_and(|p| p.machines == nodes && p.is_updated()))
}

/// Fails early on a config that cannot be rendered or that the nodes refuse: waiting does not help.
fn refused(now: &Snapshot) -> anyhow::Result<()> {
    for pool in &now.pools {
        for condition in ["RenderDegraded", "NodeDegraded"] {
            if let Some(message) = pool.conditions.get(condition) {
                bail!("pool {} is {condition}: {message}", pool.name);
            }
        }
    }
    Ok(())
}

async fn rendered(client: &kube::Client) -> anyhow::Result<String> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    Ok(pools.get(POOL).await?.spec.configuration.name)
}

/// Reads the files and units from the node itself, not from what the cluster reports about it.
async fn look(node: &NodeHandle, config: &MachineConfig) -> anyhow::Result<()> {
    println!("\n{}", node.name());
    for path in manifest::files(config) {
        let text = node.read_file(&path).await.with_context(|| format!("{path} on {}", node.name()))?;
        println!("  {path}:");
        text.lines().for_each(|line| println!("    {line}"));
    }
    for unit in manifest::units(config) {
        match node.kind() {
            NodeKind::Real => {
                let wanted = ["systemctl", "show", "--property=ActiveState,UnitFileState,DropInPaths", &unit];
                let text = node.run(wanted).await?;
                println!("  {unit}: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
            }
            NodeKind::Simulated | NodeKind::Fake => {
                let text = node.read_file(&format!("/etc/systemd/system/{unit}")).await?;
                println!("  {unit}: written, {} bytes (no systemd runs in a simulated node)", text.len());
            }
        }
    }
    Ok(())
}

/// Says where to look after a failure.
fn explain(lab: &Lab) {
    if let Ok(log) = std::fs::read_to_string(lab.controller_log()) {
        let last: Vec<&str> = log.lines().rev().take(15).collect();
        eprintln!("the controller's last lines:");
        last.into_iter().rev().for_each(|line| eprintln!("  {line}"));
    }
}
