//! What several commands take: the cluster, durations, networks, addresses to listen on, metrics, how much is shown or refused.
//!
//! What it is not: the arguments of one command (see the folders beside this file, which are those of `commands`).

use clap::{Args, ValueEnum};
use desired::mask::Secrets;
use ipnet::IpNet;
use k8s_openapi::jiff::SignedDuration;
use listen::Addresses;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Which cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct Cluster {
    /// The kubeconfig to use [default: as kubectl finds it, else the pod's own]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use [default: its current-context]
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// The environment's kubeconfig files, used without --kubeconfig: for each setting the first file that has it
    /// counts
    #[arg(long, hide = true, env = "KUBECONFIG", value_name = "FILES")]
    pub(crate) kubeconfig_list: Option<OsString>,
}

/// How much a change may disturb a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Refuse {
    /// Refuse a change that reloads a service, or worse
    Reload,
    /// Refuse a change that restarts a service, or worse
    Restart,
    /// Refuse a change that drains a node, or worse
    Drain,
    /// Refuse a change that reboots a node
    Reboot,
}

impl Refuse {
    /// The same severity in the `host` crate.
    pub(crate) fn severity(self) -> host::Severity {
        match self {
            Self::Reload => host::Severity::Reload,
            Self::Restart => host::Severity::Restart,
            Self::Drain => host::Severity::Drain,
            Self::Reboot => host::Severity::Reboot,
        }
    }
}

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

/// Metrics for the network.
#[derive(Debug, Args)]
pub(crate) struct SecureMetrics {
    /// The address where the same is served over HTTPS, or `off`. Reading metrics there needs a bearer token with the right
    /// to `get` the path /metrics
    #[arg(long, value_name = "ADDR", default_value = "off")]
    pub(crate) metrics_secure_listen: Listen,
    /// The certificate for HTTPS (PEM); read again when it changes [default: a self-signed one, made at start]
    #[arg(long, value_name = "FILE", requires = "metrics_key")]
    pub(crate) metrics_cert: Option<PathBuf>,
    /// Its key (PEM)
    #[arg(long, value_name = "FILE", requires = "metrics_cert")]
    pub(crate) metrics_key: Option<PathBuf>,
}

impl SecureMetrics {
    /// The certificate's files.
    pub(crate) fn files(&self) -> Vec<&Path> {
        [&self.metrics_cert, &self.metrics_key].into_iter().filter_map(Option::as_deref).collect()
    }

    /// These addresses and the plain one.
    pub(crate) fn with(self, plain: Listen) -> Addresses {
        let certificate = self.metrics_cert.zip(self.metrics_key);
        Addresses { plain: plain.0, secure: self.metrics_secure_listen.0, certificate }
    }
}

/// An address to listen on, or `off`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listen(pub(crate) Option<SocketAddr>);

impl std::str::FromStr for Listen {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if s == "off" {
            return Ok(Self(None));
        }
        // As in other Kubernetes components, `:PORT` is all addresses.
        let all = s.strip_prefix(':').map(|port| format!("[::]:{port}"));
        let address = all.as_deref().unwrap_or(s).parse();
        address
            .map(|a| Self(Some(a)))
            .map_err(|e| format!("{e}: write IP:PORT, :PORT for all addresses, or off"))
    }
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
    api::formats::network::network(text)
        .ok_or_else(|| "write an address, or a network like 10.0.0.0/24".to_owned())
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
