//! Writes to pools that several passes share: status, conditions, the list of expected first boots. Each is bound to the
//! resource version that it was decided on, and its answer goes into the cache before anything else is decided.
//!
//! What it is not: the choice of what to write, or which changes from the watch are our own (see `echoes`).

use crate::flight::merge_patch::{bound, difference};
use crate::shared::Shared;
use crate::term::leader::now;
use api::conditions::{self, Condition};
use api::k8s::ResourceExt;
use api::names::annotation;
use api::v1::{MachineConfigPool, MachineConfigPoolStatus};
use client::{CallError, call};
use kube::api::{Patch, PatchParams};
use rollout::Change;
use serde_json::{Value, json};
use std::sync::Arc;

/// Writes the list of nodes that a pool expects to boot into it, if the plan changes it.
pub(crate) async fn write_first_boot_nodes(
    shared: &Shared,
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
    let api = shared.api::<MachineConfigPool>();
    let what = || format!("annotation {} of machineconfigpool {name}", annotation::FIRST_BOOT_NODES);
    let answer = call(what, api.patch(&name, &PatchParams::default(), &body)).await?;
    shared.pool_answer(answer);
    Ok(())
}

/// Writes the differences of a pool's status, bound to the version that it was computed from.
pub(crate) async fn write_status(
    shared: &Shared,
    pool: &MachineConfigPool,
    status: &MachineConfigPoolStatus,
) -> Result<(), CallError> {
    let name = pool.name_any();
    let old = pool.status.as_ref().map_or(json!({}), |s| json!(s));
    let Some(patch) = difference(&old, &json!(status)) else { return Ok(()) };
    let body = Patch::Merge(bound("status", &patch, pool.metadata.resource_version.as_deref()));
    let api = shared.api::<MachineConfigPool>();
    let answer = call(
        || format!("status of machineconfigpool {name}"),
        api.patch_status(&name, &PatchParams::default(), &body),
    )
    .await?;
    shared.pool_answer(answer);
    Ok(())
}

/// Writes one condition of a pool if it says something new.
pub(crate) async fn set_condition(
    shared: &Shared,
    pool: &MachineConfigPool,
    condition: Condition,
) -> Result<(), CallError> {
    let mut status = pool.status.clone().unwrap_or_default();
    let mut conditions = status.conditions.take().unwrap_or_default();
    if !conditions::set(&mut conditions, condition, &now()) {
        return Ok(());
    }
    status.conditions = Some(conditions);
    write_status(shared, pool, &status).await
}
