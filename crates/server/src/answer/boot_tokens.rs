//! Admission by boot token: checks the `Authorization` header, and records the use of single-use tokens in the cluster
//! before the first byte of a config is sent.
//!
//! Guarantees: a single-use token is used by one machine only, across all replicas of this server, because its use is
//! written with the resource version that was checked. If the use cannot be written, the request gets no config (503;
//! machines try again).
//!
//! What it is not: the rules of what a token allows, which are in `api::first_boot::boot_token`.
//!
//! Assumption: whoever can write Secrets in the tokens' namespace may decide who boots.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc6750>.

use crate::refusal::Refusal;
use crate::watched_objects::WatchedObjects;
use api::first_boot::boot_token::{Record, Token, TokenRefusal, TokenUse, Verdict};
use client::call_within;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// The timeout of one request to the API server. Ignition waits ten seconds for the head of an answer.
const CALL: Duration = Duration::from_secs(4);
/// How often a use is written. Machines that share a single-use token by mistake conflict; the second try sees which one
/// was first.
const TRIES: usize = 3;

/// A token's record as it was read.
#[derive(Debug, Clone)]
pub(crate) struct StoredToken {
    record: Record,
    /// The resource version of its Secret.
    version: String,
}

/// The token that admits a request.
#[derive(Debug)]
pub(crate) struct Admission {
    /// The token's ID and the machine that it was made for, for the log.
    pub(crate) id: String,
    pub(crate) node: Option<String>,
    /// The use that must be recorded before anything is sent.
    claim: Option<(Token, Arc<StoredToken>, TokenUse)>,
}

/// The tokens of the cluster.
pub(crate) struct BootTokens {
    secrets: Option<Api<Secret>>,
    tokens: RwLock<WatchedObjects<Option<Arc<StoredToken>>>>,
}

impl std::fmt::Debug for BootTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootTokens(…)")
    }
}

/// The record in a Secret. A broken one is logged and admits no machine.
fn held(secret: &Secret) -> Option<Arc<StoredToken>> {
    match Record::from_secret(secret) {
        Ok(record) => {
            let version = secret.metadata.resource_version.clone().unwrap_or_default();
            Some(Arc::new(StoredToken { record, version }))
        }
        Err(why) => {
            tracing::warn!("a boot token cannot be read and is not accepted: {why}");
            None
        }
    }
}

impl BootTokens {
    /// An empty set of tokens. Uses are written through `secrets`.
    pub(crate) fn new(secrets: Api<Secret>) -> Self {
        Self { secrets: Some(secrets), tokens: RwLock::default() }
    }

    /// For tests: fixed tokens, whose uses cannot be written.
    #[cfg(test)]
    pub(crate) fn offline(records: Vec<Record>) -> Self {
        let tokens = Self { secrets: None, tokens: RwLock::default() };
        tokens.apply(Event::Init);
        records.into_iter().for_each(|r| tokens.apply(Event::InitApply(r.to_secret())));
        tokens.apply(Event::InitDone);
        tokens
    }

    /// Takes in an event of the watch of Secrets.
    pub(crate) fn apply(&self, event: Event<Secret>) {
        let keep = |secret: Secret| (secret.metadata.name.clone().unwrap_or_default(), held(&secret));
        self.tokens.write().unwrap_or_else(PoisonError::into_inner).apply(event, keep);
    }

