//! The arguments of `mco explain`. They are used in `commands::show::explain`.

use crate::args::shared::{Cluster, ShowSecrets};
use crate::output::Format;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mco explain worker\n  mco explain worker /etc/motd\n  mco explain worker kubelet.service\n  \
    mco explain worker quiet -o json"
)]
pub(crate) struct Explain {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// A path, unit, UNIT/DROPIN, user, kernel argument, extension or field of the spec
    #[arg(value_name = "PATH|UNIT|KARG")]
    pub(crate) what: Option<String>,
    /// Only settings that more than one MachineConfig sets
    #[arg(long, conflicts_with = "what")]
    pub(crate) contested: bool,
    #[command(flatten)]
    pub(crate) show: ShowSecrets,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
