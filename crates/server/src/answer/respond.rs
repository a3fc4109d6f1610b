//! From one request to one response. [`ask`] decides what is asked for, as a pure function of the request's head; the
//! rest is a look-up.
//!
//! The access log has the pool, version, status, size and client of each request, and never a body.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc9110>.

use crate::answer::accept_header::{negotiate, takes_gzip};
use crate::answer::boot_tokens::{Admission, BootTokens};
use crate::answer::route::{Route, route};
use crate::metrics::{Metrics, Pool, Request as RequestLabels};
use crate::prepared::cache::PreparedConfigs;
use crate::prepared::unpacked::{Reply, UnpackedCache};
use crate::refusal::Refusal;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH,
    CONTENT_TYPE, ETAG, IF_NONE_MATCH, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT, VARY, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use ignition::Version;
use jiff::Timestamp;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

/// The path of the liveness probe.
const HEALTHZ: &str = "/healthz";
/// The path of the readiness probe. On the metrics' address its body has the details.
const READYZ: &str = "/readyz";
/// The longest part of a header that is logged, in bytes.
const MAX_LOGGED: usize = 200;

/// The state that all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) configs: PreparedConfigs,
    pub(crate) metrics: Metrics,
    /// Present if a machine needs a boot token to get a config.
    pub(crate) boot_tokens: Option<BootTokens>,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Config { pool: String, version: Version, gzip: bool },
    Health { path: &'static str },
}

/// Reads a request's head.
pub(crate) fn parse_request(
    method: &Method,
    path: &str,
    headers: &HeaderMap,
) -> Result<RequestKind, Refusal> {
    // The path first: an unknown path has no methods.
    let route = route(path);
    if method != Method::GET && method != Method::HEAD {
        return Err(Refusal::Method);
    }
    let pool = match route? {
        Route::Healthz => return Ok(RequestKind::Health { path: HEALTHZ }),
        Route::Readyz => return Ok(RequestKind::Health { path: READYZ }),
        Route::Config { pool } => pool,
    };
    let has_length = headers.get(CONTENT_LENGTH).is_some_and(|l| l.as_bytes() != b"0");
    if has_length || headers.contains_key(TRANSFER_ENCODING) {
        return Err(Refusal::Body);
    }
    let version = negotiate(joined(headers, &ACCEPT).as_deref())?;
    Ok(RequestKind::Config { pool, version, gzip: takes_gzip(joined(headers, &ACCEPT_ENCODING).as_deref()) })
}

/// All values of a header, joined to one list.
fn joined(headers: &HeaderMap, name: &http::HeaderName) -> Option<Vec<u8>> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let first = values.next()?.to_vec();
    Some(values.fold(first, |mut all, next| {
        all.extend_from_slice(b",");
        all.extend_from_slice(next);
        all
    }))
}

/// Whether the client already has this version of the body (`If-None-Match`).
fn unchanged(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let Some(list) = joined(headers, &IF_NONE_MATCH) else { return false };
    let tags = list.split(|b| *b == b',').map(<[u8]>::trim_ascii);
    tags.map(|t| t.strip_prefix(b"W/").unwrap_or(t)).any(|t| t == b"*" || t == etag.as_bytes())
}

/// Answers a request, counts it and logs it. `secure`: it came over TLS.
pub(crate) async fn respond<B>(
    shared: &Shared,
    peer: SocketAddr,
    secure: bool,
    request: http::Request<B>,
) -> Response<Full<Bytes>> {
    let started = Instant::now();
    let (head, _body) = request.into_parts();
    let (pool, version, gzip) = match parse_request(&head.method, head.uri.path(), &head.headers) {
        Ok(RequestKind::Health { path }) => {
            // Anybody who reaches this port may ask, so it returns the status only. The metrics' address has the details.
            return health(shared, path)
                .map_or_else(|| empty(StatusCode::NOT_FOUND), |told| empty(told.status()));
        }
        Ok(RequestKind::Config { pool, version, gzip }) => (Some(pool), Ok(version), gzip),
        Err(refusal) => (None, Err(refusal), false),
    };
    let mut asked = RequestFacts::default();
    let outcome = match (&pool, &version) {
        (Some(pool), Ok(version)) => asked.answer(shared, peer, secure, &head, pool, *version, gzip).await,
        (_, Err(refusal)) => Err(refusal.clone()),
        (None, Ok(_)) => Err(Refusal::NoSuchPath),
    };
    if shared.boot_tokens.is_some() && pool.is_some() {
        shared.metrics.count_token(outcome.as_ref().err().filter(|r| r.is_about_token()));
    }
    let refusal = outcome.as_ref().err().map(Refusal::reason);
    let (response, bytes) = outcome.unwrap_or_else(|refusal| refused(&refusal));
    let code = response.status().as_u16();
    let written = if head.method == Method::HEAD { 0 } else { bytes };
    let known_pool = if asked.pool_exists { pool.unwrap_or_default() } else { String::new() };
    let version = version.map_or("", Version::as_str);
    if refusal.is_none() {
        let written = u64::try_from(written).unwrap_or(u64::MAX);
        shared.metrics.bytes.get_or_create(&Pool { pool: known_pool.clone() }).inc_by(written);
    }
    tracing::info!(
        %peer,
        method = %head.method,
        pool = known_pool,
        version,
        code,
        reason = refusal,
        bytes = written,
        micros = started.elapsed().as_micros(),
        token = asked.admission.as_ref().map(|p| p.id.as_str()),
        node = asked.admission.as_ref().and_then(|p| p.node.as_deref()),
        agent = logged(&head.headers, &USER_AGENT),
        accept = logged(&head.headers, &ACCEPT),
        "request"
    );
    let labels = RequestLabels { pool: known_pool, version, code: u32::from(code) };
    shared.metrics.requests.get_or_create(&labels).inc();
    response
}

