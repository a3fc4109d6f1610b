//! The endpoint of a part: `/metrics`, `/healthz` and `/readyz`. On loopback it speaks plain HTTP, for everybody on the
//! computer. Over the network it speaks HTTPS: metrics are for clients that may read them ([`crate::Access`]), and health is
//! a status without a text, so that a kubelet can probe it.
//!
//! What it is not: what is measured or healthy.
//!
//! Sources: <https://prometheus.io/docs/specs/om/open_metrics_spec/#overall-structure>
//! and <https://kubernetes.io/docs/reference/using-api/health-checks/>.

use crate::access::{Access, Decision};
use crate::tls::{Tls, TlsProfile};
use crate::{ListenError, tls};
use client::Backoff;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::fmt::Debug;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Concurrent connections of one listener.
const CONNECTIONS: usize = 128;
/// The same of one address. A scraper needs one, a kubelet two: no client can use up the connections that probes need.
const PER_ADDRESS: usize = 8;
/// After this time a connection is ended. A scraper and a kubelet open another one.
const LIFETIME: Duration = Duration::from_secs(60);
/// The timeout for a TLS handshake, and for a request's head.
const HEAD: Duration = Duration::from_secs(10);
/// How long running answers may take after `stop`.
const GRACE: Duration = Duration::from_secs(1);
/// The wait before an address for HTTPS that could not be listened on is tried again, and its longest.
const LISTEN_AGAIN: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(60) };
/// The wait after a connection could not be accepted: usually the process is out of file descriptors, which passes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);
/// The content type of the metrics: <https://prometheus.io/docs/specs/om/open_metrics_spec/#overall-structure>.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a part is healthy. Asked for each request: answer from memory.
pub trait Health: Debug + Send + Sync {
    /// Whether the process works at all; if not, it has to be restarted.
    fn live(&self) -> bool {
        true
    }
    /// Whether the part does its work, and details in JSON, which are only served on loopback.
    fn ready(&self) -> (bool, String) {
        (true, "{}".to_owned())
    }
}

/// A part that is healthy as long as it answers.
#[derive(Debug, Clone, Copy)]
pub struct Healthy;

impl Health for Healthy {}

/// Where a part serves its metrics and health. The default is nowhere.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    /// In plain HTTP, for every client (`--metrics-listen`).
    pub plain: Option<SocketAddr>,
    /// Over HTTPS (`--metrics-secure-listen`).
    pub secure: Option<SocketAddr>,
    /// The certificate and key of the latter (`--metrics-cert`, `--metrics-key`): PEM, read again when they change. `None`,
    /// and while the files are not there: a self-signed one is made at start, which a scraper cannot verify.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// What a part serves, and where.
#[derive(Debug)]
pub struct Endpoint {
    /// The metrics.
    pub registry: Arc<Registry>,
    /// The health.
    pub health: Arc<dyn Health>,
    /// Where.
    pub addresses: Addresses,
    /// Who may read metrics over the network.
    pub access: Access,
    /// TLS versions and cipher suites.
    pub profile: TlsProfile,
}

/// Open sockets.
#[derive(Debug)]
pub struct Bound {
    content: Content,
    plain: Option<TcpListener>,
    secure: Option<Secure>,
}

/// The listener for HTTPS. Metrics for the network are not worth an outage: if its address is taken, or its certificate
/// cannot be used, it is tried again while everything else runs.
#[derive(Debug)]
struct Secure {
    address: SocketAddr,
    certificate: Option<(PathBuf, PathBuf)>,
    profile: TlsProfile,
    open: Option<(TcpListener, Tls)>,
}

impl Secure {
    async fn open(&self) -> Result<(TcpListener, Tls), ListenError> {
        let tls = match &self.certificate {
            Some((cert, key)) => Tls::load_when_there(cert, key, &self.profile)?,
            None => Tls::self_signed(&self.profile)?,
        };
        Ok((open("--metrics-secure-listen", self.address).await?, tls))
    }

