//! The rendered configs that a pool had, since when, and who changed what: [`PoolHistory`], a plain value, and the requests
//! that fill it.
//!
//! What it is not: the comparison (see [`render::history`]), or the pool's own record (see [`rollout::past_configs`]).

pub(crate) mod undo;

use api::k8s::{Node, ObjectMeta, Time};
use api::names::annotation;
use api::rendered::owning_pool;
use api::v1::{MachineConfig, MachineConfigPool, MachineConfigSpec};
use client::{CallError, call, pages};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use render::history::{Step, steps};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// For the MachineConfigs of a pool, which are megabytes, and all Nodes. An API server that takes longer is treated as unreachable.
const LISTS: Duration = Duration::from_secs(60);

/// How many configs are read at the same time.
const READS: usize = 4;

/// Why there is no history of a pool.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The pool does not exist.
    #[error("there is no pool {0:?}; `mco status` lists the pools")]
    NoPool(String),
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The requests take too long.
    #[error("no answer from the API server within {} s", LISTS.as_secs())]
    Late,
}

/// The present and past configs of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolHistory {
    /// The pool.
    pub pool: String,
    /// The config that it is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// The rendered configs that exist, the newest first.
    pub configs: Vec<PastConfig>,
    /// Rendered configs that the pool once had and that were deleted.
    pub gone: Vec<rollout::PastConfig>,
}

/// One rendered config of a pool.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PastConfig {
    /// The config, and how it differs from the one before.
    #[serde(flatten)]
    pub step: Step,
    /// The times at which it became the pool's config.
    pub in_force: Vec<Time>,
    /// The pool names it now.
    pub current: bool,
    /// How many nodes are in it.
    pub nodes: usize,
}

/// Asks the API server for a pool's history.
///
/// # Errors
/// No such pool, a request that failed, or no answer in time.
pub async fn history(client: &Client, pool: &str) -> Result<PoolHistory, HistoryError> {
    tokio::time::timeout(LISTS, gather(client, pool)).await.map_err(|_| HistoryError::Late)?
}

async fn gather(client: &Client, name: &str) -> Result<PoolHistory, HistoryError> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = call(|| format!("get machineconfigpool {name}"), pools.get_opt(name)).await?;
    let Some(pool) = pool else { return Err(HistoryError::NoPool(name.to_owned())) };
    let (configs, in_config) = tokio::try_join!(contents(client, name), nodes_by_config(client))?;
    Ok(PoolHistory::of(&pool, &configs, &in_config))
}

/// All MachineConfigs: the rendered ones of a pool with their contents, the others, which are megabytes, without.
async fn contents(client: &Client, pool: &str) -> Result<Vec<MachineConfig>, CallError> {
    let api: Api<MachineConfig> = Api::all(client.clone());
    let list = |params: ListParams| {
        let api = api.clone();
        async move { call(|| "list machineconfigs".to_owned(), api.list_metadata(&params)).await }
    };
    let (mut all, mut rendered) = (vec![], vec![]);
    let each = |found: PartialObjectMeta<MachineConfig>| {
        if owning_pool(found.metadata.owner_references.as_deref()) == Some(pool) {
            return rendered.push(found.name_any());
        }
        let mut config = MachineConfig::new("", MachineConfigSpec::default());
        config.metadata = found.metadata;
        all.push(config);
    };
    pages(ListParams::default(), list, each).await?;
    let get = |name: String| {
        let api = api.clone();
        async move { call(|| format!("get machineconfig {name}"), api.get_opt(&name)).await }
    };
    // One that was deleted meanwhile is gone.
    let read = futures::stream::iter(rendered).map(get).buffered(READS);
    all.extend(read.try_collect::<Vec<_>>().await?.into_iter().flatten());
    Ok(all)
}

/// How many nodes are in each config.
async fn nodes_by_config(client: &Client) -> Result<BTreeMap<String, usize>, CallError> {
    let api: Api<Node> = Api::all(client.clone());
    let list = |params: ListParams| {
        let api = api.clone();
        async move { call(|| "list nodes".to_owned(), api.list_metadata(&params)).await }
    };
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    let each = |node: PartialObjectMeta<Node>| {
        let current = node.annotations().get(annotation::CURRENT_CONFIG).cloned().unwrap_or_default();
        *all.entry(current).or_default() += 1;
    };
    pages(ListParams::default(), list, each).await?;
    Ok(all)
}

