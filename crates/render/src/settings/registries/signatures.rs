//! Signature policies: ClusterImagePolicy and ImagePolicy objects become requirements in `policy.json`, in one policy
//! for each namespace, and in the list of registries that store signatures beside the images. Pure; the objects are
//! read as JSON.
//!
//! What it is not: which registries are blocked or allowed (see `registries`).
//!
//! The format is that of containers-policy.json(5). Fields are in the order in which Go programs write them, because
//! rendered names are hashes of the text.

use crate::settings::registries::scopes::nested;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The path of the list of registries with signatures on a host.
pub(crate) const SIGSTORE_CONF: &str = "/etc/containers/registries.d/sigstore-registries.yaml";

/// The path of a namespace's policy on a host.
pub(crate) fn namespace_policy(namespace: &str) -> String {
    format!("/etc/crio/policies/{namespace}.json")
}

/// A policy that cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {path}: {message}")]
pub struct SignatureError {
    /// The object.
    pub object: String,
    /// The field's path.
    pub path: &'static str,
    /// The rule, and the remedy.
    pub message: String,
}

/// An ImagePolicy whose scopes are already covered by a ClusterImagePolicy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What has no effect, and why.
    pub message: String,
}

/// A requirement for images of a scope.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Requirement {
    /// Anything else in the template, or a plain word.
    Other(Value),
    Signed(Box<Signed>),
}

/// `sigstoreSigned`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Signed {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fulcio: Option<Fulcio>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rekor_public_key_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pki: Option<Pki>,
    signed_identity: Identity,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Fulcio {
    ca_data: String,
    oidc_issuer: String,
    subject_email: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Pki {
    ca_roots_data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_intermediates_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_email: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject_hostname: Option<String>,
}

/// Which name a signature must be for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    docker_repository: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_prefix: Option<String>,
}

/// Requirements by scope.
pub(crate) type Scopes = BTreeMap<String, Vec<Requirement>>;

/// All policies of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Signatures {
    pub(crate) cluster: Scopes,
    pub(crate) namespaces: BTreeMap<String, Scopes>,
    /// The object that each scope comes from, for errors.
    origin: BTreeMap<String, String>,
    pub(crate) conflicts: Vec<Conflict>,
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn scopes(object: &Value) -> impl Iterator<Item = &str> {
    let all = object.pointer("/spec/scopes").and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str)
}

impl Signatures {
    /// Reads the objects of both kinds; each list is ordered by name.
    pub(crate) fn read<'a>(
        cluster: impl IntoIterator<Item = &'a Value>,
        namespaced: impl IntoIterator<Item = &'a Value>,
    ) -> Result<Self, SignatureError> {
        let mut all = Self::default();
        for object in cluster {
            let origin = format!("ClusterImagePolicy {}", text(object, "/metadata/name"));
            let requirement = requirement(object, &origin)?;
            for scope in scopes(object) {
                all.origin.insert(scope.to_owned(), origin.clone());
                all.cluster.entry(scope.to_owned()).or_default().push(requirement.clone());
            }
        }
        for object in namespaced {
            let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
            let origin = format!("ImagePolicy {namespace}/{name}");
            let requirement = requirement(object, &origin)?;
            let mut taken = Vec::new();
            for scope in scopes(object) {
                if let Some(by) = all.cluster.keys().find(|c| nested(scope, c)) {
                    taken.push(format!(
                        "{scope} (in {} of {})",
                        by,
                        all.origin.get(by).map_or("", String::as_str)
                    ));
                    continue;
                }
                all.origin.entry(scope.to_owned()).or_insert_with(|| origin.clone());
                let of_namespace = all.namespaces.entry(namespace.to_owned()).or_default();
                of_namespace.entry(scope.to_owned()).or_default().push(requirement.clone());
            }
            if !taken.is_empty() {
                let message = format!(
                    "cluster-wide policies win; these scopes have no effect here: {}",
                    taken.join(", ")
                );
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                all.conflicts.push(Conflict { namespace, name, message });
            }
        }
        Ok(all)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.cluster.is_empty() && self.namespaces.is_empty()
    }

    /// Every scope of every policy, in order.
    pub(crate) fn scopes(&self) -> impl Iterator<Item = &str> {
        self.cluster.keys().chain(self.namespaces.values().flat_map(|s| s.keys())).map(String::as_str)
    }

    /// Checks that no policy is for images that may not be pulled anyway.
    pub(crate) fn check(&self, allowed: &[String], blocked: &[String]) -> Result<(), SignatureError> {
        for scope in self.scopes() {
            let error = |message: String| SignatureError {
                object: self.origin.get(scope).cloned().unwrap_or_default(),
                path: "spec.scopes",
                message,
            };
            if !allowed.is_empty() && !allowed.iter().any(|a| nested(scope, a)) {
                return Err(error(format!(
                    "{scope} is in none of Image cluster's allowedRegistries; add it there, or take the scope out"
                )));
            }
            if let Some(by) = blocked.iter().find(|b| nested(scope, b)) {
                return Err(error(format!(
                    "{scope} is blocked by Image cluster's blockedRegistries ({by}); take one of them out"
                )));
            }
        }
        Ok(())
    }
}

