//! The template pass: carries out `render::template::generate` over the template directory and the ControllerConfig.
//!
//! Flow: the ControllerConfig belongs to this version (see `version_claim`) → `TemplateControllerRunning`, for a new
//! generation → read the directory and the other inputs (see `inputs`) → plan → create or restore each MachineConfig, and
//! delete those that no template makes any more → `Completed`, or `Failing` with the cause. Rendering
//! learns what pools may be rendered from (`render_prerequisites::TemplatesPrerequisite`).
//!
//! What it is not: the rules of templates.

mod certificates;
mod inputs;
mod version_claim;

pub(crate) use inputs::{Failure, facts, read};

use crate::cache::settings::API_SERVER;
use crate::cache::stores::pull_secret_location;
use crate::cache::trimmed::Config;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::nodes::PATIENCE;
use crate::flight::refusals::{AGAIN, WriteOutcomes};
use crate::io::clock::now;
use crate::kind;
use crate::own_configs::{create_or_restore, delete, with_digest};
use crate::passes::descriptor::{Descriptor, stateless};
use crate::queue::{Outcome, Pass, Work};
use crate::render_prerequisites::{is_from_template, no_longer_produced};
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs::{API_SERVERS, CONFIGS, CONTROLLER_CONFIGS, PULL_SECRET, TEMPLATE_FOLDER};
use api::conditions::{self, Condition};
use api::k8s::ResourceExt;
use api::names::{CONTROLLER_CONFIG, label};
use api::v1::{ControllerConfig, ControllerConfigStatus, MachineConfig};
use client::merge_patch::{bound_to_version, difference};
use client::{CallError, call_within};
use inputs::Facts;
use kube::api::{Patch, PatchParams};
use render::template::Rendering;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Condition types of the ControllerConfig.
pub(crate) const RUNNING: &str = "TemplateControllerRunning";
/// See [`RUNNING`].
pub(crate) const COMPLETED: &str = "TemplateControllerCompleted";
/// See [`RUNNING`].
pub(crate) const FAILING: &str = "TemplateControllerFailing";

/// How often template files that cannot be watched are read again. All other inputs of templates are watched (see
/// [`crate::watches::template_inputs`] and [`crate::cache::settings`]).
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Templates,
    work: Work { name: "template", ..Work::SINGLE_KEY },
    // The right to a pull secret of another name or namespace is not among these: the operator gives it.
    reads: &[&CONTROLLER_CONFIGS, &CONFIGS, &API_SERVERS, &PULL_SECRET, &TEMPLATE_FOLDER],
    rights: &[
        Right::new("create", kind::CONFIGS),
        Right::new("patch", kind::CONFIGS),
        Right::new("delete", kind::CONFIGS),
        // Which version it belongs to, see `version_claim`.
        Right::named("patch", kind::CONTROLLER_CONFIGS, &[CONTROLLER_CONFIG]),
        Right::new("patch", kind::CONTROLLER_CONFIGS).on("status"),
        Right::new("update", kind::CONTROLLER_CONFIGS).on("finalizers"),
    ],
    marked_by,
    effects: Effects { on_change, ..Effects::NONE },
    start: |shared, _| stateless(shared, pass),
};

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let concerns = match changed {
        Changed::Config(change) => {
            let all = [change.old.as_deref(), change.new.as_deref()];
            let mut sources = all.into_iter().flatten().filter_map(Config::source);
            sources.any(|object| is_from_template(object) || known.templates.produces(&change.name))
        }
        // Templates contain TLS versions.
        Changed::Setting(kind) => *kind == API_SERVER,
        Changed::ControllerConfig(_)
        | Changed::TemplateInput
        | Changed::TemplatesNotStored
        | Changed::TermBegins => true,
        _ => false,
    };
    if concerns {
        marks.mark(Pass::Templates, CONTROLLER_CONFIG);
    }
}

fn on_change(shared: &Shared, changed: &Changed<'_>) {
    match changed {
        Changed::ControllerConfig(change) if change.name == CONTROLLER_CONFIG => {
            let place = change.new.as_deref().and_then(|c| pull_secret_location(c.spec.pull_secret.as_ref()));
            shared.pull_secret.send_if_modified(|at| {
                let moved = *at != place;
                *at = place;
                moved
            });
        }
        // Whoever wrote the ControllerConfig before may be gone, and an upgrade brings other templates.
        Changed::TermBegins => {
            shared.prerequisites.version.forget();
            shared.prerequisites.templates.forget();
        }
        _ => {}
    }
}

