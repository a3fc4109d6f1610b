//! The arguments of `mco pointer`. They are used in `commands::boot::pointer`.

use crate::args::shared::Cluster;
use clap::Args;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mco pointer worker > user-data.ign\n  mco pointer worker --ignition-version 3.3.0      for machines with Ignition 2.14"
)]
pub(crate) struct Pointer {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool that the machine boots into
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// The boot token to send [default: the pool's own, where `mco operator` keeps one]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// The Ignition version of the config: one that the machine's Ignition reads
    #[arg(long, value_name = "VERSION", default_value = "3.5.0")]
    pub(crate) ignition_version: String,
    /// The config server's host name or address, as machines reach it [default: from the ControllerConfig]
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// The server's port
    #[arg(long, value_name = "PORT", default_value_t = api::first_boot::user_data::PORT)]
    pub(crate) port: u16,
    /// The CA that machines trust (PEM) [default: from the ConfigMap machine-config-server-ca]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<std::path::PathBuf>,
}
