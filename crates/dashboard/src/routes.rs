//! Which request gets which answer. Every one passes the gate first.
//!
//! What it is not: who may pass (see `gate`), and what is answered.

use crate::cluster_gate::{ClusterGate, Ends, Visitor};
use crate::feed::Feed;
use crate::gate::{Gate, Refusal};
use crate::node_events::NodeEvents;
use crate::timeline::Timeline;
use crate::{answer, details, forecast, installation, page, page_actions, rollouts, stream};
use api::v1::ControllerConfig;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use futures::StreamExt as _;
use futures::stream::try_unfold;
use http::header::{HeaderValue, SET_COOKIE};
use http::request::Parts;
use http::{Method, StatusCode};
use kube::Client;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// How long a request's body may take to come.
pub(crate) const BODY: Duration = Duration::from_secs(10);
/// Who lets people in.
#[derive(Clone)]
pub(crate) enum Door {
    /// One person on this computer.
    Local(Arc<Gate>),
    /// Whoever the cluster knows.
    Cluster(Arc<ClusterGate>),
}

impl Door {
    /// The path below which everything lies, without a slash at its end.
    fn base(&self) -> &str {
        match self {
            Self::Local(gate) => gate.base(),
            Self::Cluster(_) => "",
        }
    }

    /// A request's path below that; `None`: it lies elsewhere.
    fn within<'a>(&self, request: &'a Parts) -> Option<&'a str> {
        request.uri.path().strip_prefix(self.base())
    }
}

/// From where a request came, where it came over the network.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// What the answers are made from.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) door: Door,
    pub(crate) feed: Arc<Feed>,
    pub(crate) timeline: Arc<Mutex<Timeline>>,
    pub(crate) events: Arc<NodeEvents>,
    /// Of the person on this computer; in the cluster one with which nothing may be asked, see [`Here`].
    pub(crate) client: Client,
    pub(crate) controller_config: Arc<ControllerConfig>,
    /// Places for looks at pasted manifests, [`page_actions::CHECKS`] of them.
    pub(crate) checks: Arc<Semaphore>,
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// The largest pasted text that is looked at, in bytes.
    pub(crate) fn largest_check(&self) -> usize {
        match &self.door {
            Door::Local(_) => page_actions::LARGEST,
            Door::Cluster(_) => page_actions::LARGEST_IN_CLUSTER,
        }
    }
}

/// [`Shared`] with the client of the person who asks.
pub(crate) struct Here(pub(crate) Shared);

impl FromRequestParts<Shared> for Here {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Infallible> {
        let mut shared = shared.clone();
        if let (Some(visitor), Door::Cluster(gate)) = (parts.extensions.get::<Visitor>(), &shared.door) {
            shared.client = gate.client_of(Arc::clone(&visitor.person));
        }
        Ok(Self(shared))
    }
}

/// All routes.
pub(crate) fn router(shared: Shared) -> Router {
    let base = shared.door.base();
    let at = |path: &str| format!("{base}/api/{path}");
    Router::new()
        .route(&at("snapshot"), get(snapshot))
        .route(&at("events"), get(stream::events))
        .route(&at("rollouts"), get(rollouts::all))
        .route(&at("rollouts/{pool}/{config}"), get(rollouts::one))
        .route(&at("nodes/{name}"), get(details::node))
        .route(&at("pools/{name}"), get(details::pool))
        .route(&at("pools/{name}/plan"), get(forecast::pool))
        .route(&at("configs"), get(details::configs))
        .route(&at("configs/{name}"), get(details::config))
        .route(&at("compare/{from}/{to}"), get(details::compare))
        .route(&at("images"), get(details::images))
        .route(&at("trust"), get(details::trust))
        .route(&at("operator"), get(installation::operator))
        .route(
            &at("actions"),
            post(page_actions::action).layer(DefaultBodyLimit::max(page_actions::LARGEST_ACTION)),
        )
        .route(&at("check"), post(page_actions::check))
        .route(&at("session"), get(session))
        .fallback(files)
        .layer(from_fn_with_state(shared.clone(), guarded))
        .with_state(shared)
}

