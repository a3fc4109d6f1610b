//! The arguments of `mco controller …`. They are used in `commands::parts::controller`.

use crate::args::shared::{Cluster, Listen, SecureMetrics};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Controller {
    /// Run the controller until SIGTERM
    #[command(
        after_help = "Example:\n  mco controller start --kubeconfig ~/.kube/config --templates /usr/share/mco/templates"
    )]
    Start(ControllerStart),
    /// Render once, from the manifests in one folder to files in another
    Bootstrap(ControllerBootstrap),
}

#[derive(Debug, Args)]
pub(crate) struct ControllerStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The folder of the templates that the base MachineConfigs are made from
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: PathBuf,
    /// The address where /metrics, /healthz and /readyz are served, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8797")]
    pub(crate) metrics_listen: Listen,
    #[command(flatten)]
    pub(crate) metrics: SecureMetrics,
    /// Act only while holding the Lease, so that several controllers can run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ControllerBootstrap {
    /// The folder with the manifests: ControllerConfig, pools, MachineConfigs
    #[arg(long, value_name = "DIR")]
    pub(crate) manifest_dir: PathBuf,
    /// The folder to write to
    #[arg(long, value_name = "DIR")]
    pub(crate) dest_dir: PathBuf,
    /// The pull secret's manifest
    #[arg(long, value_name = "FILE")]
    pub(crate) pull_secret: PathBuf,
    /// The folder of the templates
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: PathBuf,
}
