//! The render pass: carries out `render::plan` for one pool.
//!
//! Flow: caches → select → plan → create the rendered MachineConfig → the pool names it → `RenderDegraded`. In this
//! order a pool never names a config that does not exist, and after a restart between any two steps the next step
//! follows.
//!
//! What it is not: merging or naming. `render` says whether a set of MachineConfigs can be rendered, and why not.

mod pin;

use crate::cache::settings::{FEATURE_GATE, STREAMS};
use crate::cache::stores::Config;
use crate::dirty::{Changed, DirtyKeys, Known};
use crate::flight::refusals::{AGAIN, Failure as _, WriteError};
use crate::flight::writes::set_condition;
use crate::gates::RenderGate;
use crate::io::events::{Source, reference, release_version};
use crate::io::merge_patch::{bound, difference};
use crate::io::metrics;
use crate::passes::descriptor::{Descriptor, Right, kind};
use crate::passes::queue::{Growth, Outcome, Pass, Spacing, Work};
use crate::shared::Shared;
use crate::term::leader::now;
use api::conditions::Condition;
use api::events::ControllerEvent;
use api::k8s::{LabelSelector, ResourceExt};
use api::names::{CONTROLLER_CONFIG, WORKER, annotation, pool_condition};
use api::render_reason::RenderReason;
use api::text::cut;
use api::v1::{MachineConfig, MachineConfigPool, MachineConfigPoolSpec, PoolConfiguration};
use client::call;
use kube::api::{Patch, PatchParams, PostParams};
use pin::Pin;
use render::{Inputs, Mode, Reason, RenderError, RenderPlan};
use rollout::view::own;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

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
    reads: &[kind::POOLS, kind::CONFIGS, kind::CONTROLLER_CONFIGS, kind::STREAMS, kind::FEATURE_GATES],
    writes: &[
        Right::new("create", kind::CONFIGS),
        Right::new("update", kind::CONFIGS),
        Right::new("patch", kind::POOLS),
        Right::new("patch", kind::POOL_STATUS),
        Right::new("update", kind::POOL_FINALIZERS),
    ],
    marked_by,
    start: |shared, _| {
        let rendering = Arc::new(Rendering::new(shared.clone()));
        Box::new(move |key| {
            let rendering = rendering.clone();
            Box::pin(async move { rendering.pass(key).await })
        })
    },
};

fn marked_by(changed: &Changed<'_>, known: Known<'_>, marks: &mut DirtyKeys) {
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
        Changed::Setting(kind) if [STREAMS, FEATURE_GATE].contains(kind) => {
            marks.mark_all(Pass::Render, all());
        }
        Changed::ControllerConfig(_) | Changed::TermBegins => marks.mark_all(Pass::Render, all()),
        Changed::Node(_)
        | Changed::MachineConfigNode(_)
        | Changed::PlanInput
        | Changed::Setting(_)
        | Changed::SettingKnown
        | Changed::TemplateInput => {}
    }
}

/// Whether nothing changed that rendering reads, apart from its own writes.
fn is_same_input(old: &MachineConfigPool, new: &MachineConfigPool, known: Known<'_>) -> bool {
    let spec = MachineConfigPoolSpec { configuration: old.spec.configuration.clone(), ..new.spec.clone() };
    let ours = || known.named.is(&new.name_any(), &new.spec.configuration);
    old.spec == spec
        && (old.spec.configuration == new.spec.configuration || ours())
        && old.metadata.labels == new.metadata.labels
        && rollout::pinned(old) == rollout::pinned(new)
        && old.metadata.uid == new.metadata.uid
}

