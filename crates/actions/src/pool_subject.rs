//! What a person was shown of a pool, and a patch of the pool that is made only while that is so.
//!
//! What it is not: what the patch is for (see `pause` and `undo`).

use crate::ActionError;
use api::v1::MachineConfigPool;
use client::call;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// While nodes move, a pool's status changes often, and with it the resourceVersion that a patch is bound to.
const TRIES: usize = 10;

/// What of a pool decides what it means to let its nodes go. Two pools with the same mean the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSubject {
    /// Its UID.
    pub uid: Option<String>,
    /// Its config.
    pub config: String,
    /// The config that it is pinned to, if it is.
    pub pin: Option<String>,
}

impl PoolSubject {
    /// That of a pool as it is.
    pub fn of(pool: &MachineConfigPool) -> Self {
        Self {
            uid: pool.metadata.uid.clone(),
            config: pool.spec.configuration.name.clone(),
            pin: rollout::pinned_config(pool).map(str::to_owned),
        }
    }

    /// Patches the pool if it is still as it was shown. It is read again before the patch, which is bound to what was read.
    ///
    /// # Errors
    /// The pool is another one, or keeps changing; a request that failed.
    pub(crate) async fn patch(
        &self,
        client: &Client,
        name: &str,
        mut patch: Value,
    ) -> Result<MachineConfigPool, ActionError> {
        let pools: Api<MachineConfigPool> = Api::all(client.clone());
        let params = PatchParams::default();
        for _ in 0..TRIES {
            let pool = call(|| format!("get machineconfigpool {name}"), pools.get(name)).await?;
            if Self::of(&pool) != *self {
                return Err(ActionError::Refused(format!(
                    "pool {name} changed since this was shown, so nothing was done: look at it again"
                )));
            }
            patch["metadata"]["resourceVersion"] = json!(pool.resource_version());
            let what = || format!("cannot change machineconfigpool {name}");
            match call(what, pools.patch(name, &params, &Patch::Merge(&patch))).await {
                Err(error) if error.is_conflict() => {}
                other => return Ok(other?),
            }
        }
        Err(ActionError::Refused(format!("pool {name} keeps changing: nothing was written; try again")))
    }
}
