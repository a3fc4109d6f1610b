//! The answers' form: the headers that every one of them has, JSON, and errors as JSON.
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc9110> and <https://www.w3.org/TR/CSP3/>.

use axum::body::Body;
use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

/// What is said of a name that no object can have.
pub(crate) const INVALID_NAME: &str = "this cannot be the name of an object";

/// Nothing but our own scripts, styles and answers; no frames, no forms, no text that becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// What every answer says, whatever else it is.
const ALWAYS: [(HeaderName, &str); 8] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_FRAME_OPTIONS, "DENY"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];

/// Adds what every answer says.
pub(crate) fn harden(headers: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// An answer of this type.
pub(crate) fn of(status: StatusCode, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A shared text as bytes.
pub(crate) struct Text(pub(crate) Arc<str>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// A value as JSON, with every text in it masked: contents of configs are masked before that by what differs, and this is
/// the last look at reasons, events and conditions, which are written by many.
pub(crate) fn masked(mut value: Value) -> Response {
    mask(&mut value);
    plain(&value)
}

/// A value as JSON, as it is: every text of others in it was masked before.
pub(crate) fn plain(value: &Value) -> Response {
    of(StatusCode::OK, "application/json", value.to_string())
}

/// Masks every text in a value.
pub(crate) fn mask(value: &mut Value) {
    match value {
        Value::String(text) if !text.is_empty() => *text = insight::redacted_lines(text),
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Object(fields) => fields.values_mut().for_each(mask),
        _ => {}
    }
}

/// An error in words that can be shown. If its own would be hidden, what the API server said to a request that it refused is left
/// out: it names who asked, and the names of some people look like a user and a password.
pub(crate) fn shown_error(error: &(dyn std::error::Error + 'static)) -> String {
    let words = client::chain(error);
    match insight::redacted_lines(&words) == words {
        true => words,
        false => client::chain_without_refusal(error),
    }
}

/// A failure in words. They are masked as everything that is shown.
pub(crate) fn failed(status: StatusCode, why: &str) -> Response {
    of(status, "application/json", json!({"error": insight::redacted_lines(why)}).to_string())
}

/// A refusal in words of this program's own, with names of objects in them. A name is shown whatever it looks like.
pub(crate) fn refused_with_names(status: StatusCode, why: &str) -> Response {
    of(status, "application/json", json!({"error": why}).to_string())
}

/// A refusal in words of this program's own. They hold nothing of the cluster, so nothing in them is hidden.
pub(crate) fn refused(status: StatusCode, why: &'static str) -> Response {
    of(status, "application/json", json!({"error": why}).to_string())
}

/// A refusal as a page, for a person whose browser came here by an address. It loads nothing.
pub(crate) fn refused_page(status: StatusCode, why: &str) -> Response {
    let safe = why.replace('&', "&amp;").replace('<', "&lt;");
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>mco dashboard</title>\
         <h1>mco dashboard</h1><p>{safe}.</p></html>"
    );
    of(status, "text/html; charset=utf-8", page)
}
