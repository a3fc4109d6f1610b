//! `mco plan`: what the controller does now, or what a change would do; from a cluster or from files. Nothing is written.
//!
//! What it is not: a decision. [`Situation::forecast`] makes the controller's plans, [`render`] the configs,
//! [`host::preview`] says what a change costs.

use super::plan_objects::from_cluster;
pub(super) use super::plan_settings::without_settings;
use super::plan_settings::{regenerate, templates, without};
use super::render::{Documents, Rendered, laid_over, pool_of, rendered};
use crate::args_rollout::{Plan, Refuse};
use crate::dump::{self, Dump};
use crate::output::Kind;
use crate::{connect, exit, manifests, output};
use anyhow::{Context, bail};
use api::k8s::Time;
use api::v1::MachineConfig;
use desired::mask::Secrets;
use host::{Disruption, DisruptionPolicy, Irreconcilable, Severity};
use kube::ResourceExt;
use render::TemplateSet;
use rollout::{Queued, Situation};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

pub(super) async fn run(a: Plan) -> anyhow::Result<u8> {
    let Dump { objects, notes } = match a.from.is_empty() {
        false => dump::read(&a.from)?,
        true => {
            let client = connect::connect(&a.cluster).await?;
            Dump { objects: from_cluster(&client, !a.files.is_empty()).await?, notes: vec![] }
        }
    };
    let now = Time(jiff::Timestamp::now());
    let mut situation = situation(&objects)?;
    if situation.pools.is_empty() {
        let notes: String = notes.iter().map(|n| format!("; {n}")).collect();
        bail!("there is no MachineConfigPool in what was read{notes}");
    }
    situation.notes.splice(0..0, notes);
    if let Some(missing) = a.pools.iter().find(|p| !situation.pools.contains_key(*p)) {
        let there: Vec<&str> = situation.pools.keys().map(String::as_str).collect();
        bail!("there is no pool {missing:?}; there is: {}", there.join(", "));
    }
    if a.files.is_empty() {
        let mut forecast = situation.forecast(&now);
        if !a.pools.is_empty() {
            forecast.pools.retain(|p| a.pools.iter().any(|o| **o == *p.pool));
        }
        output::print(a.output, Kind::Forecast, &forecast, || forecast.to_string())?;
        return Ok(exit::OK);
    }
    let changes = changes(&a, &objects, &situation, &now)?;
    let refused = changes.pools.iter().any(|p| p.is_refused(a.refuse));
    output::print(a.output, Kind::ChangePlan, &changes, || changes.text())?;
    Ok(if refused { exit::FINDINGS } else { exit::OK })
}

/// The situation that objects are, as the controller sees it.
pub(super) fn situation(objects: &Documents) -> anyhow::Result<Situation> {
    let gate = objects.iter().map(|(_, v)| v).find(|v| is_gate(v));
    let off = render::streams::switched_off(gate);
    let counts = |value: &Value| !(off && value["kind"] == "OSImageStream");
    let all = objects.iter().filter(|(_, value)| counts(value));
    Ok(Situation::from_objects(all.map(|(origin, value)| (origin.as_str(), value)))?)
}

fn is_gate(value: &Value) -> bool {
    value["kind"] == "FeatureGate" && value["metadata"]["name"] == api::names::CLUSTER
}

/// The disruption policies that count; of several objects the last.
pub(super) fn policy<'a>(objects: impl Iterator<Item = &'a Value>) -> anyhow::Result<DisruptionPolicy> {
    let is_policy = |v: &&Value| {
        v["kind"] == "MachineConfiguration"
            && v["apiVersion"].as_str().is_some_and(|g| g.starts_with("operator.openshift.io/"))
    };
    daemon::disruption_policy(objects.filter(is_policy).last()).map_err(|e| anyhow::anyhow!("{e}"))
}

/// What a change does to every pool that it touches.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Changes {
    pools: Vec<PoolChange>,
    notes: Vec<String>,
}

/// What a change does to a pool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolChange {
    pool: String,
    /// The config that the pool has now; empty: none.
    from: String,
    /// The config that it would have.
    to: String,
    /// What differs, as a unified diff; secrets are masked unless they are asked for.
    diff: String,
    /// What it costs, for each config that nodes of the pool are in.
    costs: Vec<Cost>,
    /// How many nodes may be on their way at once.
    max_unavailable: usize,
    /// Why no node would go now.
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<String>,
    /// The nodes that would go, in order.
    nodes: Vec<Queued>,
    /// The pool has no node at all: what the change costs is said for those that come.
    #[serde(skip)]
    empty: bool,
}

/// What it costs nodes that are in one config.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Cost {
    /// The config that they are in.
    from: String,
    /// How many they are.
    nodes: usize,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Outcome {
    #[serde(rename_all = "camelCase")]
    Applied {
        severity: Severity,
        disruption: Disruption,
    },
    Irreconcilable {
        irreconcilable: Vec<Irreconcilable>,
    },
    /// The config that they are in is not among the objects.
    Unknown {
        because: String,
    },
}

