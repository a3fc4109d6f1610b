//! From the request's path to what is asked for. Pure.
//!
//! The pool is the last element of the decoded path below `/config/`, as in the reference. It is only compared
//! with the names of pools and never used as a path, so dots and slashes reach nothing.
//!
//! Sources: <https://www.rfc-editor.org/rfc/rfc3986>
//! and <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/MachineConfigServer.md>.

use crate::refusal::Refusal;
use std::borrow::Cow;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A pool's config.
    Config {
        /// The pool's name, syntactically valid.
        pool: String,
    },
    /// The liveness probe.
    Healthz,
    /// The readiness probe.
    Readyz,
}

/// The longest name of a Kubernetes object.
const MAX_NAME: usize = 253;

/// Reads a request's path (without query).
///
/// # Errors
/// [`Refusal::NoSuchPath`] and [`Refusal::PoolName`].
pub fn route(path: &str) -> Result<Route, Refusal> {
    let clean = clean(path);
    let decoded = percent_decode(&clean).ok_or(Refusal::PoolName)?;
    match decoded.as_str() {
        "/healthz" => return Ok(Route::Healthz),
        "/readyz" => return Ok(Route::Readyz),
        _ => {}
    }
    // Elements are split before they are decoded: an escaped slash does not separate elements.
    let first = clean.strip_prefix('/').and_then(|path| Some(path.split_once('/')?.0));
    let is_config = first.and_then(percent_decode).is_some_and(|element| element == "config");
    let below = decoded.strip_prefix("/config/").filter(|_| is_config).ok_or(Refusal::NoSuchPath)?;
    let pool = below.rsplit('/').find(|part| !part.is_empty()).ok_or(Refusal::PoolName)?;
    if !valid_name(pool) {
        return Err(Refusal::PoolName);
    }
    Ok(Route::Config { pool: pool.to_owned() })
}

/// Roughly an RFC 1123 subdomain: strict enough to appear unescaped in logs and labels.
fn valid_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    name.len() <= MAX_NAME
        && name.bytes().all(|b| plain(b) || matches!(b, b'-' | b'.'))
        && name.bytes().next().is_some_and(plain)
        && name.bytes().last().is_some_and(plain)
}

/// The path without empty, `.` and `..` elements. Escapes are not decoded here. The reference redirects such requests to
/// the clean path.
fn clean(path: &str) -> Cow<'_, str> {
    let odd = |element: &str| matches!(element, "" | "." | "..");
    let Some(below) = path.strip_prefix('/') else { return path.into() };
    let inner = below.strip_suffix('/').unwrap_or(below);
    if inner.is_empty() || !inner.split('/').any(odd) {
        return path.into();
    }
    let mut kept = vec![];
    for element in inner.split('/') {
        match element {
            "" | "." => {}
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    let end = if below.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/")).into()
}

/// Decodes escapes. `None`: a broken escape, or not UTF-8.
fn percent_decode(path: &str) -> Option<String> {
    if !path.contains('%') {
        return Some(path.to_owned());
    }
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(b) = bytes.next() {
        if b != b'%' {
            out.push(b);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16).and_then(|d| u8::try_from(d).ok());
        out.push(digit()? << 4 | digit()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_element_below_config_names_the_pool() {
        for path in [
            "/config/master",
            "/config/master/",
            "/config/a/b/master",
            "/config/%2e%2e%2fmaster",
            "/config/mas%74er",
            "/%63onfig/master",
            "/config/a%2fmaster%2f",
            "/config//master//",
            "/config/../config/master",
            "//config/master",
            "///config///./x/../master/",
            "/../config/master",
        ] {
            assert_eq!(route(path), Ok(Route::Config { pool: "master".to_owned() }), "{path}");
        }
        assert_eq!(route("/config/master/x"), Ok(Route::Config { pool: "x".to_owned() }));
        assert_eq!(route("//healthz"), Ok(Route::Healthz));
        assert_eq!(route("/healthz"), Ok(Route::Healthz));
        assert_eq!(route("/readyz"), Ok(Route::Readyz));
    }

    #[test]
    fn other_paths_and_names_that_no_pool_has_are_refused() {
        for path in [
            "/",
            "",
            "*",
            "/config",
            "/metrics",
            "/nope",
            "/healthz/",
            "/configs/master",
            "config/master",
            "/config/..",
            "/config/../master",
            "/config/master/../..",
            "//",
            "/.",
            "/%63onfig",
            "/config%2fmaster",
            "/config%2Fmaster%2f",
            "/config%2f",
            "/config%2Fmaster%2f/x",
            "/healthz%2f",
            "//evil.example/x",
        ] {
            assert_eq!(route(path), Err(Refusal::NoSuchPath), "{path}");
        }
        for path in [
            "/config/",
            "/config///",
            "/config/%2e%2e",
            "/config/./",
            "/config/Master",
            "/config/a%00b",
            "/config/%zz",
            "/config/%2",
            "/config/%ff",
            "/config/a%0ab",
            "/config/-a",
            "/config/a b",
        ] {
            assert_eq!(route(path), Err(Refusal::PoolName), "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_ends_in_a_route_or_a_refusal(path in "(/config/)?[%./a-f0-9A-Z\\PC]{0,80}") {
            if let Ok(Route::Config { pool }) = route(&path) {
                prop_assert!(valid_name(&pool));
                prop_assert!(!pool.contains('/'));
            }
        }
    }
}
