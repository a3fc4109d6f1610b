//! The arguments of `mco render`, `mco lint` and `mco explain`.

use crate::args::Cluster;
use crate::output::Format;
use clap::Args;
use desired::mask::Secrets;
use std::path::PathBuf;

/// Whether contents that may be secret are shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ShowSecrets {
    /// Also show contents that may be secret: of files that not everybody may read, and lines that look like secrets
    #[arg(long)]
    show_secrets: bool,
}

impl ShowSecrets {
    pub(crate) fn secrets(self) -> Secrets {
        if self.show_secrets { Secrets::Show } else { Secrets::Hide }
    }
}

/// Manifests from files.
#[derive(Debug, Clone, Args)]
pub(crate) struct Manifests {
    /// A file of manifests (YAML or JSON), a folder of such files, or `-` for standard input; may be given several
    /// times
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without manifests of pools, each role in the MachineConfigs' labels is a pool; without a \
        ControllerConfig, that of a plain cluster is used.\nWith --diff the manifests are merged over the \
        cluster's objects.\n\nExamples:\n  \
    mco render -f manifests/ --pool worker\n  mco render -f new/ --diff-with old/ --exit-code\n  \
    mco render -f 50-motd.yaml --diff --pool worker      what would change in the cluster"
)]
pub(crate) struct Render {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) manifests: Manifests,
    /// The folder of templates that the base MachineConfigs are made from
    #[arg(long, value_name = "DIR")]
    pub(crate) templates: Option<PathBuf>,
    /// Only this pool; may be given several times
    #[arg(long = "pool", value_name = "NAME")]
    pub(crate) pools: Vec<String>,
    /// Show what differs from the live pools instead of the result
    #[arg(long, conflicts_with = "diff_with")]
    pub(crate) diff: bool,
    /// Show what differs from the rendering of these manifests, or from rendered configs
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) diff_with: Vec<PathBuf>,
    /// With a diff: exit with 3 when there is a difference
    #[arg(long)]
    pub(crate) exit_code: bool,
    #[command(flatten)]
    pub(crate) show: ShowSecrets,
}

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