/// The gate, and the headers that every answer has.
async fn guarded(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let request = request.map(in_time);
    let mut response = match &shared.door {
        Door::Local(gate) => pass(&shared.door, gate, request, next).await,
        Door::Cluster(gate) => enter(&shared, gate, request, next).await,
    };
    answer::harden(response.headers_mut());
    response
}

/// A body that fails unless all of it comes within [`BODY`].
fn in_time(body: Body) -> Body {
    let end = tokio::time::Instant::now() + BODY;
    Body::from_stream(try_unfold(body.into_data_stream(), move |mut body| async move {
        match tokio::time::timeout_at(end, body.next()).await {
            Ok(next) => next.transpose().map(|next| next.map(|bytes| (bytes, body))),
            Err(_) => Err(axum::Error::new(TooSlow)),
        }
    }))
}

/// A body did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the request did not come within {} seconds", BODY.as_secs())]
pub(crate) struct TooSlow;

/// Reads a body of at most this many bytes. One that is longer is read to its end all the same, within its time, and thrown away:
/// a browser that is cut off while it sends does not read the answer that says why.
///
/// # Errors
/// The status that says what is wrong with it.
pub(crate) async fn read(body: Body, most: usize) -> Result<Bytes, StatusCode> {
    let (mut parts, mut all, mut fits) = (body.into_data_stream(), vec![], true);
    while let Some(part) = parts.next().await {
        match part {
            Ok(part) if fits && all.len() + part.len() <= most => all.extend_from_slice(&part),
            Ok(_) => (all, fits) = (vec![], false),
            Err(_) if !fits => break,
            Err(error) => {
                let mut causes =
                    std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source());
                return Err(match causes.any(|e| e.is::<TooSlow>()) {
                    true => StatusCode::REQUEST_TIMEOUT,
                    false => StatusCode::BAD_REQUEST,
                });
            }
        }
    }
    if fits { Ok(all.into()) } else { Err(StatusCode::PAYLOAD_TOO_LARGE) }
}

async fn pass(door: &Door, gate: &Gate, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let is_page = door.within(&parts) == Some("/");
    let refused = |Refusal(status, why)| match is_page || parts.uri.path() == "/" {
        true => answer::refused_page(status, why),
        false => answer::refused(status, why),
    };
    if let Err(refusal) = gate.is_for_us(&parts) {
        return refused(refusal);
    }
    let now = Instant::now();
    let token = parts.uri.query().and_then(|q| q.strip_prefix("token=")).filter(|_| is_page);
    if let Some(token) = token.filter(|_| parts.method == Method::GET) {
        return match gate.exchange(token, now) {
            Ok(cookie) => welcome(&cookie),
            // A page that is opened again by its old address.
            Err(_) if gate.admit(&parts, now).is_ok() => welcome(""),
            Err(refusal) => refused(refusal),
        };
    }
    match gate.admit(&parts, now) {
        Ok(session) => {
            parts.extensions.insert(session);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refusal) => refused(refusal),
    }
}

