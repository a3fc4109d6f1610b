//! Which RolloutPolicy is which pool's. A pool with two of them, or with one that cannot be used, holds: nobody can say
//! what was meant.
//!
//! What it is not: what the policy allows (see `progress`).

use crate::policy::{Policy, parse};
use api::v1alpha1::{RolloutPolicy, RolloutPolicySpec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A pool, as far as policies pick it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyPool<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: Option<&'a BTreeMap<String, String>>,
}

/// The policy of a pool.
#[derive(Clone, Debug)]
pub enum Assigned {
    /// This one is in force.
    Policy(Arc<Policy>),
    /// There is one, but it cannot be followed, and why, with the remedy.
    Unusable(String),
}

/// Whether a policy is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// For pools.
    InForce {
        /// These.
        pools: Vec<String>,
        /// Names in the policy that no pool has.
        missing: Vec<String>,
    },
    /// For none, or not for all that it picks.
    NotInForce {
        /// Why.
        reason: NotInForce,
        /// Why, for people, with the remedy.
        message: String,
    },
}

/// Why a policy is not in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotInForce {
    /// It cannot be followed as it is written.
    Invalid,
    /// It picks no pool.
    NoPool,
    /// Another policy picks one of its pools, too.
    SeveralPolicies,
}

impl NotInForce {
    /// The reason of the condition.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Invalid => "Invalid",
            Self::NoPool => "NoPool",
            Self::SeveralPolicies => "SeveralPolicies",
        }
    }
}

/// Which policies are in force for which pools.
#[derive(Clone, Debug, Default)]
pub struct Assignment {
    /// By pool; pools without a policy are not there.
    pub pools: BTreeMap<String, Assigned>,
    /// By policy.
    pub policies: BTreeMap<String, Verdict>,
}

fn picks(spec: &RolloutPolicySpec, pool: &PolicyPool<'_>) -> bool {
    match (&spec.pools.names, &spec.pools.selector) {
        (Some(names), _) => names.iter().any(|n| n == pool.name),
        (None, Some(selector)) => {
            let get = |key: &str| pool.labels.and_then(|l| l.get(key)).map(String::as_str);
            let matches = api::formats::selector::matches_by(Some(selector), &get);
            // A pool that a broken selector may mean holds, too.
            matches.unwrap_or_else(|_| api::formats::selector::may_match(selector, &get))
        }
        (None, None) => false,
    }
}

/// Decides for all policies and pools. Policies that are being deleted are not there any more.
pub fn assign<'a>(
    policies: impl IntoIterator<Item = &'a RolloutPolicy>,
    pools: &[PolicyPool<'_>],
) -> Assignment {
    let mut assignment = Assignment::default();
    let mut of_pool: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut read_policies: BTreeMap<&str, Result<Arc<Policy>, String>> = BTreeMap::new();
    let mut picked: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut missing: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for policy in policies {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let mine: Vec<&str> = pools.iter().filter(|p| picks(&policy.spec, p)).map(|p| p.name).collect();
        for pool in &mine {
            of_pool.entry(pool).or_default().push(name);
        }
        let named = policy.spec.pools.names.iter().flatten();
        let unknown = named.filter(|name| !mine.contains(&name.as_str())).cloned().collect();
        missing.insert(name, unknown);
        picked.insert(name, mine);
        let read = parse(name, &policy.spec).map(Arc::new).map_err(|e| e.to_string());
        read_policies.insert(name, read);
    }
    for (pool, names) in &of_pool {
        let assigned = match names.as_slice() {
            [one] => match read_policies.get(one) {
                Some(Ok(policy)) => Assigned::Policy(policy.clone()),
                Some(Err(why)) => Assigned::Unusable(format!("RolloutPolicy {one} cannot be used: {why}")),
                None => continue,
            },
            several => Assigned::Unusable(format!(
                "RolloutPolicies {} are all for this pool, and none of them is in force; leave one that names or selects it",
                several.join(", ")
            )),
        };
        assignment.pools.insert((*pool).to_owned(), assigned);
    }
    for (name, mine) in picked {
        let disputed = |pool: &&&str| of_pool.get(**pool).is_some_and(|names| names.len() > 1);
        let not = |reason, message| Verdict::NotInForce { reason, message };
        let verdict = match (read_policies.get(name), mine.iter().find(disputed)) {
            (Some(Err(why)), _) => {
                not(NotInForce::Invalid, format!("{why}. Its pools hold until it is corrected"))
            }
            _ if mine.is_empty() => not(
                NotInForce::NoPool,
                "it picks no pool; correct spec.pools, or label a MachineConfigPool".to_owned(),
            ),
            (_, Some(pool)) => {
                let others = of_pool.get(*pool).into_iter().flatten().filter(|other| **other != name);
                let others = others.copied().collect::<Vec<_>>().join(", ");
                let message = format!(
                    "MachineConfigPool {pool} is picked by {others}, too, so neither is in force for it and its rollout holds; \
                     leave one that names or selects it"
                );
                not(NotInForce::SeveralPolicies, message)
            }
            _ => Verdict::InForce {
                pools: mine.iter().map(|p| (*p).to_owned()).collect(),
                missing: missing.remove(name).unwrap_or_default(),
            },
        };
        assignment.policies.insert(name.to_owned(), verdict);
    }
    assignment
}
