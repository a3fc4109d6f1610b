//! Who asks, where the dashboard runs in the cluster: the bearer token of a request or of a session (TokenReview), or what a
//! proxy that has signed the person in says in its headers.
//!
//! Guarantees: a proxy's headers count from trusted addresses only. They never make anybody one of Kubernetes' own users or
//! groups (`system:`, `kubeadm:`), whatever the identity provider calls people. Answers to tokens are remembered by their hashes.
//!
//! What it is not: what somebody may do (see `authorization`).
//!
//! Source: <https://kubernetes.io/docs/reference/access-authn-authz/authentication/>.

use client::CallError;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ipnet::IpNet;
use kube::Client;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The headers of a proxy, as oauth2-proxy and others send them.
const USER: &str = "x-forwarded-user";
const GROUPS: &str = "x-forwarded-groups";
/// What the users and groups of Kubernetes and of kubeadm begin with. Members of `kubeadm:cluster-admins` may do everything.
const OWN: [&str; 2] = ["system:", "kubeadm:"];
/// The group of everybody whom somebody has signed in.
const AUTHENTICATED: &str = "system:authenticated";
/// How long it is remembered whose token it is.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// How long it is remembered that a token is nobody's.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);
/// How many answers are remembered.
const REMEMBERED: usize = 1024;
/// How many reviews are under way at the same time: strangers with guesses must not become a load on the API server.
const AT_A_TIME: usize = 4;

/// Somebody who looks at the page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) uid: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// By what a person is known.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Credential {
    /// A bearer token.
    Token(Arc<str>),
    /// The word of a trusted proxy.
    Proxy(Arc<Person>),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Token(_) => f.write_str("Token"),
            Self::Proxy(person) => f.debug_tuple("Proxy").field(&person.name).finish(),
        }
    }
}

/// By what the sender of these headers is known; `None`: by nothing in them.
///
/// # Errors
/// A proxy's headers that make no sense, as a sentence.
pub(crate) fn credential(
    headers: &HeaderMap,
    from: IpAddr,
    proxies: &[IpNet],
) -> Result<Option<Credential>, &'static str> {
    // An IPv6 socket gives addresses of IPv4 in their mapped form.
    let from = from.to_canonical();
    if proxies.iter().any(|net| net.contains(&from)) && headers.contains_key(USER) {
        return person_from_headers(headers).map(|person| Some(Credential::Proxy(Arc::new(person))));
    }
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (given.next(), given.next());
    let token = first.filter(|_| second.is_none()).and_then(|v| listen::bearer(v.to_str().ok()?));
    Ok(token.map(|token| Credential::Token(token.into())))
}

/// Whom a proxy's headers name.
fn person_from_headers(headers: &HeaderMap) -> Result<Person, &'static str> {
    let mut users = headers.get_all(USER).iter();
    let name = users.next().and_then(|v| v.to_str().ok()).unwrap_or_default().trim().to_owned();
    if users.next().is_some() || name.is_empty() {
        return Err("the proxy in front of the dashboard must send X-Forwarded-User once, with a name");
    }
    if is_own(&name) {
        return Err("a proxy cannot sign in one of Kubernetes' own users");
    }
    let groups = headers.get_all(GROUPS).iter().filter_map(|v| v.to_str().ok()).flat_map(|v| v.split(','));
    let groups = groups.map(str::trim).filter(|g| !g.is_empty() && !is_own(g));
    let groups = groups.chain([AUTHENTICATED]).map(str::to_owned).collect();
    Ok(Person { name, groups, ..Person::default() })
}

fn is_own(name: &str) -> bool {
    OWN.iter().any(|prefix| name.starts_with(prefix))
}

type Reviewed = HashMap<[u8; 32], (Option<Arc<Person>>, Instant)>;

/// Asks whose token it is.
pub(crate) struct Tokens {
    client: Client,
    turn: Semaphore,
    reviewed: Mutex<Reviewed>,
}

