//! User data for machines that others provision: which Secrets hold which pointer config. Pure.
//!
//! Our Secrets (`POOL-user-data-managed`, labelled) are written whole. In an installer's Secrets only the CA and the
//! pool's boot token are set; if that is impossible, the plan says why. With `--require-token` each pool's pointer has its
//! own boot token. It is kept while it is valid, and replaced when it is revoked or has expired.
//!
//! What it is not: reading and writing the Secrets (see `booting_machines`).

use api::events::OperatorEvent;
use api::first_boot::boot_token::{ENTROPY, Record, Token};
use api::first_boot::user_data::{self, MANAGED, PORT, USER_DATA};
use api::k8s::{ByteString, ObjectReference, Secret};
use api::v1::MachineConfigPool;
use ignition::Version;
use ignition::pointer::{self, Pointer, PoolEntry};
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// The inputs of user data.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The server's host, as it is written in a URL.
    pub host: &'a str,
    /// The CAs that machines trust (PEM).
    pub ca: &'a [u8],
    /// All pools.
    pub pools: &'a [MachineConfigPool],
    /// The existing Secrets.
    pub secrets: &'a [Secret],
    /// The records of all boot tokens. `None`: the server does not ask for tokens.
    pub tokens: Option<&'a [Record]>,
    /// The current time.
    pub now: Timestamp,
}

/// One Secret to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The Secret. If it exists, with the resource version that was read.
    pub secret: Secret,
    /// Its boot token, if that is new. The token must be written before the Secret.
    pub token: Option<Record>,
    /// Why it is written.
    pub why: &'static str,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Secrets to write.
    pub writes: Vec<Write>,
    /// Objects that need a change that we cannot make.
    pub left: Vec<NotUpdated>,
}

/// An object that needs a change that we cannot make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotUpdated {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its UID, if it has one.
    pub uid: Option<String>,
    /// The event's reason.
    pub reason: OperatorEvent,
    /// The cause and the remedy.
    pub why: String,
}

impl std::fmt::Display for NotUpdated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.kind, self.name, self.why)
    }
}

impl NotUpdated {
    fn secret(secret: &Secret, reason: OperatorEvent, why: impl Into<String>) -> Self {
        let (name, uid) = (secret.metadata.name.clone().unwrap_or_default(), secret.metadata.uid.clone());
        Self { kind: "Secret", name, uid, reason, why: why.into() }
    }

    /// The event about it. Its name is derived from its text, so that the same event is created only once.
    pub fn event(&self, now: Timestamp) -> Event {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let mut hasher = DefaultHasher::new();
        (self.kind, &self.uid, self.reason.text(), &self.why).hash(&mut hasher);
        let namespace = Some(user_data::NAMESPACE.to_owned());
        let mut event = Event {
            message: Some(self.why.clone()),
            reason: Some(self.reason.text().to_owned()),
            type_: Some("Warning".to_owned()),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..Event::default()
        };
        event.metadata.name = Some(format!("{}.{:016x}", self.name, hasher.finish()));
        event.metadata.namespace.clone_from(&namespace);
        event.source =
            Some(EventSource { component: Some(crate::accounts::OPERATOR.to_owned()), host: None });
        event.involved_object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(self.kind.to_owned()),
            name: Some(self.name.clone()),
            namespace,
            uid: self.uid.clone(),
            ..ObjectReference::default()
        };
        event
    }
}

/// Plans all user data. `entropy` returns random bytes for new tokens.
pub fn plan(facts: &Facts<'_>, mut entropy: impl FnMut() -> [u8; ENTROPY]) -> Plan {
    let mut plan = Plan::default();
    let mut tokens = BTreeMap::new();
    for pool in facts.pools {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let secret_name = user_data::secret_name(name);
        let there = facts.secrets.iter().find(|s| s.metadata.name.as_deref() == Some(&secret_name));
        let (token, record) = token(facts, name, there, &mut entropy);
        let pointer =
            Pointer { host: facts.host, port: PORT, pool: name, ca: facts.ca, token: token.as_deref() };
        let config = match pointer.config(Version::V3_5) {
            Ok(config) => config,
            Err(error) => {
                let why = format!("pool {name} has no pointer config: {error}");
                plan.left.push(NotUpdated {
                    kind: "Secret",
                    name: secret_name,
                    uid: None,
                    reason: OperatorEvent::NoUserData,
                    why,
                });
                continue;
            }
        };
        if let Some(token) = token {
            tokens.insert(name, token);
        }
        let mut secret = user_data::secret(pool, &config);
        let why = match there {
            None => "there is none",
            Some(there) if there.data == secret.data && is_managed(there) => continue,
            Some(there) => {
                secret.metadata.resource_version.clone_from(&there.metadata.resource_version);
                "it differs from the cluster's settings"
            }
        };
        plan.writes.push(Write { secret, token: record, why });
    }
    for secret in facts.secrets.iter().filter(|s| !is_managed(s)) {
        let Foreign { changed, left } = foreign(secret, facts, &tokens);
        plan.left.extend(left);
        plan.writes.extend(changed.map(|(secret, why)| Write { secret, token: None, why }));
    }
    plan
}

