//! The topology pass: what the nodes say of the cluster's topology, kept in the ControllerConfig for all who read it there.
//! Rollout decisions do not wait for it: they count the same nodes by the same rule.
//!
//! What it is not: the rule, see `rollout::topology`.

use crate::call::{CallError, call};
use crate::context::Context;
use crate::queue::Outcome;
use api::v1::ControllerConfig;
use kube::api::{Patch, PatchParams};
use rollout::topology::{self, Topology};
use std::sync::Arc;

/// One pass over all nodes.
pub(crate) async fn pass(context: Arc<Context>, name: String) -> Outcome {
    match carry_out(&context, &name).await {
        Ok(()) => Outcome::Done,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(context: &Context, name: &str) -> Result<(), CallError> {
    let Some(config) = context.stores.controller_configs.get(name) else { return Ok(()) };
    let found = Topology::of(context.stores.nodes.all().iter().map(AsRef::as_ref));
    let Some(patch) = topology::patch(&config, found) else { return Ok(()) };
    let api = context.api::<ControllerConfig>();
    let body = Patch::Merge(&patch);
    let what = || format!("topology in controllerconfig {name}");
    let answer = call(what, api.patch(name, &PatchParams::default(), &body)).await?;
    let word = |t: Option<&'static str>| t.unwrap_or("not known");
    tracing::info!(
        control_plane = word(found.control_plane),
        infrastructure = word(found.infrastructure),
        "the topology follows the nodes"
    );
    context.controller_config_answer(answer);
    Ok(())
}
