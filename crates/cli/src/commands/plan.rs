//! `mco plan`: what the controller does now, or what a change would do; from a cluster or from files. Nothing is written.
//!
//! What it is not: a decision. [`Situation::forecast`] makes the controller's plans, [`render`] the configs, and
//! [`insight::ChangePlan`] says what a change does and costs.

use super::plan_objects::from_cluster;
pub(super) use super::plan_settings::without_settings;
use super::plan_settings::{regenerate, templates, without};
use super::render::{Documents, Rendered, laid_over, pool_of, rendered};
use crate::args::rollout::{Plan, Refuse};
use crate::input::dump::{self, Dump};
use crate::input::manifests;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::bail;
use api::k8s::Time;
use host::DisruptionPolicy;
use insight::{ChangePlan, ChangeView};
use kube::ResourceExt;
use render::TemplateSet;
use rollout::Situation;
use serde_json::Value;

pub(super) async fn run(a: Plan) -> anyhow::Result<u8> {
    let Dump { objects, notes } = match a.from.is_empty() {
        false => dump::read(&a.from)?,
        true => {
            let client = connect::connect(&a.cluster).await?;
            Dump { objects: from_cluster(&client, !a.files.is_empty()).await?, notes: vec![] }
        }
    };
    let now = Time(jiff::Timestamp::now());
    let mut situation = insight::situation(&objects)?;
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
    let refused = changes.pools.iter().any(|p| p.is_refused(a.refuse.map(Refuse::severity)));
    output::print(a.output, Kind::ChangePlan, &changes, || output::changes::plan(&changes))?;
    Ok(if refused { exit::FINDINGS } else { exit::OK })
}

/// The disruption policies that count; of several objects the last.
pub(super) fn policy<'a>(objects: impl Iterator<Item = &'a Value>) -> anyhow::Result<DisruptionPolicy> {
    let is_policy = |v: &&Value| {
        v["kind"] == "MachineConfiguration"
            && v["apiVersion"].as_str().is_some_and(|g| g.starts_with("operator.openshift.io/"))
    };
    daemon::disruption_policy(objects.filter(is_policy).last()).map_err(|e| anyhow::anyhow!("{e}"))
}

fn changes(a: &Plan, objects: &Documents, situation: &Situation, now: &Time) -> anyhow::Result<ChangePlan> {
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
    let mut configs = insight::configs(objects)?;
    let after: Rendered = rendered(without_settings(sources), &TemplateSet::default(), &a.pools)?;
    configs.extend(after.values().map(|c| (c.name_any(), c.clone())));
    let view = ChangeView { configs: &configs, policy: &policy, now, secrets: a.show.secrets() };
    Ok(ChangePlan::of(view, situation, &changed, &after, notes)?)
}
