//! Plans an undo: the config that a pool would be pinned to, or the removal of its pin, and what that means. [`UndoPlan`] is
//! a plain value. Pure. See [`rollout::pinned_config`] for what a pin is.
//!
//! What it is not: the write, or the question for confirmation.

use crate::change::PoolChange;
use crate::history::metadata_by_name;
use api::v1::{MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use render::history::{Change, step};
use serde::Serialize;
use std::collections::BTreeMap;

/// Why there is no config to go back to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RollbackError {
    /// The pool is pinned already, and no other config was named.
    #[error(
        "pool {pool} is pinned to {config} already; release it with --release, or name another config with --to"
    )]
    Pinned {
        /// The pool.
        pool: String,
        /// The config that it is pinned to.
        config: String,
    },
    /// The pool has no other rendered config.
    #[error("pool {pool} has no rendered config other than {current:?}; there is nothing to go back to")]
    OnlyOne {
        /// The pool.
        pool: String,
        /// The config that it has.
        current: String,
    },
    /// The config that was named is not one of the pool's.
    #[error("{config} is not a rendered config of pool {pool}; `mco history {pool}` lists them")]
    NotOfPool {
        /// The pool.
        pool: String,
        /// The config that was named.
        config: String,
    },
}

/// What an undo does, and whether it was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoPlan {
    /// The pool.
    pub pool: String,
    /// The config that the pool is pinned to then; absent: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pin: Option<String>,
    /// What it means for the pool; absent where its config stays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<PoolChange>,
    /// The MachineConfigs that differ from the pinned config.
    pub machine_configs: Vec<Change>,
    /// It was done.
    pub done: bool,
}

impl UndoPlan {
    /// The pool is pinned to `to`. `configs`: every MachineConfig, with its contents; `change`: what it means for
    /// the pool; `None` where its config stays.
    pub fn pinned(
        pool: &MachineConfigPool,
        to: &MachineConfig,
        configs: &[MachineConfig],
        change: Option<PoolChange>,
    ) -> Self {
        let current = configs.iter().find(|c| c.name_any() == pool.spec.configuration.name);
        let machine_configs =
            current.map(|current| step(Some(to), current, &metadata_by_name(configs)).changes);
        Self {
            pool: pool.name_any(),
            pin: Some(to.name_any()),
            change,
            machine_configs: machine_configs.unwrap_or_default(),
            done: false,
        }
    }

    /// The pool follows its MachineConfigs again.
    pub fn released(pool: &MachineConfigPool, change: Option<PoolChange>) -> Self {
        Self { pool: pool.name_any(), pin: None, change, machine_configs: vec![], done: false }
    }

    /// There are nodes that would go, and none of them can.
    pub fn is_impossible(&self) -> bool {
        self.change.as_ref().is_some_and(PoolChange::is_impossible)
    }
}

/// The config to go back to. `rendered`: the pool's rendered configs, the oldest first; `to`: the one that was named, where
/// one was.
///
/// # Errors
/// There is none.
pub fn rollback_target<'a>(
    pool: &MachineConfigPool,
    rendered: &[&'a MachineConfig],
    to: Option<&str>,
) -> Result<&'a MachineConfig, RollbackError> {
    let (name, current) = (pool.name_any(), &pool.spec.configuration.name);
    if to.is_none()
        && let Some(pinned) = rollout::pinned_config(pool)
    {
        return Err(RollbackError::Pinned { pool: name, config: pinned.to_owned() });
    }
    let by_name: BTreeMap<&str, &'a MachineConfig> =
        rendered.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, *c))).collect();
    let existing: Vec<&str> = rendered.iter().filter_map(|c| c.metadata.name.as_deref()).collect();
    let Some(wanted) = to.or_else(|| rollout::previous_config(pool, &existing)) else {
        return Err(RollbackError::OnlyOne { pool: name, current: current.clone() });
    };
    let found = by_name.get(wanted).copied();
    found.ok_or_else(|| RollbackError::NotOfPool { pool: name, config: wanted.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollout::view::own;
    use serde_json::json;

    fn pool(pin: Option<&str>) -> MachineConfigPool {
        let pin = pin.map_or(json!({}), |pin| json!({own::PINNED: pin}));
        serde_json::from_value(json!({
            "metadata": {"name": "w", "annotations": pin},
            "spec": {"configuration": {"name": "rendered-w-2"}},
        }))
        .unwrap()
    }

    #[test]
    fn undo_returns_to_the_config_before_unless_another_is_named_or_the_pool_is_pinned() {
        let config = |name: &str| MachineConfig::new(name, Default::default());
        let (one, two) = (config("rendered-w-1"), config("rendered-w-2"));
        let both = [&one, &two];
        let name = |found: Result<&MachineConfig, RollbackError>| found.map(ResourceExt::name_any);
        let named = |what: &str| Ok(what.to_owned());
        assert_eq!(name(rollback_target(&pool(None), &both, None)), named("rendered-w-1"));
        assert_eq!(name(rollback_target(&pool(None), &both, Some("rendered-w-2"))), named("rendered-w-2"));
        let pinned = pool(Some("rendered-w-1"));
        assert_eq!(name(rollback_target(&pinned, &both, Some("rendered-w-2"))), named("rendered-w-2"));
        let text = |found: Result<&MachineConfig, RollbackError>| found.unwrap_err().to_string();
        assert!(text(rollback_target(&pinned, &both, None)).contains("pinned to rendered-w-1 already"));
        assert!(text(rollback_target(&pool(None), &[&two], None)).contains("nothing to go back to"));
        assert!(text(rollback_target(&pool(None), &both, Some("x"))).contains("`mco history w`"));
    }
}
