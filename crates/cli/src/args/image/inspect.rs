//! The arguments of `mco image inspect`. They are used in `commands::image::inspect`.

use crate::args::image::Registry;
use crate::output::Format;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "Credentials, mirrors and authorities are those of this computer's container tools: auth.json, registries.conf, certs.d. \
        Only the image's manifest and config are read.\n\nExamples:\n  \
    mco image inspect registry.example.com/team/os:latest\n  \
    mco image inspect registry.example.com/team/os:latest --arch arm64 -o json"
)]
pub(crate) struct Inspect {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub(crate) image: String,
    /// The architecture, if the image is for several [default: amd64 if it has that, else its first]
    #[arg(long = "arch", value_name = "ARCH")]
    pub(crate) architecture: Option<String>,
    #[command(flatten)]
    pub(crate) registry: Registry,
    #[arg(long, hide = true, env = "HOME", value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    #[arg(long, hide = true, env = "XDG_RUNTIME_DIR", value_name = "DIR")]
    pub(crate) runtime: Option<PathBuf>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}
