//! RolloutPolicies, decoded one by one: one that another version has written must not hide the others.
//!
//! What it is not: what policies mean for a pool (see `rollout::policy`).

use api::v1::MachineConfigPool;
use api::v1alpha1::{PoolTarget, RolloutPolicy};
use client::{CallError, call};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::fmt;

/// The RolloutPolicies of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Policies {
    /// Those that can be read.
    pub read: Vec<RolloutPolicy>,
    /// The others.
    pub unreadable: Vec<UnreadablePolicy>,
}

/// A RolloutPolicy that this version cannot read.
#[derive(Debug, Clone, PartialEq)]
pub struct UnreadablePolicy {
    /// Its name.
    pub name: String,
    /// What it says of pools.
    pools: Value,
}

impl UnreadablePolicy {
    /// Whether it could be for this pool. What cannot be read in its choice of pools could mean any of them.
    pub fn may_select(&self, pool: &MachineConfigPool) -> bool {
        let is_known = |key: &String| ["names", "selector"].contains(&key.as_str());
        let Some(fields) = self.pools.as_object().filter(|fields| fields.keys().all(is_known)) else {
            return true;
        };
        let target: PoolTarget = match serde_json::from_value(json!(fields)) {
            Ok(target) => target,
            Err(_) => return true,
        };
        let labels = pool.metadata.labels.as_ref();
        let get = |key: &str| labels.and_then(|l| l.get(key)).map(String::as_str);
        match target {
            PoolTarget { names: Some(names), .. } => names.contains(&pool.name_any()),
            PoolTarget { selector: Some(selector), .. } => {
                api::formats::selector::matches_by(Some(&selector), &get).unwrap_or(true)
            }
            PoolTarget { names: None, selector: None } => true,
        }
    }
}

impl fmt::Display for UnreadablePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RolloutPolicy {} cannot be read, because another version wrote it", self.name)
    }
}

/// One RolloutPolicy; `None`: this version cannot read it.
pub(crate) fn decode(object: &DynamicObject) -> Option<RolloutPolicy> {
    serde_json::from_value(json!(object)).ok()
}

/// Lists all of them. One that is being deleted and cannot be read counts no more.
///
/// # Errors
/// The list failed.
pub async fn policies(client: &Client) -> Result<Policies, CallError> {
    let resource = ApiResource::erase::<RolloutPolicy>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let listed = call(|| "list rolloutpolicies".to_owned(), api.list(&ListParams::default())).await?;
    let mut all = Policies::default();
    for object in listed.items {
        match decode(&object) {
            Some(policy) => all.read.push(policy),
            None if object.metadata.deletion_timestamp.is_some() => {}
            None => all.unreadable.push(UnreadablePolicy {
                name: object.name_any(),
                pools: object.data["spec"]["pools"].clone(),
            }),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_cannot_be_read_may_be_for_every_pool_that_its_readable_parts_do_not_rule_out() {
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker", "labels": {"tier": "web"}}, "spec": {},
        }))
        .unwrap();
        for (pools, may) in [
            (json!({"names": ["worker"]}), true),
            (json!({"names": ["infra"]}), false),
            (json!({"names": ["infra"], "regex": "w.*"}), true),
            (json!({"selector": {"matchLabels": {"tier": "web"}}}), true),
            (json!({"selector": {"matchLabels": {"tier": "db"}}}), false),
            (json!({"selector": {"matchExpressions": [{"key": "x", "operator": "Near"}]}}), true),
            (json!({"names": "infra"}), true),
            (json!({}), true),
            (Value::Null, true),
        ] {
            let policy = UnreadablePolicy { name: "p".to_owned(), pools: pools.clone() };
            assert_eq!(policy.may_select(&pool), may, "{pools}");
        }
    }
}
