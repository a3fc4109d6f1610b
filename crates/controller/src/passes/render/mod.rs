//! The render pass: carries out `render::plan` for one pool.
//!
//! Flow: caches → select → plan → create the rendered MachineConfig → the pool names it → `RenderDegraded`. In this
//! order a pool never names a config that does not exist, and after a restart between any two steps the next step
//! follows.
//!
//! What it is not: merging or naming. `render` says whether a set of MachineConfigs can be rendered, and why not.

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
use crate::term::catch_up::NOT_STARTED;
use crate::term::leader::now;
use api::conditions::Condition;
use api::events::ControllerEvent;
use api::k8s::{LabelSelector, ResourceExt};
use api::names::{CONTROLLER_CONFIG, WORKER, annotation, pool_condition};
use api::text::cut;
use api::v1::{MachineConfig, MachineConfigPool, MachineConfigPoolSpec, PoolConfiguration};
use client::call;
use kube::api::{Patch, PatchParams, PostParams};
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
    Degraded { reason: String, message: String },
    /// Something is still on its way; its arrival makes the pool dirty again.
    NotYet(String),
}

/// Whether a pool is pinned or follows its MachineConfigs.
enum Pin {
    /// It follows them.
    None,
    /// It is pinned to this config.
    To(PoolConfiguration),
    /// It should be pinned to a config that does not exist: it stays where it is.
    Missing(String),
    /// It should be pinned to a config whose content no longer matches its name: it stays where it is.
    Edited(String),
}

