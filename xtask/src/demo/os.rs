//! `cargo xtask demo --os`: replaces a node's whole operating system. The node is a virtual machine with OSTree, and a registry
//! serves its images. A MachineConfig asks for another image, a kernel argument and a file.
//!
//! `mco status` shows the update: the pull, the drain, the reboot. The result is read from the machine itself.

use super::{Demo, POOL, runtime};
use crate::kept_lab::interrupt;
use anyhow::{Context, bail};
use api::names::own;
use api::v1::{MachineConfig, MachineConfigPool};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use lab::{Lab, OstreeMachine, Reporter, VirtualMachine};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::Command;

/// The node's name.
const NODE: &str = "virtual-0";
/// An empty MachineConfig, so that the pool has a config before the node joins.
const BASE: &str = "00-base";
const FILE: &str = "/etc/motd.d/os-demo";
/// The time limit of a pull, a drain and a boot of an emulated machine while other work runs.
const LIMIT: &str = "20m";
const PATIENCE: Duration = Duration::from_secs(21 * 60);
/// The pause between two checks of the node while it joins its pool.
const LOOK: Duration = Duration::from_secs(1);
const JOIN_LIMIT: Duration = Duration::from_secs(300);

pub(super) fn run(root: &Path, a: &Demo, mco: &Path) -> anyhow::Result<()> {
    runtime()?.block_on(async {
        let mut interrupted = std::pin::pin!(interrupt()?);
        tokio::select! {
            outcome = show(root, a, mco) => outcome,
            () = &mut interrupted => bail!("interrupted; everything is taken down"),
        }
    })
}

async fn show(root: &Path, a: &Demo, mco: &Path) -> anyhow::Result<()> {
    let start = Instant::now();
    let progress = Reporter::stderr();
    let machine = OstreeMachine::ensure(&progress).await?;
    // The node must get what the demo's own MachineConfigs say, and no more.
    let templates = root.join("target/demo/no-templates");
    std::fs::create_dir_all(&templates).with_context(|| format!("cannot make {}", templates.display()))?;
    let mut lab = Lab::builder()
        .mco_binary(mco)
        .templates(templates)
        .controller(true)
        .progress(progress)
        .start()
        .await?;
    println!("the cluster is up after {:.1} s", start.elapsed().as_secs_f64());
    let client = lab.client();
    apply(&client, &config(BASE, None, &[], None)?).await?;
    let registry = machine.registry(lab.shared_folder()).await?;
    println!("booting the node: firmware, GRUB, Debian as an OSTree deployment …");
    let node = lab.virtual_node(NODE, machine.image()).await?;
    println!("the node is up after {:.1} s", start.elapsed().as_secs_f64());
    let site = Site { root: root.to_owned(), mco: mco.to_owned(), kubeconfig: lab.kubeconfig().to_owned() };
    let outcome = update(&site, a, &client, node.machine(), &registry.reference("b")).await;
    println!("\ntaking everything down …");
    drop((node, registry, client));
    lab.stop().await;
    outcome?;
    println!("gone; {:.0} s in all", start.elapsed().as_secs_f64());
    Ok(())
}

/// The paths that the steps share.
struct Site {
    root: PathBuf,
    mco: PathBuf,
    kubeconfig: PathBuf,
}

async fn update(
    site: &Site,
    a: &Demo,
    client: &Client,
    vm: &VirtualMachine,
    image: &str,
) -> anyhow::Result<()> {
    joined(client).await?;
    // Only machines can reach the registry's address, so the controller must not inspect the image.
    let unseen = serde_json::json!({"metadata": {"annotations": {own::OS_IMAGES: own::AS_THEY_ARE}}});
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    pools.patch(POOL, &PatchParams::default(), &Patch::Merge(unseen)).await.context("annotating the pool")?;
    look(vm).await?;
    let wanted = match &a.apply {
        Some(file) => super::manifest::read(file)?,
        None => config("60-os", Some(image), &["demo.one=1"], Some("This file came with the image.\n"))?,
    };
    println!("\napplying this MachineConfig:");
    serde_json::to_string_pretty(&wanted.spec)?.lines().for_each(|line| println!("  {line}"));
    let applied = Instant::now();
    apply(client, &wanted).await?;
    mco(site, &["status", POOL, "--watch", "--until-updated", "--timeout", LIMIT]).await?;
    println!("\nthe node runs its new OS {:.1} s after that:", applied.elapsed().as_secs_f64());
    look(vm).await
}

/// Waits until the node has its pool's first config.
async fn joined(client: &Client) -> anyhow::Result<()> {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let begun = Instant::now();
    loop {
        let node = nodes.get(NODE).await?;
        let notes = node.metadata.annotations.unwrap_or_default();
        let get = |key| notes.get(key).map(String::as_str).unwrap_or_default();
        let current = get(api::names::annotation::CURRENT_CONFIG);
        if current.starts_with("rendered-") && current == get(api::names::annotation::DESIRED_CONFIG) {
            return Ok(());
        }
        if begun.elapsed() > JOIN_LIMIT {
            bail!("{NODE} is not in pool {POOL} after {} s", JOIN_LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Prints what the machine itself reports.
async fn look(vm: &VirtualMachine) -> anyhow::Result<()> {
    println!("\n{NODE}:");
    for (what, script) in [
        ("ostree admin status", "ostree admin status"),
        ("the image's version", "cat /usr/share/lab/version"),
        ("/proc/cmdline", "cat /proc/cmdline"),
        (FILE, "cat /etc/motd.d/os-demo 2>/dev/null || echo '(not there)'"),
    ] {
        println!("  {what}:");
        vm.run(["sh", "-c", script]).await?.lines().for_each(|line| println!("    {line}"));
    }
    Ok(())
}

fn config(
    name: &str,
    image: Option<&str>,
    arguments: &[&str],
    file: Option<&str>,
) -> anyhow::Result<MachineConfig> {
    let files: Vec<_> = file
        .iter()
        .map(|text| {
            let source = format!("data:,{}", text.replace(' ', "%20").replace('\n', "%0A"));
            serde_json::json!({"path": FILE, "mode": 0o644, "contents": {"source": source}})
        })
        .collect();
    let object = serde_json::json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": POOL}},
        "spec": {
            "osImageURL": image.unwrap_or_default(),
            "kernelArguments": arguments,
            "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}},
        },
    });
    serde_json::from_value(object).context("the demo's MachineConfig")
}

async fn apply(client: &Client, config: &MachineConfig) -> anyhow::Result<()> {
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let name = config.metadata.name.clone().unwrap_or_default();
    let params = PatchParams::apply("demo").force();
    configs.patch(&name, &params, &Patch::Apply(config)).await.context("the API server refused it")?;
    Ok(())
}

/// Runs `mco` as an administrator does, with its output on this terminal.
async fn mco(site: &Site, args: &[&str]) -> anyhow::Result<()> {
    let shown = format!("mco {}", args.join(" "));
    println!("\n$ {shown}");
    let mut child = Command::new(&site.mco)
        .args(args)
        .current_dir(&site.root)
        .env("KUBECONFIG", &site.kubeconfig)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", site.mco.display()))?;
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    let status = ended.with_context(|| format!("`{shown}` did not end in {} s", PATIENCE.as_secs()))??;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}
