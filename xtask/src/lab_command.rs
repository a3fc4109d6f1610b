//! `cargo xtask lab`: a cluster to experiment with, which keeps running after the command has ended.

use crate::demo::{KubeletKind, build_mco, runtime};
use crate::kept_lab::{how_to_use, start};
use clap::{Args, Subcommand};
use lab::{Environment, Kubeadm, Lab, Request};
use std::path::{Path, PathBuf};

/// `cargo xtask lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Start a cluster and leave it running
    Up(Up),
    /// Stop every cluster that `lab up` and `demo --keep` left running
    Down,
    /// List the clusters that run
    Status,
    /// Find or build the control plane's programs
    Build,
    /// Keep a cluster running (started by `up`)
    #[command(hide = true)]
    Supervise {
        /// The cluster, as JSON
        spec: PathBuf,
    },
}

/// `cargo xtask lab up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask lab up\n  cargo xtask lab up --nodes 3 --controller\n  cargo xtask lab up --nodes 100 --simulated --controller\n  cargo xtask lab up --kubeadm --control-planes 3 --nodes 2"
)]
pub(crate) struct Up {
    /// The number of nodes; with --kubeadm: of workers, besides the control plane's nodes
    #[arg(long, default_value_t = 0)]
    nodes: usize,
    /// A cluster made by kubeadm, in machines that boot; needs root
    #[arg(long, conflicts_with_all = ["simulated", "kubelet", "no_controller_manager", "controller"])]
    kubeadm: bool,
    /// The number of control-plane nodes, 1 or 3
    #[arg(long, default_value_t = 1, requires = "kubeadm")]
    control_planes: usize,
    /// Nodes are folders with our daemon on them; needs no root
    #[arg(long, conflicts_with = "kubelet")]
    simulated: bool,
    /// What plays the kubelet of each node
    #[arg(long, value_enum, default_value = "fake")]
    kubelet: KubeletKind,
    /// Run no kube-controller-manager
    #[arg(long)]
    no_controller_manager: bool,
    /// Install mco and run its controller
    #[arg(long)]
    controller: bool,
}

pub(crate) fn run(root: &Path, command: &LabCommand) -> anyhow::Result<()> {
    let environment = Environment::read();
    match command {
        LabCommand::Up(a) => {
            let request = request(root, a)?;
            runtime()?.block_on(async { start(&request, &environment).await.map(|lab| how_to_use(&lab)) })
        }
        LabCommand::Down => {
            let ended = runtime()?.block_on(lab::down(&environment))?;
            println!("clusters taken down: {ended}");
            Ok(())
        }
        LabCommand::Status => {
            let running = lab::running(&environment)?;
            for lab in &running {
                how_to_use(lab);
            }
            println!("clusters running: {}", running.len());
            Ok(())
        }
        LabCommand::Build => crate::demo::prepare(),
        LabCommand::Supervise { spec } => Ok(lab::supervise(spec, &environment)?),
    }
}

fn request(root: &Path, a: &Up) -> anyhow::Result<Request> {
    if a.kubeadm {
        let builder = Kubeadm::builder().control_planes(a.control_planes).workers(a.nodes);
        return Ok(builder.spec().clone().into());
    }
    let mut builder = Lab::builder()
        .nodes(a.nodes)
        .kubelet(a.kubelet.into())
        .controller_manager(!a.no_controller_manager)
        .controller(a.controller)
        .templates(root.join("templates"))
        .kubectl(true);
    if a.nodes > 0 || a.controller {
        builder = builder.mco_binary(build_mco(root)?);
    }
    let builder = if a.simulated { builder.simulated() } else { builder.real() };
    Ok(builder.spec().clone().into())
}
