//! An HTTP proxy in front of the API server that parses requests. It can refuse them, delay them, lose their answers
//! and expire watches. It simulates faults of a server; [`crate::FaultProxy`] simulates faults of a network.
//!
//! It listens on the loopback address without TLS and forwards requests with the administrator's rights in the
//! throw-away cluster. [`ApiProxy::kubeconfig`] is for programs that should use the proxy.
//!
//! Not here: which fault to inject. The test passes a closure for that.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::control_plane::{ControlPlane, upstream};
use crate::error::{Error, Result};
use crate::system::process::lock;

/// What the proxy does with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Forwards it.
    Pass,
    /// Forwards it after this time.
    Late(Duration),
    /// Answers with this HTTP status code and this reason. The API server never sees the request.
    Refuse(u16, &'static str),
    /// Forwards it, and closes the connection instead of answering.
    LoseAnswer,
    /// Never answers, and does not forward it.
    Swallow,
    /// Never answers, and forwards it when [`ApiProxy::deliver_held`] is called, even if its sender is gone by then.
    HoldBack,
}

/// What a rule may look at in a request.
#[derive(Debug)]
pub struct Call<'a> {
    /// The HTTP method.
    pub method: &'a Method,
    /// The path, without the query.
    pub path: &'a str,
    /// The query, or nothing.
    pub query: &'a str,
    /// Whether it asks for metadata only.
    pub metadata_only: bool,
}

impl Call<'_> {
    /// Whether it asks for a watch.
    #[must_use]
    pub fn is_watch(&self) -> bool {
        self.query.split('&').any(|part| matches!(part, "watch=1" | "watch=true"))
    }

    /// Whether it changes something.
    #[must_use]
    pub fn is_write(&self) -> bool {
        *self.method != Method::GET && *self.method != Method::HEAD
    }

    /// Whether it is about a Lease.
    #[must_use]
    pub fn is_lease(&self) -> bool {
        self.path.contains("/leases")
    }
}

type Rule = Arc<dyn Fn(&Call<'_>) -> Verdict + Send + Sync>;

/// Signals to open connections: counters that only increase.
#[derive(Debug, Clone, Copy, Default)]
struct Told {
    cut: u64,
    expired: u64,
}

struct Shared {
    client: Client,
    rule: Mutex<Rule>,
    told: watch::Receiver<Told>,
    hit: AtomicU64,
    astray: Mutex<Vec<Request<Body>>>,
}

/// A running proxy. Dropping it closes all connections.
pub struct ApiProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    told: watch::Sender<Told>,
    task: JoinHandle<()>,
}

impl std::fmt::Debug for ApiProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiProxy").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ApiProxy {
    /// Listens on a free port of the loopback address, in front of this control plane. It belongs to the runtime that
    /// calls this.
    ///
    /// # Errors
    /// When it cannot listen, or the administrator's kubeconfig cannot be used.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let client = upstream(plane.kubeconfig()).await?;
        let failed = |source| Error::Io { step: "listen on", path: "127.0.0.1".into(), source };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (told, receiver) = watch::channel(Told::default());
        let rule: Rule = Arc::new(|_: &Call<'_>| Verdict::Pass);
        let shared = Arc::new(Shared {
            client,
            rule: Mutex::new(rule),
            told: receiver,
            hit: AtomicU64::new(0),
            astray: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, told, task })
    }

    /// A kubeconfig for a program that should use the proxy.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, plane: &ControlPlane, user: &str) -> Result<PathBuf> {
        plane.identity_via(user, &["system:masters"], &format!("http://{}", self.address))
    }

    /// Sets the rule for every request from now on. Open watches continue; see [`ApiProxy::cut`].
    pub fn set(&self, rule: impl Fn(&Call<'_>) -> Verdict + Send + Sync + 'static) {
        *lock(&self.shared.rule) = Arc::new(rule);
    }

    /// Forwards everything again.
    pub fn heal(&self) {
        self.set(|_| Verdict::Pass);
    }

    /// The number of requests since the last call that were not simply forwarded.
    pub fn hits(&self) -> u64 {
        self.shared.hit.swap(0, Ordering::Relaxed)
    }

    /// Forwards the requests that were held with [`Verdict::HoldBack`], in order. Returns the status codes of the API
    /// server's answers.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn deliver_held(&self) -> Result<Vec<u16>> {
        let astray = std::mem::take(&mut *lock(&self.shared.astray));
        let mut codes = vec![];
        for request in astray {
            let answer = self.shared.client.send(request).await;
            codes.push(answer.map_err(Error::kube("pass a request on".to_owned()))?.status().as_u16());
        }
        Ok(codes)
    }

    /// Closes every open connection once, including watches.
    pub fn cut(&self) {
        self.told.send_modify(|told| told.cut += 1);
    }

    /// Tells every open watch that its resource version is too old (410 Gone, as an event in the stream) and ends it.
    pub fn expire_watches(&self) {
        self.told.send_modify(|told| told.expired += 1);
    }
}

