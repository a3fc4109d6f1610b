//! A person's consent to the wave of a pool that waits for it, as an annotation of the pool.
//!
//! What it is not: the decision whether the wave begins; the controller makes it (see `rollout::policy`).

use crate::{ActionError, Mode};
use api::k8s::ObjectMeta;
use api::names::own;
use api::v1::MachineConfigPool;
use api::v1alpha1::RolloutPolicy;
use client::call;
use insight::Policies;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use rollout::policy::{Policy, PoolPolicies};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What stands for the wave where a pool has none.
const ALL: &str = "all";

/// What is approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    /// The pool.
    pub pool: String,
    /// Its config, for which alone the approval is.
    pub config: String,
    /// The wave that waits.
    pub wave: String,
    /// Who approves.
    pub by: String,
    #[serde(skip)]
    pool_uid: Option<String>,
    #[serde(skip)]
    policy: Option<PolicyVersion>,
}

/// A RolloutPolicy as it was written last: another generation may mean other nodes by the same wave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: Option<String>,
    /// Its generation.
    pub generation: Option<i64>,
}

impl PolicyVersion {
    fn of(policy: &RolloutPolicy) -> Self {
        let ObjectMeta { name, uid, generation, .. } = &policy.metadata;
        Self { name: name.clone().unwrap_or_default(), uid: uid.clone(), generation: *generation }
    }
}

/// What an approval is about. Two of them are equal where the same nodes would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalSubject {
    /// The UID of the pool.
    pub pool: Option<String>,
    /// Its config.
    pub config: String,
    /// The wave that waits.
    pub wave: String,
    /// The policy that says which nodes the wave has; `None`: the pool has none, and is approved as a whole.
    pub policy: Option<PolicyVersion>,
}

impl Approval {
    /// What it is about.
    pub fn subject(&self) -> ApprovalSubject {
        ApprovalSubject {
            pool: self.pool_uid.clone(),
            config: self.config.clone(),
            wave: self.wave.clone(),
            policy: self.policy.clone(),
        }
    }
}

/// What waits for an approval.
#[derive(Debug, PartialEq, Eq)]
struct PendingApproval {
    config: String,
    wave: String,
    policy: Option<PolicyVersion>,
}

/// The wave that waits, and the config that it waits with. `config`, `expected`: the config and the wave that somebody was
/// shown; `None`: whatever waits.
///
/// # Errors
/// There is nothing to approve, or not this.
fn waiting(
    pool: &MachineConfigPool,
    policy: &Policy,
    object: Option<&RolloutPolicy>,
    config: Option<&str>,
    expected: Option<&str>,
) -> Result<(String, String), String> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let target = pool.spec.configuration.name.as_str();
    if let Some(config) = config.filter(|c| *c != target) {
        return Err(format!(
            "pool {name} no longer has the config {config}: its config is now {target}; look at that one, then approve it"
        ));
    }
    let progress = object.and_then(|o| o.status.as_ref()?.pools.iter().find(|p| p.name == name));
    let progress = progress.filter(|p| p.config.as_deref() == Some(target));
    let Some(wave) = progress.and_then(|p| p.wave.as_deref()) else {
        return Err(format!("no wave of pool {name} waits for an approval; `mco status` shows its progress"));
    };
    if let Some(expected) = expected.filter(|e| *e != wave) {
        return Err(format!(
            "wave {expected} of pool {name} no longer waits for an approval, but wave {wave} does; look at that one, then \
             approve it"
        ));
    }
    // A wave may also wait because another pool has rejected the same change.
    let needed = policy.waves.iter().any(|w| &*w.name == wave && w.needs_approval)
        || progress.is_some_and(|p| p.approval_needed);
    let given = progress.is_some_and(|p| p.approvals.iter().any(|a| a.wave == wave && a.config == target));
    match (needed, given) {
        (false, _) => {
            Err(format!("wave {wave} of pool {name} needs no approval; `mco status` says what it waits for"))
        }
        (true, true) => Err(format!("wave {wave} of pool {name} is approved already")),
        (true, false) => Ok((target.to_owned(), wave.to_owned())),
    }
}