/// What is known about a request for a config, for the log and metrics.
#[derive(Default)]
struct RequestFacts {
    /// Only names of existing pools become labels, and only if the machine may know them.
    pool_exists: bool,
    admission: Option<Admission>,
}

impl RequestFacts {
    /// The config, if the machine may have it.
    #[expect(clippy::too_many_arguments, reason = "what a request is; each is used once")]
    async fn answer(
        &mut self,
        shared: &Shared,
        peer: SocketAddr,
        secure: bool,
        head: &http::request::Parts,
        pool: &str,
        version: Version,
        gzip: bool,
    ) -> Result<(Response<Full<Bytes>>, usize), Refusal> {
        if let Some(boot_tokens) = &shared.boot_tokens {
            self.admission =
                Some(boot_tokens.check(&head.headers, pool, peer.ip(), secure, Timestamp::now())?);
        }
        let answers = shared.configs.pool(pool);
        self.pool_exists =
            !matches!(answers, Err(Refusal::UnknownPool { .. } | Refusal::NotAtBootstrap { .. }));
        let reply = answers?.get(version).await?;
        let (response, bytes) = config(&shared.configs.unpacked, &reply, gzip, &head.headers)
            .map_err(|e| Refusal::Broken { pool: pool.to_owned(), why: e.to_string() })?;
        // HEAD and an unchanged tag reveal nothing, so they do not use the token up.
        if let (Some(boot_tokens), Some(admission)) = (&shared.boot_tokens, &self.admission)
            && head.method == Method::GET
            && response.status() == StatusCode::OK
        {
            boot_tokens.record_use(admission, pool).await?;
        }
        Ok((response, bytes))
    }
}

/// A header for the log: shortened, and with everything but printable ASCII replaced.
fn logged(headers: &HeaderMap, name: &http::HeaderName) -> String {
    let bytes = headers.get(name).map(HeaderValue::as_bytes).unwrap_or_default();
    let plain = |b: &u8| if matches!(b, b' '..=b'~') { char::from(*b) } else { '?' };
    bytes.iter().take(MAX_LOGGED).map(plain).collect()
}

fn config(
    unpacked: &UnpackedCache,
    reply: &Arc<Reply>,
    gzip: bool,
    headers: &HeaderMap,
) -> std::io::Result<(Response<Full<Bytes>>, usize)> {
    let packed = reply.gzip.as_ref().filter(|_| gzip);
    let etag = packed.map_or(&reply.etag, |p| &p.etag);
    let (mut response, bytes) = if unchanged(headers, etag) {
        (empty(StatusCode::NOT_MODIFIED), 0)
    } else {
        let body = packed.map_or_else(|| unpacked.plain(reply), |p| Ok(p.body.clone()))?;
        let bytes = body.len();
        let mut full = Response::new(Full::new(body));
        full.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if packed.is_some() {
            full.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        (full, bytes)
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, etag.clone());
    headers.insert(VARY, HeaderValue::from_static("Accept, Accept-Encoding"));
    // Configs hold secrets: a cache must ask again before it uses a stored copy, and must not share it.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Ok((response, bytes))
}

fn refused(refusal: &Refusal) -> (Response<Full<Bytes>>, usize) {
    let body = Bytes::from(refusal.body().to_string());
    let bytes = body.len();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = refusal.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(after) = refusal.retry_after() {
        headers.insert(RETRY_AFTER, HeaderValue::from(after.as_secs()));
    }
    match refusal {
        Refusal::Method => {
            headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        Refusal::Body => {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Refusal::NoToken | Refusal::Token { known: false, .. } => {
            headers
                .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"machine-config-server\""));
        }
        _ => {}
    }
    (response, bytes)
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// The full answer at a health path, with pools, configs and causes. Only the metrics' address returns its body. `None`:
/// another path.
pub(crate) fn health(shared: &Shared, path: &str) -> Option<Response<Full<Bytes>>> {
    match path {
        HEALTHZ => return Some(empty(StatusCode::OK)),
        READYZ => {}
        _ => return None,
    }
    let (ready, told) = shared.configs.now().readiness(SystemTime::now());
    let mut response = Response::new(Full::new(Bytes::from(told.to_string())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Some(response)
}

#[cfg(test)]
mod tests;
