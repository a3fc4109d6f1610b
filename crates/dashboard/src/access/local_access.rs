//! Who may talk to the dashboard, for one person on this computer: decided from a request's head, before anything of it is
//! looked at. Pure, but for random numbers and the clock.
//!
//! - The page's address has a token that is good once, for ten minutes; it is exchanged for a cookie that scripts cannot
//!   read and that no other site's page can send along (`HttpOnly`, `SameSite=Strict`).
//! - A browser sends a host's cookies to all of its ports, so also to servers of other people on this computer. The page
//!   therefore lies below a random path, and the cookie is for that path alone.
//! - `Host` must be this computer's loopback, so that a name which an attacker's DNS server points here is refused
//!   (DNS rebinding).
//! - What changes something must also come from the page itself: `Origin`, and a header that a form cannot send (CSRF).
//! - The answers forbid frames (see `response`), against clickjacking.
//!
//! What it is not: what the person may do in the cluster; the API server decides that, as for `kubectl`.

use crate::DashboardError;
use http::header::{COOKIE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use subtle::ConstantTimeEq as _;

/// The header that what changes something must have. Other sites' pages cannot send it without asking first, and the answer
/// to that question is no.
pub(crate) const ACTION_HEADER: &str = "x-mco-dashboard";
/// How long a browser may look at the page before it needs another address.
pub(crate) const SESSION: Duration = Duration::from_secs(12 * 60 * 60);
/// How long a token is good. An address that was never opened stays in a terminal, and the browser's command line shows it.
const TOKEN: Duration = Duration::from_secs(10 * 60);
/// How many browsers look at the same time; the oldest goes.
const SESSIONS: usize = 16;
/// The bytes of a token: nobody guesses 256 bits.
const ENTROPY: usize = 32;

/// Why a request is refused: the status, and a sentence for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal(pub(crate) StatusCode, pub(crate) &'static str);

const NO_SESSION: Refusal = Refusal(
    StatusCode::UNAUTHORIZED,
    "this browser has no session, or it has ended: open the address that `mco dashboard` prints; press Enter there for a \
     new one",
);
const USED: Refusal = Refusal(
    StatusCode::FORBIDDEN,
    "this address was used already, or a newer one took its place: press Enter where `mco dashboard` runs for another one",
);
const ENDED: Refusal = Refusal(
    StatusCode::FORBIDDEN,
    "this address was good for ten minutes and has expired: press Enter where `mco dashboard` runs for another one",
);
const OTHER_HOST: Refusal = Refusal(
    StatusCode::MISDIRECTED_REQUEST,
    "the dashboard answers on this computer's loopback address only",
);
pub(crate) const OTHER_SITE: Refusal =
    Refusal(StatusCode::FORBIDDEN, "only the dashboard's own page may ask for this");

/// A session, as long as it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    /// When it ends.
    pub(crate) until: Instant,
}

/// Tokens and sessions of one dashboard.
pub(crate) struct LocalAccess {
    /// What `Host` may say.
    hosts: [String; 3],
    /// The path below which everything lies: `/` and random digits.
    base: String,
    /// Two dashboards of one person are told apart by their ports.
    cookie: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// A token, and when it was made.
    invitation: Option<(String, Instant)>,
    sessions: Vec<(String, Instant)>,
}

