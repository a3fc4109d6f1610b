//! The arguments of `mco uninstall`. They are used in `commands::change::uninstall`.

use crate::args::shared::{Cluster, duration};
use crate::output::Format;
use clap::Args;
use k8s_openapi::jiff::SignedDuration;

#[derive(Debug, Args)]
#[command(
    after_help = "All MachineConfigs, pools and settings are deleted. Hosts keep the files that they have; with --restore-hosts they get\ntheir own files back first. If a run is interrupted, the next one continues it.\n\nExit codes: 0 removed, 1 failed, 2 no --yes and no terminal to ask on, 3 not confirmed.\n\nExamples:\n  mco uninstall --dry-run\n  mco uninstall --restore-hosts --dry-run      which nodes go back, and how many at once\n  mco uninstall --restore-hosts --yes"
)]
pub(crate) struct Uninstall {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Do not ask for confirmation
    #[arg(short, long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Remove everything even while nodes are being updated, if nodes do not get their own files back, or if Nodes keep our
    /// annotations and taints because the API server does not let them be changed
    #[arg(long)]
    pub(crate) force: bool,
    /// Also delete Secrets of others in our namespaces
    #[arg(long)]
    pub(crate) delete_secrets: bool,
    /// First give every managed node back the files that it had before: pools are paused, and nodes are drained, and
    /// rebooted where that is needed, as many at once as maxUnavailable allows
    #[arg(long)]
    pub(crate) restore_hosts: bool,
    /// With --restore-hosts: how long one node may take, like 30m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30m", requires = "restore_hosts")]
    pub(crate) restore_timeout: SignedDuration,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --dry-run: how to print it
    #[arg(short, long, value_enum, default_value_t, requires = "dry_run")]
    pub(crate) output: Format,
}
