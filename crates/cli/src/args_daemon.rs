//! What `mco daemon …` can say.
//!
//! What it is not: the other commands' (see `args`).

use crate::args::{Cluster, Listen};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Run the agent until SIGTERM
    #[command(
        after_help = "In a pod that mounts the host's root folder at /rootfs it enters that folder first, and runs there as on \
        the host itself.\n\nExamples:\n  as a systemd service on the host:\n    mco daemon start --root-mount /\n  with another identity than the kubelet's:\n    \
        mco daemon start --root-mount / --kubeconfig /etc/mco/agent.kubeconfig --node-name worker-0"
    )]
    Start(DaemonStart),
    /// Finish or undo what a crash interrupted; needs no API server
    Recover(DaemonRecover),
    /// Complete a machine's first boot: what Ignition cannot do, before the kubelet starts
    #[command(
        name = "firstboot-complete-machineconfig",
        after_help = "Returns at once on a machine that is through with its first boot. What fails is tried again each minute, and \
        the kubelet's unit waits for this one.\n\nExample (in machine-config-daemon-firstboot.service):\n  mco daemon firstboot-complete-machineconfig --root-mount /"
    )]
    FirstBoot(DaemonFirstBoot),
}

#[derive(Debug, Args)]
pub(crate) struct DaemonStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The name of this host's Node [default: the host name]
    #[arg(long, env = "NODE_NAME", value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) node_name: String,
    /// Where the host's root folder is
    #[arg(long, value_name = "DIR", default_value = "/rootfs")]
    pub(crate) root_mount: PathBuf,
    /// Where /metrics is served; `off` for nowhere
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8797")]
    pub(crate) metrics_url: Listen,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonRecover {
    /// Where the host's root folder is
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root_mount: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct DaemonFirstBoot {
    /// Where the host's root folder is
    #[arg(long, value_name = "DIR", default_value = "/rootfs")]
    pub(crate) root_mount: PathBuf,
    /// The config that the config server left for the first boot, below the root folder
    #[arg(long, value_name = "FILE", default_value = "/etc/ignition-machine-config-encapsulated.json")]
    pub(crate) machineconfig_file: String,
}