/// What is approved: the wave that waits by the pool's policy, or the pool as a whole if it waits because another one has
/// rejected its change.
///
/// # Errors
/// There is nothing to approve, or not this.
fn pending_approval(
    pool: &MachineConfigPool,
    pools: &[MachineConfigPool],
    policies: &Policies,
    config: Option<&str>,
    wave: Option<&str>,
) -> Result<PendingApproval, String> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let Policies { read: objects, unreadable } = policies;
    if let Some(policy) = unreadable.iter().find(|policy| policy.may_select(pool)) {
        return Err(format!(
            "{policy}, and it may select pool {name}, so the effect of an approval is not known; use the `mco` of that \
             version"
        ));
    }
    let (all, pools): (Vec<&RolloutPolicy>, Vec<&MachineConfigPool>) =
        (objects.iter().collect(), pools.iter().collect());
    let of_pools = PoolPolicies::of(&all, &pools, None, None);
    let target = &pool.spec.configuration.name;
    let policy = of_pools.policy(name);
    let object = policy.and_then(|p| objects.iter().find(|o| o.metadata.name.as_deref() == Some(&*p.name)));
    let version = object.map(PolicyVersion::of);
    let shown = config.is_none_or(|config| config == target) && wave.is_none_or(|wave| wave == ALL);
    if shown && of_pools.held_by_others(pool, &pools).is_some() {
        return Ok(PendingApproval { config: target.clone(), wave: ALL.to_owned(), policy: version });
    }
    let Some(policy) = policy else {
        return Err(format!("no RolloutPolicy is in force for pool {name}; `kubectl get rop` lists them"));
    };
    let (config, wave) = waiting(pool, policy, object, config, wave)?;
    Ok(PendingApproval { config, wave, policy: version })
}

/// Approves the wave of a pool that waits; with `config` only if that is the pool's config still; with `shown` only if the
/// approval means what somebody was shown.
///
/// # Errors
/// Nothing waits for an approval, or not this; a request that failed, also because the pool changed meanwhile.
pub async fn approve(
    client: &Client,
    name: &str,
    config: Option<&str>,
    shown: Option<&ApprovalSubject>,
    how: Mode,
) -> Result<Approval, ActionError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let by = whoami(client).await?;
    let pool = call(|| format!("machineconfigpool {name}"), pools.get(name)).await?;
    let all = ListParams::default();
    let others = call(|| "list machineconfigpools".to_owned(), pools.list(&all)).await?.items;
    // Read last: no write can be bound to it, so as little time as possible passes until then.
    let policies = insight::policies(client).await?;
    let (wanted, wave) = (shown.map(|s| &*s.config).or(config), shown.map(|s| &*s.wave));
    let PendingApproval { config, wave, policy } =
        pending_approval(&pool, &others, &policies, wanted, wave).map_err(ActionError::Refused)?;
    let approval =
        Approval { pool: name.to_owned(), config, wave, by, pool_uid: pool.metadata.uid.clone(), policy };
    if let Some(shown) = shown.filter(|shown| **shown != approval.subject()) {
        let what = match &shown.policy {
            Some(policy) if shown.policy != approval.policy => format!("RolloutPolicy {}", policy.name),
            _ => format!("pool {name}"),
        };
        return Err(ActionError::Refused(format!(
            "{what} changed since this was shown, so nothing was done: look at it again"
        )));
    }
    if how == Mode::Write {
        let Approval { config, wave, by, .. } = &approval;
        let annotations = json!({own::APPROVED: format!("{config}/{wave}"), own::APPROVED_BY: by});
        // Bound to the version that was looked at: the pool may get another config meanwhile.
        let metadata = json!({"resourceVersion": pool.metadata.resource_version, "annotations": annotations});
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({ "metadata": metadata })));
        let what = || format!("cannot annotate machineconfigpool {name}");
        call(what, pools.patch(name, &params, &patch)).await?;
    }
    Ok(approval)
}

