//! The options of both servers, and the limits on their clients.

use super::TlsProfile;
use crate::metrics::Metrics;
use ::listen::Addresses;
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limits on clients. Only `per_address` has a flag; tests make the others small.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Concurrent connections on both ports together. Ten thousand machines may boot at once; a connection takes about
    /// 40 KB.
    pub connections: usize,
    /// `--connections-per-address` (ours): concurrent connections of one address (an IPv6 /64 counts as one); 0: no
    /// limit. Many machines may share an address, but no address may take all connections.
    pub per_address: usize,
    /// The timeout of a TLS handshake. It takes two round trips, and machines boot over slow links.
    pub handshake: Duration,
    /// The timeout for a request's head, and for the next request on a kept-alive connection.
    pub head: Duration,
    /// A client that accepts no byte of an answer for this long is cut off.
    pub write_timeout: Duration,
    /// The longest life of a connection. It ends clients that accept a byte now and then.
    pub lifetime: Duration,
    /// How long running answers may take after shutdown begins.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            per_address: 4_096,
            handshake: Duration::from_secs(10),
            head: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            lifetime: Duration::from_secs(600),
            grace: Duration::from_secs(20),
        }
    }
}

/// The options of both servers. The fields are the reference's persistent flags, and some of ours.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// `--secure-port`: the HTTPS port. 0 takes a free one.
    pub secure_port: u16,
    /// `--insecure-port`: the port for plain HTTP. 0, the default, does not listen; the reference's default is 22624.
    pub insecure_port: u16,
    /// `--cert`: PEM, read again when it changes.
    pub cert: PathBuf,
    /// `--key`: PEM, read again when it changes.
    pub key: PathBuf,
    /// `--tls-min-version` and `--tls-cipher-suites`.
    pub tls: TlsProfile,
    /// `--payload-version`: the release that this server belongs to, for the log.
    pub payload_version: String,
    /// `--bind-address` (ours): the address to listen on; none listens on all.
    pub bind_address: Option<IpAddr>,
    /// `--proxy-protocol-from` (ours): load balancers, which must send the client's address by PROXY protocol, version 2.
    pub balancers: Vec<IpNet>,
    /// `--http2` (ours): offer HTTP/2. Off by default, as the reference.
    pub http2: bool,
    /// The metrics to update; register them with [`Metrics::new`].
    pub metrics: Metrics,
    /// The registry that the metrics are in.
    pub registry: Arc<Registry>,
    /// `--metrics-listen` and `--metrics-secure-listen` (ours): where metrics are served.
    pub metrics_addresses: Addresses,
    /// Limits on clients.
    pub limits: Limits,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            secure_port: 22623,
            insecure_port: 0,
            cert: "/etc/ssl/mcs/tls.crt".into(),
            key: "/etc/ssl/mcs/tls.key".into(),
            tls: TlsProfile::default(),
            payload_version: String::new(),
            bind_address: None,
            balancers: Vec::new(),
            http2: false,
            metrics: Metrics::default(),
            registry: Arc::default(),
            metrics_addresses: Addresses::default(),
            limits: Limits::default(),
        }
    }
}