impl std::fmt::Debug for LocalAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl LocalAccess {
    /// For a dashboard on this port of the loopback address.
    pub(crate) fn new(port: u16) -> Result<Self, DashboardError> {
        let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}"));
        let base = format!("/{}", secret()?);
        Ok(Self { hosts, base, cookie: format!("mco-dashboard-{port}"), state: Mutex::default() })
    }

    /// The path below which everything lies, without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// A new token; the one before ends.
    pub(crate) fn invite(&self, now: Instant) -> Result<String, DashboardError> {
        let token = secret()?;
        self.lock().invitation = Some((token.clone(), now));
        Ok(token)
    }

    /// Exchanges a token for the value of `Set-Cookie`. A token is good once, and for [`TOKEN`].
    pub(crate) fn exchange(&self, token: &str, now: Instant) -> Result<String, Refusal> {
        let mut state = self.lock();
        let made = state.invitation.as_ref().filter(|(have, _)| same(have, token)).map(|(_, made)| *made);
        let Some(made) = made else { return Err(USED) };
        if now.duration_since(made) >= TOKEN {
            state.invitation = None;
            return Err(ENDED);
        }
        let Ok(session) = secret() else {
            return Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers"));
        };
        state.invitation = None;
        state.sessions.retain(|(_, until)| *until > now);
        if state.sessions.len() >= SESSIONS {
            state.sessions.remove(0);
        }
        state.sessions.push((session.clone(), now + SESSION));
        let (age, base) = (SESSION.as_secs(), &self.base);
        Ok(format!("{}={session}; Path={base}/; HttpOnly; SameSite=Strict; Max-Age={age}", self.cookie))
    }

    /// Whether a request is for this dashboard at all: the first question, also before a token is exchanged.
    pub(crate) fn is_for_us(&self, request: &Parts) -> Result<(), Refusal> {
        let mut hosts = request.headers.get_all(HOST).iter();
        let (first, second) = (hosts.next(), hosts.next());
        let ours = |host: &str| self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host));
        let named = first.and_then(|h| h.to_str().ok()).is_some_and(ours) && second.is_none();
        // A request may name its host in its first line, too.
        let target = request.uri.authority().is_none_or(|a| ours(a.as_str()));
        if named && target { Ok(()) } else { Err(OTHER_HOST) }
    }

    /// Whether a request may have an answer.
    pub(crate) fn admit(&self, request: &Parts, now: Instant) -> Result<Session, Refusal> {
        self.is_for_us(request)?;
        let headers = &request.headers;
        if !same_origin_or_typed(headers) {
            return Err(OTHER_SITE);
        }
        let session = self.session(headers, now).ok_or(NO_SESSION)?;
        if ![Method::GET, Method::HEAD].contains(&request.method) {
            let host = text(headers, HOST.as_str()).unwrap_or_default();
            let own = text(headers, ORIGIN.as_str()).and_then(|o| o.strip_prefix("http://"));
            if !own.is_some_and(|own| own.eq_ignore_ascii_case(host))
                || text(headers, ACTION_HEADER) != Some("1")
            {
                return Err(OTHER_SITE);
            }
        }
        Ok(session)
    }

    fn session(&self, headers: &HeaderMap, now: Instant) -> Option<Session> {
        let state = self.lock();
        let known =
            |value: &str| state.sessions.iter().find(|(have, until)| *until > now && same(have, value));
        cookies(headers, &self.cookie).filter_map(known).map(|(_, until)| Session { until: *until }).next()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a request comes from our own page, or from a person who typed the address. Browsers say it; other programs do
/// not.
pub(crate) fn same_origin_or_typed(headers: &HeaderMap) -> bool {
    text(headers, "sec-fetch-site").is_none_or(|site| ["same-origin", "none"].contains(&site))
}

/// The values of the cookies of this name.
pub(crate) fn cookies<'a>(headers: &'a HeaderMap, name: &'a str) -> impl Iterator<Item = &'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(';'));
    all.filter_map(|c| c.trim().split_once('='))
        .filter(move |(have, _)| *have == name)
        .map(|(_, value)| value)
}

/// A header, if it is text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

