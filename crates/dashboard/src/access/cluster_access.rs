//! Who may talk to the dashboard where it runs in the cluster: decided from a request's head and the API server's word.
//!
//! - `Host` must be the Service's name, this pod's loopback (`kubectl port-forward`), or a name that the settings give, so
//!   that a name which an attacker's DNS server points here is refused (DNS rebinding).
//! - What changes something must come from the page itself: `Origin`, and a header that a form cannot send (CSRF).
//! - The answers forbid frames (see `response`), against clickjacking.
//! - A person is known by a bearer token, a session that began with one, or a trusted proxy's headers (see
//!   `authentication`); who may not list what the fleet is made from gets 403 and nothing else (see `authorization`).
//!
//! A session is a cookie for a token that this process keeps in memory alone. It ends with the token, or when the person
//! signs out, after [`SESSION`] at most. An open stream ends with its session; one that came by a proxy ends after a
//! minute, and the browser comes again.
//!
//! What it is not: the access to `mco dashboard` on a person's own computer (see `local_access`).

use crate::DashboardError;
use crate::access::authentication::{Credential, Person, Tokens, credential};
use crate::access::authorization::Rights;
use crate::access::local_access::{
    ACTION_HEADER, OTHER_SITE, Refusal, SESSION, cookies, same_origin_or_typed, secret, text,
};
use api::formats::network::name_and_port;
use api::names::NAMESPACE;
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use ipnet::IpNet;
use kube::Client;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The name of the Service.
pub(crate) const SERVICE: &str = api::names::part::DASHBOARD;
/// The cookie. Browsers take one of this prefix from HTTPS only, for the whole host and no other.
const NAME: &str = "__Host-mco-dashboard";
/// How long what a proxy said counts for an open stream; then the browser must come by the proxy again, which alone knows
/// when its own session has ended.
const PROXY: Duration = Duration::from_secs(60);
/// How many sessions there are; the oldest goes.
const SESSIONS: usize = 1024;
/// How many of them one person has; that person's oldest goes, so that nobody can end those of others.
const SESSIONS_OF_ONE: usize = 16;

const SIGN_IN: Refusal = Refusal(
    StatusCode::UNAUTHORIZED,
    "sign in: reload the page, or send a bearer token that the API server knows",
);
const OTHER_HOST: Refusal = Refusal(
    StatusCode::MISDIRECTED_REQUEST,
    "the dashboard is not known by this name: add it to spec.dashboard.hosts of MachineConfigOperator cluster",
);
const NO_RIGHTS: Refusal = Refusal(
    StatusCode::FORBIDDEN,
    "you may not view this: ask an administrator for the ClusterRole machine-config-dashboard-viewer",
);
const NOT_KNOWN: Refusal = Refusal(
    StatusCode::SERVICE_UNAVAILABLE,
    "the API server does not say who you are and what you may see; try again",
);

/// The hash of a cookie's value.
type Key = [u8; 32];

/// A session's token, whose it is, and when the session ends.
struct StoredSession {
    token: Arc<str>,
    person: Arc<Person>,
    until: Instant,
}

/// When somebody must be let in again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// At this time.
    At(Instant),
    /// With this session.
    WithSession(Key),
}

/// Who may talk to a dashboard in the cluster.
pub(crate) struct ClusterAccess {
    /// Names by which people reach it, some with a port.
    hosts: Vec<String>,
    /// Addresses of proxies whose headers count.
    proxies: Vec<IpNet>,
    tokens: Tokens,
    rights: Arc<Rights>,
    sessions: Mutex<HashMap<Key, StoredSession>>,
}

impl std::fmt::Debug for ClusterAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterGate")
            .field("hosts", &self.hosts)
            .field("proxies", &self.proxies)
            .finish_non_exhaustive()
    }
}

/// Somebody who was let in.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    pub(crate) credential: Credential,
    pub(crate) person: Arc<Person>,
    pub(crate) ends: Expiry,
}

impl ClusterAccess {
    /// `client` has the dashboard's own account.
    pub(crate) fn new(client: &Client, hosts: Vec<String>, proxies: Vec<IpNet>) -> Self {
        let rights = Arc::new(Rights::new(client.clone()));
        Self { hosts, proxies, tokens: Tokens::new(client.clone()), rights, sessions: Mutex::default() }
    }