fn requirement(object: &Value, origin: &str) -> Result<Requirement, SignatureError> {
    let root = object.pointer("/spec/policy/rootOfTrust").unwrap_or(&Value::Null);
    let error =
        |path: &'static str, message: String| SignatureError { object: origin.to_owned(), path, message };
    let optional = |path: &str| Some(text(root, path)).filter(|t| !t.is_empty()).map(str::to_owned);
    let needed = |path: &str, of: &'static str| {
        optional(path)
            .ok_or_else(|| error(of, format!("has no {}", path.trim_start_matches('/').replace('/', "."))))
    };
    let mut signed = Signed {
        kind: "sigstoreSigned",
        key_data: None,
        fulcio: None,
        rekor_public_key_data: None,
        pki: None,
        signed_identity: identity(object, origin)?,
    };
    const AT: &str = "spec.policy.rootOfTrust";
    match text(root, "/policyType") {
        "PublicKey" => {
            signed.key_data = Some(needed("/publicKey/keyData", AT)?);
            signed.rekor_public_key_data = optional("/publicKey/rekorKeyData");
        }
        "FulcioCAWithRekor" => {
            signed.fulcio = Some(Fulcio {
                ca_data: needed("/fulcioCAWithRekor/fulcioCAData", AT)?,
                oidc_issuer: needed("/fulcioCAWithRekor/fulcioSubject/oidcIssuer", AT)?,
                subject_email: needed("/fulcioCAWithRekor/fulcioSubject/signedEmail", AT)?,
            });
            signed.rekor_public_key_data = Some(needed("/fulcioCAWithRekor/rekorKeyData", AT)?);
        }
        "PKI" => {
            signed.pki = Some(Pki {
                ca_roots_data: needed("/pki/caRootsData", AT)?,
                ca_intermediates_data: optional("/pki/caIntermediatesData"),
                subject_email: optional("/pki/pkiCertificateSubject/email"),
                subject_hostname: optional("/pki/pkiCertificateSubject/hostname"),
            });
        }
        other => {
            return Err(error(
                "spec.policy.rootOfTrust.policyType",
                format!("{other:?} is not PublicKey, FulcioCAWithRekor or PKI"),
            ));
        }
    }
    Ok(Requirement::Signed(Box::new(signed)))
}

fn identity(object: &Value, origin: &str) -> Result<Identity, SignatureError> {
    let plain = |kind| Identity { kind, docker_repository: None, prefix: None, signed_prefix: None };
    let given = object.pointer("/spec/policy/signedIdentity").unwrap_or(&Value::Null);
    let field = |path: &str| Some(text(given, path).to_owned());
    match text(given, "/matchPolicy") {
        "" | "MatchRepoDigestOrExact" => Ok(plain("matchRepoDigestOrExact")),
        "MatchRepository" => Ok(plain("matchRepository")),
        "ExactRepository" => Ok(Identity {
            docker_repository: field("/exactRepository/repository"),
            ..plain("exactRepository")
        }),
        "RemapIdentity" => Ok(Identity {
            prefix: field("/remapIdentity/prefix"),
            signed_prefix: field("/remapIdentity/signedPrefix"),
            ..plain("remapIdentity")
        }),
        other => Err(SignatureError {
            object: origin.to_owned(),
            path: "spec.policy.signedIdentity.matchPolicy",
            message: format!(
                "{other:?} is not MatchRepoDigestOrExact, MatchRepository, ExactRepository or RemapIdentity"
            ),
        }),
    }
}
