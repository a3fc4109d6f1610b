//! The arguments of `mco pause` and `mco resume`. They are used in `commands::change::pause`.

use crate::args::shared::Cluster;
use crate::output::Format;
use clap::Args;

/// `pause` and `resume`.
#[derive(Debug, Args)]
#[command(after_help = "A paused pool gives no node a new config. Nodes whose update has begun finish it; \
        rendering goes on.\nPausing a paused pool, or resuming a running one, changes \
        nothing.\n\nExamples:\n  mco pause worker\n  mco resume worker infra -o json")]
pub(crate) struct Pause {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pub(crate) pools: Vec<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
