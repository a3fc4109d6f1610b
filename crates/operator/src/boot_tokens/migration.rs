//! The namespace of boot tokens, and the move of older tokens into it.
//!
//! Flow: a token's Secret in the old namespace is copied, then marked. The old one stays for a while, because config
//! servers of the previous version still read it. If one of them records a use there, the use is recorded on the copy,
//! too. The old one is deleted at once if its copy was used, or if its copy is gone because the token was revoked.
//!
//! The operator's right to change and delete the old Secrets is a Role that names each of them
//! ([`crate::accounts::TOKEN_MOVE`]). The operator deletes the Role when none is left. (It may read every Secret there,
//! because it gives the controller the right to push secrets.)
//!
//! What it is not: creating tokens (see `manage`) and checking them (see `api::first_boot::boot_token`).

use crate::accounts::{TOKEN_MOVE, TOKEN_USE};
use crate::reconcile_error::ReconcileError;
use crate::request::call;
use api::first_boot::boot_token::{LABEL, MOVED, NAMESPACE, OLD_NAMESPACE, Record};
use client::{CallError, if_found};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How long the old Secret stays: longer than a rollout of config servers takes.
const STAYS: SignedDuration = SignedDuration::from_hours(1);

/// What to do with one Secret of the old namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    /// Copy it, and mark it.
    Copy,
    /// It is copied already: only mark it.
    Mark,
    /// Record its use on the copy.
    RecordUse,
    /// Delete it.
    Remove,
    /// Nothing.
    Leave,
}

/// Decides about an old Secret, given the Secret of the same name in the new namespace.
fn decide(old: &Secret, new: Option<&Secret>, now: Timestamp) -> Move {
    let marked = old.annotations().get(MOVED);
    let since = marked.and_then(|at| at.parse::<Timestamp>().ok());
    let used = |s: &Secret| Record::from_secret(s).ok().is_some_and(|r| r.used.is_some());
    match (marked, new) {
        (None, None) => Move::Copy,
        (Some(_), None) => Move::Remove,
        (_, Some(new)) if used(old) && !used(new) => Move::RecordUse,
        // The copy was used. The original does not know this use, and would allow a second one.
        (_, Some(new)) if used(new) && !used(old) => Move::Remove,
        (None, Some(_)) => Move::Mark,
        (Some(_), Some(_)) if since.is_none_or(|at| now.duration_since(at) > STAYS) => Move::Remove,
        (Some(_), Some(_)) => Move::Leave,
    }
}

/// The copy of an old Secret.
fn copy(old: &Secret) -> Secret {
    let mut new = Secret { type_: old.type_.clone(), data: old.data.clone(), ..Secret::default() };
    new.metadata.name.clone_from(&old.metadata.name);
    new.metadata.namespace = Some(NAMESPACE.to_owned());
    new.metadata.labels.clone_from(&old.metadata.labels);
    new
}

/// The patch that records the original's use on the copy.
fn record_use(old: &Secret) -> Option<Value> {
    let used = Record::from_secret(old).ok()?.used?;
    let fields = used.fields().into_iter().map(|(key, value)| (key.to_owned(), json!(value)));
    Some(json!({"stringData": serde_json::Map::from_iter(fields)}))
}

/// Creates the tokens' namespace, if it is missing.
///
/// # Errors
/// The API server's answer.
pub(crate) async fn keep_namespace(client: &Client) -> Result<bool, ReconcileError> {
    let all = Api::<Namespace>::all(client.clone());
    if call(format!("get Namespace {NAMESPACE}"), all.get_opt(NAMESPACE)).await?.is_some() {
        return Ok(false);
    }
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(NAMESPACE.to_owned());
    let made =
        call(format!("create Namespace {NAMESPACE}"), all.create(&PostParams::default(), &namespace)).await;
    match made {
        Err(error) if error.is_conflict() => Ok(false),
        made => Ok(made.map(|_| true)?),
    }
}