fn changes(a: &Plan, objects: &Documents, situation: &Situation, now: &Time) -> anyhow::Result<Changes> {
    let given = manifests::read(&a.files)?;
    if given.is_empty() {
        bail!("there is no manifest in what -f names");
    }
    let mut notes = situation.notes.clone();
    let changed = match a.delete {
        true => without(objects, &given, &mut notes),
        false => laid_over(objects.clone(), given.clone()),
    };
    let policy = policy(changed.iter().map(|(_, v)| v))?;
    let templates = templates(a.templates.as_deref(), &given)?;
    let mut sources: Documents = changed.iter().filter(|(_, v)| pool_of(v).is_none()).cloned().collect();
    if let Some(templates) = &templates {
        regenerate(&mut sources, objects, &changed, templates, &mut notes)?;
    }
    let mut configs = configs(objects)?;
    let after: Rendered = rendered(without_settings(sources), &TemplateSet::default(), &a.pools)?;
    configs.extend(after.values().map(|c| (c.name_any(), c.clone())));
    let mut all = Changes { pools: vec![], notes };
    for (pool, to) in &after {
        let from = situation.pools.get(pool).map(|p| p.spec.configuration.name.as_str()).unwrap_or_default();
        // The change may be of pools or nodes, too: a pause, another bound, another selector.
        let mut then = self::situation(&changed)?.with_target(pool, &to.name_any());
        // Other pools stay where they are: a manifest of a pool does not say its rendered config.
        for (other, was) in situation.pools.iter().filter(|(other, _)| *other != pool) {
            then = match then.pools.contains_key(other) {
                true => then.with_target(other, &was.spec.configuration.name),
                false => then,
            };
        }
        let goes = |s: &Situation| s.queue(pool, now).into_iter().map(|q| q.node).collect::<BTreeSet<_>>();
        if from == to.name_any() && goes(&then).is_subset(&goes(situation)) {
            continue;
        }
        let mut change = change(pool, from, to, &configs, &policy, &then, now, a.show.secrets())?;
        if let Some(pin) = situation.pools.get(pool).and_then(rollout::pinned) {
            change.held = Some(format!("the pool is pinned to {pin} until `mco undo {pool} --release`"));
        }
        if let Some(from) = configs.get(from) {
            let warnings = host::warnings(&from.spec, &to.spec);
            all.notes.extend(warnings.iter().map(|w| format!("pool {pool}: WARNING: {w}")));
        }
        all.pools.push(change);
    }
    Ok(all)
}

/// What a pool and its nodes go through on the way to a config. `then`: the cluster with the pool in it.
#[allow(clippy::too_many_arguments, reason = "all that one line of the answer needs")]
pub(super) fn change(
    pool: &str,
    from: &str,
    to: &MachineConfig,
    configs: &BTreeMap<String, MachineConfig>,
    policy: &DisruptionPolicy,
    then: &Situation,
    now: &Time,
    secrets: Secrets,
) -> anyhow::Result<PoolChange> {
    let diff = render::diff(configs.get(from), Some(to), secrets).map_err(|e| anyhow::anyhow!("{e}"))?;
    let forecast = then.forecast(now);
    let planned = forecast.pools.iter().find(|p| &*p.pool == pool);
    let nodes: Vec<Queued> = then.queue(pool, now);
    let going: BTreeSet<&str> = nodes.iter().map(|n| &*n.node).collect();
    let mut starts: BTreeMap<&str, usize> = BTreeMap::new();
    starts.extend((!from.is_empty()).then_some((from, 0)));
    for node in then.nodes.values().filter(|n| going.contains(&*n.name)) {
        *starts.entry(node.current_config.as_deref().unwrap_or_default()).or_default() += 1;
    }
    let cost = |(start, nodes): (&str, usize)| {
        let outcome = match configs.get(start) {
            Some(config) => match host::preview(&config.spec, &to.spec, policy) {
                Ok(disruption) => Outcome::Applied { severity: disruption.severity(), disruption },
                Err(irreconcilable) => Outcome::Irreconcilable { irreconcilable },
            },
            None if start.is_empty() => {
                Outcome::Unknown { because: "no daemon has reported there".to_owned() }
            }
            None => Outcome::Unknown { because: format!("MachineConfig {start} is not among what was read") },
        };
        Cost { from: start.to_owned(), nodes, outcome }
    };
    Ok(PoolChange {
        pool: pool.to_owned(),
        from: from.to_owned(),
        to: to.name_any(),
        diff,
        costs: starts.into_iter().map(cost).collect(),
        max_unavailable: planned.map(|p| p.capacity.max).unwrap_or_default(),
        held: planned.and_then(|p| p.held.clone()),
        nodes,
        empty: planned.is_none_or(|p| p.nodes.is_empty()),
    })
}

