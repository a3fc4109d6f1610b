//! `mco status`: where pools and nodes stand, who waits for what, and why.
//!
//! The answers come from `rollout::plan`, the same value that the controller acts on; what stands here is how they are
//! gathered ([`Followed`]) and shown. Also used by the demo.

mod follow;

pub use follow::Followed;

use api::conditions;
use api::names::pool_condition::UPDATING;
use api::v1::MachineConfigPool;
use comfy_table::{Table, presets};
use jiff::Timestamp;
use kube::Client;
pub use rollout::Estimate;
use rollout::view::NodeView;
use rollout::{Finished, Hold, NodeStep, Pace, RolloutPlan, Step, Wait, estimate};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// Everything that is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The pools, by name.
    pub pools: Vec<PoolRow>,
    /// Nodes that no pool owns, and why.
    pub unmanaged: Vec<String>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// The rendered config that its nodes are to be in.
    pub config: String,
    /// Nodes.
    pub machines: usize,
    /// Nodes in that config and available.
    pub updated: usize,
    /// Nodes on their way.
    pub moving: usize,
    /// Nodes that fail to get there.
    pub degraded: usize,
    /// How many may be on their way at once.
    pub max_unavailable: usize,
    /// The pool's conditions that are True, with their messages.
    #[serde(serialize_with = "as_list")]
    pub conditions: BTreeMap<String, String>,
    /// Why no node is given anything new; absent when nodes may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// How many of its nodes are in the config, in percent, rounded down.
    pub percent: usize,
    /// When the rest may be done.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Its nodes.
    pub nodes: Vec<NodeRow>,
}

