//! A pool that is pinned to an older rendered config (`mco undo`): whether that is possible, and what its condition says.
//!
//! What it is not: the annotation itself (see `rollout::pinned`).

use crate::cache::stores::Config;
use crate::shared::Shared;
use api::conditions::Condition;
use api::k8s::ResourceExt;
use api::names::pool_condition::RENDER_DEGRADED;
use api::render_reason::RenderReason;
use api::v1::{MachineConfig, MachineConfigPool, PoolConfiguration};
use client::{CallError, call};

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
        let Some(name) = rollout::pinned(pool) else { return Ok(Self::None) };
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