/// One pass over the ControllerConfig.
pub(crate) async fn pass(shared: Arc<Shared>, name: String) -> Outcome {
    let Some(config) = shared.stores.controller_configs.get(&name) else {
        tracing::warn!("waiting for ControllerConfig {name}; `mco install` creates it");
        return Outcome::Done;
    };
    match carry_out(&shared, &config).await {
        Ok(outcome) => outcome,
        Err(e) if e.is_conflict() || e.is_not_found() => Outcome::Stale,
        Err(e) => Outcome::Failed(e.chain()),
    }
}

async fn carry_out(shared: &Shared, config: &ControllerConfig) -> Result<Outcome, CallError> {
    let again = version_claim::claim_version(shared, config).await?;
    // Read again: our own write is in the cache, and what follows is bound to its version.
    let fresh = shared.stores.controller_config();
    let config = fresh.as_deref().unwrap_or(config);
    let generation = config.metadata.generation.unwrap_or_default();
    let observed = config.status.as_ref().map(|s| s.observed_generation);
    let mut told = true;
    if begins(config) {
        let message = format!("syncing towards generation {generation}");
        let running = [Condition::new(RUNNING, true, "", message), Condition::new(COMPLETED, false, "", "")];
        told = say(shared, config, observed.unwrap_or_default(), running).await?;
        for broken in certificates::list(&config.spec).1 {
            tracing::warn!("ControllerConfig: {broken}; correct or remove it");
        }
    }
    let applied = apply(shared, config).await;
    let fresh = shared.stores.controller_config();
    let config = fresh.as_deref().unwrap_or(config);
    let failing = |message: String| {
        [
            Condition::new(FAILING, true, "", message),
            Condition::new(RUNNING, false, "", ""),
            Condition::new(COMPLETED, false, "", ""),
        ]
    };
    let message = match applied {
        Ok(Applied { writes, refused }) if refused.is_empty() => {
            shared.troubles.resolved(TEMPLATES);
            if !writes.are_over() {
                return Ok(writes.outcome());
            }
            let done = [
                Condition::new(
                    COMPLETED,
                    true,
                    "",
                    format!("sync completed towards generation {generation}"),
                ),
                Condition::new(RUNNING, false, "", ""),
                Condition::new(FAILING, false, "", ""),
            ];
            told &= say(shared, config, generation, done).await?;
            shared.metrics.success(
                "machine-config-controller-template",
                "Sync ControllerConfig",
                &config.name_any(),
                now().0,
            );
            let unwatched = !shared.templates_watched.load(Ordering::Acquire);
            let looks = [unwatched.then_some(RECHECK_INTERVAL), (!told).then_some(AGAIN), again];
            return Ok(looks.into_iter().flatten().min().map_or(Outcome::Done, Outcome::After));
        }
        // Some cannot be written: the pools that select them say so, and only those wait.
        Ok(Applied { writes, refused }) => {
            shared.troubles.resolved(TEMPLATES);
            let message = refused.into_values().collect::<Vec<_>>().join("; ");
            say(shared, config, observed.unwrap_or_default(), failing(message)).await?;
            return Ok(writes.outcome());
        }
        Err(Failure::Plan(message)) => message,
        Err(Failure::Call(e)) => match shared.troubles.due_message(TEMPLATES, &e) {
            Some(words) => words,
            None => return Err(e),
        },
    };
    if shared.prerequisites.templates.failing(&message) {
        shared.changed(&Changed::RenderPrerequisite);
    }
    say(shared, config, observed.unwrap_or_default(), failing(message.clone())).await?;
    Ok(Outcome::Failed(message))
}

/// The key of the template rendering in [`crate::flight::refusals::CurrentFailures`].
const TEMPLATES: &str = "templates";

/// Writes the status. It is only for people, so a write that fails delays nothing; the result is `false` then. Only where the
/// ControllerConfig has changed, or is gone, is everything decided again.
async fn say(
    shared: &Shared,
    config: &ControllerConfig,
    observed: i64,
    new: impl IntoIterator<Item = Condition>,
) -> Result<bool, CallError> {
    match set(shared, config, observed, new).await {
        Ok(()) => Ok(true),
        Err(e) if e.is_conflict() || e.is_not_found() => Err(e),
        Err(e) => {
            tracing::warn!("{}", e.chain());
            Ok(false)
        }
    }
}

/// Whether this generation was not tried yet. A generation that failed is not reported as running again with each try:
/// that would cost two useless writes, which would in turn cause the next try.
fn begins(config: &ControllerConfig) -> bool {
    let status = config.status.as_ref();
    let observed = status.map(|s| s.observed_generation);
    let failing =
        status.and_then(|s| s.conditions.as_deref()).is_some_and(|list| conditions::is_true(list, FAILING));
    observed != Some(config.metadata.generation.unwrap_or_default()) && !failing
}

/// The outcome of the writes.
struct Applied {
    writes: WriteOutcomes,
    /// By MachineConfig: why it is not as the templates say.
    refused: BTreeMap<String, String>,
}

