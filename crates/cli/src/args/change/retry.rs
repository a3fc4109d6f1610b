//! The arguments of `mco retry`. They are used in `commands::change::retry`.

use crate::args::shared::Cluster;
use crate::output::Format;
use clap::Args;

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