    /// Whether all tokens have been listed.
    pub(crate) fn ready(&self) -> bool {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).ready()
    }

    fn find(&self, token: &Token) -> Option<Arc<StoredToken>> {
        let name = format!("{}{}", api::first_boot::boot_token::NAME_PREFIX, token.id());
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).get(&name).cloned().flatten()
    }

    /// Checks a request's header. `secure`: it came over TLS.
    pub(crate) fn check(
        &self,
        headers: &HeaderMap,
        pool: &str,
        from: IpAddr,
        secure: bool,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        if !secure {
            return Err(Refusal::TokenNeedsTls);
        }
        let token = bearer(headers)?;
        let held = self.find(&token).ok_or_else(|| refused(TokenRefusal::Unknown))?;
        self.admission(token, &held, pool, from, now)
    }

    fn admission(
        &self,
        token: Token,
        held: &Arc<StoredToken>,
        pool: &str,
        from: IpAddr,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        let record = &held.record;
        let (id, node) = (record.id.clone(), record.node.clone());
        let claim = match record.check(&token, pool, from, now) {
            Verdict::Accept => None,
            Verdict::Claim(used) => Some((token, Arc::clone(held), used)),
            Verdict::Refuse(why) => return Err(refused(why)),
        };
        Ok(Admission { id, node, claim })
    }

    /// Records the token's use, if it is a single-use token. Must be called before the config is sent, and only then.
    pub(crate) async fn record_use(&self, admission: &Admission, pool: &str) -> Result<(), Refusal> {
        let Some((token, held, used)) = &admission.claim else { return Ok(()) };
        let unchecked = |why: &str| Refusal::TokenUnchecked { why: why.to_owned() };
        let secrets =
            self.secrets.as_ref().ok_or_else(|| unchecked("this server has no connection to a cluster"))?;
        let mut held = Arc::clone(held);
        for _ in 0..TRIES {
            let name = held.record.secret_name();
            let what = || format!("boot token {}", admission.id);
            let patch = Patch::Merge(claim(&held.version, used));
            let params = PatchParams::default();
            let again = match call_within(CALL, what, secrets.patch(&name, &params, &patch)).await {
                Ok(written) => {
                    tracing::info!(token = admission.id, node = admission.node, by = %used.by, "boot token used");
                    self.apply(Event::Apply(written));
                    return Ok(());
                }
                Err(error) if error.is_conflict() => true,
                Err(error) if error.is_not_found() => return Err(refused(TokenRefusal::Unknown)),
                Err(error) => {
                    let why = error.chain();
                    tracing::warn!(
                        token = admission.id,
                        "the use of a boot token could not be recorded: {why}"
                    );
                    false
                }
            };
            if !again {
                return Err(unchecked("the cluster's API server does not answer"));
            }
            // The Secret has changed: another replica, or the administrator, was first.
            let fresh = match call_within(CALL, what, secrets.get_opt(&name)).await {
                Ok(Some(fresh)) => fresh,
                Ok(None) => return Err(refused(TokenRefusal::Unknown)),
                _ => return Err(unchecked("the cluster's API server does not answer")),
            };
            held = self::held(&fresh).ok_or_else(|| refused(TokenRefusal::Unknown))?;
            self.apply(Event::Apply(fresh));
            match held.record.check(token, pool, used.by, used.at) {
                Verdict::Accept => return Ok(()),
                Verdict::Claim(_) => {}
                Verdict::Refuse(why) => return Err(refused(why)),
            }
        }
        Err(unchecked("it keeps being changed by others"))
    }
}

/// The patch that records a use, bound to the resource version that was checked.
fn claim(version: &str, used: &TokenUse) -> Value {
    let fields = used.fields().map(|(key, value)| (key.to_owned(), json!(ByteString(value.into_bytes()))));
    json!({"metadata": {"resourceVersion": version}, "data": serde_json::Map::from_iter(fields)})
}

fn refused(why: TokenRefusal) -> Refusal {
    let (reason, known) = match why {
        TokenRefusal::Unknown => ("TokenUnknown", false),
        TokenRefusal::Pool => ("TokenForAnotherPool", true),
        TokenRefusal::Address => ("TokenForAnotherAddress", true),
        TokenRefusal::Expired => ("TokenExpired", true),
        TokenRefusal::Used => ("TokenUsed", true),
    };
    Refusal::Token { reason, why: why.to_string(), known }
}