impl Why {
    fn degraded(reason: &str, message: String) -> Self {
        Self::Degraded { reason: reason.to_owned(), message }
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
                    match self.degraded(&name, "Refused".to_owned(), message).await {
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
        let pin = self.pin(pool).await?;
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
        if !conditions.iter().any(|c| c.type_ == pool_condition::RENDER_DEGRADED && c.reason == NOT_STARTED) {
            return Ok(());
        }
        let condition = Condition::new(pool_condition::RENDER_DEGRADED, false, "", "");
        Ok(set_condition(&self.shared, pool, condition).await?)
    }

    /// Reports on the pool why it is not rendered, and logs it if that is new.
    async fn degraded(&self, name: &str, reason: String, message: String) -> Result<(), WriteError> {
        if self.is_new(name, &message) {
            tracing::warn!(pool = name, reason, "cannot be rendered: {message}");
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
            return Ok(Err(Why::degraded("NoControllerConfig", message)));
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
            Err(e) => return Ok(Err(Why::degraded(&format!("{:?}", e.reason), e.to_string()))),
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
                return Ok(Err(Why::degraded(&format!("{:?}", why.reason), why.to_string())));
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
            Err(e) => Ok(Err(Why::degraded(&format!("{:?}", e.reason), e.to_string()))),
        }
    }

    /// Whether the pool is pinned to an older config, and whether that is possible. The inputs of such a config are no
    /// longer known, so an edited one cannot be restored. It can only be detected, because its name contains the hash
    /// of its content.
    async fn pin(&self, pool: &MachineConfigPool) -> Result<Pin, WriteError> {
        let Some(name) = rollout::pinned(pool) else { return Ok(Pin::None) };
        match self.shared.stores.configs.get(name).as_deref() {
            Some(Config::Rendered(rendered)) if rendered.is_owned_by(pool) => {}
            _ => return Ok(Pin::Missing(name.to_owned())),
        }
        let api = self.shared.api::<MachineConfig>();
        Ok(match call(|| format!("machineconfig {name}"), api.get_opt(name)).await? {
            None => Pin::Missing(name.to_owned()),
            Some(config) if render::name(&pool.name_any(), &config.spec) != name => {
                Pin::Edited(name.to_owned())
            }
            Some(_) => Pin::To(PoolConfiguration { name: name.to_owned(), ..PoolConfiguration::default() }),
        })
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
        let condition = match pin {
            Pin::None | Pin::To(_) => Condition::new(pool_condition::RENDER_DEGRADED, false, "", ""),
            Pin::Missing(config) => {
                let message = format!(
                    "the pool is pinned to MachineConfig {config}, which is not one of its rendered configs, \
                     so its nodes stay as they are: pin another one with `mco undo {pool_name} --to CONFIG`, \
                     or release the pin with `mco undo {pool_name} --release`"
                );
                Condition::new(pool_condition::RENDER_DEGRADED, true, "PinnedConfigMissing", message)
            }
            Pin::Edited(config) => {
                let message = format!(
                    "the pool is pinned to MachineConfig {config}, whose spec was changed after it was \
                     rendered: its content no longer matches the hash in its name. Restore the spec, pin \
                     another one with `mco undo {pool_name} --to CONFIG`, or release the pin with `mco undo \
                     {pool_name} --release`"
                );
                Condition::new(pool_condition::RENDER_DEGRADED, true, "PinnedConfigEdited", message)
            }
        };
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
mod tests {
    use super::*;
    use crate::cache::store::Item;
    use crate::fake_server::{answer, shared};

    const CONFIG: &str = "rendered-worker-";

    fn spec(argument: &str) -> api::v1::MachineConfigSpec {
        api::v1::MachineConfigSpec { kernel_arguments: Some(vec![argument.to_owned()]), ..Default::default() }
    }

    /// A pool that is pinned to a rendered config, and a server whose copy of that config has this kernel argument.
    fn pinned(stored: &'static str) -> (Rendering, MachineConfigPool, String) {
        let name = render::name("worker", &spec("quiet"));
        assert!(name.starts_with(CONFIG));
        let owner = json!([{"apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "p", "controller": true}]);
        let metadata = json!({"name": name, "uid": "u", "resourceVersion": "1", "ownerReferences": owner});
        let object = json!({"metadata": metadata, "spec": spec(stored)});
        let served = object.clone();
        let shared = shared(move |_| answer(200, &served));
        shared.config_answer(serde_json::from_value(object).unwrap());
        let pool: MachineConfigPool = serde_json::from_value(json!({
            "metadata": {"name": "worker", "uid": "p", "resourceVersion": "1", "annotations": {own::PINNED: name}},
            "spec": {},
        }))
        .unwrap();
        let item = Item { version: 1, uid: "p".to_owned(), value: Arc::new(pool.clone()) };
        shared.stores.pools.apply("worker".to_owned(), item);
        shared.queues.of(Pass::Render).take();
        (Rendering::new(Arc::new(shared)), pool, name)
    }

    #[tokio::test]
    async fn a_pool_that_is_never_rendered_does_not_say_for_ever_that_the_term_cannot_begin() {
        let pool = |condition: &Condition| {
            json!({
                "metadata": {"name": "all", "uid": "p", "resourceVersion": "1"},
                "spec": {"machineConfigSelector": {}},
                "status": {"conditions": [condition]},
            })
        };
        for (reason, wrote) in [(NOT_STARTED, 1), ("SettingsRefused", 0)] {
            let written = Arc::new(Mutex::new(vec![]));
            let (writes, condition) =
                (written.clone(), Condition::new("RenderDegraded", true, reason, "words"));
            let stored = pool(&condition);
            let shared = shared(move |request| {
                writes.lock().unwrap().push(request.uri().path().to_owned());
                answer(200, &stored)
            });
            let value: MachineConfigPool = serde_json::from_value(pool(&condition)).unwrap();
            let value = Arc::new(value);
            shared
                .stores
                .pools
                .apply("all".to_owned(), Item { version: 1, uid: "p".to_owned(), value: value.clone() });
            Rendering::new(Arc::new(shared)).step("all", &value).await.map_err(|e| e.chain()).unwrap();
            let written = written.lock().unwrap();
            assert_eq!(
                written.iter().filter(|path| path.ends_with("/all/status")).count(),
                wrote,
                "{written:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_pool_is_not_held_in_a_config_that_somebody_has_edited() {
        let (rendering, pool, name) = pinned("quiet");
        let pin = rendering.pin(&pool).await.unwrap();
        assert!(matches!(pin, Pin::To(configuration) if configuration.name == name));
        let (rendering, pool, name) = pinned("debug");
        let pin = rendering.pin(&pool).await.unwrap();
        assert!(matches!(pin, Pin::Edited(edited) if edited == name));
        // An edit marks the pool, also if the pool does not name the config yet.
        let shared = &rendering.shared;
        let mut edited: MachineConfig = shared.api().get(&name).await.unwrap();
        edited.metadata.resource_version = Some("2".to_owned());
        shared.config_answer(edited);
        assert_eq!(shared.queues.of(Pass::Render).take(), ["worker".to_owned()].into());
    }

    #[tokio::test]
    async fn what_the_api_server_stores_otherwise_than_it_was_sent_is_an_error() {
        let rendered = MachineConfig::new("rendered-worker-1", spec("quiet"));
        for (stored, fine) in [("quiet", true), ("debug", false)] {
            let shared = shared(move |_| {
                answer(
                    200,
                    &json!({"metadata": {"name": "rendered-worker-1", "resourceVersion": "2"}, "spec": spec(stored)}),
                )
            });
            let pool = MachineConfigPool::new("worker", Default::default());
            let rendering = Rendering::new(Arc::new(shared));
            let made = rendering.create(&pool, &rendered).await;
            let mut there = rendered.clone();
            there.spec = spec("other");
            let back = put_back(&rendering.shared, &there, &rendered).await;
            for done in [made, back] {
                let altered = matches!(done, Err(WriteError::Altered { .. }));
                assert_eq!((done.is_ok(), altered), (fine, !fine), "{stored}: {done:?}");
            }
        }
    }
}
