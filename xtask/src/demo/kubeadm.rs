//! `cargo xtask demo --kubeadm`: installs the product from an image on a cluster made by kubeadm, with the commands of
//! `docs/getting-started/kubeadm.md`, and then rolls one MachineConfig through the workers.
//!
//! The rollout is the same as in the plain demo. The lab builds the image and loads it into the nodes, since there is
//! no registry.

use super::{Demo, KubeletKind, rollout, runtime};
use crate::kept_lab::{interrupt, keep};
use anyhow::{Context, bail};
use api::v1::MachineConfig;
use kube::Client;
use lab::{Kubeadm, NodeHandle, PRODUCT_IMAGE, Reporter, product_image};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::process::Command;

/// All nodes reboot once until they have their pool's config, one after another in each pool.
const JOIN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The paths that the steps share.
struct Site<'a> {
    mco: &'a Path,
    templates: PathBuf,
    kubeconfig: PathBuf,
    /// The folder of the image's archive.
    folder: PathBuf,
    nodes: Vec<NodeHandle>,
}

pub(super) fn run(root: &Path, a: &Demo, mco: &Path, config: &MachineConfig) -> anyhow::Result<()> {
    let builder = Kubeadm::builder()
        .control_planes(a.control_planes)
        .workers(usize::from(a.nodes))
        .progress(Reporter::stderr());
    let templates = root.join("templates");
    runtime()?.block_on(async {
        let start = Instant::now();
        let mut interrupted = std::pin::pin!(interrupt()?);
        if a.keep {
            let request = builder.spec().clone().into();
            return keep(&request, |client, lab| async move {
                let site = Site {
                    mco,
                    templates,
                    kubeconfig: lab.kubeconfig(),
                    folder: lab.folder().to_owned(),
                    nodes: lab.nodes(),
                };
                show(&client, &site, a, config, start).await
            })
            .await;
        }
        let cluster = tokio::select! {
            cluster = builder.start() => cluster?,
            () = &mut interrupted => bail!("interrupted; everything is taken down"),
        };
        println!("the cluster is up after {:.1} s", start.elapsed().as_secs_f64());
        let site = Site {
            mco,
            templates,
            kubeconfig: cluster.kubeconfig().to_owned(),
            folder: cluster.folder().path().to_owned(),
            nodes: cluster.handles(),
        };
        let client = cluster.client();
        let outcome = tokio::select! {
            outcome = show(&client, &site, a, config, start) => outcome,
            () = &mut interrupted => Err(anyhow::anyhow!("interrupted")),
        };
        println!("taking everything down …");
        drop(client);
        cluster.stop().await;
        outcome
    })
}

async fn show(
    client: &Client,
    site: &Site<'_>,
    a: &Demo,
    config: &MachineConfig,
    start: Instant,
) -> anyhow::Result<()> {
    println!("making the image {PRODUCT_IMAGE} and loading it into {} nodes …", site.nodes.len());
    let archive = product_image(site.mco, &site.templates, &site.folder).await?;
    for node in &site.nodes {
        node.load_image(&archive).await.with_context(|| format!("the image on {}", node.name()))?;
    }
    mco(site, &["install", "--image", PRODUCT_IMAGE]).await?;
    println!("every node takes its pool's first config now: it is drained and reboots");
    mco(site, &["status", "--watch", "--until-updated", "--timeout", "30m"]).await?;
    println!("all nodes are in their pools after {:.1} s", start.elapsed().as_secs_f64());
    let workers = site.nodes.get(a.control_planes..).unwrap_or_default();
    rollout(client, workers, config, KubeletKind::Real, start).await
}

/// Runs `mco` as an administrator does, with its output on this terminal.
async fn mco(site: &Site<'_>, args: &[&str]) -> anyhow::Result<()> {
    let shown = format!("mco {}", args.join(" "));
    println!("\n$ {shown}");
    let mut child = Command::new(site.mco)
        .args(args)
        .env("KUBECONFIG", &site.kubeconfig)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("cannot start {}", site.mco.display()))?;
    let ended = tokio::time::timeout(JOIN_LIMIT, child.wait()).await;
    let status = ended.with_context(|| format!("`{shown}` did not end in {} s", JOIN_LIMIT.as_secs()))??;
    if !status.success() {
        bail!("`{shown}` ended with {status}");
    }
    Ok(())
}