    /// Waits until it can be opened; `None`: `stop` came first.
    async fn opened(mut self, stop: &CancellationToken) -> Option<(TcpListener, Tls)> {
        if let Some(open) = self.open.take() {
            return Some(open);
        }
        let mut misses = 0;
        loop {
            let wait = LISTEN_AGAIN.delay(misses);
            stop.run_until_cancelled(tokio::time::sleep(wait)).await?;
            match self.open().await {
                Ok(open) => {
                    tracing::info!(address = %self.address, "metrics are served over the network now");
                    return Some(open);
                }
                Err(error) => tracing::debug!("metrics over the network: {}", client::chain(&error)),
            }
            misses += 1;
        }
    }
}

/// What each connection needs.
#[derive(Debug, Clone)]
struct Content {
    registry: Arc<Registry>,
    health: Arc<dyn Health>,
    access: Option<Arc<Access>>,
}

impl Endpoint {
    /// Opens the sockets. `plain_option`: the flag that names the plain address.
    ///
    /// # Errors
    /// The plain address cannot be listened on. The one for HTTPS is tried again while the endpoint serves.
    pub async fn bind(self, plain_option: &'static str) -> Result<Bound, ListenError> {
        let Self { registry, health, addresses, access, profile } = self;
        let Addresses { plain, secure, certificate } = addresses;
        let plain = match plain {
            Some(address) => Some(open(plain_option, address).await?),
            None => None,
        };
        let content = Content { registry, health, access: Some(Arc::new(access)) };
        let secure = match secure {
            Some(address) => {
                let mut secure = Secure { address, certificate, profile, open: None };
                match secure.open().await {
                    Ok(open) => secure.open = Some(open),
                    Err(error) => {
                        tracing::error!(
                            "metrics are not served over the network for now, and this is tried again: {}",
                            client::chain(&error)
                        );
                    }
                }
                Some(secure)
            }
            None => None,
        };
        Ok(Bound { content, plain, secure })
    }
}

/// All IPv6 addresses are those of IPv4, too; a machine without IPv6 listens on those of IPv4 only.
async fn open(option: &'static str, address: SocketAddr) -> Result<TcpListener, ListenError> {
    let listening = match TcpListener::bind(address).await {
        Err(e) if address.ip() == Ipv6Addr::UNSPECIFIED && e.kind() != ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
        }
        listening => listening,
    };
    listening.map_err(|source| ListenError::Address { option, address, source })
}

impl Bound {
    /// Where HTTPS is served, for tests that listen on any free port.
    pub fn secure_addr(&self) -> Option<SocketAddr> {
        self.secure.as_ref()?.open.as_ref().and_then(|(listener, _)| listener.local_addr().ok())
    }

    /// Where plain HTTP is served.
    pub fn plain_addr(&self) -> Option<SocketAddr> {
        self.plain.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `stop`, and for up to a second more until running answers are finished.
    pub async fn serve(self, stop: CancellationToken) {
        let Self { content, plain, secure } = self;
        let tracker = TaskTracker::new();
        let over_http = async {
            if let Some(listener) = plain {
                let content = Content { access: None, ..content.clone() };
                accept(listener, None, &content, &tracker, &stop).await;
            }
        };
        let over_https = async {
            let Some(secure) = secure else { return };
            if let Some((listener, tls)) = secure.opened(&stop).await {
                tokio::join!(
                    accept(listener, Some(&tls), &content, &tracker, &stop),
                    tls.follow_certificate(stop.clone())
                );
            }
        };
        tokio::join!(over_http, over_https);
        tracker.close();
        tracker.wait().await;
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<&tls::Tls>,
    content: &Content,
    tracker: &TaskTracker,
    stop: &CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let peers: Peers = Arc::default();
    loop {
        let next = async { (Arc::clone(&slots).acquire_owned().await, listener.accept().await) };
        let (slot, accepted) = tokio::select! {
            () = stop.cancelled() => return,
            next = next => next,
        };
        let (stream, from) = match accepted {
            Ok((stream, from)) => (stream, from.ip()),
            Err(error) => {
                tracing::warn!("metrics: no connection can be accepted: {error}");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_AGAIN) => continue,
                }
            }
        };
        let (acceptor, content, stop) = (tls.map(tls::Tls::acceptor), content.clone(), stop.clone());
        // Dropped at once, so that the slot is free for others.
        let Some(place) = ConnectionSlot::take(&peers, from) else { continue };
        tracker.spawn(async move {
            let _held = (slot, place);
            let Some(acceptor) = acceptor else { return connection(stream, content, stop).await };
            let shaken = tokio::select! {
                () = stop.cancelled() => return,
                shaken = tokio::time::timeout(HEAD, acceptor.accept(stream)) => shaken,
            };
            match shaken {
                Ok(Ok(stream)) => connection(stream, content, stop).await,
                Ok(Err(error)) => tracing::debug!("metrics: TLS: {error}"),
                Err(_) => tracing::debug!("metrics: a TLS handshake took more than {} s", HEAD.as_secs()),
            }
        });
    }
}

