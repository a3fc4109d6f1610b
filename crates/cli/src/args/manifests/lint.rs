//! The arguments of `mco lint`. They are used in `commands::manifests::lint`.

use crate::args::manifests::Manifests;
use crate::output::Format;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Exits with 3 when there are errors, so that a CI job fails.\n\nExamples:\n  mco lint -f manifests/\n  \
    mco lint -f manifests/ --strict      warnings count too\n  mco lint -f - -o json < all.yaml | jq '.items[].rule'"
)]
pub(crate) struct Lint {
    #[command(flatten)]
    pub(crate) manifests: Manifests,
    /// The folder of templates that the base MachineConfigs are made from: MachineConfigs that override these are reported too
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// Exit with 3 for warnings too
    #[arg(long)]
    pub(crate) strict: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
