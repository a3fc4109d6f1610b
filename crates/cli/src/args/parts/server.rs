//! The arguments of `mco server …`. They are used in `commands::parts::server`.

use crate::args::shared::{Cluster, Listen, SecureMetrics, network};
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Server {
    /// Serve from the cluster until SIGTERM
    Start(ServerStart),
    /// Serve from a folder until SIGTERM, for the first machines of a cluster
    Bootstrap(ServerBootstrap),
}

/// Ports, certificate, TLS.
#[derive(Debug, Args)]
pub(crate) struct Listening {
    /// The HTTPS port
    #[arg(long, value_name = "PORT", default_value_t = 22623)]
    pub(crate) secure_port: u16,
    /// The port for plain HTTP, which exposes configs to anyone on the network path; 0 for none. OpenShift's is 22624
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) insecure_port: u16,
    /// The certificate (PEM); read again when it changes
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.crt")]
    pub(crate) cert: PathBuf,
    /// The key (PEM); read again when it changes
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.key")]
    pub(crate) key: PathBuf,
    /// The minimum TLS version: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    pub(crate) tls_min_version: String,
    /// Cipher suites to offer, by IANA, Go or OpenSSL name [default: all that are safe]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) tls_cipher_suites: Vec<String>,
    /// The release that this server belongs to
    #[arg(long, value_name = "VERSION", default_value = "")]
    pub(crate) payload_version: String,
    /// The address to listen on [default: all]
    #[arg(long, value_name = "IP")]
    pub(crate) bind_address: Option<std::net::IpAddr>,
    /// A load balancer that speaks PROXY protocol, version 2. Machines are identified by the address in its header,
    /// which is then required; may be given several times
    #[arg(long = "proxy-protocol-from", value_name = "IP[/BITS]", value_parser = network)]
    pub(crate) balancers: Vec<ipnet::IpNet>,
    /// The most concurrent connections from one address (an IPv6 /64 counts as one); 0 for no limit. Raise it if
    /// thousands of machines boot behind one address (NAT)
    #[arg(long, value_name = "N", default_value_t = server::Limits::default().per_address)]
    pub(crate) connections_per_address: usize,
    /// Offer HTTP/2 too
    #[arg(long)]
    pub(crate) http2: bool,
    /// The address where /metrics, /healthz and /readyz are served, or `off`
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8798")]
    pub(crate) metrics_listen: Listen,
    #[command(flatten)]
    pub(crate) metrics: SecureMetrics,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  mco server start --kubeconfig ~/.kube/config --apiserver-url https://api.example.com:6443 --cert tls.crt --key tls.key"
)]
pub(crate) struct ServerStart {
    #[command(flatten)]
    pub(crate) cluster: Cluster,
    #[command(flatten)]
    pub(crate) listen: Listening,
    /// The API server's URL as machines reach it; written into the kubeconfig that they are given
    #[arg(long, value_name = "URL")]
    pub(crate) apiserver_url: String,
    /// Where the Secret with the bootstrap token is mounted
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    pub(crate) bootstrap_token_dir: PathBuf,
    /// Serve configs only to machines that send a boot token (see `mco token`)
    #[arg(long)]
    pub(crate) require_token: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ServerBootstrap {
    #[command(flatten)]
    pub(crate) listen: Listening,
    /// The folder with machine-pools/ and machine-configs/
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap")]
    pub(crate) server_basedir: PathBuf,
    /// The kubeconfig that machines are given
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kubeconfig")]
    pub(crate) bootstrap_kubeconfig: PathBuf,
    /// A registry's CA, `REGISTRY=FILE` with the file below the base folder; may be given several times
    #[arg(long = "bootstrap-certs", value_name = "REGISTRY=FILE")]
    pub(crate) bootstrap_certs: Vec<String>,
}
