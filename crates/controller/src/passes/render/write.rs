//! What the render pass writes: the rendered config is created, or restored, and the pool names it. Also here: a pool
//! that is pinned to an older rendered config (`mco undo`), whether that is possible, and what its condition says.
//!
//! What it is not: what is rendered (see the pass), or the annotation of a pin (see `rollout::pinned_config`).

use crate::cache::trimmed::Config;
use crate::change::Changed;
use crate::flight::WriteContext as _;
use crate::flight::pools::set_condition;
use crate::flight::refusals::WriteError;
use crate::io::clock::now;
use crate::io::events::{Source, reference, release_version};
use crate::io::labels;
use crate::shared::Shared;
use api::conditions::Condition;
use api::events::ControllerEvent;
use api::k8s::ResourceExt;
use api::names::annotation;
use api::names::pool_condition::RENDER_DEGRADED;
use api::render_reason::RenderReason;
use api::v1::{MachineConfig, MachineConfigPool, PoolConfiguration};
use client::merge_patch::{bound_to_version, difference};
use client::{CallError, call};
use kube::api::{Patch, PatchParams, PostParams};
use render::RenderPlan;
use rollout::view::own;
use serde_json::json;

/// Whether a pool is pinned or follows its MachineConfigs.
pub(super) enum Pin {
    /// It follows them.
    None,
    /// It is pinned to this config.
    To(PoolConfiguration),
    /// It should be pinned to a config that does not exist: it stays where it is.
    Missing(String),
    /// It should be pinned to a config whose content no longer matches its name: it stays where it is.
    Edited(String),
}

impl Pin {
    /// Whether the pool is pinned to an older config, and whether that is possible. The inputs of such a config are no
    /// longer known, so an edited one cannot be restored. It can only be detected, because its name contains the hash
    /// of its content.
    pub(super) async fn of(shared: &Shared, pool: &MachineConfigPool) -> Result<Self, CallError> {
        let Some(name) = rollout::pinned_config(pool) else { return Ok(Self::None) };
        match shared.stores.configs.get(name).as_deref() {
            Some(Config::Rendered(rendered)) if rendered.is_owned_by(pool) => {}
            _ => return Ok(Self::Missing(name.to_owned())),
        }
        let api = shared.api::<MachineConfig>();
        Ok(match call(|| format!("machineconfig {name}"), api.get_opt(name)).await? {
            None => Self::Missing(name.to_owned()),
            Some(config) if render::name(&pool.name_any(), &config.spec) != name => {
                Self::Edited(name.to_owned())
            }
            Some(_) => Self::To(PoolConfiguration { name: name.to_owned(), ..PoolConfiguration::default() }),
        })
    }

    /// The condition of the pool while this holds.
    pub(super) fn condition(&self, pool: &str) -> Condition {
        match self {
            Self::None | Self::To(_) => Condition::new(RENDER_DEGRADED, false, "", ""),
            Self::Missing(config) => {
                let message = format!(
                    "the pool is pinned to MachineConfig {config}, which is not one of its rendered configs, \
                     so its nodes stay as they are: pin another one with `mco undo {pool} --to CONFIG`, \
                     or release the pin with `mco undo {pool} --release`"
                );
                Condition::new(RENDER_DEGRADED, true, RenderReason::PinnedConfigMissing, message)
            }
            Self::Edited(config) => {
                let message = format!(
                    "the pool is pinned to MachineConfig {config}, whose spec was changed after it was \
                     rendered: its content no longer matches the hash in its name. Restore the spec, pin \
                     another one with `mco undo {pool} --to CONFIG`, or release the pin with `mco undo \
                     {pool} --release`"
                );
                Condition::new(RENDER_DEGRADED, true, RenderReason::PinnedConfigEdited, message)
            }
        }
    }
}

/// Carries out the plan of one pool: creates the config, has the pool name it unless it is pinned, and sets its condition.
pub(super) async fn carry_out(
    shared: &Shared,
    pool: &MachineConfigPool,
    plan: RenderPlan,
    pin: &Pin,
) -> Result<(), WriteError> {
    let pool_name = pool.name_any();
    let name = plan.name().to_owned();
    // A config that belonged to a deleted pool of the same name is taken over. Otherwise the garbage collector
    // would delete it.
    let ours = |config: &Config| match config {
        Config::Rendered(rendered) => rendered.is_owned_by(pool),
        Config::Source(_) => false,
    };
    if !shared.stores.configs.get(&name).as_deref().is_some_and(ours) {
        create(shared, pool, &plan.rendered).await?;
    }
    let overridden = plan.rendered.annotations().contains_key(annotation::OS_IMAGE_URL_OVERRIDDEN);
    let labels = labels::Pool { pool: pool_name.clone() };
    shared.metrics.os_image_url_override.get_or_create(&labels).set(overridden.into());
    shared.forget_series_if_gone(&labels.pool);

    let wanted =
        PoolConfiguration { name: name.clone(), source: Some(plan.source), ..PoolConfiguration::default() };
    if matches!(pin, Pin::None) {
        name_config(shared, pool, wanted).await?;
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
pub(super) async fn name_config(
    shared: &Shared,
    pool: &MachineConfigPool,
    wanted: PoolConfiguration,
) -> Result<(), WriteError> {
    let (pool_name, name) = (pool.name_any(), wanted.name.clone());
    let have = &pool.spec.configuration;
    // Fields that others wrote beside ours stay.
    let wanted =
        PoolConfiguration { api_version: have.api_version.clone(), kind: have.kind.clone(), ..wanted };
    // Also where nothing has to be written: an earlier write without an answer may still arrive, and then it is no echo of what
    // is wanted now.
    shared.own_writes.expect(&pool_name, wanted.clone());
    if (have.name != wanted.name || have.source != wanted.source)
        && let Some(patch) = difference(&json!(have), &json!(wanted))
    {
        let mut patch = bound_to_version(
            "spec",
            &json!({ "configuration": patch }),
            pool.metadata.resource_version.as_deref(),
        );
        if have.name != name
            && let Some(metadata) = patch.get_mut("metadata")
        {
            let history = rollout::history_with(pool, &name, &now());
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
        shared.changed(&Changed::ConfigNamed(&pool_name));
    }
    Ok(())
}

pub(super) async fn create(
    shared: &Shared,
    pool: &MachineConfigPool,
    rendered: &MachineConfig,
) -> Result<(), WriteError> {
    let name = rendered.name_any();
    let api = shared.api::<MachineConfig>();
    let what = || format!("machineconfig {name}");
    let made = match call(what, api.create(&PostParams::default(), rendered)).await {
        Ok(made) => made,
        Err(e) if e.is_conflict() => {
            // An earlier pass created it and the cache does not show it yet, or somebody else created it.
            let there = call(what, api.get(&name)).await?;
            return restore(shared, &there, rendered).await;
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

/// Restores a rendered config to what its name says: content, owner and annotations.
pub(super) async fn restore(
    shared: &Shared,
    there: &MachineConfig,
    wanted: &MachineConfig,
) -> Result<(), WriteError> {
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
