//! Sockets, TLS handshakes and HTTP connections, with limits on the time and memory that a client can take.
//!
//! Flow: accept → PROXY header, if the peer is a load balancer → TLS handshake with a timeout → HTTP/1.1 or HTTP/2 →
//! [`respond`]. On shutdown, no new connections are accepted, running answers are finished, and after a grace period the
//! rest is cut.

mod address_limit;
mod proxy_protocol;
mod write_timeout;

pub use ::listen::tls::TlsProfile;

use crate::answer::respond::{Shared, respond};
use crate::error::ServerError;
use crate::listen::address_limit::{AddressLimit, AddressSlot};
use crate::listen::proxy_protocol::{client, is_balancer};
use crate::listen::write_timeout::WriteTimeout;
use crate::metrics::endpoint;
use crate::metrics::{Cause, Metrics};
use ::listen::tls::Tls;
use ::listen::{Access, Addresses};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ipnet::IpNet;
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;
/// The largest head of a request, in bytes. Ignition's are under 1 KB.
const MAX_HEAD: usize = 16 * 1024;
/// The most headers of one request.
const MAX_HEADERS: usize = 64;
/// Concurrent requests on one HTTP/2 connection.
const MAX_STREAMS: u32 = 32;
/// How many bytes of an answer are encrypted ahead of a slow client. A larger buffer saves system calls, but each of
/// thousands of connections holds one.
const TLS_BUFFER: usize = 32 * 1024;
/// The metric's cause for an address that has reached its limit.
const CROWDED: &str = "address";
/// The pause after an error of `accept`, such as no file descriptors left. Connections end meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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
            endpoint::serve(registry, metrics_addresses, access, profile, shared, stop.clone()).await;
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

/// What each connection needs.
#[derive(Debug, Clone)]
struct Context {
    shared: Arc<Shared>,
    tracker: TaskTracker,
    stop: CancellationToken,
    cut: CancellationToken,
    per_address: Arc<AddressLimit>,
    balancers: Arc<[IpNet]>,
    limits: Limits,
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
                    From::Balancer
                } else if let Some(address_slot) = context.per_address.enter(peer.ip()) {
                    From::Client(address_slot)
                } else {
                    crowded(context, peer);
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

/// Who opened a connection.
enum From {
    /// The machine itself; it is counted for its address.
    Client(AddressSlot),
    /// A load balancer, which first sends the client's address.
    Balancer,
}

async fn connection(
    mut stream: TcpStream,
    peer: SocketAddr,
    from: From,
    tls: Option<TlsAcceptor>,
    context: &Context,
) {
    let metrics = &context.shared.metrics;
    let (peer, _address_slot) = match from {
        From::Client(address_slot) => (peer, address_slot),
        From::Balancer => {
            let said = tokio::time::timeout(context.limits.handshake, client(&mut stream, peer)).await;
            let machine = match said {
                Ok(Ok(machine)) => machine,
                Ok(Err(error)) => {
                    tracing::debug!(%peer, "a connection from a load balancer does not name its client's \
                        address: {error}");
                    return count_cut(metrics, "proxy-header", peer);
                }
                Err(_) => return count_cut(metrics, "proxy-header", peer),
            };
            match context.per_address.enter(machine.ip()) {
                Some(address_slot) => (machine, address_slot),
                None => return crowded(context, machine),
            }
        }
    };
    metrics.connections.inc();
    // A small answer must not wait until the previous one is acknowledged.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeout::new(stream, context.limits.write_timeout);
    match tls {
        None => http(stream, peer, Protocol::Plain, context).await,
        Some(acceptor) => match tokio::time::timeout(context.limits.handshake, acceptor.accept(stream)).await
        {
            Ok(Ok(mut stream)) => {
                stream.get_mut().1.set_buffer_limit(Some(TLS_BUFFER));
                let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                http(stream, peer, if h2 { Protocol::Http2 } else { Protocol::Http1 }, context).await;
            }
            Ok(Err(error)) => {
                metrics.tls_failures.inc();
                tracing::debug!(%peer, "TLS handshake failed: {error}");
            }
            Err(_) => count_cut(metrics, "handshake", peer),
        },
    }
    metrics.connections.dec();
}

/// Counts and logs a connection that was refused because its address has reached the limit.
fn crowded(context: &Context, peer: SocketAddr) {
    count_cut(&context.shared.metrics, CROWDED, peer);
    if let Some(warning) = context.per_address.warning(peer.ip(), Instant::now()) {
        tracing::warn!("{warning}");
    }
}

fn count_cut(metrics: &Metrics, cause: &'static str, peer: SocketAddr) {
    metrics.cut.get_or_create(&Cause { cause }).inc();
    tracing::debug!(%peer, cause, "connection cut");
}

/// Runs a connection to its end. On `stop`, or at the end of its lifetime, the running answer is the last one.
macro_rules! drive {
    ($running:ident, $context:ident) => {{
        let first = tokio::select! {
            ended = $running.as_mut() => Some(ended),
            () = $context.stop.cancelled() => None,
            () = tokio::time::sleep($context.limits.lifetime) => None,
        };
        match first {
            Some(Ok(())) => Ended::Done,
            Some(Err(error)) => Ended::Failed(error),
            None => {
                $running.as_mut().graceful_shutdown();
                tokio::select! {
                    ended = $running.as_mut() => ended.map_or_else(Ended::Failed, |()| Ended::Done),
                    () = $context.cut.cancelled() => Ended::Cut("shutdown"),
                    () = tokio::time::sleep($context.limits.grace) => Ended::Cut("lifetime"),
                }
            }
        }
    }};
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/1.1 over TLS.
    Http1,
    /// HTTP/2 over TLS, if it is offered.
    Http2,
}

async fn http<S>(stream: S, peer: SocketAddr, protocol: Protocol, context: &Context)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let shared = Arc::clone(&context.shared);
    let secure = protocol != Protocol::Plain;
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(respond(&shared, peer, secure, request).await) }
    });
    let io = TokioIo::new(stream);
    // Both arms look the same, but the two connection types have no common trait.
    let ended = if protocol == Protocol::Http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
            .keep_alive_interval(context.limits.head)
            .keep_alive_timeout(context.limits.head);
        let mut running = std::pin::pin!(builder.serve_connection(io, service));
        drive!(running, context)
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(context.limits.head)
            .max_buf_size(MAX_HEAD)
            .max_headers(MAX_HEADERS)
            .half_close(false);
        let mut running = std::pin::pin!(builder.serve_connection(io, service));
        drive!(running, context)
    };
    match ended {
        Ended::Done => {}
        Ended::Cut(cause) => count_cut(&context.shared.metrics, cause, peer),
        Ended::Failed(error) => match cause_of(&error) {
            Some(cause) => count_cut(&context.shared.metrics, cause, peer),
            None => tracing::debug!(%peer, "connection ended: {error}"),
        },
    }
}

/// How a connection ended.
enum Ended {
    Done,
    Cut(&'static str),
    Failed(hyper::Error),
}

/// The limit that caused an error, if one did.
fn cause_of(error: &hyper::Error) -> Option<&'static str> {
    if error.is_parse_too_large() {
        return Some("head-size");
    }
    if error.is_timeout() {
        return Some("head-time");
    }
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::TimedOut) {
            return Some("stall");
        }
        source = inner.source();
    }
    None
}