fn is_managed(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().is_some_and(|l| l.contains_key(MANAGED))
}

fn config_of(secret: &Secret) -> Option<Value> {
    serde_json::from_slice(&secret.data.as_ref()?.get(USER_DATA)?.0).ok()
}

/// The boot token in a pool's user data.
pub fn token_of(secret: &Secret) -> Option<Token> {
    Token::parse(pointer::token(&config_of(secret)?)?)
}

/// The token for a pool, and its record if it is new.
fn token(
    facts: &Facts<'_>,
    pool: &str,
    there: Option<&Secret>,
    entropy: &mut impl FnMut() -> [u8; ENTROPY],
) -> (Option<String>, Option<Record>) {
    let Some(records) = facts.tokens else { return (None, None) };
    let good = |token: &Token| {
        records
            .iter()
            .any(|r| r.has_token(token) && r.pool == pool && !r.single_use && !r.is_spent(facts.now))
    };
    if let Some(token) = there.and_then(token_of).filter(good) {
        return (Some(token.reveal()), None);
    }
    let token = Token::new(&entropy());
    let record = Record::new(&token, pool);
    (Some(token.reveal()), Some(record))
}

/// What to do with a Secret that somebody else owns.
#[derive(Debug, Default)]
struct Foreign {
    /// The Secret with our CA and the pool's token, and why. `None`: it has them, or is not about us.
    changed: Option<(Secret, &'static str)>,
    left: Vec<NotUpdated>,
}

/// `tokens`: those of all pools.
fn foreign(secret: &Secret, facts: &Facts<'_>, tokens: &BTreeMap<&str, String>) -> Foreign {
    let mut found = Foreign::default();
    let Some(mut config) = config_of(secret).filter(|c| c.get("ignition").is_some()) else { return found };
    let mut why = None;
    match pointer::set_ca(&mut config, facts.ca) {
        Ok(true) => why = Some("the CA changed"),
        Ok(false) => {}
        Err(error) => found.left.push(NotUpdated::secret(secret, OperatorEvent::UserDataWithoutCA, error)),
    }
    if facts.tokens.is_some() {
        match set_token(&mut config, facts, tokens) {
            Ok(true) => why = why.or(Some("the boot token changed")),
            Ok(false) => {}
            Err(error) => {
                let why = format!(
                    "machines created with it send no boot token and are refused by the config server: {error}"
                );
                found.left.push(NotUpdated::secret(secret, OperatorEvent::UserDataWithoutToken, why));
            }
        }
    }
    if let Some(why) = why {
        let mut changed = secret.clone();
        changed.metadata.managed_fields = None;
        let data = changed.data.get_or_insert_default();
        data.insert(USER_DATA.to_owned(), ByteString(config.to_string().into_bytes()));
        found.changed = Some((changed, why));
    }
    found
}

/// Puts the pool's token into a pointer config. False: it already has a valid token of that pool, or the config points to
/// no config server. The token is only sent to this cluster's server.
fn set_token(config: &mut Value, facts: &Facts<'_>, tokens: &BTreeMap<&str, String>) -> Result<bool, String> {
    if let Some(pool) = pointer::old_pool(config) {
        return Err(format!(
            "Ignition before 3.1.0 cannot send one; write the pointer to pool {pool} in 3.1.0 or newer"
        ));
    }
    let Some(PoolEntry { index, server, pool }) = pointer::pool(config) else { return Ok(false) };
    let ours = format!("{}:{PORT}", facts.host);
    if server != ours {
        return Err(format!(
            "it points to {server}, and this cluster's config server is {ours}: a boot token is sent there only; correct \
             the source, or put a token of that server's cluster into it"
        ));
    }
    if let Some(sent) = pointer::authorization(config, index) {
        let Some(there) = sent.strip_prefix("Bearer ").and_then(Token::parse) else {
            return Err("it sends an Authorization header of its own; remove that".to_owned());
        };
        let good = |r: &Record| r.has_token(&there) && r.pool == pool && !r.is_spent(facts.now);
        if facts.tokens.is_some_and(|records| records.iter().any(good)) {
            return Ok(false);
        }
    }
    let token = tokens.get(pool.as_str()).ok_or_else(|| {
        format!(
            "it points to pool {pool}, but there is no MachineConfigPool of that name; create it, or \
            correct the source"
        )
    })?;
    pointer::set_token(config, index, token).map_err(str::to_owned)
}

#[cfg(test)]
mod tests;
