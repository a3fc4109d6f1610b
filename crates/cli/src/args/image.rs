//! The arguments of `mco image inspect` and `mco image build`.

use crate::output::Format;
use clap::{Args, Subcommand, ValueEnum};
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

#[derive(Debug, Args)]
#[command(
    after_help = "Credentials, mirrors and authorities are those of this computer's container tools: auth.json, registries.conf, certs.d. \
        Of the image only its manifest and its config are read.\n\nExamples:\n  \
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
    pub(crate) manifests: crate::args::render::Manifests,
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