/// The pools that a MachineConfig affects.
fn pools_of(name: &str, config: &Config, known: Known<'_>) -> Vec<String> {
    match config {
        // Deleted or tampered with: the pool's pass restores it, or reports it. If the pool does not name it, it was
        // just created, or removed as garbage.
        Config::Rendered(rendered) => {
            let pool = known.stores.pools.get(&rendered.pool);
            let names =
                |p: &MachineConfigPool| p.spec.configuration.name == name || rollout::pinned(p) == Some(name);
            pool.filter(|p| names(p)).map(|_| rendered.pool.clone()).into_iter().collect()
        }
        Config::Source(object) => {
            let labels = object.metadata.labels.as_ref();
            let selects = |p: &MachineConfigPool| {
                // The pool's own pass reports a selector that cannot be evaluated.
                api::selector::matches(p.spec.machine_config_selector.as_ref(), labels).unwrap_or(true)
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
    told: Mutex<HashMap<String, BTreeSet<String>>>,
}

/// Characters of a condition's message: room for eight findings, each with a path and a remedy.
const MAX_MESSAGE: usize = 10_000;

/// Why a pool is not rendered now.
enum Why {
    /// A reason that the pool's condition shows.
    Degraded { reason: RenderReason, message: String },
    /// Something is still on its way; its arrival makes the pool dirty again.
    NotYet(String),
}

impl Why {
    fn degraded(reason: impl Into<RenderReason>, message: String) -> Self {
        Self::Degraded { reason: reason.into(), message }
    }
}

impl Rendering {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, told: Mutex::default() }
    }

    /// One pass over one pool.
    pub(crate) async fn pass(&self, name: String) -> Outcome {
        let Some(pool) = self.shared.stores.pools.get(&name) else {
            self.told.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            self.shared.troubles.over(&format!("render {name}"));
            return Outcome::Done;
        };
        if pool.metadata.deletion_timestamp.is_some() {
            return Outcome::Done;
        }
        let done = self.step(&name, &pool).await;
        let what = format!("render {name}");
        match done {
            Ok(()) => {
                self.shared.troubles.over(&what);
                Outcome::Done
            }
            Err(e) => match self.shared.troubles.words(&what, &e) {
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
            self.name(pool, configuration.clone()).await?;
        }
        let pool = self.shared.stores.pools.get(name).unwrap_or_else(|| pool.clone());
        match self.plan(&pool).await? {
            Ok(plan) => self.carry_out(&pool, plan, &pin).await,
            Err(Why::NotYet(what)) => {
                tracing::debug!(pool = name, "not rendered yet: {what}");
                self.has_begun(&pool).await
            }
            Err(Why::Degraded { reason, message }) => self.degraded(name, reason, message).await,
        }
    }

    /// Removes the pool's message about a term that could not begin, because it has begun. Otherwise a pool that waits
    /// for something else would keep the message until it is rendered, and a pool that selects every MachineConfig is
    /// never rendered.
    async fn has_begun(&self, pool: &MachineConfigPool) -> Result<(), WriteError> {
        let conditions = pool.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
        if !conditions.iter().any(|c| {
            c.type_ == pool_condition::RENDER_DEGRADED && c.reason == RenderReason::NotStarted.text()
        }) {
            return Ok(());
        }
        let condition = Condition::new(pool_condition::RENDER_DEGRADED, false, "", "");
        Ok(set_condition(&self.shared, pool, condition).await?)
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
        Ok(set_condition(&self.shared, &pool, condition).await?)
    }

    async fn plan(&self, pool: &MachineConfigPool) -> Result<Result<RenderPlan, Why>, WriteError> {
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
            return Ok(Err(Why::NotYet(message.to_owned())));
        }
        let Some(controller_config) = self.shared.stores.controller_config() else {
            let message =
                format!("there is no ControllerConfig {CONTROLLER_CONFIG}; `mco install` creates it");
            return Ok(Err(Why::degraded(RenderReason::NoControllerConfig, message)));
        };
        let configs = self.shared.stores.configs.all();
        let sources: Vec<&MachineConfig> =
            configs.iter().filter_map(|c| c.source()).map(AsRef::as_ref).collect();
        let gates = &self.shared.gates;
        let templates = || gates.templates.check(&controller_config, pool, &sources);
        for (gate, asks) in [
            (gates.version.check(&controller_config, &self.shared.versions.raw), None),
            (templates(), Some(Pass::Templates)),
            (gates.settings.check(&name), None),
        ] {
            match gate {
                RenderGate::Open => {}
                RenderGate::Wait(what) => {
                    if let Some(pass) = asks {
                        // That pass will restore them, and their change makes this pool dirty again.
                        self.shared.queues.of(pass).mark(CONTROLLER_CONFIG.to_owned());
                    }
                    return Ok(Err(Why::NotYet(what.to_owned())));
                }
                RenderGate::Refuse { reason, message } => return Ok(Err(Why::degraded(reason, message))),
            }
        }
        let selected = match render::select(pool, sources) {
            Ok(selected) => selected,
            Err(e) => return Ok(Err(Why::degraded(e.reason, e.to_string()))),
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
                return Ok(Err(Why::degraded(why.reason, why.to_string())));
            }
        };
        let inputs = Inputs {
            current: current.as_ref(),
            stream: stream.as_ref(),
            ..Inputs::new(pool, &selected, &controller_config, &self.shared.versions)
        };
        match render::plan(&inputs) {
            Ok(plan) => {
                for warning in self.news(&name, plan.warnings.iter().map(ToString::to_string).collect()) {
                    tracing::warn!(pool = name, "{warning}");
                }
                // A rendered config that was edited by hand is restored before anything else reads it.
                if let Some(current) = current.filter(|c| c.name_any() == plan.name()) {
                    put_back(&self.shared, &current, &plan.rendered).await?;
                }
                Ok(Ok(plan))
            }
            Err(e) => Ok(Err(Why::degraded(e.reason, e.to_string()))),
        }
    }

    async fn carry_out(
        &self,
        pool: &MachineConfigPool,
        plan: RenderPlan,
        pin: &Pin,
    ) -> Result<(), WriteError> {
        let (shared, pool_name) = (&self.shared, pool.name_any());
        let name = plan.name().to_owned();
        // A config that belonged to a deleted pool of the same name is taken over. Otherwise the garbage collector
        // would delete it.
        let ours = |config: &Config| match config {
            Config::Rendered(rendered) => rendered.is_owned_by(pool),
            Config::Source(_) => false,
        };
        if !shared.stores.configs.get(&name).as_deref().is_some_and(ours) {
            self.create(pool, &plan.rendered).await?;
        }
        let overridden = plan.rendered.annotations().contains_key(annotation::OS_IMAGE_URL_OVERRIDDEN);
        let labels = metrics::Pool { pool: pool_name.clone() };
        shared.metrics.os_image_url_override.get_or_create(&labels).set(overridden.into());
        shared.forget_series_if_gone(&labels.pool);

        let wanted = PoolConfiguration {
            name: name.clone(),
            source: Some(plan.source),
            ..PoolConfiguration::default()
        };
        if matches!(pin, Pin::None) {
            self.name(pool, wanted).await?;
        }
        shared.metrics.success(
            "machine-config-controller-render",
            "Sync Machine Config Pool",
            &pool_name,
            now().0,
        );
        let fresh = shared.stores.pools.get(&pool_name);
        let pool = fresh.as_deref().unwrap_or(pool);
        let condition = pin.condition(&pool_name);
        Ok(set_condition(shared, pool, condition).await?)
    }

    /// Writes a config's name into the pool, and records it in the pool's history.
    async fn name(&self, pool: &MachineConfigPool, wanted: PoolConfiguration) -> Result<(), WriteError> {
        let (shared, pool_name, name) = (&self.shared, pool.name_any(), wanted.name.clone());
        let have = &pool.spec.configuration;
        if have.name != wanted.name || have.source != wanted.source {
            // Fields that others wrote beside ours stay.
            let wanted = PoolConfiguration {
                api_version: have.api_version.clone(),
                kind: have.kind.clone(),
                ..wanted
            };
            if let Some(patch) = difference(&json!(have), &json!(wanted)) {
                shared.named.expect(&pool_name, wanted);
                let mut patch = bound(
                    "spec",
                    &json!({ "configuration": patch }),
                    pool.metadata.resource_version.as_deref(),
                );
                if have.name != name
                    && let Some(metadata) = patch.get_mut("metadata")
                {
                    let history = rollout::with_next(pool, &name, &now());
                    metadata["annotations"] = json!({ own::CONFIG_HISTORY: history });
                }
                let api = shared.api::<MachineConfigPool>();
                let answer = call(
                    || format!("spec.configuration of machineconfigpool {pool_name}"),
                    api.patch(&pool_name, &PatchParams::default(), &Patch::Merge(patch)),
                )
                .await?;
                tracing::info!(pool = pool_name, config = name, was = have.name, "rendered");
                shared.pool_answer(answer);
                if shared.stores.configs.get(&name).is_none() {
                    // It was deleted before the pool named it. If it is deleted from now on, that change marks the
                    // pool.
                    shared.queues.of(Pass::Render).mark(pool_name.clone());
                }
                shared.queues.of(Pass::Garbage).mark(pool_name.clone());
            }
        }
        Ok(())
    }

    async fn create(&self, pool: &MachineConfigPool, rendered: &MachineConfig) -> Result<(), WriteError> {
        let shared = &self.shared;
        let name = rendered.name_any();
        let api = shared.api::<MachineConfig>();
        let what = || format!("machineconfig {name}");
        let made = match call(what, api.create(&PostParams::default(), rendered)).await {
            Ok(made) => made,
            Err(e) if e.is_conflict() => {
                // An earlier pass created it and the cache does not show it yet, or somebody else created it.
                let there = call(what, api.get(&name)).await?;
                return put_back(shared, &there, rendered).await;
            }
            Err(e) => return Err(e.into()),
        };
        let note = |key: &str| rendered.annotations().get(key).cloned().unwrap_or_default();
        if rendered.annotations().contains_key(annotation::OS_IMAGE_URL_OVERRIDDEN) {
            let message = format!("osImageURL is {}, set by a MachineConfig", rendered.spec.os_image_url);
            shared.events.publish(
                Source::Render,
                reference(&made),
                ControllerEvent::OSImageURLOverridden,
                message,
            );
        }
        let release = shared.stores.controller_config();
        let message = format!(
            "{name} generated from controller version {} for release {}",
            note(annotation::GENERATED_BY_CONTROLLER),
            release.as_deref().map_or("", release_version),
        );
        let about = reference(pool);
        shared.events.publish(Source::Render, about, ControllerEvent::RenderedConfigGenerated, message);
        let altered = made.spec != rendered.spec;
        shared.config_answer(made);
        match altered {
            true => Err(WriteError::Altered { name, fields: "spec".to_owned() }),
            false => Ok(()),
        }
    }

    fn is_new(&self, pool: &str, message: &str) -> bool {
        !self.news(pool, BTreeSet::from([message.to_owned()])).is_empty()
    }

    /// What must be reported about a pool now and was not reported last time.
    fn news(&self, pool: &str, all: BTreeSet<String>) -> Vec<String> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = told.remove(pool).unwrap_or_default();
        let news = all.difference(&before).cloned().collect();
        told.insert(pool.to_owned(), all);
        news
    }
}

