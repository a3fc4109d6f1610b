//! The arguments of `mco approve`. They are used in `commands::change::approve`.

use crate::args::shared::Cluster;
use crate::output::Format;
use clap::Args;

/// `approve`.
#[derive(Debug, Args)]
#[command(
    after_help = "A wave of a RolloutPolicy with \"approval: Needed\" begins only after this. The approval is for the pool's \
        present config: another one must be approved again. The policy's status records who approved it, and \
        when.\n\nExamples:\n  mco approve worker\n  mco approve worker --config \
        rendered-worker-0123456789abcdef0123456789abcdef    fails if that is not the config that waits"
)]
pub(crate) struct Approve {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// The rendered config that is approved [default: the one that waits]
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