/// Whether we may list Secrets of the old namespace. An administrator may; the operator's own account may only read those
/// that its Role names.
async fn may_list(client: &Client) -> Result<bool, CallError> {
    let mut review = SelfSubjectAccessReview::default();
    review.spec.resource_attributes = Some(ResourceAttributes {
        namespace: Some(OLD_NAMESPACE.to_owned()),
        resource: Some("secrets".to_owned()),
        verb: Some("list".to_owned()),
        ..ResourceAttributes::default()
    });
    let reviews = Api::<SelfSubjectAccessReview>::all(client.clone());
    let (params, what) =
        (PostParams::default(), format!("ask whether Secrets of {OLD_NAMESPACE} may be listed"));
    let answer = call(what, reviews.create(&params, &review)).await?;
    Ok(answer.status.is_some_and(|s| s.allowed))
}

/// The Secrets that a Role names.
fn names(role: &Role) -> BTreeSet<String> {
    let rules = role.rules.iter().flatten();
    rules.flat_map(|rule| rule.resource_names.iter().flatten().cloned()).collect()
}

/// The tokens in the old namespace: all of them, or those that our Role names.
async fn old_tokens(client: &Client, from: &Api<Secret>) -> Result<Vec<Secret>, CallError> {
    if may_list(client).await? {
        return Ok(call("list boot tokens of an earlier version".to_owned(), from.list(&labelled()))
            .await?
            .items);
    }
    let roles: Api<Role> = Api::namespaced(client.clone(), OLD_NAMESPACE);
    let Some(role) = call(format!("get Role {TOKEN_MOVE}"), roles.get_opt(TOKEN_MOVE)).await? else {
        return Ok(vec![]);
    };
    let mut found = vec![];
    for name in names(&role) {
        let secret = call(format!("get Secret {OLD_NAMESPACE}/{name}"), from.get_opt(&name)).await?;
        found.extend(secret.filter(|s| s.labels().contains_key(LABEL)));
    }
    Ok(found)
}

/// Selects boot tokens among the Secrets of the old namespace, by their label.
pub(crate) fn labelled() -> ListParams {
    ListParams::default().labels(LABEL)
}

/// Removes our right to the tokens in the old namespace. Returns whether we had one.
///
/// # Errors
/// The API server's answer.
pub(crate) async fn take_back(client: &Client) -> Result<bool, CallError> {
    let roles: Api<Role> = Api::namespaced(client.clone(), OLD_NAMESPACE);
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), OLD_NAMESPACE);
    let mut taken = false;
    for name in [TOKEN_USE, TOKEN_MOVE] {
        if call(format!("get Role {OLD_NAMESPACE}/{name}"), roles.get_opt(name)).await?.is_none() {
            continue;
        }
        let params = DeleteParams::default();
        // The Role last: while it exists, a later pass tries again.
        let what = format!("delete RoleBinding {OLD_NAMESPACE}/{name}");
        if_found(call(what, bindings.delete(name, &params)).await)?;
        let what = format!("delete Role {OLD_NAMESPACE}/{name}");
        if_found(call(what, roles.delete(name, &params)).await)?;
        taken = true;
    }
    Ok(taken)
}

/// The result of a move of tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MovedTokens {
    /// The Secrets that were copied in this pass.
    pub(crate) copied: Vec<String>,
    /// Whether the old namespace has no more tokens.
    pub(crate) finished: bool,
}

