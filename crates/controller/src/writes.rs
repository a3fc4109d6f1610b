//! The two writes that several passes share: a Node's patch and a pool's status. Each is bound to the version that it was
//! decided on, and its answer goes into the cache before anything else is decided.
//!
//! What it is not: a choice of what is written.

use crate::backoff::WORK;
use crate::call::{CallError, call};
use crate::context::Context;
use crate::patch::{bound, difference};
use api::k8s::{Node, ResourceExt};
use api::v1::{MachineConfigPool, MachineConfigPoolStatus};
use kube::api::{Patch, PatchParams};
use rollout::NodePatch;
use serde_json::json;

/// Sends one Node patch and puts the answer into the cache.
///
/// A patch without an answer may have arrived, or arrive yet. A plan made before that is known could send another node
/// on its way beside this one, and so break the bound. It is sent again until it is answered: it is bound to a version,
/// so it is done at most once, and a refusal says that the node has moved on.
pub(crate) async fn patch_node(context: &Context, patch: &NodePatch) -> Result<(), CallError> {
    // The semaphore is never closed; without a place the patch would only be sent earlier.
    let _place = context.patches.acquire().await;
    let api = context.api::<Node>();
    let body = Patch::Merge(patch.merge_patch());
    let params = PatchParams::default();
    let mut attempt = 0;
    let node = loop {
        let request = api.patch(&patch.node, &params, &body);
        match call(|| format!("patch of node {patch}"), request).await {
            Ok(node) => break node,
            Err(e) if e.is_unanswered() => {
                let delay = WORK.delay(attempt);
                tracing::warn!(node = %patch.node, ?delay, "{}; sending it again", e.chain());
                tokio::time::sleep(delay).await;
                attempt += 1;
            }
            Err(e) => return Err(e),
        }
    };
    tracing::info!(node = %patch.node, "{patch}");
    context.node_answer(&node);
    Ok(())
}

/// Writes what differs of a pool's status, bound to the version that it was computed from.
pub(crate) async fn write_status(
    context: &Context,
    pool: &MachineConfigPool,
    status: &MachineConfigPoolStatus,
) -> Result<(), CallError> {
    let name = pool.name_any();
    let old = pool.status.as_ref().map_or(json!({}), |s| json!(s));
    let Some(patch) = difference(&old, &json!(status)) else { return Ok(()) };
    let body = Patch::Merge(bound("status", &patch, pool.metadata.resource_version.as_deref()));
    let api = context.api::<MachineConfigPool>();
    let answer = call(
        || format!("status of machineconfigpool {name}"),
        api.patch_status(&name, &PatchParams::default(), &body),
    )
    .await?;
    context.pool_answer(answer);
    Ok(())
}
