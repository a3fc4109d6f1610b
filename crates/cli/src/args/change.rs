//! What can be said about the past and the next try: `history`, `undo`, `retry`.

use crate::args::Cluster;
use crate::args::render::ShowSecrets;
use crate::output::Format;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "The newest comes first. \"Last written by\" names the field manager of the MachineConfig's last write, as its \
    managedFields have it: a program, such as kubectl-client-side-apply or argocd-controller, and the time. \"Kept by\" names \
    the Argo CD application, Flux object or Helm release that its labels and annotations point to: the person who made the \
    change stands in the history of that source. A cluster by itself knows a person's name in the API server's audit log \
    only, where that is on.\n\nExamples:\n  mco history worker\n  \
    mco history worker -o json | jq '.configs[] | {config, rendered, current}'"
)]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "A pool's config follows from its MachineConfigs, and GitOps tools put those back; so undo changes none of them. It \
    pins the pool to a rendered config that it had (annotation machineconfiguration.openshift.io/pinned-config), names the \
    MachineConfigs that differ, and the controller sends the nodes there by the usual rules. While the pin stands, changes are \
    rendered and not rolled out; `mco status` and the pool's condition ConfigPinned say so. Correct the MachineConfigs, then \
    release the pin.\n\nExit codes: 0 done, or nothing to do; 1 failed; 2 wrong command line, or nobody to ask and no --yes; 3 no \
    running host can apply it, or the answer was no.\n\nExamples:\n  mco undo worker                 says what it costs, and asks\n  \
    mco undo worker --dry-run\n  mco undo worker --to rendered-worker-0123456789abcdef0123456789abcdef --yes\n  \
    mco undo worker --release       follow the MachineConfigs again"
)]
pub(crate) struct Undo {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// The rendered config to go back to [default: the one before]; `mco history` lists them
    #[arg(long, value_name = "CONFIG", conflicts_with = "release")]
    pub(crate) to: Option<String>,
    /// Take the pin away: the pool follows its MachineConfigs again
    #[arg(long)]
    pub(crate) release: bool,
    #[command(flatten)]
    pub(crate) show: ShowSecrets,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Say what it would do and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "An agent that fails tries again by itself, after ever longer waits. This ends the wait, once; what failed is not \
    changed by it. It costs nothing where nothing failed.\n\nExamples:\n  mco retry worker-1\n  \
    mco status --phase failing -o json | jq -r '.pools[].nodes[].name' | xargs -r mco retry"
)]
pub(crate) struct Retry {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The nodes
    #[arg(value_name = "NODE", required = true)]
    pub(crate) nodes: Vec<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
