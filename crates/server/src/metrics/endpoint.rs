//! `/metrics`, and the full `/healthz` and `/readyz`, on an address of their own. Metrics name pools and describe the
//! certificate, which the network that machines boot on need not know.
//!
//! What it is not: TLS. The default address is loopback.

use crate::answer::respond::{Shared, health};
use http::{HeaderValue, Method, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Concurrent connections. A scraper needs one.
const CONNECTIONS: usize = 16;
/// The timeout for a request's head, and for the next request.
const HEAD: Duration = Duration::from_secs(60);
/// How long running answers may take after `stop`.
const GRACE: Duration = Duration::from_secs(1);
/// The content type of the metrics.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Which metrics are served, and where.
#[derive(Debug, Clone)]
pub struct Scrape {
    /// The address. If it is taken, an error is logged, and machines are served all the same.
    pub address: SocketAddr,
    /// The registry that [`crate::Metrics::new`] was given.
    pub registry: Arc<Registry>,
}

/// Serves until `stop`.
pub(crate) async fn serve(scrape: Scrape, shared: Arc<Shared>, stop: CancellationToken) {
    let Scrape { address, registry } = scrape;
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!("no metrics are served at {address} (--metrics-listen): {error}");
            return;
        }
    };
    let (tracker, slots) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let next = async { (Arc::clone(&slots).acquire_owned().await, listener.accept().await) };
        let (slot, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            next = next => next,
        };
        let Ok((stream, _)) = accepted else { continue };
        let (registry, shared, stop) = (Arc::clone(&registry), Arc::clone(&shared), stop.clone());
        tracker.spawn(async move {
            let service = service_fn(|request: hyper::Request<Incoming>| {
                let answer = answer(&registry, &shared, request.method(), request.uri().path());
                async { Ok::<_, Infallible>(answer) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
            let mut running = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
            tokio::select! {
                _ = running.as_mut() => {}
                () = stop.cancelled() => {
                    running.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(GRACE, running).await;
                }
            }
            drop(slot);
        });
    }
    tracker.close();
    tracker.wait().await;
}

fn answer(registry: &Registry, shared: &Shared, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let status = |status: StatusCode| {
        let mut response = Response::new(Full::new(Bytes::new()));
        *response.status_mut() = status;
        response
    };
    match (method, path) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            let mut text = String::new();
            if prometheus_client::encoding::text::encode(&mut text, registry).is_err() {
                return status(StatusCode::INTERNAL_SERVER_ERROR);
            }
            let mut response = Response::new(Full::new(Bytes::from(text)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            response
        }
        (&Method::GET | &Method::HEAD, path) => {
            health(shared, path).unwrap_or_else(|| status(StatusCode::NOT_FOUND))
        }
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}
