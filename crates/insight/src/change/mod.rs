//! What a change of manifests would do to pools and what it would cost their nodes: [`ChangePlan`], a plain value. Pure.
//!
//! Flow: the objects as they are, and as they would be with the manifests over them → the rendered configs of both →
//! [`rollout::Situation`] says which nodes go, [`render::diff`] what differs, [`host::preview`] what it costs →
//! [`PoolChange`].
//!
//! What it is not: the rendering (see `rendering` and `settings`), the reading of manifests, or the texts for people (see
//! the crate `actions`).

pub(crate) mod impact;
mod os_image;
pub(crate) mod parsed;
mod pinned_images;
pub(crate) mod rendering;
pub(crate) mod settings;
pub(crate) mod unrendered;

use crate::change::impact::{ExpectedDrain, PolicySummary, TimeEstimate};
pub use crate::change::os_image::PulledImage;
use crate::change::parsed::{Parsed, ParsedConfigs, name_of};
use crate::change::rendering::{RenderWith, UnrenderableError, rendered};
use crate::change::settings::{regenerate, without_settings};
use crate::objects::{
    Objects, UnreadableConfig, configs, is, merged_over, pool_of, situation_without_costs, without,
};
use api::k8s::Time;
use api::v1::{ControllerConfig, MachineConfig};
use desired::mask::Secrets;
use host::{Disruption, DisruptionPolicy, Irreconcilable, Severity};
use render::TemplateSet;
use rollout::{Queued, Situation, SituationError};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Why the effect of a change cannot be computed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// An object that matters cannot be read.
    #[error(transparent)]
    Object(#[from] SituationError),
    /// A MachineConfig that nodes may be in.
    #[error(transparent)]
    Config(#[from] UnreadableConfig),
    /// The manifests cannot be rendered.
    #[error(transparent)]
    Unrenderable(#[from] UnrenderableError),
    /// The disruption policy that would be in force.
    #[error("{0}")]
    Policy(String),
    /// Two configs cannot be compared.
    #[error("pool {pool}: {why}")]
    Diff {
        /// The pool.
        pool: String,
        /// The MachineConfig, and what is wrong with it.
        why: String,
    },
}

/// What a change does to every pool that it touches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// The pools that it touches, by name.
    pub pools: Vec<PoolChange>,
    /// What was assumed, and what people should know before they apply it.
    pub notes: Vec<String>,
    /// What has no effect in the rendered configs, or will not work.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Manifests that are to be applied, or whose objects are to be deleted.
#[derive(Debug, Clone, Copy)]
pub struct Manifests<'a> {
    /// The manifests, each with where it comes from.
    pub given: &'a Objects,
    /// Their objects are deleted, as by `kubectl delete -f`.
    pub deleted: bool,
    /// Only these pools; empty: all.
    pub pools: &'a [String],
    /// The ControllerConfig to use if the objects have none.
    pub controller_config: &'a ControllerConfig,
    /// The controller's templates, if they are available: what is made from them is rendered again (see
    /// [`crate::needs_templates`]).
    pub templates: Option<&'a TemplateSet>,
}

/// What a change does to a pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolChange {
    /// The pool.
    pub pool: String,
    /// The rendered config that the pool has now; empty: none.
    pub from: String,
    /// The rendered config that it would have.
    pub to: String,
    /// What differs, as a unified diff; secrets are masked unless they are asked for.
    pub diff: String,
    /// The OS image that its nodes pull for it. `None` also where an image is built for the pool: which one, nobody knows yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pulls: Option<PulledImage>,
    /// What it costs, for each config that nodes of the pool are in.
    pub costs: Vec<Cost>,
    /// How many nodes may be on their way at once.
    pub max_unavailable: usize,
    /// Why no node would go now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// The nodes that would go, in order.
    pub nodes: Vec<Queued>,
    /// Those of them whose drains would wait, or lose something.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drains: Vec<ExpectedDrain>,
    /// The pool's policy, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySummary>,
    /// How long it may take, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<TimeEstimate>,
    /// The pool has no node at all: the costs are those of nodes that will join.
    #[serde(skip)]
    pub empty: bool,
    /// What people should know before the pool's config is replaced.
    #[serde(skip)]
    pub warnings: Vec<String>,
    /// What in it can cut a node off, with the reason. Each node tries such a change and undoes it unless all is well
    /// afterwards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_trial: Vec<String>,
}

/// What it costs the nodes that are in one config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// The config that they are in; empty: no daemon has reported one.
    pub from: String,
    /// How many they are.
    pub nodes: usize,
    /// What becomes of each of them.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// What becomes of a node that goes from one config to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Its daemon applies it.
    #[serde(rename_all = "camelCase")]
    Applied {
        /// The worst of the disruption.
        severity: Severity,
        /// All of it, with the paths that ask for it.
        disruption: Disruption,
    },
    /// No running host can apply it.
    Irreconcilable {
        /// Every difference that is in the way, each with its remedy.
        irreconcilable: Vec<Irreconcilable>,
    },
    /// The config that it is in is not among the objects.
    Unknown {
        /// Why not.
        because: String,
    },
}

