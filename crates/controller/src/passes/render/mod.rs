//! The render pass: carries out `render::plan` for one pool.
//!
//! Flow: caches → select → plan → create the rendered MachineConfig → the pool names it → `RenderDegraded`. In this
//! order a pool never names a config that does not exist, and after a restart between any two steps the next step
//! follows.
//!
//! What it is not: merging or naming. `render` says whether a set of MachineConfigs can be rendered, and why not.

mod write;

use crate::cache::settings::{FEATURE_GATE, MACHINE_CONFIGURATION, STREAMS};
use crate::cache::trimmed::Config;
use crate::change::{Changed, DirtyKeys, Effects, KnownObjects};
use crate::flight::pools::set_condition;
use crate::flight::refusals::{AGAIN, Failure as _, WriteError};
use crate::io::events::{Source, reference};
use crate::kind;
use crate::passes::descriptor::Descriptor;
use crate::queue::{Growth, Outcome, Pass, Spacing, Work};
use crate::render_prerequisites::Prerequisite;
use crate::rights::Right;
use crate::shared::Shared;
use crate::watches::inputs;
use api::conditions::Condition;
use api::events::ControllerEvent;
use api::formats::text::cut;
use api::k8s::{LabelSelector, ResourceExt};
use api::names::{CONTROLLER_CONFIG, WORKER, pool_condition};
use api::render_reason::RenderReason;
use api::v1::{MachineConfig, MachineConfigPool, MachineConfigPoolSpec};
use client::call;
use render::{Inputs, Mode, Overrides, Reason, RenderError, RenderPlan};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use write::{Pin, carry_out, name_config, restore};

/// The descriptor of this pass.
pub(crate) const PASS: Descriptor = Descriptor {
    pass: Pass::Render,
    // Every distinct result is an object that stays, and nodes begin to move to it. So a burst of changes is spread out
    // a little more than elsewhere. A single change is still rendered at once.
    work: Work {
        name: "render",
        parallel: 8,
        spacing: Spacing { growth: Growth::Changes, ..Spacing::millis(50, 1000) },
    },
    reads: &[
        &inputs::POOLS,
        &inputs::CONFIGS,
        &inputs::CONTROLLER_CONFIGS,
        &inputs::STREAMS,
        &inputs::FEATURE_GATES,
        &inputs::MACHINE_CONFIGURATIONS,
    ],
    rights: &[
        Right::new("create", kind::CONFIGS),
        Right::new("update", kind::CONFIGS),
        Right::new("patch", kind::POOLS),
        Right::new("patch", kind::POOLS).on("status"),
        Right::new("update", kind::POOLS).on("finalizers"),
    ],
    marked_by,
    effects: Effects { on_change, ..Effects::NONE },
    start: |shared, _| {
        let rendering = Arc::new(Rendering::new(shared.clone()));
        Box::new(move |key| {
            let rendering = rendering.clone();
            Box::pin(async move { rendering.pass(key).await })
        })
    },
};

fn marked_by(changed: &Changed<'_>, known: KnownObjects<'_>, marks: &mut DirtyKeys) {
    let all = || known.stores.pools.names();
    match changed {
        Changed::Pool(change) => {
            let Some(new) = change.new.as_deref() else { return };
            let old = change.old.as_deref();
            if !old.is_some_and(|old| is_same_input(old, new, known)) {
                marks.mark(Pass::Render, &change.name);
            }
            let stream = |p: &MachineConfigPool| p.spec.os_image_stream.clone();
            if change.name == WORKER && old.map(stream) != Some(stream(new)) {
                // Custom pools that name no stream follow the one of this pool.
                marks.mark_all(Pass::Render, all().into_iter().filter(|other| *other != change.name));
            }
        }
        Changed::Config(change) => {
            for config in [change.old.as_deref(), change.new.as_deref()].into_iter().flatten() {
                marks.mark_all(Pass::Render, pools_of(&change.name, config, known));
            }
        }
        // The config may have been deleted before the pool named it. If it is deleted from now on, that change marks the pool.
        Changed::ConfigNamed(name) => {
            let pool = known.stores.pools.get(name);
            if pool.is_some_and(|p| known.stores.configs.get(&p.spec.configuration.name).is_none()) {
                marks.mark(Pass::Render, name);
            }
        }
        Changed::Setting(kind) if [STREAMS, FEATURE_GATE, MACHINE_CONFIGURATION].contains(kind) => {
            marks.mark_all(Pass::Render, all());
        }
        Changed::ControllerConfig(_) | Changed::RenderPrerequisite | Changed::TermBegins => {
            marks.mark_all(Pass::Render, all());
        }
        _ => {}
    }
}

