//! `mco history`: the rendered configs of a pool, since when, and who changed what. What it is not: the comparison; that
//! is [`render::history`]'s, and the pool's own record is [`rollout::past`]'s.

use crate::args_change::History;
use crate::output::Kind;
use crate::{connect, exit, output};
use anyhow::{Context, bail};
use api::k8s::{Node, ObjectMeta, Time};
use api::names::annotation;
use api::v1::{MachineConfig, MachineConfigPool};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use render::history::{Change, Step, steps};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// An API server that needs longer for all lists is as good as away.
const LISTS: Duration = Duration::from_secs(60);

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Past {
    pool: String,
    /// The config that it is pinned to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pinned: Option<String>,
    /// Those that there are, the newest first.
    configs: Vec<Row>,
    /// Those that the pool once named and that are gone.
    gone: Vec<rollout::InForce>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(flatten)]
    step: Step,
    /// When the pool came to name it, each time.
    in_force: Vec<Time>,
    /// The pool names it now.
    current: bool,
    /// How many nodes are in it.
    nodes: usize,
}

pub(super) async fn run(a: History) -> anyhow::Result<u8> {
    let client = connect::connect(&a.cluster).await?;
    let past = tokio::time::timeout(LISTS, gather(&client, &a.pool))
        .await
        .map_err(|_| anyhow::anyhow!("no answer from the API server within {} s", LISTS.as_secs()))??;
    output::print(a.output, Kind::History, &past, || text(&past))?;
    Ok(exit::OK)
}

async fn gather(client: &kube::Client, name: &str) -> anyhow::Result<Past> {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let Some(pool) = pools.get_opt(name).await.context("cannot read the pool")? else {
        bail!("there is no pool {name:?}; `mco status` shows those that there are");
    };
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    let all = ListParams::default();
    let (configs, nodes) = tokio::try_join!(configs.list(&all), nodes.list_metadata(&all))?;
    let mut in_config: BTreeMap<String, usize> = BTreeMap::new();
    for node in &nodes.items {
        let current = node.annotations().get(annotation::CURRENT_CONFIG).cloned().unwrap_or_default();
        *in_config.entry(current).or_default() += 1;
    }
    Ok(past(&pool, &configs.items, &in_config))
}

/// The rendered configs of a pool, oldest first.
pub(super) fn rendered_of<'a>(pool: &MachineConfigPool, all: &'a [MachineConfig]) -> Vec<&'a MachineConfig> {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let of_pool = |c: &&MachineConfig| {
        let mut owners = c.metadata.owner_references.iter().flatten();
        owners.any(|o| o.controller == Some(true) && o.kind == "MachineConfigPool" && o.name == name)
    };
    let mut found: Vec<&MachineConfig> = all.iter().filter(of_pool).collect();
    let version = |c: &MachineConfig| c.resource_version().and_then(|v| v.parse::<u64>().ok());
    found.sort_by_key(|c| (c.metadata.creation_timestamp.clone(), version(c), c.name_any()));
    found
}

fn past(pool: &MachineConfigPool, all: &[MachineConfig], in_config: &BTreeMap<String, usize>) -> Past {
    let rendered = rendered_of(pool, all);
    let sources: BTreeMap<&str, &ObjectMeta> =
        all.iter().filter_map(|c| Some((c.metadata.name.as_deref()?, &c.metadata))).collect();
    let record = rollout::past(pool);
    let row = |step: Step| Row {
        in_force: record.iter().filter(|p| p.config == step.config).filter_map(|p| p.since.clone()).collect(),
        current: step.config == pool.spec.configuration.name,
        nodes: in_config.get(&step.config).copied().unwrap_or_default(),
        step,
    };
    let mut configs: Vec<Row> = steps(&rendered, &sources).into_iter().map(row).collect();
    configs.reverse();
    let mut gone = record.clone();
    gone.retain(|p| !configs.iter().any(|row| row.step.config == p.config));
    Past { pool: pool.name_any(), pinned: rollout::pinned(pool).map(str::to_owned), configs, gone }
}

/// A change in a line: the MachineConfig, what it is about, and who wrote it last.
pub(super) fn line(change: &Change) -> String {
    let things: Vec<String> = change.things.iter().map(ToString::to_string).collect();
    let name = match change.machine_config.as_str() {
        "" => "(no MachineConfig is recorded)",
        name => name,
    };
    let who = match &change.written {
        _ if change.deleted => "; it is deleted".to_owned(),
        None => String::new(),
        Some(written) => {
            let at = written.at.as_ref().map(|t| format!(" at {}", t.0)).unwrap_or_default();
            let since = if change.written_since { ", after this config was rendered" } else { "" };
            let kept = written.kept_by.as_ref().map(|k| format!(", kept by {k}")).unwrap_or_default();
            format!("; last written by {}{at}{since}{kept}", written.by)
        }
    };
    format!("{name}: {}{who}", things.join(", "))
}

fn text(past: &Past) -> String {
    let mut out = String::new();
    for row in &past.configs {
        let mut words = vec![];
        words.extend(row.step.rendered.as_ref().map(|t| format!("rendered {}", t.0)));
        words.extend(row.in_force.last().map(|t| format!("in force since {}", t.0)).filter(|_| row.current));
        words.extend(
            row.in_force.last().map(|t| format!("was in force from {}", t.0)).filter(|_| !row.current),
        );
        words.extend((row.nodes > 0).then(|| format!("{} nodes in it", row.nodes)));
        let mark = if row.current { "*" } else { " " };
        let pin = if past.pinned.as_deref() == Some(&row.step.config) { " (pinned)" } else { "" };
        let _ = writeln!(out, "{mark} {}{pin}  {}", row.step.config, words.join(", "));
        for change in &row.step.changes {
            let _ = writeln!(out, "    {}", line(change));
        }
        if let Some(unknown) = &row.step.unknown {
            let _ = writeln!(out, "    what differs cannot be told: {unknown}");
        }
    }
    if past.configs.is_empty() {
        let _ = writeln!(out, "pool {} has no rendered config yet; is the controller running?", past.pool);
    }
    for gone in &past.gone {
        let since = gone.since.as_ref().map(|t| format!(" from {}", t.0)).unwrap_or_default();
        let _ = writeln!(out, "  {}  was in force{since}; deleted since", gone.config);
    }
    out
}