impl Drop for ApiProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, Arc::clone(&shared)));
                }
                Err(error) => {
                    tracing::debug!(%error, "API proxy: accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let mut told = shared.told.clone();
    let cut = told.borrow().cut;
    let serve = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { answer(&shared, request).await }
    });
    let _latency_only = stream.set_nodelay(true);
    let served = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), serve);
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!(%error, "API proxy: connection");
        },
        _ = told.wait_for(|told| told.cut != cut) => {}
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// Closes the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost on purpose")]
struct Lost;

async fn answer(shared: &Shared, request: Request<Incoming>) -> std::result::Result<Answer, Lost> {
    let call = Call {
        method: request.method(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        metadata_only: request
            .headers()
            .get(header::ACCEPT)
            .is_some_and(|accept| accept.to_str().is_ok_and(|a| a.contains("as=PartialObjectMetadata"))),
    };
    let watches = call.is_watch();
    let rule = Arc::clone(&*lock(&shared.rule));
    let verdict = rule(&call);
    if verdict != Verdict::Pass {
        shared.hit.fetch_add(1, Ordering::Relaxed);
    }
    match verdict {
        Verdict::Pass | Verdict::LoseAnswer => {}
        Verdict::Late(delay) => tokio::time::sleep(delay).await,
        Verdict::Swallow => std::future::pending().await,
        Verdict::HoldBack => {
            let request = whole(request).await.map_err(|_| Lost)?;
            lock(&shared.astray).push(request);
            return std::future::pending().await;
        }
        Verdict::Refuse(code, reason) => return Ok(refusal(code, reason)),
    }
    let mut told = shared.told.clone();
    told.mark_unchanged();
    let expired = told.borrow().expired;
    let passed = pass_on(&shared.client, request).await;
    if verdict == Verdict::LoseAnswer {
        return Err(Lost);
    }
    let (parts, body) = match passed {
        Ok(response) => response.into_parts(),
        // The API server cannot be reached: the proxy's client loses its connection, as it would without the proxy.
        Err(error) => {
            tracing::debug!(error = %client::chain(&error), "API proxy: upstream");
            return Err(Lost);
        }
    };
    let body = if watches { watched(body, told, expired) } else { body.boxed_unsync() };
    Ok(Response::from_parts(parts, body))
}

async fn pass_on(client: &Client, request: Request<Incoming>) -> Result<Response<Body>> {
    client.send(whole(request).await?).await.map_err(Error::kube("pass a request on".to_owned()))
}

/// The request with its whole body, as [`Client::send`] needs it.
async fn whole(request: Request<Incoming>) -> Result<Request<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| Error::Io {
        step: "read",
        path: "a request".into(),
        source: std::io::Error::other(error),
    })?;
    // The forwarding client sets its own.
    parts.headers.remove(header::HOST);
    parts.headers.remove(header::CONNECTION);
    Ok(Request::from_parts(parts, Body::from(body.to_bytes())))
}

fn refusal(code: u16, reason: &str) -> Answer {
    let status = gone(code, reason);
    let body = Full::new(Bytes::from(status.to_string())).map_err(never).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

fn gone(code: u16, reason: &str) -> serde_json::Value {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": format!("{reason}: the lab's proxy says so"),
    })
}

fn never(never: Infallible) -> kube::Error {
    match never {}
}

/// The stream of a watch, until the watch is expired. The error is sent between two events.
fn watched(body: Body, told: watch::Receiver<Told>, expired: u64) -> UnsyncBoxBody<Bytes, kube::Error> {
    let frames = BodyStream::new(body);
    let state = (frames, told, true, false);
    let stream = futures::stream::unfold(state, move |(mut frames, mut told, whole, over)| async move {
        if over {
            return None;
        }
        let frame = tokio::select! {
            biased;
            () = is_told(&mut told, expired), if whole => None,
            frame = frames.next() => Some(frame?),
        };
        let Some(frame) = frame else {
            let event = serde_json::json!({"type": "ERROR", "object": gone(410, "Expired")});
            let frame = Frame::data(Bytes::from(format!("{event}\n")));
            return Some((Ok(frame), (frames, told, true, true)));
        };
        let whole = frame.as_ref().is_ok_and(|f| f.data_ref().is_some_and(|data| data.ends_with(b"\n")));
        Some((frame, (frames, told, whole, false)))
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Waits for the next expiry. Never returns if the proxy is gone.
async fn is_told(told: &mut watch::Receiver<Told>, expired: u64) {
    if told.wait_for(|told| told.expired != expired).await.is_err() {
        std::future::pending::<()>().await;
    }
}