fn on_change(shared: &Shared, changed: &Changed<'_>) {
    match changed {
        Changed::Pool(change) if change.new.is_none() => shared.own_writes.forget(&change.name),
        // Another leader may have written other configs into the pools.
        Changed::TermBegins => shared.own_writes.clear(),
        _ => {}
    }
}

/// Whether nothing changed that rendering reads, apart from its own writes.
fn is_same_input(old: &MachineConfigPool, new: &MachineConfigPool, known: KnownObjects<'_>) -> bool {
    let spec = MachineConfigPoolSpec { configuration: old.spec.configuration.clone(), ..new.spec.clone() };
    let ours = || known.own_writes.wrote(&new.name_any(), &new.spec.configuration);
    old.spec == spec
        && (old.spec.configuration == new.spec.configuration || ours())
        && old.metadata.labels == new.metadata.labels
        && rollout::pinned_config(old) == rollout::pinned_config(new)
        && old.metadata.uid == new.metadata.uid
}

/// The pools that a MachineConfig affects.
fn pools_of(name: &str, config: &Config, known: KnownObjects<'_>) -> Vec<String> {
    match config {
        // Deleted or tampered with: the pool's pass restores it, or reports it. If the pool does not name it, it was
        // just created, or removed as garbage.
        Config::Rendered(rendered) => {
            let pool = known.stores.pools.get(&rendered.pool);
            let names = |p: &MachineConfigPool| {
                p.spec.configuration.name == name || rollout::pinned_config(p) == Some(name)
            };
            pool.filter(|p| names(p)).map(|_| rendered.pool.clone()).into_iter().collect()
        }
        Config::Source(object) => {
            let labels = object.metadata.labels.as_ref();
            let selects = |p: &MachineConfigPool| {
                // The pool's own pass reports a selector that cannot be evaluated.
                api::formats::selector::matches(p.spec.machine_config_selector.as_ref(), labels)
                    .unwrap_or(true)
            };
            let pools = known.stores.pools.all();
            pools.iter().filter(|pool| selects(pool)).map(|pool| pool.name_any()).collect()
        }
    }
}

/// The render pass, and what it has reported already.
pub(crate) struct Rendering {
    shared: Arc<Shared>,
    /// What was last reported about each pool.
    reported: Mutex<HashMap<String, BTreeSet<String>>>,
}

/// Characters of a condition's message: room for eight findings, each with a path and a remedy.
const MAX_MESSAGE: usize = 10_000;

/// Why a pool is not rendered now.
enum NotRendered {
    /// A reason that the pool's condition shows.
    Degraded { reason: RenderReason, message: String },
    /// Something is still on its way; its arrival makes the pool dirty again.
    NotYet(String),
}

impl NotRendered {
    fn degraded(reason: impl Into<RenderReason>, message: String) -> Self {
        Self::Degraded { reason: reason.into(), message }
    }
}

