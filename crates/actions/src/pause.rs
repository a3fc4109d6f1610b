//! Pausing and resuming pools: one field of each, and what that means for its nodes.

use crate::{ActionError, Mode, PoolSubject};
use api::v1::MachineConfigPool;
use client::call;
use insight::{ClusterWatch, Phase, PoolRow};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

/// A pool as it is afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// The pool.
    pub pool: String,
    /// It is paused.
    pub paused: bool,
    /// Whether this call changed it.
    pub changed: bool,
    /// Nodes that have begun an update: they finish it.
    pub under_way: Vec<String>,
    /// Nodes that are not in the pool's config: they stay, or they go when their turn comes.
    pub waiting: Vec<String>,
}

/// Pauses pools, or lets them go on. All names are checked before the first is written. `shown`: what somebody was shown of the
/// pools; `None`: they are written as they are.
///
/// # Errors
/// A pool that does not exist, or is not what was shown any more; an API server that does not answer or refuses.
pub async fn pause(
    client: &Client,
    names: &[String],
    paused: bool,
    shown: Option<&PoolSubject>,
    how: Mode,
) -> Result<Vec<Paused>, ActionError> {
    let mut cluster = ClusterWatch::start(client).await?;
    let before = cluster.snapshot(names);
    if let Some(missing) = names.iter().find(|p| !before.pools.iter().any(|row| row.name == **p)) {
        let why = format!("there is no pool {missing:?}; `mco status` lists the pools");
        return Err(ActionError::Refused(why));
    }
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let mut all = vec![];
    for name in names {
        let changed = cluster.is_paused(name) != Some(paused);
        if changed && how == Mode::Write {
            let patch = json!({"spec": {"paused": paused}});
            let what = || format!("cannot change machineconfigpool {name}");
            // The lists above take up to half a minute: what was compared before them says nothing.
            cluster.put_pool(match shown {
                Some(shown) => shown.patch(client, name, patch).await?,
                None => call(what, pools.patch(name, &PatchParams::default(), &Patch::Merge(patch))).await?,
            });
        }
        let after = cluster.snapshot(std::slice::from_ref(name));
        all.extend(after.pools.first().map(|row| done(row, paused, changed)));
    }
    Ok(all)
}

fn done(row: &PoolRow, paused: bool, changed: bool) -> Paused {
    let nodes = |phases: &[Phase]| {
        let found = row.nodes.iter().filter(|n| phases.contains(&n.phase));
        found.map(|n| n.name.clone()).collect::<Vec<_>>()
    };
    Paused {
        pool: row.name.clone(),
        paused,
        changed,
        under_way: nodes(&[Phase::Moving, Phase::Failing]),
        waiting: nodes(&[Phase::Goes, Phase::Waits]),
    }
}
