//! The arguments of `mco undo`. They are used in `commands::change::undo`.

use crate::args::shared::{Cluster, ShowSecrets};
use crate::output::Format;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "A pool's config follows from its MachineConfigs. GitOps tools would revert a change of \
        these, so undo changes none of them. It pins the pool to an earlier rendered config (annotation \
        machineconfiguration.openshift.io/pinned-config) and lists the MachineConfigs that differ. The \
        controller rolls that config out by the usual rules. While the pool is pinned, changes are rendered but \
        not rolled out; `mco status` and the pool's condition ConfigPinned say so. Correct the MachineConfigs, then \
    release the pin.\n\nExit codes: 0 done, or nothing to do; 1 failed; 2 wrong command line, or no terminal to \
    ask on and no --yes; 3 no running host can apply it, or the answer was no.\n\nExamples:\n  mco undo \
    worker                 says what it costs, and asks\n  \
    mco undo worker --dry-run\n  mco undo worker --to rendered-worker-0123456789abcdef0123456789abcdef --yes\n  \
    mco undo worker --release       follow the MachineConfigs again"
)]
pub(crate) struct Undo {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// The rendered config to go back to [default: the previous one]; `mco history` lists them
    #[arg(long, value_name = "CONFIG", conflicts_with = "release")]
    pub(crate) to: Option<String>,
    /// Remove the pin: the pool follows its MachineConfigs again
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) show: ShowSecrets,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Print what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