/// The token of the one `Authorization` header.
fn bearer(headers: &HeaderMap) -> Result<Token, Refusal> {
    let mut values = headers.get_all(AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let (first, second) = (values.next().ok_or(Refusal::NoToken)?, values.next());
    if second.is_some() {
        return Err(refused(TokenRefusal::Unknown));
    }
    let text = std::str::from_utf8(first).unwrap_or_default();
    let token = match text.split_once(' ') {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Token::parse(token.trim()),
        _ => return Err(Refusal::NoToken),
    };
    token.ok_or_else(|| refused(TokenRefusal::Unknown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::first_boot::boot_token::ENTROPY;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn asked(tokens: &BootTokens, headers: &[&str], pool: &str, secure: bool) -> Result<Admission, Refusal> {
        let mut map = HeaderMap::new();
        for h in headers {
            map.append(AUTHORIZATION, HeaderValue::from_bytes(h.as_bytes()).unwrap());
        }
        tokens.check(&map, pool, HERE, secure, Timestamp::UNIX_EPOCH)
    }

    #[tokio::test]
    async fn what_each_header_is_told() {
        let (token, single) = (Token::new(&[1; ENTROPY]), Token::new(&[2; ENTROPY]));
        let tokens = BootTokens::offline(vec![
            Record { node: Some("worker-7".to_owned()), ..Record::new(&token, "worker") },
            Record { single_use: true, ..Record::new(&single, "worker") },
        ]);
        let (good, once) = (format!("Bearer {}", token.reveal()), format!("bearer  {}", single.reveal()));
        let other = Token::new(&[3; ENTROPY]).reveal();
        let wrong = format!("Bearer {}.{}", token.id(), other.split_once('.').unwrap().1);
        let rows: [(&[&str], &str, bool, u16, &str); 12] = [
            (&[], "worker", true, 401, "NoToken"),
            (&["Basic eA=="], "worker", true, 401, "NoToken"),
            (&["Bearer"], "worker", true, 401, "NoToken"),
            (&[""], "worker", true, 401, "NoToken"),
            (&["Bearer x"], "worker", true, 401, "TokenUnknown"),
            (&["Bearer ü"], "worker", true, 401, "TokenUnknown"),
            (&[&wrong], "worker", true, 401, "TokenUnknown"),
            (&[&format!("Bearer {other}")], "worker", true, 401, "TokenUnknown"),
            (&[&good, &good], "worker", true, 401, "TokenUnknown"),
            (&[&good], "master", true, 403, "TokenForAnotherPool"),
            (&[&good], "worker", false, 403, "TokenNeedsTls"),
            (&[&wrong], "master", true, 401, "TokenUnknown"),
        ];
        for (headers, pool, secure, status, reason) in rows {
            let refusal = asked(&tokens, headers, pool, secure).unwrap_err();
            assert_eq!((refusal.status().as_u16(), refusal.reason()), (status, reason), "{headers:?} {pool}");
            assert!(!refusal.body().to_string().contains(&token.reveal()[13..]));
        }
        let admission = asked(&tokens, &[&good], "worker", true).unwrap();
        assert_eq!((admission.id.as_str(), admission.node.as_deref()), (token.id(), Some("worker-7")));
        tokens.record_use(&admission, "worker").await.unwrap();
        // If the use cannot be recorded, no config is served.
        let admission = asked(&tokens, &[&once], "worker", true).unwrap();
        let refusal = tokens.record_use(&admission, "worker").await.unwrap_err();
        assert_eq!((refusal.status().as_u16(), refusal.retry_after().is_some()), (503, true));
    }

    #[test]
    fn a_use_is_written_on_the_version_that_was_judged() {
        let used = TokenUse { at: Timestamp::UNIX_EPOCH, by: HERE };
        let want = json!({"metadata": {"resourceVersion": "7"}, "data": {
            "used-at": "MTk3MC0wMS0wMVQwMDowMDowMFo=", "used-by": "MTI3LjAuMC4x",
        }});
        assert_eq!(claim("7", &used), want);
    }
}