/// For programs: names of fields are fixed, and types of conditions are not.
fn as_list<S: Serializer>(conditions: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        r#type: &'a str,
        message: &'a str,
    }
    serializer.collect_seq(conditions.iter().map(|(r#type, message)| Row { r#type, message }))
}

impl PoolRow {
    /// All of its nodes are in the pool's config, and the pool's status says so.
    pub fn is_updated(&self) -> bool {
        self.conditions.contains_key("Updated") && self.updated == self.machines
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// What its daemon says.
    pub state: String,
    /// The config in effect.
    pub current: String,
    /// The config to move to.
    pub desired: String,
    /// Where it stands, in one word.
    pub phase: Phase,
    /// What it does or waits for, in words.
    pub why: String,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// In the pool's config and available.
    Done,
    /// In the pool's config, not available.
    Unavailable,
    /// It is sent to the pool's config now.
    Goes,
    /// At work.
    Moving,
    /// It fails to get there.
    Failing,
    /// It is to go, and cannot yet.
    Waits,
}

impl From<&Step> for Phase {
    fn from(step: &Step) -> Self {
        match step {
            Step::Done => Self::Done,
            Step::Unavailable(_) => Self::Unavailable,
            Step::Goes => Self::Goes,
            Step::Moving { .. } => Self::Moving,
            Step::Failing(_) => Self::Failing,
            Step::Waits(_) => Self::Waits,
        }
    }
}

/// When a node was done with a config, as its MachineConfigNode says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DoneAt {
    pub(crate) config: String,
    pub(crate) at: Timestamp,
}

/// Asks the API server and puts the answer together.
///
/// # Errors
/// An API server that does not answer, or refuses.
pub async fn snapshot(client: &Client, only: &[String]) -> anyhow::Result<Snapshot> {
    Ok(Followed::start(client).await?.snapshot(only))
}

/// The pure part of [`snapshot`].
fn from_plan(
    plan: &RolloutPlan,
    pools: &BTreeMap<String, MachineConfigPool>,
    nodes: &BTreeMap<String, NodeView>,
    done: &BTreeMap<String, Option<DoneAt>>,
    only: &[String],
    now: Timestamp,
) -> Snapshot {
    let mut rows = vec![];
    for p in &plan.pools {
        if !only.is_empty() && !only.iter().any(|o| **o == *p.pool) {
            continue;
        }
        let pool = pools.get(&*p.pool);
        let conditions = pool.and_then(|x| x.status.as_ref()).and_then(|s| s.conditions.as_deref());
        let count = |f: fn(&Step) -> bool| p.nodes.iter().filter(|n| f(&n.step)).count();
        let row = |n: &NodeStep| {
            let view = nodes.get(&*n.node);
            let text = |s: Option<&str>| s.unwrap_or_default().to_owned();
            NodeRow {
                name: n.node.to_string(),
                state: view.map(|v| v.state.to_string()).unwrap_or_default(),
                current: text(view.and_then(|v| v.current_config.as_deref())),
                desired: text(view.and_then(|v| v.desired_config.as_deref())),
                phase: Phase::from(&n.step),
                why: n.step.to_string(),
            }
        };
        let target = p.target.as_ref().map(|t| &*t.config).unwrap_or_default();
        let finished = p.nodes.iter().filter(|n| n.step == Step::Done).filter_map(|n| {
            let done = done.get(&*n.node)?.as_ref().filter(|d| d.config == target)?;
            Some(Finished(done.at))
        });
        let updating = conditions.and_then(|list| conditions::get(list, UPDATING));
        let updated = count(|s| matches!(s, Step::Done));
        let pace = Pace {
            began: updating
                .filter(|c| c.status == "True")
                .and_then(|c| c.last_transition_time.as_ref().map(|t| t.0)),
            finished: finished.collect(),
            left: p.nodes.len() - updated,
            stuck: count(|s| {
                matches!(s, Step::Failing(_) | Step::Unavailable(_) | Step::Waits(Wait::Node(_)))
            }),
            held: p.hold.is_some(),
        };
        rows.push(PoolRow {
            name: p.pool.to_string(),
            config: p.target.as_ref().map(|t| t.config.to_string()).unwrap_or_default(),
            machines: p.nodes.len(),
            updated,
            moving: count(|s| matches!(s, Step::Goes | Step::Moving { .. })),
            degraded: count(|s| matches!(s, Step::Failing(_))),
            max_unavailable: p.capacity.max,
            conditions: conditions
                .into_iter()
                .flatten()
                .filter(|c| c.status == "True")
                .map(|c| (c.type_.clone(), c.message.clone()))
                .collect(),
            held: p.hold.as_ref().map(Hold::to_string),
            percent: (updated * 100).checked_div(p.nodes.len()).unwrap_or(100),
            estimate: estimate(&pace, now),
            nodes: p.nodes.iter().map(row).collect(),
        });
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    Snapshot { pools: rows, unmanaged: plan.unmanaged.iter().map(ToString::to_string).collect() }
}

impl Snapshot {
    /// Every pool shown is updated.
    pub fn is_updated(&self) -> bool {
        self.pools.iter().all(PoolRow::is_updated)
    }

    /// The two say the same, but for how long it may take yet.
    pub fn is_like(&self, other: &Self) -> bool {
        let without = |s: &Self| {
            let mut s = s.clone();
            s.pools.iter_mut().for_each(|p| p.estimate = Estimate::Done);
            s
        };
        without(self) == without(other)
    }

    /// A pool shown is degraded.
    pub fn is_degraded(&self) -> bool {
        self.pools.iter().any(|p| p.conditions.contains_key("Degraded"))
    }

    /// Tables for people.
    pub fn text(&self) -> String {
        let mut pools =
            table(&["POOL", "CONFIG", "NODES", "UPDATED", "MOVING", "MAX", "DEGRADED", "CONDITIONS", "LEFT"]);
        let mut nodes = table(&["NODE", "POOL", "STATE", "CURRENT", "DESIRED", "WHY"]);
        let mut notes = String::new();
        for p in &self.pools {
            let conditions: Vec<&str> = p.conditions.keys().map(String::as_str).collect();
            pools.add_row([
                p.name.clone(),
                short(&p.config, &p.name),
                p.machines.to_string(),
                format!("{} ({} %)", p.updated, p.percent),
                p.moving.to_string(),
                p.max_unavailable.to_string(),
                p.degraded.to_string(),
                conditions.join(","),
                p.estimate.to_string(),
            ]);
            for n in &p.nodes {
                nodes.add_row([
                    n.name.clone(),
                    p.name.clone(),
                    n.state.clone(),
                    short(&n.current, &p.name),
                    short(&n.desired, &p.name),
                    n.why.clone(),
                ]);
            }
            if let Some(held) = &p.held {
                notes += &format!("pool {}: {held}\n", p.name);
            }
            if let Some(message) = p.conditions.get("RenderDegraded") {
                notes += &format!("pool {}: {message}\n", p.name);
            }
        }
        for line in &self.unmanaged {
            notes += &format!("{line}\n");
        }
        format!("{pools}\n\n{nodes}\n{notes}")
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

/// `rendered-worker-0123456789abcdef…` → `01234567…`: within a pool's table only the hash tells configs apart.
fn short(config: &str, pool: &str) -> String {
    match config.strip_prefix(&format!("rendered-{pool}-")) {
        Some(hash) if hash.len() == 32 => format!("{}…", &hash[..8]),
        _ => config.to_owned(),
    }
}
