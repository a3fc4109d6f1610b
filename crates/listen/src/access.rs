//! Who may read metrics over the network: the API server says whose bearer token it is (TokenReview), and whether that
//! user may `get` the path `/metrics` (SubjectAccessReview for a non-resource URL). This is what other Kubernetes
//! components do: <https://kubernetes.io/docs/reference/access-authn-authz/rbac/#referring-to-resources>.
//!
//! What it is not: a login. There are no sessions, and a token is never stored: answers are remembered by its hash.

use client::{CallError, call_within};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, watch};

/// The path whose `get` a user must be allowed.
const PATH: &str = "/metrics";
/// The timeout of one review.
const REVIEW: Duration = Duration::from_secs(5);
/// How long a permission is remembered. A scraper asks every 15 to 60 seconds.
const ALLOWED_FOR: Duration = Duration::from_secs(120);
/// How long a refusal is remembered.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// How many answers are remembered. A cluster has one or two scrapers.
const REMEMBERED: usize = 64;
/// The longest token that is looked at. Those of service accounts have about 1,200 bytes.
const LONGEST_TOKEN: usize = 16 * 1024;

/// What a request is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The metrics.
    Allowed,
    /// 401: there is no bearer token, or the API server does not know it.
    Unauthenticated,
    /// 403: the user may not `get` `/metrics`.
    Forbidden,
    /// 503: the API server could not be asked.
    Unknown,
}

/// Asks the API server, and remembers its answers for a short time.
pub struct Access {
    client: watch::Receiver<Option<Client>>,
    /// One review at a time: strangers with random tokens must not become a load on the API server.
    turn: Semaphore,
    remembered: Mutex<HashMap<[u8; 32], (Decision, Instant)>>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Access {
    /// Asks with this client; while there is none (an agent whose node has no credentials yet), no client gets metrics.
    pub fn new(client: watch::Receiver<Option<Client>>) -> Self {
        Self { client, turn: Semaphore::new(1), remembered: Mutex::default() }
    }

    /// Asks with a client that never changes.
    pub fn fixed(client: Client) -> Self {
        Self::new(watch::Sender::new(Some(client)).subscribe())
    }

    /// Refuses every client: for a component that has no cluster to ask.
    pub fn refuse_everyone() -> Self {
        Self::new(watch::Sender::new(None).subscribe())
    }

    /// What a request with this `Authorization` header is allowed.
    pub async fn decide(&self, authorization: Option<&str>) -> Decision {
        let Some(token) = authorization.and_then(bearer) else {
            return Decision::Unauthenticated;
        };
        let key: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(decision) = self.recall(key) {
            return decision;
        }
        let Ok(Ok(_turn)) = tokio::time::timeout(REVIEW, self.turn.acquire()).await else {
            return Decision::Unknown;
        };
        // Another request with the same token may have been answered meanwhile.
        if let Some(decision) = self.recall(key) {
            return decision;
        }
        let client = self.client.borrow().clone();
        let Some(client) = client else { return Decision::Unknown };
        let decision = match review(client, token).await {
            Ok(decision) => decision,
            Err(error) => {
                // Neither text quotes the token: the errors name the review and the API server's status.
                tracing::warn!("metrics: {}", client::chain(&error));
                return Decision::Unknown;
            }
        };
        self.remember(key, decision);
        decision
    }

    fn recall(&self, key: [u8; 32]) -> Option<Decision> {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        remembered.retain(|_, (_, until)| *until > Instant::now());
        remembered.get(&key).map(|(decision, _)| *decision)
    }

    fn remember(&self, key: [u8; 32], decision: Decision) {
        let mut remembered = self.remembered.lock().unwrap_or_else(PoisonError::into_inner);
        if remembered.len() >= REMEMBERED {
            // Permissions are kept: only refusals can be produced in large numbers by a stranger.
            remembered.retain(|_, (decision, _)| *decision == Decision::Allowed);
        }
        if remembered.len() < REMEMBERED {
            let time = if decision == Decision::Allowed { ALLOWED_FOR } else { REFUSED_FOR };
            remembered.insert(key, (decision, Instant::now() + time));
        }
    }
}

/// The token of `Bearer TOKEN`. The scheme's case does not matter (RFC 9110, section 11.1).
pub fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= LONGEST_TOKEN)
        .then_some(token)
}

/// Whose token it is, by a TokenReview; `None`: nobody's that the API server knows.
///
/// # Errors
/// The API server's answer, or none. The text never quotes the token.
pub async fn user_of(client: &Client, token: &str) -> Result<Option<UserInfo>, CallError> {
    let review = TokenReview {
        spec: TokenReviewSpec { token: token.to_owned(), audiences: None },
        ..TokenReview::default()
    };
    let (api, params) = (Api::all(client.clone()), PostParams::default());
    let what = || "review a token (TokenReview)".to_owned();
    let who = call_within(REVIEW, what, api.create(&params, &review)).await?;
    let who = who.status.unwrap_or_default();
    let known = who.authenticated == Some(true) && who.error.is_none_or(|e| e.is_empty());
    Ok(who.user.filter(|_| known))
}