/// How many connections each address has.
type Peers = Arc<Mutex<HashMap<IpAddr, usize>>>;

/// One of the connections of an address.
struct ConnectionSlot {
    peers: Peers,
    address: IpAddr,
}

impl ConnectionSlot {
    /// `None`: the address has all that it may have.
    fn take(peers: &Peers, address: IpAddr) -> Option<Self> {
        let mut held = peers.lock().unwrap_or_else(PoisonError::into_inner);
        let count = held.entry(address).or_default();
        if *count >= PER_ADDRESS {
            return None;
        }
        *count += 1;
        Some(Self { peers: Arc::clone(peers), address })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut held = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = held.entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, content: Content, stop: CancellationToken) {
    let service = service_fn(|request: Request<Incoming>| {
        let content = &content;
        async move { Ok::<_, Infallible>(answer(content, &request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut running = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = running.as_mut() => {}
        () = tokio::time::sleep(LIFETIME) => {}
        () = stop.cancelled() => {
            running.as_mut().graceful_shutdown();
            let _ = tokio::time::timeout(GRACE, running).await;
        }
    }
}

async fn answer<B>(content: &Content, request: &Request<B>) -> Response<Full<Bytes>> {
    let status = |status: StatusCode| {
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() = status;
        response
    };
    if !matches!(request.method(), &Method::GET | &Method::HEAD) {
        return status(StatusCode::METHOD_NOT_ALLOWED);
    }
    let secure = content.access.is_some();
    let health = |good: bool, told: String| {
        let code = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut response = status(code);
        if !secure && !told.is_empty() {
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *response.body_mut() = Full::new(Bytes::from(told));
        }
        response
    };
    match request.uri().path() {
        "/healthz" => health(content.health.live(), String::new()),
        "/readyz" => {
            let (ready, told) = content.health.ready();
            health(ready, told)
        }
        "/metrics" => {
            if let Some(access) = &content.access {
                let header = request.headers().get(AUTHORIZATION).and_then(|v| v.to_str().ok());
                match access.decide(header).await {
                    Decision::Allowed => {}
                    Decision::Unauthenticated => {
                        let mut response = status(StatusCode::UNAUTHORIZED);
                        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                        return response;
                    }
                    Decision::Forbidden => return status(StatusCode::FORBIDDEN),
                    Decision::Unknown => return status(StatusCode::SERVICE_UNAVAILABLE),
                }
            }
            let mut text = String::new();
            if prometheus_client::encoding::text::encode(&mut text, &content.registry).is_err() {
                return status(StatusCode::INTERNAL_SERVER_ERROR);
            }
            let mut response = Response::new(Full::new(Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            response
        }
        _ => status(StatusCode::NOT_FOUND),
    }
}

#[cfg(test)]
mod tests;
