//! What changes from one rendered config to another cost a node, for windows and freezes that let some changes pass. Both configs
//! are read for that, and the cluster's disruption policy; nothing of them is kept.
//!
//! What it is not: the computation (see `host::least_disruption`), or what follows from it (see `rollout::policy`).

use api::names::CLUSTER;
use api::v1::MachineConfig;
use client::{CallError, call, call_optional};
use desired::{DesiredHost, DisruptionPolicy, PoolDisruption};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use rollout::policy::{ChangeAsked, ChangeCost};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why the cost of a change is not known.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A config, or the disruption policy, cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

impl CostError {
    /// The API server does not let this person read it.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Call(error) if error.is_forbidden())
    }

    /// With its causes, as one line.
    pub fn chain(&self) -> String {
        client::chain(self)
    }
}

/// What a change costs the nodes of a pool with this disruption policy.
#[must_use]
pub fn change_cost(old: &DesiredHost, new: &DesiredHost, policy: &DisruptionPolicy) -> ChangeCost {
    let host::LeastDisruption { least, certificates } = host::least_disruption(old, new, policy);
    ChangeCost { least, certificates }
}

/// A change, and what the pool that it leads to sets for the disruption of its nodes.
type Asked = (ChangeAsked, PoolDisruption);

/// What each of these changes costs. Each config is read and parsed once, however many changes it is part of: two requests for the
/// first change, and mostly one for each further one.
pub async fn read_costs(
    client: &Client,
    asked: Vec<Asked>,
) -> Vec<(Asked, Result<ChangeCost, Arc<CostError>>)> {
    let cluster = match cluster_policy(client).await {
        Ok(policy) => policy,
        Err(error) => {
            let error = Arc::new(error);
            return asked.into_iter().map(|one| (one, Err(error.clone()))).collect();
        }
    };
    let mut configs: BTreeMap<Arc<str>, Result<DesiredHost, Arc<CostError>>> = BTreeMap::new();
    for name in asked.iter().flat_map(|(change, _)| [&change.from, &change.to]) {
        if !configs.contains_key(name) {
            configs.insert(name.clone(), config(client, name).await.map_err(Arc::new));
        }
    }
    let config = |name: &Arc<str>| match configs.get(name) {
        Some(Ok(host)) => Ok(host),
        Some(Err(error)) => Err(error.clone()),
        None => Err(Arc::new(CostError::Unreadable(format!("machineconfig {name} was not read")))),
    };
    let cost = |(change, pool): &Asked| {
        Ok(change_cost(config(&change.from)?, config(&change.to)?, &cluster.clone().for_pool(pool)))
    };
    asked
        .into_iter()
        .map(|one| {
            let cost = cost(&one);
            (one, cost)
        })
        .collect()
}

/// The cluster's disruption policy.
async fn cluster_policy(client: &Client) -> Result<DisruptionPolicy, CostError> {
    let kind = GroupVersionKind::gvk("operator.openshift.io", "v1", "MachineConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let one = ListParams::default().fields(&format!("metadata.name={CLUSTER}"));
    // The kind may not be installed. It is listed, because that is the right that people get for the preview of a change.
    let list = call_optional(|| "list machineconfigurations".to_owned(), api.list(&one)).await?;
    let mut objects = list.into_iter().flat_map(|list| list.items);
    let object = objects.find(|object| object.metadata.name.as_deref() == Some(CLUSTER)).map(|o| json!(o));
    DisruptionPolicy::of_cluster(object.as_ref()).map_err(CostError::Unreadable)
}

async fn config(client: &Client, name: &str) -> Result<DesiredHost, CostError> {
    let api: Api<MachineConfig> = Api::all(client.clone());
    let object = call(|| format!("machineconfig {name}"), api.get(name)).await?;
    DesiredHost::parse(&object.spec).map_err(|bad| {
        let findings: Vec<String> = bad.iter().map(ToString::to_string).collect();
        CostError::Unreadable(format!("machineconfig {name}: {}", findings.join("; ")))
    })
}
