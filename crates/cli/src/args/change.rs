//! The arguments of `mco history`, `mco undo` and `mco retry`.

use crate::args::Cluster;
use crate::args::render::ShowSecrets;
use crate::output::Format;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "The newest comes first. \"Last written by\" names the field manager of the MachineConfig's \
        last write and its time, from managedFields: a program, such as kubectl-client-side-apply or \
        argocd-controller. \"Kept by\" names \
    the Argo CD application, Flux object or Helm release that its labels and annotations point to; the history \
    of that source names the person who made the change. The cluster itself records persons only in the API \
    server's audit log, if that is enabled.\n\nExamples:\n  mco history worker\n  \
    mco history worker -o json | jq '.configs[] | {config, rendered, current}'"
)]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

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

#[derive(Debug, Args)]
#[command(
    after_help = "An agent that fails retries by itself, with growing delays. This command makes it retry \
        now, once. It does not fix the cause, and does nothing on a node where nothing \
        failed.\n\nExamples:\n  mco retry worker-1\n  \
    mco status --phase failing -o json | jq -r '.pools[].nodes[].name' | xargs -r mco retry"
)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The nodes
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
