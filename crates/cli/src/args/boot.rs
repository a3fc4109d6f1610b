//! The arguments of `mco token`, `mco pointer` and `mco operator`.

use crate::args::{Cluster, Listen, SecureMetrics};
use crate::output::Format;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use k8s_openapi::jiff::SignedDuration;

#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    /// Create a token and print it; it cannot be shown again
    Create(TokenCreate),
    /// List tokens: whom they are for, when they expire, whether they were used
    #[command(after_help = "Example:\n  mco token list -o json | jq '.items[] | select(.state == \"used\")'")]
    List(TokenList),
    /// Revoke tokens, at once
    Revoke(TokenRevoke),
}

#[derive(Debug, Args)]
#[command(
    after_help = "The config server asks for tokens when it runs with --require-token.\n\nExamples:\n  mco token create worker --ttl 24h\n  mco token create worker --single-use --ttl 2h --node worker-7 --address 10.0.0.17\n  mco pointer worker --token \"$(mco token create worker --ttl 1h)\" > user-data.ign"
)]
pub(crate) struct TokenCreate {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The pool whose config the token gives access to
    #[arg(value_name = "POOL")]
    pub(crate) pool: String,
    /// How long the token is valid, like 90m, 24h or 7d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<SignedDuration>,
    /// Make the token valid for the boot of one machine only
    #[arg(long)]
    pub(crate) single_use: bool,
    /// With --single-use: how long that machine may ask again if its transfer was interrupted
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "15m", requires = "single_use")]
    pub(crate) grace: SignedDuration,
    /// The machine that the token is for: a custom pool then expects its first boot, and the server's log and `mco
    /// token list` show it
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// The address or network that the machine must ask from; may be given several times
    #[arg(long = "address", value_name = "IP[/BITS]", value_parser = network)]
    pub(crate) addresses: Vec<IpNet>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenList {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Only tokens of this pool
    #[arg(value_name = "POOL")]
    pub(crate) pool: Option<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t)]
    pub(crate) output: Format,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  mco token revoke 3f9c0d1e22aa\n  mco token revoke --spent      all that are \
        used or have expired"
)]
pub(crate) struct TokenRevoke {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// The tokens' IDs: the part before the dot
    #[arg(value_name = "ID", required_unless_present = "spent")]
    pub(crate) ids: Vec<String>,
    /// Revoke all tokens that have expired or were used
    #[arg(long)]
    pub(crate) spent: bool,
}

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
    #[arg(long, value_name = "PORT", default_value_t = api::user_data::PORT)]
    pub(crate) port: u16,
    /// The CA that machines trust (PEM) [default: from the ConfigMap machine-config-server-ca]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<std::path::PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "All MachineConfigs, pools and settings are deleted. Hosts keep the files that they have; with --restore-hosts they get\ntheir own files back first. If a run is interrupted, the next one continues it.\n\nExit codes: 0 removed, 1 failed, 2 no --yes and no terminal to ask on, 3 not confirmed.\n\nExamples:\n  mco uninstall --dry-run\n  mco uninstall --restore-hosts --dry-run      which nodes go back, and how many at once\n  mco uninstall --restore-hosts --yes"
)]
pub(crate) struct Uninstall {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    /// Do not ask for confirmation
    #[arg(short, long, conflicts_with = "dry_run")]
    pub(crate) yes: bool,
    /// Remove everything even while nodes are being updated, or if nodes do not get their own files back
    #[arg(long)]
    pub(crate) force: bool,
    /// First give every managed node back the files that it had before: pools are paused, and nodes are drained, and
    /// rebooted where that is needed, as many at once as maxUnavailable allows
    #[arg(long)]
    pub(crate) restore_hosts: bool,
    /// With --restore-hosts: how long one node may take, like 30m
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30m", requires = "restore_hosts")]
    pub(crate) restore_timeout: SignedDuration,
    /// Print what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// With --dry-run: how to print it
    #[arg(short, long, value_enum, default_value_t, requires = "dry_run")]
    pub(crate) output: Format,
}

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
    /// The image that this operator runs in: it acts while the settings name this image [default: it is not a pod, and acts]
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

/// `90m`, `24h`, `7d`; not negative.
pub(crate) fn duration(text: &str) -> Result<SignedDuration, String> {
    let days = text.strip_suffix('d').and_then(|d| d.parse::<i64>().ok());
    let read =
        days.and_then(|d| d.checked_mul(24)).filter(|h| *h < 1_000_000).map(SignedDuration::from_hours);
    let read = read.or_else(|| text.parse().ok());
    read.filter(|d| d.is_positive()).ok_or_else(|| "write a time like 90m, 24h or 7d".to_owned())
}

/// Load balancers in front of the config server. An empty list says that there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Balancer(pub(crate) Option<IpNet>);

pub(crate) fn balancer(text: &str) -> Result<Balancer, String> {
    if text == "none" { Ok(Balancer(None)) } else { network(text).map(|net| Balancer(Some(net))) }
}

pub(crate) fn network(text: &str) -> Result<IpNet, String> {
    api::network::network(text).ok_or_else(|| "write an address, or a network like 10.0.0.0/24".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_positive_and_may_be_days() {
        for (text, hours) in [("24h", 24), ("7d", 168), ("120m", 2), ("1h 60m", 2)] {
            assert_eq!(duration(text), Ok(SignedDuration::from_hours(hours)), "{text}");
        }
        for bad in ["", "5", "-1h", "0s", "d", "1x", "99999999999999999999d"] {
            duration(bad).unwrap_err();
        }
    }
}
