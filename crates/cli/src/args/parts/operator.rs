//! The arguments of `mco operator …`. They are used in `commands::parts::operator`.

use crate::args::shared::{Cluster, Listen, SecureMetrics};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Operator {
    /// Keep everything that is installed as the MachineConfigOperator cluster says, until SIGTERM
    Start(OperatorStart),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Without a MachineConfigOperator it keeps the config server's certificates and the machines' user data only.\n\nExamples:\n  mco operator start --once\n  mco operator start --require-token      with `mco server start --require-token`"
)]
pub(crate) struct OperatorStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Without a MachineConfigOperator: each pool's user data holds a boot token, for a config server with --require-token
    #[arg(long)]
    pub(crate) require_token: bool,
    /// The image that this operator runs in: it acts only while the settings name this image [default: it does not run in a pod, and
    /// leaves the operator's Deployment alone]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// The address where /metrics, /healthz and /readyz are served, or `off`
    #[arg(long, value_name = "ADDR", default_value = "off")]
    pub(crate) metrics_listen: Listen,
    #[command(flatten)]
    pub(crate) metrics: SecureMetrics,
    /// Act only while holding the Lease, so that several operators can run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,
    /// Make one pass, print what was written, and exit; what takes time is left to the next pass
    #[arg(long)]
    pub(crate) once: bool,
}
