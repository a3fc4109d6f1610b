//! One connection, from its first byte to its end: PROXY header, TLS, HTTP, and the limits that end it.
//!
//! What it is not: the sockets (see the module above), or the answers.

use crate::answer::respond::{Shared, respond};
use crate::listen::Limits;
use crate::listen::address_limit::{AddressLimit, AddressSlot};
use crate::listen::proxy_protocol::client;
use crate::listen::write_timeout::WriteTimeout;
use crate::metrics::{Cause, Metrics};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ipnet::IpNet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

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
/// What each connection needs.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) shared: Arc<Shared>,
    pub(super) tracker: TaskTracker,
    pub(super) stop: CancellationToken,
    pub(super) cut: CancellationToken,
    pub(super) per_address: Arc<AddressLimit>,
    pub(super) balancers: Arc<[IpNet]>,
    pub(super) limits: Limits,
}

/// Who opened a connection.
pub(super) enum ConnectionSource {
    /// The machine itself; it is counted for its address.
    Client(AddressSlot),
    /// A load balancer, which first sends the client's address.
    Balancer,
}

pub(super) async fn connection(
    mut stream: TcpStream,
    peer: SocketAddr,
    from: ConnectionSource,
    tls: Option<TlsAcceptor>,
    context: &Context,
) {
    let metrics = &context.shared.metrics;
    let (peer, _address_slot) = match from {
        ConnectionSource::Client(address_slot) => (peer, address_slot),
        ConnectionSource::Balancer => {
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
                None => return report_over_limit(context, machine),
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
pub(super) fn report_over_limit(context: &Context, peer: SocketAddr) {
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
