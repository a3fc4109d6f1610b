//! Boot tokens' own namespace, and the way into it for tokens that were made before it was there.
//!
//! Flow: a token's Secret in the old namespace is copied, then marked. The old one stays for a while, so that config
//! servers of the version before go on with it; a use that one of them writes down is written on the copy, too. A copy
//! that was used elsewhere takes the old one with it at once, and so does one that is gone, since it was revoked.
//!
//! The operator's right to them is a Role that names each ([`crate::manifests::rights::TOKEN_MOVE`]); it takes that back when none is
//! left.
//!
//! What it is not: making and judging tokens (`api::boot_token`).

use crate::manifests::rights::{TOKEN_MOVE, TOKEN_USE};
use crate::reconcile::{ReconcileError, call};
use api::boot_token::{LABEL, MOVED, NAMESPACE, OLD_NAMESPACE, Record};
use client::CallError;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How long the old Secret stays: longer than a rollout of config servers.
const STAYS: SignedDuration = SignedDuration::from_hours(1);

/// What is done with one Secret of the old namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Move {
    /// Copied and marked.
    Copy,
    /// It was copied before: only marked.
    Mark,
    /// Its use is written on the copy.
    Tell,
    /// It goes.
    Remove,
    /// Nothing.
    Leave,
}

/// What follows from an old Secret and the one of its name in the tokens' own namespace.
fn decide(old: &Secret, new: Option<&Secret>, now: Timestamp) -> Move {
    let marked = old.annotations().get(MOVED);
    let since = marked.and_then(|at| at.parse::<Timestamp>().ok());
    let used = |s: &Secret| Record::from_secret(s).ok().is_some_and(|r| r.used.is_some());
    match (marked, new) {
        (None, None) => Move::Copy,
        (Some(_), None) => Move::Remove,
        (_, Some(new)) if used(old) && !used(new) => Move::Tell,
        // An original that does not know the copy's use would be good for a second one.
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

/// The patch that writes the old one's use on the copy.
fn tell(old: &Secret) -> Option<Value> {
    let used = Record::from_secret(old).ok()?.used?;
    let fields = used.fields().into_iter().map(|(key, value)| (key.to_owned(), json!(value)));
    Some(json!({"stringData": serde_json::Map::from_iter(fields)}))
}

/// Makes the tokens' namespace, where it is missing.
///
/// # Errors
/// The API server's answer.
pub async fn keep_namespace(client: &Client) -> Result<bool, ReconcileError> {
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

/// Whether we may list Secrets of the old namespace: an administrator may. The operator's own account reads those that its
/// Role names.
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

/// The tokens of the old namespace: all that stand there, or those that our Role names.
async fn old_tokens(client: &Client, from: &Api<Secret>) -> Result<Vec<Secret>, CallError> {
    if may_list(client).await? {
        return Ok(call("list boot tokens of before".to_owned(), from.list(&labelled())).await?.items);
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

/// Of a token in the old namespace.
pub(crate) fn labelled() -> ListParams {
    ListParams::default().labels(LABEL)
}

/// Takes the right to the old namespace's tokens back; says whether there was one.
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
        // The Role last: it is what tells that there is something to take back.
        let what = format!("delete RoleBinding {OLD_NAMESPACE}/{name}");
        gone(call(what, bindings.delete(name, &params)).await.map(drop))?;
        let what = format!("delete Role {OLD_NAMESPACE}/{name}");
        gone(call(what, roles.delete(name, &params)).await.map(drop))?;
        taken = true;
    }
    Ok(taken)
}

/// What is gone already needs no deletion.
fn gone(deleted: Result<(), CallError>) -> Result<(), CallError> {
    deleted.or_else(|error| if error.is_not_found() { Ok(()) } else { Err(error) })
}

/// What became of the tokens of the old namespace.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Brought {
    /// The Secrets that were copied now.
    pub copied: Vec<String>,
    /// None stands there any more.
    pub finished: bool,
}

/// Brings tokens of the old namespace over. Whoever may not read there has nothing to bring.
///
/// # Errors
/// The API server's answer. What was brought stands, and the next time goes on.
pub async fn bring_over(client: &Client) -> Result<Brought, ReconcileError> {
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
                gone(call(what, from.delete(&name, &DeleteParams::default())).await.map(drop))?;
                left -= 1;
            }
            Move::Tell => {
                let params = PatchParams::default();
                if let Some(patch) = tell(&old).map(Patch::Merge) {
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
    Ok(Brought { copied, finished: left == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::boot_token::{ENTROPY, Token, Use};

    fn secret(used: bool, marked: Option<&str>) -> Secret {
        let now = Timestamp::UNIX_EPOCH;
        let by = std::net::IpAddr::from([10, 0, 0, 1]);
        let used = used.then_some(Use { at: now, by });
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
            // It was copied, and the copy was taken back.
            (secret(false, recent), None, Move::Remove),
            // A server of the version before wrote a use down.
            (secret(true, recent), Some(&fresh), Move::Tell),
            (secret(true, long), Some(&fresh), Move::Tell),
            (secret(true, recent), Some(&spent), Move::Leave),
            // The copy was made, its mark was not.
            (secret(false, None), Some(&fresh), Move::Mark),
            (secret(false, recent), Some(&fresh), Move::Leave),
            (secret(false, recent), Some(&spent), Move::Remove),
            (secret(false, long), Some(&fresh), Move::Remove),
            (secret(false, Some("nonsense")), Some(&fresh), Move::Remove),
            // Used in its new place: an old one that is still good would let it be used twice, whatever its age.
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
        let patch = tell(&old).unwrap();
        assert_eq!(patch["stringData"]["used-by"], "10.0.0.1");
        assert_eq!(tell(&secret(false, None)), None);
    }
}
