//! Pins a pool to a config that it had, or takes the pin away. See `rollout::pinned_config` for what a pin is.
//!
//! What it is not: a change of MachineConfigs (those are named, with who wrote them last, to be corrected where they come
//! from), or the answer, which is [`insight::UndoPlan`].

use crate::{ActionError, PoolSubject};
use api::k8s::Time;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use desired::mask::Secrets;
use insight::{ChangeView, PoolChange, UndoPlan};
use kube::{Client, ResourceExt};
use rollout::view::own;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What is to be undone.
#[derive(Debug, Clone, Copy)]
pub struct Undo<'a> {
    /// The pool.
    pub pool: &'a str,
    /// The config that it is to be pinned to; `None`: the one before.
    pub to: Option<&'a str>,
    /// Take the pin away instead.
    pub release: bool,
    /// Whether the difference shows secrets.
    pub secrets: Secrets,
    /// The ControllerConfig that counts where the cluster has none.
    pub controller_config: &'a ControllerConfig,
}

/// An undo that was looked at, and is not done yet.
#[derive(Debug, Clone)]
pub struct PlannedUndo {
    /// What it means.
    pub plan: UndoPlan,
    /// What has no effect in the rendered configs, or will not work.
    pub warnings: Vec<String>,
    /// Kinds that may not be listed, and were taken for absent.
    pub forbidden: Vec<String>,
    seen: MachineConfigPool,
    /// The config that the pool gets.
    target: String,
}

/// Looks at what an undo means. Nothing is written. `None`: the pool is to be released, and is not pinned.
///
/// # Errors
/// There is no such pool, or no config to go back to; what a change cannot be worked out for; a request that failed.
pub async fn undo(client: &Client, what: Undo<'_>) -> Result<Option<PlannedUndo>, ActionError> {
    let listed = insight::for_planning(client).await?;
    let Undo { release, secrets, .. } = what;
    let (pool, to) = (what.pool.to_owned(), what.to.map(str::to_owned));
    let controller_config = what.controller_config.clone();
    let work = move || {
        let controller_config = &controller_config;
        of(listed, Undo { pool: &pool, to: to.as_deref(), release, secrets, controller_config })
    };
    crate::worked_out(work).await
}

fn of(listed: insight::Listed, what: Undo<'_>) -> Result<Option<PlannedUndo>, ActionError> {
    let insight::Listed { objects, forbidden } = listed;
    let situation = insight::situation(&objects)?;
    let Some(pool) = situation.pools.get(what.pool).cloned() else {
        let there: Vec<&str> = situation.pools.keys().map(String::as_str).collect();
        let why = format!("there is no pool {:?}; the pools are: {}", what.pool, there.join(", "));
        return Err(ActionError::Refused(why));
    };
    let configs = insight::configs(&objects)?;
    let all: Vec<MachineConfig> = configs.values().cloned().collect();
    let from = pool.spec.configuration.name.clone();
    let mut warnings = vec![];
    let to = if what.release {
        if rollout::pinned_config(&pool).is_none() {
            return Ok(None);
        }
        let said = insight::rendered_now(&objects, what.pool, what.controller_config);
        let (said, more) = said.map_err(ActionError::Unrenderable)?;
        warnings = more;
        said.ok_or_else(|| {
            ActionError::Refused(format!(
                "no config can be rendered for pool {}; see its condition RenderDegraded",
                what.pool
            ))
        })?
    } else {
        insight::rollback_target(&pool, &insight::rendered_of(&pool, &all), what.to)?.clone()
    };
    let now = Time(jiff::Timestamp::now());
    let policy = insight::disruption_policy(&objects)?;
    let then = situation.with_target(what.pool, &to.name_any());
    let view = ChangeView { configs: &configs, policy: &policy, now: &now, secrets: what.secrets };
    let change =
        (from != to.name_any()).then(|| PoolChange::of(view, &then, what.pool, &from, &to)).transpose()?;
    let plan = match what.release {
        true => UndoPlan::released(&pool, change),
        false => UndoPlan::pinned(&pool, &to, &all, change),
    };
    Ok(Some(PlannedUndo { plan, warnings, forbidden, seen: pool, target: to.name_any() }))
}

/// What an undo is about. Two of them are equal where a person who was shown one of them would be shown the same again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UndoSubject {
    /// The pool as it is now.
    #[serde(flatten)]
    pub pool: PoolSubject,
    /// The config that it gets.
    pub target: String,
}

impl PlannedUndo {
    /// What it is about.
    pub fn subject(&self) -> UndoSubject {
        UndoSubject { pool: PoolSubject::of(&self.seen), target: self.target.clone() }
    }

    /// Does it, if the pool still has the config and the pin that were looked at.
    ///
    /// # Errors
    /// The pool changed meanwhile, or keeps changing; no running host can apply the config; a request that failed.
    pub async fn write(&mut self, client: &Client) -> Result<(), ActionError> {
        if self.plan.is_impossible() {
            return Err(ActionError::Refused(
                "nothing was done: no running host can apply this config".to_owned(),
            ));
        }
        let patch = json!({"metadata": {"annotations": {own::PINNED: self.plan.pin}}});
        PoolSubject::of(&self.seen).patch(client, &self.seen.name_any(), patch).await?;
        self.plan.done = true;
        Ok(())
    }
}
