//! The content of `policy.json` (containers-policy.json(5)): what may be pulled at all, and what must be signed. Pure.
//!
//! What it is not: which registries are blocked or allowed (see `registries`), or what a signature must fulfil (see
//! `signatures`).
//!
//! The text is exactly what Go programs write, because rendered names are hashes of it.

use crate::settings::registries::error::RegistriesError;
use crate::settings::registries::scopes::EffectiveScopes;
use crate::settings::registries::signatures::{Requirement, Scopes, Signatures};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The path of the image policy on a host.
pub(crate) const POLICY_JSON: &str = "/etc/containers/policy.json";
/// The policy of hosts whose templates contain none.
pub(crate) const ACCEPT_ANYTHING: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;

/// Repositories with this many slashes are too deep for the transport `atomic`.
const ATOMIC_SLASHES: usize = 3;

/// The content of `policy.json`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Policy {
    default: Vec<Requirement>,
    transports: BTreeMap<String, Scopes>,
}

impl Policy {
    fn read(template: &str) -> Result<Self, RegistriesError> {
        let bad = |message: String| RegistriesError::Template { path: POLICY_JSON, message };
        let policy: Value = serde_json::from_str(template).map_err(|e| bad(e.to_string()))?;
        let list = |v: &Value| -> Vec<Requirement> {
            v.as_array().into_iter().flatten().map(|r| Requirement::Other(sorted(r.clone()))).collect()
        };
        let map = policy.as_object().ok_or_else(|| bad("not an object".to_owned()))?;
        let default = map.get("default").map(list).unwrap_or_default();
        let transports = map.get("transports").and_then(Value::as_object).into_iter().flatten();
        let scopes =
            |v: &Value| v.as_object().into_iter().flatten().map(|(s, r)| (s.clone(), list(r))).collect();
        Ok(Self { default, transports: transports.map(|(t, v)| (t.clone(), scopes(v))).collect() })
    }

    /// The same policy with more scopes.
    pub(crate) fn with(&self, scopes: &Scopes) -> Self {
        let mut policy = self.clone();
        for transport in ["docker", "atomic"] {
            let all = policy.transports.entry(transport.to_owned()).or_default();
            for (scope, requirements) in scopes {
                if transport == "docker" || scope.matches('/').count() < ATOMIC_SLASHES {
                    all.entry(scope.clone()).or_default().extend(requirements.iter().cloned());
                }
            }
        }
        policy
    }

    pub(crate) fn write(&self) -> Result<String, RegistriesError> {
        let bad =
            |e: serde_json::Error| RegistriesError::Template { path: POLICY_JSON, message: e.to_string() };
        serde_json::to_string_pretty(self).map_err(bad)
    }
}

/// The policy of the cluster: what is blocked and allowed, and what must be signed.
pub(crate) fn policy(
    template: &str,
    e: &EffectiveScopes,
    payload: &str,
    signatures: &Signatures,
) -> Result<Policy, RegistriesError> {
    let (allowed, blocked) =
        (e.allowed.as_deref().unwrap_or_default(), e.policy.as_deref().unwrap_or_default());
    if !allowed.is_empty() && !blocked.is_empty() && allowed != [payload] {
        return Err(RegistriesError::AllowedAndBlocked);
    }
    signatures.check(if blocked.is_empty() { allowed } else { &[] }, blocked)?;
    let word = |word: &str| vec![Requirement::Other(json!({ "type": word }))];
    let (accept, reject) = (word("insecureAcceptAnything"), word("reject"));
    let mut policy = Policy::read(template)?;
    let mut scopes = Scopes::new();
    if !allowed.is_empty() {
        policy.default.clone_from(&reject);
        let unsigned = allowed.iter().filter(|s| !signatures.cluster.contains_key(*s));
        scopes.extend(unsigned.map(|s| (s.clone(), accept.clone())));
    }
    if !blocked.is_empty() {
        policy.default = accept;
        scopes.extend(blocked.iter().map(|s| (s.clone(), reject.clone())));
    }
    for (scope, requirements) in &signatures.cluster {
        scopes.entry(scope.clone()).or_default().extend(requirements.iter().cloned());
    }
    for transport in ["docker", "atomic"] {
        policy.transports.remove(transport);
    }
    Ok(policy.with(&scopes))
}

/// The same value with the keys of every object in order, as Go writes maps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let ordered: std::collections::BTreeMap<String, Value> = map.into_iter().collect();
            Value::Object(ordered.into_iter().map(|(k, v)| (k, sorted(v))).collect())
        }
        Value::Array(all) => Value::Array(all.into_iter().map(sorted).collect()),
        other => other,
    }
}
