//! Which request gets which answer. Every request passes the access check first.
//!
//! What it is not: who may pass (see `local_access` and `cluster_access`), and what is answered.

use crate::access::cluster_access::{ClusterAccess, Expiry, Visitor};
use crate::access::local_access::{LocalAccess, Refusal};
use crate::answers::{details, forecast, installation, page_actions, rollouts, stream};
use crate::body::{self, in_time};
use crate::response;
use crate::response::Text;
use crate::serving::page;
use crate::shared::{AccessMode, Peer, Shared};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{get, post};
use http::header::{HeaderValue, SET_COOKIE};
use http::{Method, StatusCode};
use std::time::Instant;

/// All routes.
pub(crate) fn router(shared: Shared) -> Router {
    let base = shared.access_mode.base();
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
        .route(&at("actions"), post(page_actions::action).layer(DefaultBodyLimit::max(body::LARGEST_ACTION)))
        .route(&at("check"), post(page_actions::check))
        .route(&at("session"), get(session))
        .fallback(files)
        .layer(from_fn_with_state(shared.clone(), guarded))
        .with_state(shared)
}

/// The access check, and the headers that every answer has.
async fn guarded(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let request = request.map(in_time);
    let mut response = match &shared.access_mode {
        AccessMode::Local(access) => check_local_access(&shared.access_mode, access, request, next).await,
        AccessMode::Cluster(access) => check_cluster_access(&shared, access, request, next).await,
    };
    response::harden(response.headers_mut());
    response
}

async fn check_local_access(
    access_mode: &AccessMode,
    access: &LocalAccess,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let is_page = access_mode.path_below_prefix(&parts) == Some("/");
    let refused = |Refusal(status, why)| match is_page || parts.uri.path() == "/" {
        true => response::refused_page(status, why),
        false => response::refused(status, why),
    };
    if let Err(refusal) = access.is_for_us(&parts) {
        return refused(refusal);
    }
    let now = Instant::now();
    let token = parts.uri.query().and_then(|q| q.strip_prefix("token=")).filter(|_| is_page);
    if let Some(token) = token.filter(|_| parts.method == Method::GET) {
        return match access.exchange(token, now) {
            Ok(cookie) => welcome(&cookie),
            // A page that is opened again by its old address.
            Err(_) if access.admit(&parts, now).is_ok() => welcome(""),
            Err(refusal) => refused(refusal),
        };
    }
    match access.admit(&parts, now) {
        Ok(session) => {
            parts.extensions.insert(session);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(refusal) => refused(refusal),
    }
}

/// The way in where the dashboard runs in the cluster. Without a right to the fleet nothing is given, not even the page.
async fn check_cluster_access(
    shared: &Shared,
    access: &ClusterAccess,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let reads = [Method::GET, Method::HEAD].contains(&parts.method);
    // A kubelet's probes come by the pod's address.
    match parts.uri.path() {
        "/healthz" if reads => return response::of(StatusCode::OK, "text/plain", "ok"),
        "/readyz" if reads => {
            let (status, word) = match shared.feed.has_begun() {
                true => (StatusCode::OK, "ok"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "the cluster has not been read yet; try again"),
            };
            return response::of(status, "text/plain", word);
        }
        _ => {}
    }
    let is_page = parts.uri.path() == "/";
    let refused = |Refusal(status, why)| match is_page {
        true => response::refused_page(status, why),
        false => response::refused(status, why),
    };
    if let Err(refusal) = access.is_for_us(&parts) {
        return refused(refusal);
    }
    if parts.uri.path() == "/api/session" && parts.method == Method::POST {
        return sign_in(access, body).await;
    }
    // It needs no right: who has lost it must be able to sign out, too.
    if parts.uri.path() == "/api/session" && parts.method == Method::DELETE {
        return with_cookie(response::plain(&serde_json::json!({})), &access.sign_out(&parts.headers));
    }
    if let Some(asset) = page::sign_in_asset(parts.uri.path()).filter(|_| reads) {
        return response::of(StatusCode::OK, asset.content_type, asset.text);
    }
    let Some(Peer(from)) = parts.extensions.get::<Peer>().copied() else {
        return response::failed(StatusCode::INTERNAL_SERVER_ERROR, "the sender's address is not known");
    };
    match access.admit(&parts, from, tokio::time::Instant::now()).await {
        Ok(visitor) => {
            parts.extensions.insert(visitor);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(Refusal(StatusCode::UNAUTHORIZED, _)) if is_page && reads => {
            let page = page::SIGN_IN;
            response::of(StatusCode::UNAUTHORIZED, page.content_type, page.text)
        }
        // Somebody else can sign in; where a proxy says who it is, that would change nothing.
        Err(Refusal(StatusCode::FORBIDDEN, why))
            if is_page && reads && access.has_session(&parts.headers, from, tokio::time::Instant::now()) =>
        {
            response::of(StatusCode::FORBIDDEN, page::SIGN_IN.content_type, page::sign_in_again(why))
        }
        Err(refusal) => refused(refusal),
    }
}

/// Takes a token for a cookie.
async fn sign_in(access: &ClusterAccess, body: Body) -> Response {
    #[derive(serde::Deserialize)]
    struct Given {
        token: String,
    }
    let what = "send the token as JSON: {\"token\": \"TOKEN\"}";
    let given = match body::read(body, body::LARGEST_ACTION).await {
        Ok(bytes) => serde_json::from_slice::<Given>(&bytes).map_err(|_| StatusCode::BAD_REQUEST),
        Err(status) => Err(status),
    };
    let given = match given {
        Ok(given) => given,
        Err(status) => return response::refused(status, what),
    };
    match access.sign_in(&given.token, tokio::time::Instant::now()).await {
        Ok(cookie) => with_cookie(response::plain(&serde_json::json!({})), &cookie),
        Err(Refusal(StatusCode::UNAUTHORIZED, _)) => response::refused(
            StatusCode::UNAUTHORIZED,
            "the API server does not know this token, or it has expired",
        ),
        Err(Refusal(status, why)) => response::refused(status, why),
    }
}

/// Gives the cookie, and goes on to the page. No redirect: a browser that came from another program's link would not send
/// a cookie that is `SameSite=Strict` along with that.
fn welcome(cookie: &str) -> Response {
    // Without the link, browsers ask for an icon at the server's root.
    const GO: &str = "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"icon.svg\">\
                      <meta http-equiv=\"refresh\" content=\"0;url=./\"><title>mco</title>";
    with_cookie(response::of(StatusCode::OK, "text/html; charset=utf-8", GO), cookie)
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
    let known = shared.access_mode.path_below_prefix(&request).and_then(page::asset);
    match known.filter(|_| [Method::GET, Method::HEAD].contains(&request.method)) {
        Some(asset) => response::of(StatusCode::OK, asset.content_type, asset.text),
        None => response::failed(StatusCode::NOT_FOUND, "there is no such page"),
    }
}

/// Who looks, and whether there is a session that can be ended from the page.
async fn session(request: Request) -> Response {
    let visitor = request.extensions().get::<Visitor>();
    let user = visitor.map(|visitor| &visitor.person.name);
    let can_end = visitor.is_some_and(|visitor| matches!(visitor.ends, Expiry::WithSession(_)));
    response::plain(&serde_json::json!({"user": user, "canSignOut": can_end}))
}

async fn snapshot(State(shared): State<Shared>) -> Response {
    let whole = shared.feed.full_state();
    response::of(StatusCode::OK, "application/json", Bytes::from_owner(Text(whole)))
}

#[cfg(test)]
pub(crate) mod tests;
