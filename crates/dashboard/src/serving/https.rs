//! HTTPS for the dashboard in the cluster: connections, their limits, and their end.
//!
//! What it is not: what is answered (see `routes`), and the certificate (see `listen::tls`).

use crate::LAST_ANSWERS;
use crate::shared::Peer;
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use listen::tls::Tls;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

/// The bounds of what is open at the same time.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Concurrent connections. A browser holds up to six, one of them for the stream.
    connections: usize,
    /// After this time a connection is asked to end: one whose other side reads nothing any more would stay for ever.
    /// A browser opens another one, and its stream goes on where it was.
    lifetime: Duration,
    /// How long an answer under way may then go on: a little longer than the page waits for one.
    last_answer: Duration,
}

const LIMITS: Limits = Limits {
    connections: 512,
    lifetime: Duration::from_secs(60 * 60),
    last_answer: Duration::from_secs(100),
};
/// The timeout for a TLS handshake, and for a request's head. That for a body is in `routes`.
const HEAD: Duration = Duration::from_secs(10);
/// The wait after a connection could not be accepted: usually the process is out of file descriptors, which passes.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// Serves until `stop`, and then for [`LAST_ANSWERS`] at most.
pub(crate) async fn serve(listener: TcpListener, tls: &Tls, app: Router, stop: &CancellationToken) {
    serve_within(LIMITS, listener, tls, app, stop).await;
}

async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    tls: &Tls,
    app: Router,
    stop: &CancellationToken,
) {
    let tracker = TaskTracker::new();
    tokio::join!(accept(limits, listener, tls, &app, &tracker, stop), tls.follow_certificate(stop.clone()));
    tracker.close();
    let _ = tokio::time::timeout(LAST_ANSWERS, tracker.wait()).await;
}

async fn accept(
    limits: Limits,
    listener: TcpListener,
    tls: &Tls,
    app: &Router,
    tracker: &TaskTracker,
    stop: &CancellationToken,
) {
    let slots: Arc<Mutex<ConnectionSlots>> = Arc::default();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, from) = match accepted {
            Ok((stream, from)) => (stream, from.ip().to_canonical()),
            Err(error) => {
                tracing::warn!("no connection can be accepted: {error}");
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(ACCEPT_AGAIN) => continue,
                }
            }
        };
        let slot = ConnectionSlot::take(&slots, from, limits.connections);
        let (acceptor, app, stop) = (tls.acceptor(), app.clone(), stop.clone());
        tracker.spawn(async move {
            let shaken = tokio::select! {
                () = stop.cancelled() => return,
                () = slot.lost.cancelled() => return,
                shaken = tokio::time::timeout(HEAD, acceptor.accept(stream)) => shaken,
            };
            let stream = match shaken {
                Ok(Ok(stream)) => TokioIo::new(stream),
                Ok(Err(error)) => return tracing::debug!("TLS: {error}"),
                Err(_) => {
                    return tracing::debug!("a TLS handshake took more than {} s", HEAD.as_secs());
                }
            };
            tokio::select! {
                () = slot.lost.cancelled() => {}
                () = connection(stream, from, app, limits, &stop) => {}
            }
        });
    }
}

/// The open connections of each address, by their order. Whoever comes is let in, so that one client cannot keep the others
/// and the kubelet's probes out: where all places are taken, the address that has most of them loses its oldest. There is no
/// bound for each address, because everybody who comes through the same ingress has the same.
#[derive(Debug, Default)]
struct ConnectionSlots {
    next: u64,
    of: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

impl ConnectionSlots {
    fn count(&self) -> usize {
        self.of.values().map(BTreeMap::len).sum()
    }

    fn remove(&mut self, address: IpAddr, number: u64) {
        if let Entry::Occupied(mut held) = self.of.entry(address) {
            held.get_mut().remove(&number);
            if held.get().is_empty() {
                held.remove();
            }
        }
    }
}

/// The place of one connection. It is free again when this is dropped.
struct ConnectionSlot {
    slots: Arc<Mutex<ConnectionSlots>>,
    address: IpAddr,
    number: u64,
    /// Somebody else has the place now: the connection must end.
    lost: CancellationToken,
}

impl ConnectionSlot {
    fn take(slots: &Arc<Mutex<ConnectionSlots>>, address: IpAddr, most: usize) -> Self {
        let mut all = slots.lock().unwrap_or_else(PoisonError::into_inner);
        if all.count() >= most {
            let greediest = all.of.iter().max_by_key(|(_, held)| held.len());
            let oldest = greediest.and_then(|(address, held)| Some((*address, held.first_key_value()?)));
            if let Some((address, (number, lost))) = oldest.map(|(a, (n, lost))| (a, (*n, lost.clone()))) {
                tracing::debug!(%address, "all connections are taken: the oldest of this address ends");
                lost.cancel();
                all.remove(address, number);
            }
        }
        let (number, lost) = (all.next, CancellationToken::new());
        all.next += 1;
        all.of.entry(address).or_default().insert(number, lost.clone());
        Self { slots: Arc::clone(slots), address, number, lost }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(self.address, self.number);
    }
}

async fn connection(
    stream: TokioIo<impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>,
    from: IpAddr,
    app: Router,
    limits: Limits,
    stop: &CancellationToken,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(from));
        app.clone().oneshot(request)
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let mut running = std::pin::pin!(builder.serve_connection(stream, service));
    tokio::select! {
        _ = running.as_mut() => return,
        () = stop.cancelled() => {}
        () = tokio::time::sleep(limits.lifetime) => {}
    }
    running.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(limits.last_answer, running).await;
}

#[cfg(test)]
mod tests;