/// Whether a user has a right, by a SubjectAccessReview.
///
/// # Errors
/// The API server's answer, or none.
pub async fn has_right(client: &Client, spec: SubjectAccessReviewSpec) -> Result<bool, CallError> {
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let what = || "review a right (SubjectAccessReview)".to_owned();
    let answer = call_within(REVIEW, what, api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.is_some_and(|s| s.allowed && s.denied != Some(true)))
}

async fn review(client: Client, token: &str) -> Result<Decision, CallError> {
    let Some(user) = user_of(&client, token).await? else { return Ok(Decision::Unauthenticated) };
    let path = NonResourceAttributes { path: Some(PATH.to_owned()), verb: Some("get".to_owned()) };
    let right = SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        non_resource_attributes: Some(path),
        resource_attributes: None,
    };
    Ok(if has_right(&client, right).await? { Decision::Allowed } else { Decision::Forbidden })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::{Value, json};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A fake API server that knows two tokens, and counts its requests.
    fn cluster(asked: Arc<AtomicUsize>, fails: bool) -> Client {
        Client::new(
            tower::service_fn(move |request: Request<Body>| {
                asked.fetch_add(1, Ordering::SeqCst);
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    let mut review: Value = serde_json::from_slice(&body).unwrap();
                    review["status"] = if path.ends_with("/tokenreviews") {
                        let name = match review["spec"]["token"].as_str().unwrap() {
                            "of-prometheus" => json!({"username": "prometheus", "groups": ["scrapers"]}),
                            "of-somebody" => json!({"username": "somebody"}),
                            _ => Value::Null,
                        };
                        json!({"authenticated": !name.is_null(), "user": name})
                    } else {
                        let spec = &review["spec"];
                        assert_eq!(spec["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
                        json!({"allowed": spec["user"] == "prometheus" && spec["groups"] == json!(["scrapers"])})
                    };
                    let code = if fails { 500 } else { 201 };
                    let status = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "etcd is away"});
                    let answer = if fails { &status } else { &review };
                    let body = Body::from(answer.to_string().into_bytes());
                    Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
                }
            }),
            "default",
        )
    }

    #[tokio::test]
    async fn the_api_servers_decision_is_cached_for_a_while() {
        let asked = Arc::new(AtomicUsize::new(0));
        let access = Access::fixed(cluster(asked.clone(), false));
        for (header, want, requests) in [
            (None, Decision::Unauthenticated, 0),
            (Some("Basic b2Y6cHJvbWV0aGV1cw=="), Decision::Unauthenticated, 0),
            (Some("Bearer "), Decision::Unauthenticated, 0),
            (Some("Bearer of-prometheus"), Decision::Allowed, 2),
            (Some("bearer of-prometheus"), Decision::Allowed, 0),
            (Some("Bearer of-somebody"), Decision::Forbidden, 2),
            (Some("Bearer of-somebody"), Decision::Forbidden, 0),
            (Some("Bearer unknown"), Decision::Unauthenticated, 1),
        ] {
            let before = asked.load(Ordering::SeqCst);
            assert_eq!(access.decide(header).await, want, "{header:?}");
            assert_eq!(asked.load(Ordering::SeqCst) - before, requests, "{header:?}");
        }
    }

    #[tokio::test]
    async fn refused_clients_neither_evict_allowed_ones_nor_fill_the_cache() {
        let asked = Arc::new(AtomicUsize::new(0));
        let access = Access::fixed(cluster(asked.clone(), false));
        assert_eq!(access.decide(Some("Bearer of-prometheus")).await, Decision::Allowed);
        for number in 0..3 * REMEMBERED {
            access.decide(Some(&format!("Bearer guess-{number}"))).await;
        }
        assert!(access.remembered.lock().unwrap().len() <= REMEMBERED);
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(access.decide(Some("Bearer of-prometheus")).await, Decision::Allowed);
        assert_eq!(asked.load(Ordering::SeqCst), before, "still remembered");
    }

    #[tokio::test]
    async fn without_an_answer_access_is_refused_and_nothing_is_cached() {
        let asked = Arc::new(AtomicUsize::new(0));
        let access = Access::fixed(cluster(asked.clone(), true));
        for _ in 0..2 {
            assert_eq!(access.decide(Some("Bearer of-prometheus")).await, Decision::Unknown);
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert_eq!(Access::refuse_everyone().decide(Some("Bearer of-prometheus")).await, Decision::Unknown);
    }
}