/// The way in where the dashboard runs in the cluster. Without a right to the fleet nothing is given, not even the page.
async fn enter(shared: &Shared, gate: &ClusterGate, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    let reads = [Method::GET, Method::HEAD].contains(&parts.method);
    // A kubelet's probes come by the pod's address.
    match parts.uri.path() {
        "/healthz" if reads => return answer::of(StatusCode::OK, "text/plain", "ok"),
        "/readyz" if reads => {
            let (status, word) = match shared.feed.has_begun() {
                true => (StatusCode::OK, "ok"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "the cluster was not read yet"),
            };
            return answer::of(status, "text/plain", word);
        }
        _ => {}
    }
    let is_page = parts.uri.path() == "/";
    let refused = |Refusal(status, why)| match is_page {
        true => answer::refused_page(status, why),
        false => answer::refused(status, why),
    };
    if let Err(refusal) = gate.is_for_us(&parts) {
        return refused(refusal);
    }
    if parts.uri.path() == "/api/session" && parts.method == Method::POST {
        return sign_in(gate, body).await;
    }
    // It needs no right: who has lost it must be able to sign out, too.
    if parts.uri.path() == "/api/session" && parts.method == Method::DELETE {
        return with_cookie(answer::plain(&serde_json::json!({})), &gate.sign_out(&parts.headers));
    }
    if let Some(asset) = page::sign_in_asset(parts.uri.path()).filter(|_| reads) {
        return answer::of(StatusCode::OK, asset.content_type, asset.text);
    }
    let Some(Peer(from)) = parts.extensions.get::<Peer>().copied() else {
        return answer::failed(StatusCode::INTERNAL_SERVER_ERROR, "the sender's address is not known");
    };
    match gate.admit(&parts, from, tokio::time::Instant::now()).await {
        Ok(visitor) => {
            parts.extensions.insert(visitor);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(Refusal(StatusCode::UNAUTHORIZED, _)) if is_page && reads => {
            let page = page::SIGN_IN;
            answer::of(StatusCode::UNAUTHORIZED, page.content_type, page.text)
        }
        // Somebody else can sign in; where a proxy says who it is, that would change nothing.
        Err(Refusal(StatusCode::FORBIDDEN, why))
            if is_page && reads && gate.has_session(&parts.headers, from, tokio::time::Instant::now()) =>
        {
            answer::of(StatusCode::FORBIDDEN, page::SIGN_IN.content_type, page::sign_in_again(why))
        }
        Err(refusal) => refused(refusal),
    }
}

/// Takes a token for a cookie.
async fn sign_in(gate: &ClusterGate, body: Body) -> Response {
    #[derive(serde::Deserialize)]
    struct Given {
        token: String,
    }
    let what = "a sign-in is a short text with a token";
    let given = match read(body, page_actions::LARGEST_ACTION).await {
        Ok(bytes) => serde_json::from_slice::<Given>(&bytes).map_err(|_| StatusCode::BAD_REQUEST),
        Err(status) => Err(status),
    };
    let given = match given {
        Ok(given) => given,
        Err(status) => return answer::refused(status, what),
    };
    match gate.sign_in(&given.token, tokio::time::Instant::now()).await {
        Ok(cookie) => with_cookie(answer::plain(&serde_json::json!({})), &cookie),
        Err(Refusal(StatusCode::UNAUTHORIZED, _)) => answer::refused(
            StatusCode::UNAUTHORIZED,
            "the API server does not know this token, or it has ended",
        ),
        Err(Refusal(status, why)) => answer::refused(status, why),
    }
}

/// Gives the cookie, and goes on to the page. No redirect: a browser that came from another program's link would not send
/// a cookie that is `SameSite=Strict` along with that.
fn welcome(cookie: &str) -> Response {
    // Without the link, browsers ask for an icon at the server's root.
    const GO: &str = "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"icon.svg\">\
                      <meta http-equiv=\"refresh\" content=\"0;url=./\"><title>mco</title>";
    with_cookie(answer::of(StatusCode::OK, "text/html; charset=utf-8", GO), cookie)
}

/// An answer that sets a cookie, unless that is empty.
fn with_cookie(mut response: Response, cookie: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(cookie)
        && !cookie.is_empty()
    {
        response.headers_mut().insert(SET_COOKIE, value);
    }
    response
}

async fn files(State(shared): State<Shared>, request: Request) -> Response {
    let (request, _) = request.into_parts();
    let known = shared.door.within(&request).and_then(page::asset);
    match known.filter(|_| [Method::GET, Method::HEAD].contains(&request.method)) {
        Some(asset) => answer::of(StatusCode::OK, asset.content_type, asset.text),
        None => answer::failed(StatusCode::NOT_FOUND, "there is no such page"),
    }
}

/// Who looks, and whether there is a session that can be ended from the page.
async fn session(request: Request) -> Response {
    let visitor = request.extensions().get::<Visitor>();
    let user = visitor.map(|visitor| &visitor.person.name);
    let can_end = visitor.is_some_and(|visitor| matches!(visitor.ends, Ends::With(_)));
    answer::plain(&serde_json::json!({"user": user, "canSignOut": can_end}))
}

async fn snapshot(State(shared): State<Shared>) -> Response {
    let whole = shared.feed.whole();
    answer::of(StatusCode::OK, "application/json", Bytes::from_owner(Text(whole)))
}

/// A shared text as bytes.
pub(crate) struct Text(pub(crate) Arc<str>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
#[path = "routes_tests.rs"]
pub(crate) mod tests;