impl Rendering {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, reported: Mutex::default() }
    }

    /// One pass over one pool.
    pub(crate) async fn pass(&self, name: String) -> Outcome {
        let Some(pool) = self.shared.stores.pools.get(&name) else {
            self.reported.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            self.shared.troubles.resolved(&format!("render {name}"));
            return Outcome::Done;
        };
        if pool.metadata.deletion_timestamp.is_some() {
            return Outcome::Done;
        }
        let done = self.step(&name, &pool).await;
        let what = format!("render {name}");
        match done {
            Ok(()) => {
                self.shared.troubles.resolved(&what);
                Outcome::Done
            }
            Err(e) => match self.shared.troubles.due_message(&what, &e) {
                // It will be refused every time, or has been for a while: the pool reports it.
                Some(words) => {
                    let message = format!("the rendered MachineConfig cannot be written: {words}");
                    match self.degraded(&name, RenderReason::Refused, message).await {
                        Ok(()) => Outcome::After(AGAIN),
                        Err(e) if e.is_stale() => Outcome::Stale,
                        Err(e) => Outcome::Failed(e.chain()),
                    }
                }
                None if e.is_stale() => {
                    tracing::debug!(pool = name, "{}", e.chain());
                    Outcome::Stale
                }
                None => Outcome::Failed(e.chain()),
            },
        }
    }

    async fn step(&self, name: &str, pool: &Arc<MachineConfigPool>) -> Result<(), WriteError> {
        let pin = Pin::of(&self.shared, pool).await?;
        // This comes first: a config that cannot be rendered must not prevent a rollback.
        if let Pin::To(configuration) = &pin {
            name_config(&self.shared, pool, configuration.clone()).await?;
        }
        let pool = self.shared.stores.pools.get(name).unwrap_or_else(|| pool.clone());
        match self.plan(&pool).await? {
            Ok(plan) => carry_out(&self.shared, &pool, plan, &pin).await,
            Err(NotRendered::NotYet(what)) => {
                tracing::debug!(pool = name, "not rendered yet: {what}");
                self.has_begun(&pool).await
            }
            Err(NotRendered::Degraded { reason, message }) => self.degraded(name, reason, message).await,
        }
    }

    /// Removes the pool's message about a term that could not begin, because it has begun. Otherwise a pool that waits
    /// for something else would keep the message until it is rendered, and a pool that selects every MachineConfig is
    /// never rendered.
    async fn has_begun(&self, pool: &MachineConfigPool) -> Result<(), WriteError> {
        let conditions = pool.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        if !conditions.iter().any(|c| {
            c.type_ == pool_condition::RENDER_DEGRADED
                && RenderReason::named(&c.reason) == Some(RenderReason::NotStarted)
        }) {
            return Ok(());
        }
        let condition = Condition::new(pool_condition::RENDER_DEGRADED, false, "", "");
        Ok(set_condition(&*self.shared, pool, condition).await?)
    }

    /// Reports on the pool why it is not rendered, and logs it if that is new.
    async fn degraded(&self, name: &str, reason: RenderReason, message: String) -> Result<(), WriteError> {
        if self.is_new(name, &message) {
            tracing::warn!(pool = name, %reason, "cannot be rendered: {message}");
        }
        // Read again, because this pass may have written to the pool itself.
        let Some(pool) = self.shared.stores.pools.get(name) else { return Ok(()) };
        let message = cut(&message, MAX_MESSAGE);
        let condition = Condition::new(pool_condition::RENDER_DEGRADED, true, reason, message);
        Ok(set_condition(&*self.shared, &pool, condition).await?)
    }

    async fn plan(&self, pool: &MachineConfigPool) -> Result<Result<RenderPlan, NotRendered>, WriteError> {
        let name = pool.name_any();
        if pool.spec.machine_config_selector.as_ref().is_some_and(selects_all) {
            let message = "spec.machineConfigSelector is {}: an empty selector selects no MachineConfig \
                here; write the role label there";
            if self.is_new(&name, message) {
                let about = reference(pool);
                self.shared.events.publish(
                    Source::Render,
                    about,
                    ControllerEvent::SelectingAll,
                    message.to_owned(),
                );
            }
            return Ok(Err(NotRendered::NotYet(message.to_owned())));
        }
        let Some(controller_config) = self.shared.stores.controller_config() else {
            let message =
                format!("there is no ControllerConfig {CONTROLLER_CONFIG}; `mco install` creates it");
            return Ok(Err(NotRendered::degraded(RenderReason::NoControllerConfig, message)));
        };
        let configs = self.shared.stores.configs.all();
        let sources: Vec<&MachineConfig> =
            configs.iter().filter_map(|c| c.source()).map(AsRef::as_ref).collect();
        let prerequisites = &self.shared.prerequisites;
        let templates = || prerequisites.templates.check(&controller_config, pool, &sources);
        for (prerequisite, then) in [
            (prerequisites.version.check(&controller_config, &self.shared.versions.raw), None),
            // The template pass will restore them, and their change makes this pool dirty again.
            (templates(), Some(Changed::TemplatesNotStored)),
            (prerequisites.settings.check(&name), None),
        ] {
            match prerequisite {
                Prerequisite::Met => {}
                Prerequisite::Wait(what) => {
                    then.iter().for_each(|changed| self.shared.changed(changed));
                    return Ok(Err(NotRendered::NotYet(what.to_owned())));
                }
                Prerequisite::Refuse { reason, message } => {
                    return Ok(Err(NotRendered::degraded(reason, message)));
                }
            }
        }
        let selected = match render::select(pool, sources) {
            Ok(selected) => selected,
            Err(e) => return Ok(Err(NotRendered::degraded(e.reason, e.to_string()))),
        };
        let current = match pool.spec.configuration.name.as_str() {
            "" => None,
            current => {
                let api = self.shared.api::<MachineConfig>();
                call(|| format!("machineconfig {current}"), api.get_opt(current)).await?
            }
        };
        let settings = &self.shared.settings;
        let streams = settings
            .one(STREAMS)
            .filter(|_| !render::streams::switched_off(settings.one(FEATURE_GATE).as_deref()));
        let worker = self.shared.stores.pools.get(WORKER);
        let stream = render::streams::stream(
            pool,
            worker.as_deref(),
            streams.as_deref(),
            &self.shared.versions,
            Mode::Cluster,
        );
        let stream = match stream {
            Ok(stream) => stream,
            Err(finding) => {
                let why =
                    RenderError { pool: name.clone(), reason: Reason::Refused, findings: vec![finding] };
                return Ok(Err(NotRendered::degraded(why.reason, why.to_string())));
            }
        };
        let inputs = Inputs {
            current: current.as_ref(),
            stream: stream.as_ref(),
            overrides: Overrides::of_cluster(settings.one(MACHINE_CONFIGURATION).as_deref()),
            ..Inputs::new(pool, &selected, &controller_config, &self.shared.versions)
        };
        match render::plan(&inputs) {
            Ok(plan) => {
                for warning in self.news(&name, plan.warnings.iter().map(ToString::to_string).collect()) {
                    tracing::warn!(pool = name, "{warning}");
                }
                // A rendered config that was edited by hand is restored before anything else reads it.
                if let Some(current) = current.filter(|c| c.name_any() == plan.name()) {
                    restore(&self.shared, &current, &plan.rendered).await?;
                }
                Ok(Ok(plan))
            }
            Err(e) => Ok(Err(NotRendered::degraded(e.reason, e.to_string()))),
        }
    }

    fn is_new(&self, pool: &str, message: &str) -> bool {
        !self.news(pool, BTreeSet::from([message.to_owned()])).is_empty()
    }

    /// What must be reported about a pool now and was not reported last time.
    fn news(&self, pool: &str, all: BTreeSet<String>) -> Vec<String> {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let before = reported.remove(pool).unwrap_or_default();
        let news = all.difference(&before).cloned().collect();
        reported.insert(pool.to_owned(), all);
        news
    }
}

/// The selector is present and empty, so it matches everything.
fn selects_all(selector: &LabelSelector) -> bool {
    api::formats::selector::is_empty(selector)
}

#[cfg(test)]
mod tests;
