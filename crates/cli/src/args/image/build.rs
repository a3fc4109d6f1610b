//! The arguments of `mco image build`. They are used in `commands::image::build`.

use crate::args::image::Registry;
use crate::args::manifests::Manifests;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// The program that builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Builder {
    /// buildah
    Buildah,
    /// podman
    Podman,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The Containerfile and the files beside it are the same as in a cluster. Runs buildah or podman, which must be \
        on the PATH; credentials, mirrors and policies are this computer's.\n\nExamples:\n  \
    mco image build -f manifests/ --pool worker --tag localhost/os:try\n  \
    mco image build -f manifests/ --containerfile Containerfile --pool worker --tag registry.example.com/team/os:try --push\n  \
    mco image build -f manifests/ --pool worker --write-to context/     only write what would be built"
)]
pub(crate) struct Build {
    #[command(flatten)]
    pub(crate) manifests: Manifests,
    /// The folder of templates that the base MachineConfigs are made from
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// The pool [default: that of the MachineOSConfig among the manifests]
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// The Containerfile, in place of that of the MachineOSConfig
    #[arg(long, value_name = "FILE")]
    pub(crate) containerfile: Option<PathBuf>,
    /// The image's name [default: the MachineOSConfig's renderedImagePushSpec]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) tag: Option<String>,
    /// Push the image, and print it by its digest
    #[arg(long)]
    pub(crate) push: bool,
    /// Write Containerfile and context into this folder, and build nothing
    #[arg(long, value_name = "DIR", conflicts_with_all = ["push", "tag"])]
    pub(crate) write_to: Option<PathBuf>,
    /// The program that builds [default: buildah if it is there, else podman]
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub(crate) with: Option<Builder>,
    #[command(flatten)]
    pub(crate) registry: Registry,
}
