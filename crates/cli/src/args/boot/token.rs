//! The arguments of `mco token`. They are used in `commands::boot::token`.

use crate::args::shared::{Cluster, duration, network};
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