/// What the change of every pool is computed with.
#[derive(Debug, Clone, Copy)]
pub struct ChangeView<'a> {
    /// MachineConfigs with their contents, by name: those that nodes may be in, and those that they would be in.
    pub configs: &'a BTreeMap<String, MachineConfig>,
    /// The disruption policy that would be in force.
    pub policy: &'a DisruptionPolicy,
    /// The time that it is computed for: soak times and windows depend on it.
    pub now: &'a Time,
    /// Whether the diff shows secrets.
    pub secrets: Secrets,
}

impl ChangePlan {
    /// What manifests would do to every pool that they touch. `objects`: the cluster's, and `before` the same as it was made
    /// of these.
    ///
    /// # Errors
    /// An object that cannot be read, a rule that refuses what would be rendered, or configs that cannot be compared.
    pub fn by_manifests(
        objects: &Objects,
        before: &Situation,
        change: Manifests<'_>,
        now: &Time,
        secrets: Secrets,
    ) -> Result<Self, ChangeError> {
        let mut notes = before.notes.clone();
        let changed = match change.deleted {
            true => without(objects, change.given, &mut notes),
            false => merged_over(objects.clone(), change.given.clone()),
        };
        notes.extend(pinned_images::notes(change.given, change.deleted, objects, before));
        let policy = disruption_policy(&changed)?;
        let mut sources: Objects = changed.iter().filter(|(_, v)| pool_of(v).is_none()).cloned().collect();
        let controller_config = change.controller_config;
        if let Some(templates) = change.templates {
            let with = RenderWith { templates, controller_config };
            regenerate(&mut sources, objects, &changed, with, &mut notes)?;
        }
        let mut configs = configs(objects)?;
        let templates = TemplateSet::default();
        let with = RenderWith { templates: &templates, controller_config };
        let (after, warnings) = rendered(without_settings(sources), with, change.pools)?;
        for config in after.values() {
            let name = config.metadata.name.clone().unwrap_or_default();
            // One that is there already has notes of the controller on it.
            configs
                .entry(name)
                .and_modify(|there| there.spec = config.spec.clone())
                .or_insert_with(|| config.clone());
        }
        let view = ChangeView { configs: &configs, policy: &policy, now, secrets };
        Ok(Self { warnings, ..Self::of(view, before, &changed, &after, notes)? })
    }

    /// What a change does to every pool that it touches. `before`: the cluster as it is; `changed`: its objects as they
    /// would be; `after`: the rendered config that each pool would have then. `notes` go before those that are found here.
    ///
    /// # Errors
    /// An object that cannot be read, or configs that cannot be compared.
    pub fn of(
        view: ChangeView<'_>,
        before: &Situation,
        changed: &[(String, Value)],
        after: &BTreeMap<String, MachineConfig>,
        notes: Vec<String>,
    ) -> Result<Self, ChangeError> {
        let mut all = Self { pools: vec![], notes, warnings: vec![] };
        let parsed = ParsedConfigs::new(view.configs, after.values());
        for (pool, to) in after {
            let target = name_of(to);
            let from = before.pools.get(pool).map(|p| p.spec.configuration.name.as_str()).unwrap_or_default();
            // The change may also be one of pools or nodes: a pause, another limit, another selector.
            let mut then = situation_without_costs(changed)?.with_target(pool, target);
            // Other pools keep their rendered config: the manifest of a pool does not name one.
            for (other, was) in before.pools.iter().filter(|(other, _)| *other != pool) {
                if then.pools.contains_key(other) {
                    then = then.with_target(other, &was.spec.configuration.name);
                }
            }
            let goes =
                |s: &Situation| s.queue(pool, view.now).into_iter().map(|q| q.node).collect::<BTreeSet<_>>();
            if from == target && goes(&then).is_subset(&goes(before)) {
                continue;
            }
            then.costs = impact::costs(view.policy, &parsed, &then, target);
            let mut change = PoolChange::between(view, &parsed, &then, pool, from, to)?;
            let done = impact::finish_times(changed.iter().map(|(_, v)| v), pool);
            change.time = impact::time(&then, pool, change.nodes.len(), &done);
            if let Some(pin) = before.pools.get(pool).and_then(rollout::pinned_config) {
                change.held = Some(format!("the pool is pinned to {pin} until `mco undo {pool} --release`"));
            }
            all.notes.extend(change.warnings.iter().map(|w| format!("pool {pool}: WARNING: {w}")));
            let tried = |what: &String| {
                format!(
                    "pool {pool}: each node applies this on trial, and undoes it if it cuts the node off: {what}"
                )
            };
            all.notes.extend(change.on_trial.iter().map(tried));
            all.pools.push(change);
        }
        Ok(all)
    }
}

impl PoolChange {
    /// What a change from one rendered config to another means for a pool and its nodes. `then`: the cluster with the pool in the
    /// new one; `from`: the name of the old one, empty where there is none.
    ///
    /// # Errors
    /// Configs that cannot be compared.
    pub fn of(
        view: ChangeView<'_>,
        then: &Situation,
        pool: &str,
        from: &str,
        to: &MachineConfig,
    ) -> Result<Self, ChangeError> {
        let parsed = ParsedConfigs::new(view.configs, [to]);
        if !then.asks_for_costs() {
            return Self::between(view, &parsed, then, pool, from, to);
        }
        let mut then = then.clone();
        then.costs.extend(impact::costs(view.policy, &parsed, &then, name_of(to)));
        Self::between(view, &parsed, &then, pool, from, to)
    }

