//! The arguments of `mco image`.
//!
//! What it is not: the commands (see `commands::image`).

pub(crate) mod build;
pub(crate) mod inspect;

use crate::args::image::build::Build;
use crate::args::image::inspect::Inspect;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Image {
    /// Show what a node would get with an image: digest, OS version, labels, size of each layer
    Inspect(Inspect),
    /// Build a pool's OS image on this computer, as the cluster does
    Build(Build),
}

/// How registries are reached.
#[derive(Debug, Clone, Args)]
pub(crate) struct Registry {
    /// The file with registries' credentials [default: that of this computer's container tools]
    #[arg(long, value_name = "FILE")]
    pub(crate) authfile: Option<PathBuf>,
    /// Connect to registries without TLS, or without verifying their certificates
    #[arg(long)]
    pub(crate) insecure: bool,
}
