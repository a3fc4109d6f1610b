//! Writes to pools that several passes share: status, conditions, the list of expected first boots. Each is bound to the
//! resource version that it was decided on, and its answer goes into the cache before anything else is decided. Also here:
//! what tells the echo of our own write to a pool from a change by somebody else ([`OwnPoolWrites`]).
//!
//! What it is not: the choice of what to write.

use crate::flight::WriteContext;
use crate::io::clock::now;
use api::conditions::{self, Condition};
use api::k8s::ResourceExt;
use api::names::annotation;
use api::v1::{MachineConfigPool, MachineConfigPoolStatus, PoolConfiguration};
use client::merge_patch::{bound_to_version, difference};
use client::{CallError, call};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rollout::Change;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The config that rendering last wanted for each pool. When the write of it comes back from the watch, nothing needs to
/// be done.
#[derive(Debug, Default)]
pub(crate) struct OwnPoolWrites(Mutex<HashMap<String, PoolConfiguration>>);

impl OwnPoolWrites {
    fn all(&self) -> MutexGuard<'_, HashMap<String, PoolConfiguration>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the config that is wanted for the pool: before it is written, and where the pool has it already.
    pub(crate) fn expect(&self, pool: &str, configuration: PoolConfiguration) {
        self.all().insert(pool.to_owned(), configuration);
    }

    /// Whether this is what rendering last wanted for the pool.
    pub(crate) fn wrote(&self, pool: &str, configuration: &PoolConfiguration) -> bool {
        self.all().get(pool).is_some_and(|written| written == configuration)
    }

    /// Forgets a pool that is gone.
    pub(crate) fn forget(&self, pool: &str) {
        self.all().remove(pool);
    }

    /// Forgets everything at the start of a term: another leader may have written other configs into the pools.
    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}

/// Writes the list of nodes that a pool expects to boot into it, if the plan changes it.
pub(crate) async fn write_first_boot_nodes(
    answers: &impl WriteContext,
    pool: &MachineConfigPool,
    change: &Change<Arc<str>>,
) -> Result<(), CallError> {
    let name = pool.name_any();
    let value = match change {
        Change::Keep => return Ok(()),
        Change::Set(list) => json!(list),
        Change::Remove => Value::Null,
    };
    let version = pool.metadata.resource_version.as_deref();
    let metadata = json!({"resourceVersion": version, "annotations": {annotation::FIRST_BOOT_NODES: value}});
    let body = Patch::Merge(json!({ "metadata": metadata }));
    let api = Api::<MachineConfigPool>::all(answers.client());
    let what = || format!("annotation {} of machineconfigpool {name}", annotation::FIRST_BOOT_NODES);
    let answer = call(what, api.patch(&name, &PatchParams::default(), &body)).await?;
    answers.pool_answer(answer);
    Ok(())
}

/// Writes the differences of a pool's status, bound to the version that it was computed from.
pub(crate) async fn write_status(
    answers: &impl WriteContext,
    pool: &MachineConfigPool,
    status: &MachineConfigPoolStatus,
) -> Result<(), CallError> {
    let name = pool.name_any();
    let old = pool.status.as_ref().map_or(json!({}), |s| json!(s));
    let Some(patch) = difference(&old, &json!(status)) else { return Ok(()) };
    let body = Patch::Merge(bound_to_version("status", &patch, pool.metadata.resource_version.as_deref()));
    let api = Api::<MachineConfigPool>::all(answers.client());
    let answer = call(
        || format!("status of machineconfigpool {name}"),
        api.patch_status(&name, &PatchParams::default(), &body),
    )
    .await?;
    answers.pool_answer(answer);
    Ok(())
}

/// Writes one condition of a pool if it says something new.
pub(crate) async fn set_condition(
    answers: &impl WriteContext,
    pool: &MachineConfigPool,
    condition: Condition,
) -> Result<(), CallError> {
    let mut status = pool.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.take().unwrap_or_default();
    if !conditions::set(&mut conditions, condition, &now()) {
        return Ok(());
    }
    status.conditions = Some(conditions);
    write_status(answers, pool, &status).await
}
