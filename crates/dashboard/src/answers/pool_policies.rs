//! The RolloutPolicies of a pool's page: those that select the pool, by the rule that the controller goes by, and those whose status
//! still has the pool. Each says whether it is in force, and why not.
//!
//! What it is not: that rule (see `rollout::policy`).

use api::v1::MachineConfigPool;
use client::{CallError, call};
use insight::Policies;
use kube::api::Api;
use kube::{Client, ResourceExt};
use rollout::policy::{PolicyInput, PoolPolicies};
use serde_json::{Value, json};

/// Reads them.
pub(crate) async fn of_pool(client: &Client, name: &str) -> Result<Vec<Value>, CallError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let (pool, policies) = tokio::try_join!(
        call(|| format!("get machineconfigpool {name}"), pools.get_opt(name)),
        insight::policies(client),
    )?;
    Ok(pool.map(|pool| rows(&pool, &policies)).unwrap_or_default())
}

fn rows(pool: &MachineConfigPool, policies: &Policies) -> Vec<Value> {
    let name = pool.name_any();
    let of_pool = |policies: &[_]| PoolPolicies::of(policies, &[pool], None, None);
    let all = of_pool(&policies.read.iter().collect::<Vec<_>>());
    let readable = policies.read.iter().filter_map(|policy| {
        let progress = policy.status.iter().flat_map(|s| &s.pools).find(|p| p.name == name);
        let selects = of_pool(&[policy]).input(&name).is_some();
        let why = match all.input(&name).filter(|_| selects) {
            Some(PolicyInput::InForce { .. }) => None,
            Some(PolicyInput::Unusable(why)) => Some(why),
            None if progress.is_none() => return None,
            None if policy.metadata.deletion_timestamp.is_some() => Some("it is being deleted"),
            None => Some("it does not select this pool any more; its status is from before"),
        };
        let ready = policy.status.iter().flat_map(|s| &s.conditions).find(|c| c.type_ == "Ready");
        Some(json!({"name": policy.name_any(), "spec": policy.spec, "progress": progress, "inForce": why.is_none(),
            "why": why, "ready": ready}))
    });
    let others = policies.unreadable.iter().filter(|policy| policy.may_select(pool));
    let unreadable = others.map(
        |policy| json!({"name": policy.name, "unreadable": format!("{policy}, and it may select this pool")}),
    );
    readable.chain(unreadable).collect()
}