    /// The client for a person.
    pub(crate) fn client_of(&self, person: Arc<Person>) -> Client {
        self.rights.client_of(person)
    }

    /// Whether a request is for this dashboard at all, and from where it may be.
    pub(crate) fn is_for_us(&self, request: &Parts) -> Result<(), Refusal> {
        let mut hosts = request.headers.get_all(HOST).iter();
        let (first, second) = (hosts.next(), hosts.next());
        let host = first.and_then(|h| h.to_str().ok()).filter(|_| second.is_none()).ok_or(OTHER_HOST)?;
        let target = request.uri.authority().is_none_or(|a| self.is_our_name(a.as_str()));
        if !self.is_our_name(host) || !target {
            return Err(OTHER_HOST);
        }
        let reads = [Method::GET, Method::HEAD].contains(&request.method);
        // After a sign-in at an identity provider, a browser comes from there. The page alone may be opened so, and not in a
        // frame; it changes nothing.
        let is_page =
            request.uri.path() == "/" && text(&request.headers, "sec-fetch-dest") == Some("document");
        if !(same_origin_or_typed(&request.headers) || is_page && reads) {
            return Err(OTHER_SITE);
        }
        if !reads {
            let own = text(&request.headers, ORIGIN.as_str()).and_then(|o| o.strip_prefix("https://"));
            let same = |name: &str| own.is_some_and(|own| own.eq_ignore_ascii_case(name));
            // A proxy may put its own name in the place of the one in the browser.
            let is_own = same(host) || self.hosts.iter().any(|name| same(name));
            if !is_own || text(&request.headers, ACTION_HEADER) != Some("1") {
                return Err(OTHER_SITE);
            }
        }
        Ok(())
    }

