//! The arguments of commands about manifests.
//!
//! What it is not: the commands (see `commands::manifests`).

pub(crate) mod lint;
pub(crate) mod render;

use clap::Args;
use std::path::PathBuf;

/// Manifests from files.
#[derive(Debug, Clone, Args)]
pub(crate) struct Manifests {
    /// A file of manifests (YAML or JSON), a folder of such files, or `-` for standard input; may be given several
    /// times
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR", required = true)]
    pub(crate) files: Vec<PathBuf>,
}