/// Compared in a time that does not tell where they differ.
fn same(a: &str, b: &str) -> bool {
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

/// A random text that goes into an address and a cookie as it is.
pub(crate) fn secret() -> Result<String, DashboardError> {
    let mut bytes = [0; ENTROPY];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random.fill(&mut bytes);
    random.map_err(|_| DashboardError::Random)?;
    Ok(api::formats::text::hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    const PORT: u16 = 8796;

    fn request(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/api/snapshot");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    /// A gate with one session, and the cookie of that.
    fn access(now: Instant) -> (LocalAccess, String) {
        let access = LocalAccess::new(PORT).unwrap();
        let token = access.invite(now).unwrap();
        let cookie = access.exchange(&token, now).unwrap();
        (access, cookie.split(';').next().unwrap().to_owned())
    }

    #[test]
    fn a_token_is_good_once_and_a_newer_one_ends_it() {
        let now = Instant::now();
        let access = LocalAccess::new(PORT).unwrap();
        assert_eq!(access.exchange("", now).unwrap_err(), USED, "before there is one");
        let first = access.invite(now).unwrap();
        let second = access.invite(now).unwrap();
        assert!(first != second && second.len() == 2 * ENTROPY);
        assert_eq!(access.exchange(&first, now).unwrap_err(), USED);
        assert_eq!(access.exchange("", now).unwrap_err(), USED);
        let cookie = access.exchange(&second, now).unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        assert!(!cookie.contains(&second), "the session is not the token");
        assert_eq!(access.exchange(&second, now).unwrap_err(), USED, "used twice");
    }

    #[test]
    fn a_token_that_nobody_used_ends() {
        let now = Instant::now();
        let access = LocalAccess::new(PORT).unwrap();
        let token = access.invite(now).unwrap();
        assert_eq!(access.exchange(&token, now + TOKEN).unwrap_err(), ENDED);
        assert_eq!(access.exchange(&token, now).unwrap_err(), USED, "it does not come back");
        let token = access.invite(now).unwrap();
        assert!(access.exchange(&token, now + TOKEN - Duration::from_secs(1)).is_ok());
    }

    #[test]
    fn the_cookie_is_for_a_path_that_no_other_server_of_this_computer_knows() {
        let now = Instant::now();
        let bases = [(); 2].map(|()| {
            let access = LocalAccess::new(PORT).unwrap();
            let cookie = access.exchange(&access.invite(now).unwrap(), now).unwrap();
            assert!(cookie.contains(&format!("; Path={}/;", access.base())), "{cookie}");
            assert_eq!(access.base().len(), 1 + 2 * ENTROPY);
            access.base().to_owned()
        });
        assert_ne!(bases[0], bases[1]);
    }

    #[test]
    fn a_request_is_answered_only_to_the_page_itself() {
        let now = Instant::now();
        let (access, cookie) = access(now);
        let host = ("host", "127.0.0.1:8796");
        let own = ("cookie", cookie.as_str());
        let header = (ACTION_HEADER, "1");
        let origin = ("origin", "http://127.0.0.1:8796");
        let status = |refusal: Refusal| refusal.0.as_u16();
        type Row<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, u16);
        let rows: Vec<Row<'_>> = vec![
            ("the page", "GET", vec![host, own], 200),
            ("by its other name", "GET", vec![("host", "LOCALHOST:8796"), own], 200),
            ("by IPv6", "GET", vec![("host", "[::1]:8796"), own], 200),
            ("among other cookies", "GET", vec![host, ("cookie", "a=b"), own], 200),
            ("typed by a person", "GET", vec![host, own, ("sec-fetch-site", "none")], 200),
            ("from another site", "GET", vec![host, own, ("sec-fetch-site", "cross-site")], 403),
            ("from another port", "GET", vec![host, own, ("sec-fetch-site", "same-site")], 403),
            ("without a cookie", "GET", vec![host], 401),
            ("with a guess", "GET", vec![host, ("cookie", "mco-dashboard-8796=00")], 401),
            ("with an empty one", "GET", vec![host, ("cookie", "mco-dashboard-8796=")], 401),
            ("DNS rebinding", "GET", vec![("host", "attacker.example:8796"), own], 421),
            ("another port", "GET", vec![("host", "127.0.0.1:80"), own], 421),
            ("a longer name", "GET", vec![("host", "127.0.0.1:8796.attacker.example"), own], 421),
            ("no host", "GET", vec![own], 421),
            ("two hosts", "GET", vec![host, ("host", "attacker.example"), own], 421),
            ("an action", "POST", vec![host, own, origin, header], 200),
            ("an action by another method", "DELETE", vec![host, own, origin], 403),
            ("without the header", "POST", vec![host, own, origin], 403),
            ("without an origin", "POST", vec![host, own, header], 403),
            ("of a sandboxed page", "POST", vec![host, own, header, ("origin", "null")], 403),
            (
                "of another origin",
                "POST",
                vec![host, own, header, ("origin", "http://attacker.example")],
                403,
            ),
            ("of another scheme", "POST", vec![host, own, header, ("origin", "https://127.0.0.1:8796")], 403),
            ("of our other name", "POST", vec![host, own, header, ("origin", "http://localhost:8796")], 403),
            ("without a session", "POST", vec![host, origin, header], 401),
        ];
        for (what, method, headers, want) in rows {
            let got = access.admit(&request(method, &headers), now).map_or_else(status, |_| 200);
            assert_eq!(got, want, "{what}");
        }
        let absolute = Request::builder().uri("http://attacker.example/").header("host", host.1);
        let absolute = absolute.header("cookie", &cookie).body(()).unwrap().into_parts().0;
        assert_eq!(access.admit(&absolute, now).unwrap_err(), OTHER_HOST);
    }

    #[test]
    fn a_session_ends_and_the_oldest_makes_room() {
        let now = Instant::now();
        let (access, cookie) = access(now);
        let asks = |at: Instant| {
            access.admit(&request("GET", &[("host", "localhost:8796"), ("cookie", &cookie)]), at)
        };
        assert_eq!(asks(now).unwrap().until, now + SESSION);
        assert_eq!(asks(now + SESSION).unwrap_err(), NO_SESSION);
        for _ in 0..SESSIONS {
            let token = access.invite(now).unwrap();
            access.exchange(&token, now).unwrap();
        }
        assert_eq!(asks(now).unwrap_err(), NO_SESSION);
    }
}
