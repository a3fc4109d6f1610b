//! A pool and a node as they are shown. Values only.
//!
//! What it is not: how they are filled (see `crate::status`), or tables (see the program).

use crate::status::policy::PolicyRow;
use api::names::pool_condition::{RENDER_DEGRADED, UPDATED};
use jiff::Timestamp;
use rollout::{Estimate, Step};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// A pool. The default is one without a name, nodes or news.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
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
    /// Nodes that are being updated.
    pub moving: usize,
    /// Nodes that fail to get there.
    pub degraded: usize,
    /// How many may be updated at once.
    pub max_unavailable: usize,
    /// The pool's conditions that are True, with their messages.
    #[serde(serialize_with = "as_list")]
    pub conditions: BTreeMap<String, String>,
    /// A person has paused it (`mco pause`): no node is given anything new before it is resumed.
    pub paused: bool,
    /// Why no node is given anything new; absent when nodes may move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// It is held until a person approves its wave, or the pool if it has no waves (`mco approve`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
    /// Where it stands in its RolloutPolicy; absent when none is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRow>,
    /// The older config that the pool is held in by `mco undo`, in words; absent when it follows its MachineConfigs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// How many nodes have the images of the pool's PinnedImageSets, and why others do not; absent when the pool has no such set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<String>,
    /// Why the pool cannot get to its config unless a person changes something; absent when it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck: Option<String>,
    /// How many of its nodes are in the config, in percent, rounded down.
    pub percent: usize,
    /// When the rest may be done.
    #[serde(flatten)]
    pub estimate: Estimate,
    /// Its nodes.
    pub nodes: Vec<NodeRow>,
}

/// Conditions are a list in JSON: a map would have their types, which are open-ended, as names of fields.
fn as_list<S: Serializer>(conditions: &BTreeMap<String, String>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Row<'a> {
        r#type: &'a str,
        message: &'a str,
    }
    serializer.collect_seq(conditions.iter().map(|(r#type, message)| Row { r#type, message }))
}

impl PoolRow {
    /// All of its nodes are in the pool's config, the pool's status says so, and no newer config was refused.
    pub fn is_updated(&self) -> bool {
        self.conditions.contains_key(UPDATED)
            && self.updated == self.machines
            && !self.conditions.contains_key(RENDER_DEGRADED)
            // A change that was applied since is held back.
            && self.pinned.is_none()
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
    /// Since when, if that is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// What it does or waits for, in words.
    pub why: String,
    /// It cannot continue before something on it has changed: it fails, is not available, or waits for its own state.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stuck: bool,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// In the pool's config and available.
    Done,
    /// In the pool's config, not available.
    Unavailable,
    /// It is given the pool's config now.
    Goes,
    /// At work.
    Moving,
    /// Its update fails.
    Failing,
    /// It needs an update and waits.
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

impl Phase {
    /// All of them, in the order in which a node goes through them.
    pub const ALL: [Self; 6] =
        [Self::Done, Self::Unavailable, Self::Goes, Self::Moving, Self::Failing, Self::Waits];

    /// Its name in JSON and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Unavailable => "unavailable",
            Self::Goes => "goes",
            Self::Moving => "moving",
            Self::Failing => "failing",
            Self::Waits => "waits",
        }
    }

    /// Its meaning, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "In the pool's config and available",
            Self::Unavailable => "In the pool's config, not available",
            Self::Goes => "It is given the pool's config now",
            Self::Moving => "It is being updated",
            Self::Failing => "Its update fails",
            Self::Waits => "It needs an update and waits",
        }
    }
}
