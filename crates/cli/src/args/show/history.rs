//! The arguments of `mco history`. They are used in `commands::show::history`.

use crate::args::shared::Cluster;
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