    /// With any port: the Service, a port that is forwarded, and an ingress have different ones.
    fn is_our_name(&self, host: &str) -> bool {
        let (name, port) = name_and_port(host);
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return false;
        }
        let is = |ours: &str| ours.eq_ignore_ascii_case(name);
        let service = name.get(..SERVICE.len()).filter(|n| n.eq_ignore_ascii_case(SERVICE));
        let rest = service.map(|_| name[SERVICE.len()..].to_ascii_lowercase());
        let of_service = rest.is_some_and(|rest| {
            let full = format!(".{NAMESPACE}.svc");
            rest.is_empty()
                || rest == format!(".{NAMESPACE}")
                || rest == full
                || rest == format!("{full}.cluster.local")
        });
        let configured = self.hosts.iter().any(|ours| match name_and_port(ours) {
            (_, Some(_)) => ours.eq_ignore_ascii_case(host),
            (ours, None) => is(ours),
        });
        of_service || configured || ["localhost", "127.0.0.1", "[::1]"].into_iter().any(is)
    }

    /// Lets somebody in whose request is for us.
    pub(crate) async fn admit(
        &self,
        request: &Parts,
        from: IpAddr,
        now: Instant,
    ) -> Result<Visitor, Refusal> {
        let headers = &request.headers;
        let (credential, ends) = match credential(headers, from, &self.proxies) {
            Ok(Some(credential @ Credential::Proxy(_))) => (credential, Expiry::At(now + PROXY)),
            Ok(Some(credential @ Credential::Token(_))) => (credential, Expiry::At(now + SESSION)),
            Ok(None) => {
                let (key, token) = self.session(headers, now).ok_or(SIGN_IN)?;
                (Credential::Token(token), Expiry::WithSession(key))
            }
            Err(why) => return Err(Refusal(StatusCode::BAD_REQUEST, why)),
        };
        let person = self.authorize(&credential).await?;
        Ok(Visitor { credential, person, ends })
    }

    /// Whether the time is over for which somebody was let in.
    pub(crate) fn has_ended(&self, ends: Expiry, now: Instant) -> bool {
        match ends {
            Expiry::At(end) => now >= end,
            Expiry::WithSession(key) => self.lock().get(&key).is_none_or(|stored| now >= stored.until),
        }
    }

    /// Whether somebody is still known, and may still look.
    pub(crate) async fn authorize(&self, credential: &Credential) -> Result<Arc<Person>, Refusal> {
        let asked = async {
            let person = match credential {
                Credential::Proxy(person) => Arc::clone(person),
                Credential::Token(token) => match self.tokens.person(token).await? {
                    Some(person) => person,
                    None => return Ok(Err(SIGN_IN)),
                },
            };
            Ok(match self.rights.lacks(&person).await? {
                None => Ok(person),
                Some(right) => {
                    tracing::info!(user = %person.name, "refused: may not {right}");
                    Err(NO_RIGHTS)
                }
            })
        };
        asked.await.unwrap_or_else(|error: client::CallError| {
            tracing::warn!("a viewer is refused: {}", client::chain(&error));
            Err(NOT_KNOWN)
        })
    }

    /// Whether somebody may know what events tell. Where the API server does not say, that counts as no.
    pub(crate) async fn may_list_events(&self, person: &Arc<Person>) -> bool {
        self.rights.may_list(person, "", "events").await.unwrap_or_else(|error| {
            tracing::warn!(
                "events are left out, because rights could not be checked: {}",
                client::chain(&error)
            );
            false
        })
    }

    /// Begins a session with a token, and returns the value of `Set-Cookie`.
    pub(crate) async fn sign_in(&self, token: &str, now: Instant) -> Result<String, Refusal> {
        let token: Arc<str> = token.trim().into();
        if token.is_empty() {
            return Err(SIGN_IN);
        }
        let person = self.authorize(&Credential::Token(Arc::clone(&token))).await?;
        let Ok(value) = secret() else {
            return Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers"));
        };
        let mut sessions = self.lock();
        sessions.retain(|_, stored| stored.until > now);
        let its = |stored: &StoredSession| stored.person.name == person.name;
        if sessions.values().filter(|stored| its(stored)).count() >= SESSIONS_OF_ONE {
            remove_oldest(&mut sessions, its);
        }
        if sessions.len() >= SESSIONS {
            remove_oldest(&mut sessions, |_| true);
        }
        sessions.insert(digest(&value), StoredSession { token, person, until: now + SESSION });
        Ok(cookie(&value, SESSION))
    }

    /// Ends the session of this request, and returns the value of `Set-Cookie` that removes the cookie.
    pub(crate) fn sign_out(&self, headers: &HeaderMap) -> String {
        let mut sessions = self.lock();
        for value in cookies(headers, NAME) {
            sessions.remove(&digest(value));
        }
        cookie("", Duration::ZERO)
    }

    /// Whether somebody is known by a session alone, so that another sign-in makes a difference.
    pub(crate) fn has_session(&self, headers: &HeaderMap, from: IpAddr, now: Instant) -> bool {
        matches!(credential(headers, from, &self.proxies), Ok(None)) && self.session(headers, now).is_some()
    }

    fn session(&self, headers: &HeaderMap, now: Instant) -> Option<(Key, Arc<str>)> {
        let sessions = self.lock();
        cookies(headers, NAME).find_map(|value| {
            let key = digest(value);
            let stored = sessions.get(&key).filter(|stored| stored.until > now)?;
            Some((key, Arc::clone(&stored.token)))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, StoredSession>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the oldest session among those that are meant.
fn remove_oldest(sessions: &mut HashMap<Key, StoredSession>, meant: impl Fn(&StoredSession) -> bool) {
    let oldest = sessions.iter().filter(|(_, stored)| meant(stored)).min_by_key(|(_, stored)| stored.until);
    if let Some(key) = oldest.map(|(key, _)| *key) {
        sessions.remove(&key);
    }
}

/// The cookie with a value for a time.
fn cookie(value: &str, age: Duration) -> String {
    format!("{NAME}={value}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={}", age.as_secs())
}

fn digest(text: &str) -> Key {
    Sha256::digest(text.as_bytes()).into()
}

/// For a dashboard that cannot be set up.
pub(crate) fn check_hosts(hosts: &[String]) -> Result<(), DashboardError> {
    let is_none = |host: &&String| !api::formats::network::is_host(host);
    hosts.iter().find(is_none).map_or(Ok(()), |host| Err(DashboardError::Host { host: host.clone() }))
}

#[cfg(test)]
mod tests;