/// MachineConfigs with their contents, by name.
pub(super) fn configs(objects: &Documents) -> anyhow::Result<BTreeMap<String, MachineConfig>> {
    let is_config = |v: &Value| v["kind"] == "MachineConfig" && v["spec"].is_object();
    let all = objects.iter().filter(|(_, v)| is_config(v)).map(|(origin, v)| {
        let config: MachineConfig = api::shape::read(v)
            .with_context(|| format!("{origin}: MachineConfig {}", v["metadata"]["name"]))?;
        Ok((config.name_any(), config))
    });
    all.collect()
}

impl PoolChange {
    /// It costs a node what is refused, or more; or a node cannot apply it at all. A config that no node leaves costs
    /// nothing, but in a pool without nodes it stands for those that come.
    pub(super) fn is_refused(&self, refuse: Option<Refuse>) -> bool {
        let limit = refuse.map(|r| match r {
            Refuse::Reload => Severity::Reload,
            Refuse::Restart => Severity::Restart,
            Refuse::Drain => Severity::Drain,
            Refuse::Reboot => Severity::Reboot,
        });
        let counts = |cost: &&Cost| cost.nodes > 0 || self.empty;
        self.costs.iter().filter(counts).any(|cost| match &cost.outcome {
            Outcome::Applied { severity, .. } => limit.is_some_and(|limit| *severity >= limit),
            Outcome::Irreconcilable { .. } => true,
            // What is not known may be anything.
            Outcome::Unknown { .. } => limit.is_some() && cost.nodes > 0,
        })
    }

    /// There are nodes that would go, and none of them can apply it.
    pub(super) fn is_impossible(&self) -> bool {
        let mut going = self.costs.iter().filter(|cost| cost.nodes > 0).peekable();
        going.peek().is_some() && going.all(|cost| matches!(cost.outcome, Outcome::Irreconcilable { .. }))
    }
}

impl PoolChange {
    /// For people.
    pub(super) fn text(&self) -> String {
        let (p, mut out) = (self, String::new());
        {
            let from = if p.from.is_empty() { "(none)" } else { &p.from };
            let _ = writeln!(out, "pool {}: {from} → {}", p.pool, p.to);
            for cost in &p.costs {
                let whose = match cost.from == p.from {
                    true => String::new(),
                    false => format!(" for {} nodes in {}", cost.nodes, cost.from),
                };
                let _ = match &cost.outcome {
                    Outcome::Applied { disruption, .. } => writeln!(out, "  disruption{whose}: {disruption}"),
                    Outcome::Irreconcilable { irreconcilable } => {
                        let _ = writeln!(out, "  cannot be applied to a running host{whose}:");
                        irreconcilable.iter().try_for_each(|i| writeln!(out, "    {i}"))
                    }
                    Outcome::Unknown { because } => writeln!(out, "  disruption{whose}: unknown, {because}"),
                };
            }
            let count = p.nodes.len();
            let _ = match &p.held {
                _ if count == 0 => writeln!(out, "  no node of the pool is to move"),
                Some(why) => writeln!(out, "  {count} nodes, none of them now: {why}"),
                None => {
                    writeln!(out, "  {count} nodes, at most {} at once, in this order:", p.max_unavailable)
                }
            };
            for (i, node) in p.nodes.iter().enumerate() {
                let when = match (&node.waits, node.now) {
                    (Some(why), _) => format!(" (waits: {why})"),
                    (None, true) => " (at once)".to_owned(),
                    (None, false) => String::new(),
                };
                let _ = writeln!(out, "  {:>4}. {}{when}", i + 1, node.node);
            }
            out += &p.diff;
        }
        out
    }
}

impl Changes {
    fn text(&self) -> String {
        let mut out: String = self.pools.iter().map(PoolChange::text).collect();
        if self.pools.is_empty() {
            out += "no pool's config changes\n";
        }
        for note in &self.notes {
            let _ = writeln!(out, "note: {note}");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_impossible_only_where_no_node_that_would_go_can_apply_it() {
        let never = || Outcome::Irreconcilable { irreconcilable: vec![] };
        let perhaps = || Outcome::Unknown { because: "it is not there".to_owned() };
        // Nodes in each config, whether the pool is empty, whether it is impossible, whether a plan refuses it.
        let rows = [
            (vec![(1, never())], false, true, true),
            (vec![(1, never()), (2, never())], false, true, true),
            (vec![(1, never()), (2, perhaps())], false, false, true),
            (vec![(0, never()), (2, perhaps())], false, false, false),
            (vec![(0, never())], false, false, false),
            (vec![(0, never())], true, false, true),
            (vec![], true, false, false),
        ];
        for (n, (costs, empty, impossible, refused)) in rows.into_iter().enumerate() {
            let cost = |(nodes, outcome)| Cost { from: String::new(), nodes, outcome };
            let change = PoolChange {
                pool: "worker".to_owned(),
                from: String::new(),
                to: String::new(),
                diff: String::new(),
                costs: costs.into_iter().map(cost).collect(),
                max_unavailable: 1,
                held: None,
                nodes: vec![],
                empty,
            };
            assert_eq!((change.is_impossible(), change.is_refused(None)), (impossible, refused), "row {n}");
        }
    }
}