/// Facts → plan → writes. Each write is tried, even if others fail.
async fn apply(shared: &Shared, config: &ControllerConfig) -> Result<Applied, Failure> {
    let facts = facts(shared, config).await?;
    let wanted = generate(shared, config, facts).await?;
    let wanted: Vec<MachineConfig> = wanted.iter().map(with_digest).collect();
    let configs = shared.stores.configs.all();
    let sources: Vec<&MachineConfig> = configs.iter().filter_map(|c| c.source()).map(AsRef::as_ref).collect();
    let leaving = no_longer_produced(&wanted, &sources);
    let emptied = emptied(&wanted, &leaving);
    let leaving: Vec<String> = leaving.into_iter().map(ResourceExt::name_any).collect();
    if !emptied.is_empty() {
        let message = format!(
            "{}: holds no templates for a role that has MachineConfigs generated from templates; restore the \
             templates, or delete {}",
            shared.templates.display(),
            emptied.join(", ")
        );
        return Err(Failure::Plan(message));
    }
    if shared.prerequisites.templates.record_produced(config, &wanted) {
        shared.changed(&Changed::RenderPrerequisite);
    }
    let (mut writes, mut refused) = (WriteOutcomes::default(), BTreeMap::new());
    let mut book = |name: String, verb: &str, done| {
        let what = format!("template {name}");
        if let Some(words) = writes.record(&shared.troubles, &what, done) {
            refused.insert(name.clone(), format!("MachineConfig {name} cannot be {verb}: {words}"));
        }
    };
    let puts = wanted.iter().map(|config| create_or_restore(shared, config));
    for (config, done) in wanted.iter().zip(futures::future::join_all(puts).await) {
        book(config.name_any(), "created as the templates say", done);
    }
    for name in leaving {
        let done = delete(shared, &name, "no template generates it any more").await;
        book(name, "removed, although no template generates it any more", done);
    }
    if shared.prerequisites.templates.refused(refused.clone()) {
        shared.changed(&Changed::RenderPrerequisite);
        refused.values().for_each(|why| tracing::warn!("{why}"));
    }
    Ok(Applied { writes, refused })
}

/// Of the MachineConfigs to delete, those of roles that have no template left at all. That is more likely a folder that
/// was not mounted, or is being copied, than somebody's intent; and all nodes of the role would lose their files.
fn emptied(wanted: &[MachineConfig], leaving: &[&MachineConfig]) -> Vec<String> {
    let role = |config: &MachineConfig| config.labels().get(label::ROLE).cloned();
    let kept: BTreeSet<_> = wanted.iter().map(role).collect();
    leaving.iter().filter(|config| !kept.contains(&role(config))).map(|config| config.name_any()).collect()
}

/// Reads the directory and renders it. Files and rendering keep a thread busy for some milliseconds.
async fn generate(
    shared: &Shared,
    config: &ControllerConfig,
    facts: Facts,
) -> Result<Vec<MachineConfig>, Failure> {
    let (folder, config, versions) = (shared.templates.clone(), config.clone(), shared.versions.clone());
    let work = tokio::task::spawn_blocking(move || -> Result<_, String> {
        let set = read(&folder)?;
        if set.is_empty() {
            // A cluster may do without templates. A missing folder was reported as an error above.
            tracing::warn!("{}: holds no templates (ROLE/MACHINECONFIG/LAYER/files/…)", folder.display());
        }
        let tls = facts.tls();
        let templates = Rendering::new(&set, facts.data(&config, &tls));
        render::template::generate(&templates, &versions).map_err(|e| e.to_string())
    });
    match work.await {
        Ok(result) => result.map_err(Failure::Plan),
        Err(e) => Err(Failure::Plan(format!("rendering the templates ended abnormally: {e}"))),
    }
}

/// Writes the status where it says something new.
async fn set(
    shared: &Shared,
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
    let (certificates, _) = certificates::list(&config.spec);
    shared.metrics.bundle_ends.set(&certificates);
    let status = ControllerConfigStatus {
        observed_generation: observed,
        conditions: Some(list),
        controller_certificates: Some(certificates).filter(|c| !c.is_empty()),
    };
    let Some(patch) = difference(&json!(old), &json!(status)) else { return Ok(()) };
    let name = config.name_any();
    let body = Patch::Merge(bound_to_version("status", &patch, config.metadata.resource_version.as_deref()));
    let api = shared.api::<ControllerConfig>();
    let what = || format!("status of controllerconfig {name}");
    // Nobody waits long for what only people read.
    let answer = call_within(PATIENCE, what, api.patch_status(&name, &PatchParams::default(), &body)).await?;
    shared.controller_config_answer(answer);
    Ok(())
}

#[cfg(test)]
mod tests;