/// The name by which the API server knows the user of this client.
async fn whoami(client: &Client) -> Result<String, ActionError> {
    let kind =
        ApiResource::from_gvk(&GroupVersionKind::gvk("authentication.k8s.io", "v1", "SelfSubjectReview"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let mut question = DynamicObject::new("", &kind);
    question.metadata.name = None;
    let answer =
        call(|| "create SelfSubjectReview".to_owned(), api.create(&PostParams::default(), &question)).await?;
    let name = answer.data.pointer("/status/userInfo/username").and_then(serde_json::Value::as_str);
    name.map(str::to_owned)
        .ok_or_else(|| ActionError::Refused("the API server did not return your user name".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_wave_that_waits_is_approved_and_only_for_the_present_config() {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker"}, "spec": {"configuration": {"name": "new"}},
        }))
        .unwrap();
        let policy = |progress: serde_json::Value| -> RolloutPolicy {
            serde_json::from_value(json!({
                "metadata": {"name": "p"},
                "spec": {"pools": {"names": ["worker"]}, "waves": [
                    {"name": "canary", "size": 1}, {"name": "rest", "approval": "Needed"}]},
                "status": {"pools": [progress]},
            }))
            .unwrap()
        };
        let at = "2026-07-01T12:00:00Z";
        let given = json!([{"wave": "rest", "config": "new", "by": "jane", "at": at}]);
        let rows = [
            (json!({"name": "worker", "config": "new", "wave": "rest"}), None, Ok("rest")),
            (json!({"name": "worker", "config": "new", "wave": "rest"}), Some("new"), Ok("rest")),
            (
                json!({"name": "worker", "config": "new", "wave": "rest"}),
                Some("old"),
                Err("no longer has the config old"),
            ),
            (json!({"name": "worker", "config": "new", "wave": "canary"}), None, Err("needs no approval")),
            (
                json!({"name": "worker", "config": "new", "wave": "canary", "approvalNeeded": true}),
                None,
                Ok("canary"),
            ),
            (
                json!({"name": "worker", "config": "old", "wave": "rest"}),
                None,
                Err("no wave of pool worker waits"),
            ),
            (
                json!({"name": "worker", "config": "new", "wave": "rest", "approvals": given}),
                None,
                Err("approved already"),
            ),
        ];
        let rows = rows.map(|(progress, config, want)| (progress, config, None, want));
        let rests = || json!({"name": "worker", "config": "new", "wave": "rest"});
        let shown = [
            (rests(), Some("new"), Some("rest"), Ok("rest")),
            (rests(), Some("new"), Some("canary"), Err("but wave rest does")),
        ];
        for (progress, config, expected, want) in rows.into_iter().chain(shown) {
            let object = policy(progress);
            let read = rollout::policy::parse("p", &object.spec).unwrap();
            match (waiting(&pool, &read, Some(&object), config, expected), want) {
                (Ok((config, wave)), Ok(want)) => assert_eq!((&*config, &*wave), ("new", want)),
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                (got, want) => panic!("{got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn a_pool_without_waves_is_approved_as_a_whole_while_another_ones_rejection_holds_it() {
        let pool = |name: &str, annotation: Option<&str>| -> MachineConfigPool {
            serde_json::from_value(json!({
                "metadata": {"name": name, "annotations": {own::APPROVED: annotation.unwrap_or_default()}},
                "spec": {"configuration": {"name": format!("new-{name}"), "source": [{"name": "base"}, {"name": "harm"}]}},
                "status": {"configuration": {"name": format!("old-{name}"), "source": [{"name": "base"}]}},
            }))
            .unwrap()
        };
        let policy = |name: &str, pool: &str, rejected: serde_json::Value, windows: bool| -> RolloutPolicy {
            let window = json!([{"name": "w", "cron": "0 22 * * *", "duration": "1h"}]);
            serde_json::from_value(json!({
                "metadata": {"name": name, "generation": 1},
                "spec": {"pools": {"names": [pool]}, "onFailure": "Rollback", "windows": if windows { window } else { json!([]) }},
                "status": {"observedGeneration": 1, "pools": [{"name": pool, "rejected": rejected}]},
            }))
            .unwrap()
        };
        let rejected = json!([{"config": "new-worker", "reason": "harm", "at": "2026-07-01T12:00:00Z"}]);
        let rejecting = policy("p", "worker", rejected, false);
        let mut only_windows = policy("q", "infra", json!([]), true);
        only_windows.spec.on_failure = api::v1alpha1::OnFailure::Hold;
        let worker = pool("worker", None);
        let free = "no RolloutPolicy is in force for pool infra";
        let rows = [
            (None, vec![rejecting.clone()], Ok(("new-infra", "all"))),
            (None, vec![rejecting.clone(), only_windows], Ok(("new-infra", "all"))),
            (Some("old-infra/all"), vec![rejecting.clone()], Ok(("new-infra", "all"))),
            (Some("new-infra/all"), vec![rejecting], Err(free)),
            (None, vec![], Err(free)),
        ];
        for (given, policies, want) in rows {
            let infra = pool("infra", given);
            let policies = Policies { read: policies, unreadable: vec![] };
            let got = pending_approval(&infra, &[worker.clone(), infra.clone()], &policies, None, None);
            match (got, want) {
                (Ok(PendingApproval { config, wave, .. }), Ok(want)) => assert_eq!((&*config, &*wave), want),
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                (got, want) => panic!("{got:?}, not {want:?}"),
            }
        }
    }
}
