//! Sockets, TLS handshakes and HTTP connections, with limits on the time and memory that a client can take.
//!
//! Flow: accept → PROXY header, if the peer is a load balancer → TLS handshake with a timeout → HTTP/1.1 or HTTP/2 →
//! [`respond`]. On shutdown, no new connections are accepted, running answers are finished, and after a grace period the
//! rest is cut.

mod address_limit;
mod connection;
mod metrics_endpoint;
mod options;
mod proxy_protocol;
mod write_timeout;

pub use ::listen::tls::TlsProfile;
pub use options::{Limits, ListenOptions};

use crate::answer::respond::Shared;
use crate::error::ServerError;
use crate::listen::address_limit::AddressLimit;
use crate::listen::connection::{ConnectionSource, Context, connection, report_over_limit};
use crate::listen::proxy_protocol::is_balancer;
use ::listen::tls::Tls;
use ::listen::{Access, Addresses};
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;
/// The pause after an error of `accept`, such as no file descriptors left. Connections end meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Open sockets, and everything else that serving needs.
#[derive(Debug)]
pub(crate) struct Listeners {
    secure: TcpListener,
    insecure: Option<TcpListener>,
    tls: Arc<Tls>,
    registry: Arc<Registry>,
    metrics_addresses: Addresses,
    profile: TlsProfile,
    limits: Limits,
    balancers: Arc<[IpNet]>,
}

impl Listeners {
    /// Reads the certificate and opens the ports, so that errors show at start and not later.
    pub(crate) fn open(options: &ListenOptions) -> Result<Self, ServerError> {
        raise_file_limit();
        let told = Arc::new(options.metrics.clone());
        let tls = Arc::new(Tls::load(&options.cert, &options.key, &options.tls, options.http2, told)?);
        let open =
            |port| bind(options.bind_address, port).map_err(|source| ServerError::Listen { port, source });
        Ok(Self {
            secure: open(options.secure_port)?,
            insecure: if options.insecure_port == 0 { None } else { Some(open(options.insecure_port)?) },
            tls,
            registry: Arc::clone(&options.registry),
            metrics_addresses: options.metrics_addresses.clone(),
            profile: options.tls.clone(),
            limits: options.limits.clone(),
            balancers: options.balancers.clone().into(),
        })
    }

    /// Where HTTPS is served.
    pub(crate) fn secure_addr(&self) -> io::Result<SocketAddr> {
        self.secure.local_addr()
    }

    /// TLS, whose profile may be changed while it serves.
    pub(crate) fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// Serves until `stop`, and then until running answers are finished.
    /// `access`: who may read metrics over the network.
    pub(crate) async fn serve(self, shared: Arc<Shared>, access: Access, stop: CancellationToken) {
        let Self { secure, insecure, tls, registry, metrics_addresses, profile, limits, balancers } = self;
        let (connections, grace) = (limits.connections, limits.grace);
        let tracker = TaskTracker::new();
        // Running answers go on after `stop`. This token ends them.
        let cut = CancellationToken::new();
        let context = Context {
            shared: Arc::clone(&shared),
            tracker: tracker.clone(),
            stop: stop.clone(),
            cut: cut.clone(),
            per_address: AddressLimit::new(limits.per_address),
            balancers,
            limits,
        };
        let slots = Arc::new(Semaphore::new(connections));
        let plain = async {
            if let Some(listener) = insecure {
                accept(listener, None, &context, &slots).await;
            }
        };
        let metrics = async {
            metrics_endpoint::serve(registry, metrics_addresses, access, profile, shared, stop.clone()).await;
        };
        tokio::join!(
            accept(secure, Some(&tls), &context, &slots),
            plain,
            metrics,
            tls.follow_certificate(stop.clone())
        );
        tracker.close();
        if tokio::time::timeout(grace, tracker.wait()).await.is_err() {
            tracing::warn!(
                connections = tracker.len(),
                "connections cut after a grace period of {} \
                s",
                grace.as_secs()
            );
            cut.cancel();
            tracker.wait().await;
        }
    }
}

/// Without an address, listens on all of them: IPv6 and IPv4 if the machine has both.
fn bind(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    let open = |address: IpAddr| {
        let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(address, port))?;
        socket.listen(BACKLOG)
    };
    match address {
        Some(address) => open(address),
        None => match open(Ipv6Addr::UNSPECIFIED.into()) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => Err(e),
            Err(_) => open(Ipv4Addr::UNSPECIFIED.into()),
            listening => listening,
        },
    }
}

/// Raises the limit on open files to the allowed maximum. Service managers start programs with 1,024.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(?current, "the limit on open files stays as it is: {error}");
    }
}

async fn accept(listener: TcpListener, tls: Option<&Tls>, context: &Context, slots: &Arc<Semaphore>) {
    loop {
        let next = async {
            // The slot first: while there is none, machines wait in the kernel's queue and not in our memory.
            let slot = Arc::clone(slots).acquire_owned().await.ok()?;
            Some((slot, listener.accept().await))
        };
        let (slot, accepted) = tokio::select! {
            () = context.stop.cancelled() => return,
            next = next => match next { Some(next) => next, None => return },
        };
        match accepted {
            Ok((stream, peer)) => {
                // A dual-stack listener sees IPv4 clients as mapped IPv6 addresses; the log shows IPv4.
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let from = if is_balancer(&context.balancers, peer.ip()) {
                    ConnectionSource::Balancer
                } else if let Some(address_slot) = context.per_address.enter(peer.ip()) {
                    ConnectionSource::Client(address_slot)
                } else {
                    report_over_limit(context, peer);
                    continue;
                };
                let (tls, context) = (tls.map(Tls::acceptor), context.clone());
                context.tracker.clone().spawn(async move {
                    connection(stream, peer, from, tls, &context).await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!("a connection could not be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
