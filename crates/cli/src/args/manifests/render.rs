//! The arguments of `mco render`. They are used in `commands::manifests::render`.

use crate::args::manifests::Manifests;
use crate::args::shared::{Cluster, ShowSecrets};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Without manifests of pools, each role in the MachineConfigs' labels is a pool; without a \
        ControllerConfig, that of a plain cluster is used.\nWith --diff the manifests are merged over the \
        cluster's objects.\n\nExamples:\n  \
    mco render -f manifests/ --pool worker\n  mco render -f new/ --diff-with old/ --exit-code\n  \
    mco render -f 50-motd.yaml --diff --pool worker      what would change in the cluster"
)]
pub(crate) struct Render {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) manifests: Manifests,
    /// The folder of templates that the base MachineConfigs are made from
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// Only this pool; may be given several times
    #[arg(long = "pool", value_name = "NAME")]
    pub(crate) pools: Vec<String>,
    /// Show what differs from the live pools instead of the result
    #[arg(long, conflicts_with = "diff_with")]
    pub(crate) diff: bool,
    /// Show what differs from the rendering of these manifests, or from rendered configs
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) diff_with: Vec<PathBuf>,
    /// With a diff: exit with 3 when there is a difference
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) show: ShowSecrets,
}