/// The rendered configs of a pool among MachineConfigs, the oldest first. A pool owns what was rendered for it.
pub fn rendered_of<'a>(pool: &MachineConfigPool, all: &'a [MachineConfig]) -> Vec<&'a MachineConfig> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let of_pool = |c: &&MachineConfig| owning_pool(c.metadata.owner_references.as_deref()) == Some(name);
    let mut found: Vec<&MachineConfig> = all.iter().filter(of_pool).collect();
    let version = |c: &MachineConfig| c.resource_version().and_then(|v| v.parse::<u64>().ok());
    found.sort_by_key(|c| (c.metadata.creation_timestamp.clone(), version(c), c.name_any()));
    found
}

/// The metadata of MachineConfigs, by name: who wrote them, and when.
pub(crate) fn metadata_by_name(all: &[MachineConfig]) -> BTreeMap<&str, &ObjectMeta> {
    all.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, &c.metadata))).collect()
}

impl PoolHistory {
    /// A pool's history from its own record and its rendered configs. `all`: every MachineConfig, the pool's own with their
    /// contents; `in_config`: how many nodes are in each config.
    pub fn of(pool: &MachineConfigPool, all: &[MachineConfig], in_config: &BTreeMap<String, usize>) -> Self {
        let rendered = rendered_of(pool, all);
        let mut gone = rollout::past_configs(pool);
        let row = |step: Step| PastConfig {
            in_force: gone
                .iter()
                .filter(|p| p.config == step.config)
                .filter_map(|p| p.since.clone())
                .collect(),
            current: step.config == pool.spec.configuration.name,
            nodes: in_config.get(&step.config).copied().unwrap_or_default(),
            step,
        };
        let mut configs: Vec<PastConfig> =
            steps(&rendered, &metadata_by_name(all)).into_iter().map(row).collect();
        configs.reverse();
        gone.retain(|p| !configs.iter().any(|row| row.step.config == p.config));
        Self { pool: pool.name_any(), pinned: rollout::pinned_config(pool).map(str::to_owned), configs, gone }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollout::view::own;
    use serde_json::json;

    fn config(name: &str, pool: &str, second: u32) -> MachineConfig {
        serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
                "ownerReferences": [{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                    "name": pool, "uid": "u", "controller": true}],
            },
            "spec": {},
        }))
        .unwrap()
    }

    #[test]
    fn a_history_begins_with_the_newest_config_and_marks_deleted_ones() {
        let record = json!([
            {"config": "rendered-w-0", "since": "2026-01-01T00:00:00Z"},
            {"config": "rendered-w-1", "since": "2026-01-01T00:00:01Z"},
            {"config": "rendered-w-2", "since": "2026-01-01T00:00:02Z"},
            {"config": "rendered-w-1", "since": "2026-01-01T00:00:03Z"},
        ]);
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "w", "annotations": {own::CONFIG_HISTORY: record.to_string(), own::PINNED: "rendered-w-1"}},
            "spec": {"configuration": {"name": "rendered-w-1"}},
        }))
        .unwrap();
        let all =
            [config("rendered-w-2", "w", 2), config("rendered-x-1", "x", 3), config("rendered-w-1", "w", 1)];
        let in_config = BTreeMap::from([("rendered-w-1".to_owned(), 3)]);
        let history = PoolHistory::of(&pool, &all, &in_config);
        let rows: Vec<_> =
            history.configs.iter().map(|c| (&*c.step.config, c.in_force.len(), c.current, c.nodes)).collect();
        assert_eq!(rows, [("rendered-w-2", 1, false, 0), ("rendered-w-1", 2, true, 3)]);
        assert_eq!(history.gone.iter().map(|g| &*g.config).collect::<Vec<_>>(), ["rendered-w-0"]);
        assert_eq!(history.pinned.as_deref(), Some("rendered-w-1"));
        let said = json!(history);
        assert_eq!(
            said["configs"][1]["config"], "rendered-w-1",
            "the step's fields are missing in the row: {said}"
        );
    }
}
