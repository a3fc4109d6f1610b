//! `cargo xtask lab`: a cluster to play with.

use crate::demo::{KubeletKind, build_mco, runtime};
use anyhow::bail;
use clap::{Args, Subcommand};
use lab::{Lab, LabSpec, NodeHandle, Reporter};
use std::future::Future;
use std::path::Path;

/// `cargo xtask lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Bring a cluster up and leave it running
    Up(Up),
    /// Take it down
    Down,
    /// Find or build the control plane's programs
    Build,
}

/// `cargo xtask lab up`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cargo xtask lab up\n  cargo xtask lab up --nodes 3 --controller\n  cargo xtask lab up --nodes 100 --simulated --controller"
)]
pub(crate) struct Up {
    /// How many nodes
    #[arg(long, default_value_t = 0)]
    nodes: usize,
    /// Nodes are folders with our daemon on them; needs no root
    #[arg(long)]
    simulated: bool,
    /// Who speaks for the nodes
    #[arg(long, value_enum, default_value = "stand-in")]
    kubelet: KubeletKind,
    /// Without the controller manager
    #[arg(long)]
    no_controller_manager: bool,
    /// Install this system and run its controller
    #[arg(long)]
    controller: bool,
}

pub(crate) fn run(root: &Path, command: &LabCommand) -> anyhow::Result<()> {
    match command {
        LabCommand::Up(a) => up(root, a),
        LabCommand::Down => runtime()?.block_on(down()),
        LabCommand::Build => crate::demo::prepare(),
    }
}

fn up(_root: &Path, _a: &Up) -> anyhow::Result<()> {
    bail!("wip")
}
async fn down() -> anyhow::Result<()> {
    bail!("wip")
}
pub(crate) async fn keep<F: Future<Output = anyhow::Result<()>>>(
    _spec: &LabSpec,
    _f: impl FnOnce(kube::Client, Vec<NodeHandle>) -> F,
) -> anyhow::Result<()> {
    bail!("wip")
}