/// Moves tokens out of the old namespace. An account that may not read there has nothing to move.
///
/// # Errors
/// The API server's error. Tokens that were copied stay, and the next pass continues.
pub(crate) async fn move_tokens(client: &Client) -> Result<MovedTokens, ReconcileError> {
    let (from, to): (Api<Secret>, Api<Secret>) =
        (Api::namespaced(client.clone(), OLD_NAMESPACE), Api::namespaced(client.clone(), NAMESPACE));
    let old = old_tokens(client, &from).await?;
    let mut left = old.len();
    let mut copied = vec![];
    for old in old {
        let name = old.name_any();
        let new = call(format!("get Secret {NAMESPACE}/{name}"), to.get_opt(&name)).await?;
        let decision = decide(&old, new.as_ref(), Timestamp::now());
        match decision {
            Move::Leave => {}
            Move::Remove => {
                let what = format!("delete Secret {OLD_NAMESPACE}/{name}");
                if_found(call(what, from.delete(&name, &DeleteParams::default())).await)?;
                left -= 1;
            }
            Move::RecordUse => {
                let params = PatchParams::default();
                if let Some(patch) = record_use(&old).map(Patch::Merge) {
                    let told = to.patch(&name, &params, &patch);
                    call(format!("patch Secret {NAMESPACE}/{name}"), told).await?;
                }
            }
            Move::Copy | Move::Mark => {
                if decision == Move::Copy {
                    let (params, new) = (PostParams::default(), copy(&old));
                    call(format!("create Secret {NAMESPACE}/{name}"), to.create(&params, &new)).await?;
                    copied.push(name.clone());
                }
                let mark = json!({"metadata": {"annotations": {MOVED: Timestamp::now().to_string()}}});
                let (params, mark) = (PatchParams::default(), Patch::Merge(&mark));
                let marked = from.patch_metadata(&name, &params, &mark);
                call(format!("patch Secret {OLD_NAMESPACE}/{name}"), marked).await?;
            }
        }
    }
    Ok(MovedTokens { copied, finished: left == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::first_boot::boot_token::{ENTROPY, Token, TokenUse};

    fn secret(used: bool, marked: Option<&str>) -> Secret {
        let now = Timestamp::UNIX_EPOCH;
        let by = std::net::IpAddr::from([10, 0, 0, 1]);
        let used = used.then_some(TokenUse { at: now, by });
        let record = Record { single_use: true, used, ..Record::new(&Token::new(&[1; ENTROPY]), "worker") };
        let mut secret = record.to_secret();
        secret.metadata.namespace = Some(OLD_NAMESPACE.to_owned());
        if let Some(at) = marked {
            secret.annotations_mut().insert(MOVED.to_owned(), at.to_owned());
        }
        secret
    }

    #[test]
    fn a_token_is_copied_once_keeps_its_use_and_never_comes_back() {
        let now: Timestamp = "2030-01-01T12:00:00Z".parse().unwrap();
        let (recent, long) = (Some("2030-01-01T11:30:00Z"), Some("2030-01-01T10:00:00Z"));
        let (fresh, spent) = (secret(false, None), secret(true, None));
        let rows = [
            (secret(false, None), None, Move::Copy),
            (secret(true, None), None, Move::Copy),
            // It was copied, and the copy was revoked.
            (secret(false, recent), None, Move::Remove),
            // A server of the previous version has recorded a use in the old Secret.
            (secret(true, recent), Some(&fresh), Move::RecordUse),
            (secret(true, long), Some(&fresh), Move::RecordUse),
            (secret(true, recent), Some(&spent), Move::Leave),
            // The copy exists, but the original is not marked.
            (secret(false, None), Some(&fresh), Move::Mark),
            (secret(false, recent), Some(&fresh), Move::Leave),
            (secret(false, recent), Some(&spent), Move::Remove),
            (secret(false, long), Some(&fresh), Move::Remove),
            (secret(false, Some("nonsense")), Some(&fresh), Move::Remove),
            // The copy was used. The old Secret must be removed at once, or the token could be used twice.
            (secret(false, None), Some(&spent), Move::Remove),
        ];
        for (old, new, want) in rows {
            assert_eq!(decide(&old, new, now), want, "{old:?} {new:?}");
        }
    }

    #[test]
    fn the_copy_says_what_the_old_one_said() {
        let old = secret(true, Some("x"));
        let new = copy(&old);
        assert_eq!(Record::from_secret(&new), Record::from_secret(&old));
        assert_eq!((new.namespace().as_deref(), new.annotations().len()), (Some(NAMESPACE), 0));
        let patch = record_use(&old).unwrap();
        assert_eq!(patch["stringData"]["used-by"], "10.0.0.1");
        assert_eq!(record_use(&secret(false, None)), None);
    }
}
