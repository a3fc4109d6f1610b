//! What changes from one rendered config to another cost a node, for windows and freezes that let some changes pass. Both configs
//! are read for that, and the cluster's disruption policy; nothing of them is kept.
//!
//! Each object is requested once for all changes that it is part of, several at a time. A cost is told as soon as it is known, so one
//! config that cannot be read, or is not answered, delays no other change. Nothing is requested again: when that is right, the
//! caller decides.
//!
//! What it is not: the computation (see `host::least_disruption`), or what follows from it (see `rollout::policy`).

use api::names::CLUSTER;
use api::rendered::RenderedName;
use api::v1::MachineConfig;
use client::{CallError, call, call_optional};
use desired::{DesiredHost, DisruptionPolicy, PoolDisruption};
use futures::future::{BoxFuture, Shared};
use futures::stream::{BoxStream, FuturesUnordered};
use futures::{FutureExt as _, StreamExt as _, TryFutureExt as _, try_join};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use rollout::policy::{ChangeAsked, ChangeCost};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// MachineConfigs that are requested at once: each may be more than a megabyte.
const IN_FLIGHT: usize = 8;

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

/// What the cost of a change depends on, besides the cluster's disruption policy. A pool with other settings asks for another cost:
/// an answer for the former ones says nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostKey {
    /// The change.
    pub change: ChangeAsked,
    /// What the pool that it leads to sets for the disruption of its nodes.
    pub pool: PoolDisruption,
}

impl CostKey {
    /// The key of a change as things are now. `settings`: those of the pool with this name, or the default if there is none.
    pub fn of(change: &ChangeAsked, settings: impl FnOnce(&str) -> PoolDisruption) -> Self {
        let pool = RenderedName::parse(&change.to).map(|name| settings(name.pool));
        Self { change: change.clone(), pool: pool.unwrap_or_default() }
    }
}

/// What became of a read that several changes need.
type Read<T> = Result<T, Arc<CostError>>;
/// The same, while it is under way.
type Reading<T> = Shared<BoxFuture<'static, Read<T>>>;

/// The cost of each change, or why it is not known.
pub type CostStream = BoxStream<'static, (CostKey, Result<ChangeCost, Arc<CostError>>)>;

/// Room for the MachineConfigs that are requested at once. Lookups that may run at the same time share one.
#[derive(Debug, Clone)]
pub struct ConfigSlots(Arc<Semaphore>);

impl Default for ConfigSlots {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(IN_FLIGHT)))
    }
}

/// What each of these changes costs, in the order in which that becomes known: one request for the disruption policy, and one for
/// each config.
pub fn read_costs(
    client: &Client,
    slots: &ConfigSlots,
    asked: impl IntoIterator<Item = CostKey>,
) -> CostStream {
    let policy: Reading<DisruptionPolicy> = cluster_policy(client.clone()).map_err(Arc::new).boxed().shared();
    let mut configs: BTreeMap<Arc<str>, Reading<Arc<DesiredHost>>> = BTreeMap::new();
    let mut config = |name: &Arc<str>| {
        let read =
            || config(client.clone(), name.clone(), slots.0.clone()).map_err(Arc::new).boxed().shared();
        configs.entry(name.clone()).or_insert_with(read).clone()
    };
    let cost = |key: CostKey| cost(policy.clone(), config(&key.change.from), config(&key.change.to), key);
    asked.into_iter().map(cost).collect::<FuturesUnordered<_>>().boxed()
}

async fn cost(
    policy: Reading<DisruptionPolicy>,
    from: Reading<Arc<DesiredHost>>,
    to: Reading<Arc<DesiredHost>>,
    key: CostKey,
) -> (CostKey, Read<ChangeCost>) {
    let read = async {
        let policy = policy.await?.for_pool(&key.pool);
        let (from, to) = try_join!(from, to)?;
        Ok(change_cost(&from, &to, &policy))
    };
    let cost = read.await;
    (key, cost)
}

/// The cluster's disruption policy.
async fn cluster_policy(client: Client) -> Result<DisruptionPolicy, CostError> {
    let kind = GroupVersionKind::gvk("operator.openshift.io", "v1", "MachineConfiguration");
    let api: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let one = ListParams::default().fields(&format!("metadata.name={CLUSTER}"));
    // The kind may not be installed. It is listed, because that is the right that people get for the preview of a change; the
    // controller has it, too.
    let list = call_optional(|| "list machineconfigurations".to_owned(), api.list(&one)).await?;
    let mut objects = list.into_iter().flat_map(|list| list.items);
    let object = objects.find(|object| object.metadata.name.as_deref() == Some(CLUSTER)).map(|o| json!(o));
    DisruptionPolicy::of_cluster(object.as_ref()).map_err(CostError::Unreadable)
}

/// What a rendered config makes of a host.
async fn config(
    client: Client,
    name: Arc<str>,
    slots: Arc<Semaphore>,
) -> Result<Arc<DesiredHost>, CostError> {
    // The semaphore is never closed.
    let _slot = slots.acquire().await.ok();
    let api: Api<MachineConfig> = Api::all(client);
    let object = call(|| format!("machineconfig {name}"), api.get(&name)).await?;
    DesiredHost::parse(&object.spec).map(Arc::new).map_err(|bad| {
        let findings: Vec<String> = bad.iter().map(ToString::to_string).collect();
        CostError::Unreadable(format!("machineconfig {name}: {}", findings.join("; ")))
    })
}