/// The selector is present and empty, so it matches everything.
fn selects_all(selector: &LabelSelector) -> bool {
    api::selector::is_empty(selector)
}

/// Restores a rendered config to what its name says: content, owner and annotations.
async fn put_back(shared: &Shared, there: &MachineConfig, wanted: &MachineConfig) -> Result<(), WriteError> {
    let name = there.name_any();
    let mut fixed = there.clone();
    fixed.spec = wanted.spec.clone();
    fixed.metadata.owner_references.clone_from(&wanted.metadata.owner_references);
    // If the new provenance is too large to store, an old one of other MachineConfigs must not stay.
    fixed.annotations_mut().remove(annotation::PROVENANCE);
    fixed.annotations_mut().extend(wanted.annotations().clone());
    if json!(fixed) == json!(there) {
        shared.config_answer(there.clone());
        return Ok(());
    }
    let visible = |mc: &MachineConfig| {
        let mut mc = mc.clone();
        mc.annotations_mut().remove(annotation::PROVENANCE);
        json!(mc)
    };
    if visible(&fixed) == visible(there) {
        tracing::debug!(
            name,
            "other MachineConfigs now render to the same config; its provenance is updated"
        );
    } else {
        tracing::warn!(
            name,
            "the rendered config is not what its pool renders (content, owner or annotations) and is restored"
        );
    }
    let api = shared.api::<MachineConfig>();
    let answer =
        call(|| format!("machineconfig {name}"), api.replace(&name, &PostParams::default(), &fixed)).await?;
    let altered = answer.spec != fixed.spec;
    shared.config_answer(answer);
    match altered {
        true => Err(WriteError::Altered { name, fields: "spec".to_owned() }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