impl Tokens {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, turn: Semaphore::new(AT_A_TIME), reviewed: Mutex::default() }
    }

    /// Whose token it is; `None`: nobody's.
    pub(crate) async fn person(&self, token: &str) -> Result<Option<Arc<Person>>, CallError> {
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(known) = self.recall(key) {
            return Ok(known);
        }
        // It is never closed; without a place, the review is made all the same.
        let _place = self.turn.acquire().await;
        if let Some(known) = self.recall(key) {
            return Ok(known);
        }
        let user = listen::user_of(&self.client, token).await?;
        let person = user.map(|user| {
            Arc::new(Person {
                name: user.username.unwrap_or_default(),
                uid: user.uid,
                groups: user.groups.unwrap_or_default(),
                extra: user.extra.unwrap_or_default(),
            })
        });
        let person = person.filter(|person| !person.name.is_empty());
        self.remember(key, person.clone());
        Ok(person)
    }

    fn recall(&self, key: [u8; 32]) -> Option<Option<Arc<Person>>> {
        let reviewed = self.reviewed.lock().unwrap_or_else(PoisonError::into_inner);
        reviewed.get(&key).filter(|(_, until)| *until > Instant::now()).map(|(person, _)| person.clone())
    }

    fn remember(&self, key: [u8; 32], person: Option<Arc<Person>>) {
        let mut reviewed = self.reviewed.lock().unwrap_or_else(PoisonError::into_inner);
        if reviewed.len() >= REMEMBERED {
            // Persons stay: guesses are what a stranger can make many of.
            reviewed.retain(|_, (person, until)| person.is_some() && *until > Instant::now());
        }
        if reviewed.len() < REMEMBERED {
            let time = if person.is_some() { KNOWN_FOR } else { UNKNOWN_FOR };
            reviewed.insert(key, (person, Instant::now() + time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxys_word_counts_from_trusted_addresses_and_names_none_of_kubernetes_own_users() {
        let proxies = ["10.0.0.7/32".parse().unwrap(), "fd00::/64".parse().unwrap()];
        let ask = |from: &str, headers: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, value.parse().unwrap());
            }
            credential(&map, from.parse().unwrap(), &proxies)
        };
        let jane = |groups: &[&str]| {
            let groups = groups.iter().map(|g| (*g).to_owned()).collect();
            Ok(Some(Credential::Proxy(Arc::new(Person {
                name: "jane".to_owned(),
                groups,
                ..Person::default()
            }))))
        };
        let token = Ok(Some(Credential::Token("t".into())));
        let (user, bearer) = ((USER, "jane"), ("authorization", "Bearer t"));
        assert_eq!(ask("10.0.0.7", &[user]), jane(&[AUTHENTICATED]));
        assert_eq!(ask("::ffff:10.0.0.7", &[user]), jane(&[AUTHENTICATED]), "an address of IPv4 in IPv6");
        assert_eq!(ask("fd00::1", &[user, (GROUPS, "a, b,,c")]), jane(&["a", "b", "c", AUTHENTICATED]));
        let masters = [user, (GROUPS, "system:masters,a, kubeadm:cluster-admins")];
        assert_eq!(ask("10.0.0.7", &masters), jane(&["a", AUTHENTICATED]));
        assert_eq!(ask("10.0.0.8", &[user]), Ok(None), "another address");
        assert_eq!(ask("10.0.0.8", &[user, bearer]), token, "its header is not looked at");
        assert_eq!(ask("10.0.0.7", &[bearer]), token, "a trusted address without the header");
        assert_eq!(ask("10.0.0.7", &[]), Ok(None));
        for wrong in
            [&[user, (USER, "root")][..], &[(USER, "")], &[(USER, "system:admin")], &[(USER, "kubeadm:x")]]
        {
            assert!(ask("10.0.0.7", wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(ask("10.0.0.8", &[bearer, ("authorization", "Bearer u")]), Ok(None), "two tokens");
        let shown = format!("{:?}", ask("10.0.0.8", &[("authorization", "Bearer hunter2")]));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