    fn between(
        view: ChangeView<'_>,
        parsed: &ParsedConfigs<'_>,
        then: &Situation,
        pool: &str,
        from: &str,
        to: &MachineConfig,
    ) -> Result<Self, ChangeError> {
        let ChangeView { configs, policy, now, secrets } = view;
        let policy = &impact::policy_of(policy, then, pool);
        let diff = parsed
            .difference(from, name_of(to), secrets)
            .map_err(|why| ChangeError::Diff { pool: pool.to_owned(), why })?;
        let forecast = then.forecast(now);
        let planned = forecast.pools.iter().find(|p| &*p.pool == pool);
        let nodes: Vec<Queued> = then.queue(pool, now);
        let going: BTreeSet<&str> = nodes.iter().map(|n| &*n.node).collect();
        let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
        starts.extend((!from.is_empty()).then_some((from, 0)));
        for node in then.nodes.values().filter(|n| going.contains(&*n.name)) {
            *starts.entry(node.current_config.as_deref().unwrap_or_default()).or_default() += 1;
        }
        let (mut warnings, mut on_trial) = (vec![], vec![]);
        let new = parsed.get(name_of(to));
        let mut preview = |start: &str, old: &Parsed, new: &Parsed| {
            let new = new.as_ref().map_err(Clone::clone)?;
            let old = old.as_ref().map_err(Clone::clone)?;
            if start == from {
                warnings = host::warnings(old, new, policy);
                on_trial = host::cut_offs(old, new).iter().map(ToString::to_string).collect();
            }
            host::preview(old, new, policy)
        };
        let cost = |(start, nodes): (&str, usize)| {
            let unknown = |name: &str| format!("MachineConfig {name} is not in the input");
            let outcome = match (parsed.get(start), &new) {
                (Some(old), Some(new)) => match preview(start, &old, new) {
                    Ok(disruption) => Outcome::Applied { severity: disruption.severity(), disruption },
                    Err(irreconcilable) => Outcome::Irreconcilable { irreconcilable },
                },
                (None, _) if start.is_empty() => {
                    Outcome::Unknown { because: "no daemon has reported there".to_owned() }
                }
                (None, _) => Outcome::Unknown { because: unknown(start) },
                (Some(_), None) => Outcome::Unknown { because: unknown(name_of(to)) },
            };
            Cost { from: start.to_owned(), nodes, outcome }
        };
        let costs = starts.into_iter().map(cost).collect();
        Ok(Self {
            pool: pool.to_owned(),
            from: from.to_owned(),
            to: to.metadata.name.clone().unwrap_or_default(),
            diff,
            // Elsewhere it is the base of the image that is built, and no node pulls it.
            pulls: (!then.builds_image(pool))
                .then(|| PulledImage::of(configs, configs.get(from), to))
                .flatten(),
            costs,
            max_unavailable: planned.map(|p| p.capacity.max).unwrap_or_default(),
            held: planned.and_then(|p| p.held.clone()),
            drains: impact::drains(then, &nodes),
            policy: impact::policy(then, pool, now.0),
            time: None,
            nodes,
            empty: planned.is_none_or(|p| p.nodes.is_empty()),
            warnings,
            on_trial,
        })
    }

    /// It costs a node `limit` or more, or a node cannot apply it at all. A config that no node leaves costs nothing, but
    /// in a pool without nodes it counts for nodes that will join.
    pub fn is_refused(&self, limit: Option<Severity>) -> bool {
        let counts = |cost: &&Cost| cost.nodes > 0 || self.empty;
        self.costs.iter().filter(counts).any(|cost| match &cost.outcome {
            Outcome::Applied { severity, .. } => limit.is_some_and(|limit| *severity >= limit),
            Outcome::Irreconcilable { .. } => true,
            // An unknown cost may be any cost.
            Outcome::Unknown { .. } => limit.is_some() && cost.nodes > 0,
        })
    }

    /// There are nodes that would go, and none of them can apply it.
    pub fn is_impossible(&self) -> bool {
        let mut going = self.costs.iter().filter(|cost| cost.nodes > 0).peekable();
        going.peek().is_some() && going.all(|cost| matches!(cost.outcome, Outcome::Irreconcilable { .. }))
    }
}

/// The disruption policies in force; of several objects, those of the last.
///
/// # Errors
/// A policy that cannot be read.
pub fn disruption_policy(objects: &[(String, Value)]) -> Result<DisruptionPolicy, ChangeError> {
    let all = objects.iter().map(|(_, v)| v);
    let last = all.rev().find(|v| is(v, "operator.openshift.io", "MachineConfiguration"));
    DisruptionPolicy::of_cluster(last).map_err(ChangeError::Policy)
}

#[cfg(test)]
mod tests;
