//! Rollouts as the page shows them: in which order, how many nodes of each, and in which state those are. Pure.
//!
//! What it is not: what is known of them (see `super`), or colours and words of the page.

use super::from_events::{EventHistory, UpdatesOfRollout};
use super::node_update::{Bar, NodeUpdate, Part};
use super::{KEPT, Timeline};
use crate::fleet::snapshot::{Cell, Fleet};
use insight::Phase;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::json;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// How many nodes of a rollout are shown.
pub(super) const MOST: usize = 200;
/// How long what was written is good for: every open page asks after every change.
const FRESH: SignedDuration = SignedDuration::from_secs(1);

/// What was written last, and when.
#[derive(Debug, Default)]
pub(super) struct LastWritten {
    /// With what events tell.
    whole: Option<(Timestamp, Arc<str>)>,
    /// For people who may not list events.
    without_events: Option<(Timestamp, Arc<str>)>,
}

impl LastWritten {
    fn of(&mut self, told: &EventHistory) -> &mut Option<(Timestamp, Arc<str>)> {
        if told.is_hidden() { &mut self.without_events } else { &mut self.whole }
    }
}

impl Timeline {
    /// What the page shows, as JSON; the same text for a second. `fleet`: as it is now.
    pub(crate) fn json(&mut self, now: Timestamp, fleet: &Fleet, told: &EventHistory) -> Arc<str> {
        if let Some((since, text)) = self.written.of(told)
            && (SignedDuration::ZERO..FRESH).contains(&now.duration_since(*since))
        {
            return Arc::clone(text);
        }
        let rollouts = self.shown(now, fleet, told);
        let text: Arc<str> =
            json!({"now": now, "rollouts": rollouts, "unread": told.unread}).to_string().into();
        *self.written.of(told) = Some((now, Arc::clone(&text)));
        text
    }

    /// One rollout with all of its nodes, as JSON; `None`: it is not among the last ones.
    pub(crate) fn rollout_json(
        &self,
        (pool, config): (&str, &str),
        now: Timestamp,
        fleet: &Fleet,
        told: &EventHistory,
    ) -> Option<String> {
        let one = self.known(fleet, told).into_iter().find(|r| r.pool == pool && r.config == config);
        let behind = behind(fleet).remove(pool).filter(|b| b.config == config);
        let nodes = behind.map(|b| b.nodes).unwrap_or_default();
        let one = match one {
            Some(one) => one,
            None if nodes.is_empty() => return None,
            None => RolloutRecord::nothing(pool, config),
        };
        Some(json!({"now": now, "rollout": one.shown(now, usize::MAX, &nodes, told)}).to_string())
    }

    /// The last rollouts of each pool, the newest first.
    fn known<'a>(&'a self, fleet: &'a Fleet, told: &'a EventHistory) -> Vec<RolloutRecord<'a>> {
        let mut words = told.rollouts(fleet);
        let seen = self.rollouts.iter().rev().map(|rollout| RolloutRecord {
            pool: &rollout.pool,
            config: &rollout.config,
            last: rollout.last,
            nodes: Some(&rollout.nodes),
            told: words.remove(&(&*rollout.pool, &*rollout.config)).unwrap_or_default(),
        });
        let mut all: Vec<RolloutRecord<'_>> = seen.collect();
        all.extend(words.into_iter().map(|((pool, config), told)| {
            let last = told.values().filter_map(|track| track.last()).max().unwrap_or_default();
            RolloutRecord { last, told, ..RolloutRecord::nothing(pool, config) }
        }));
        all.sort_by_key(|one| Reverse(one.last));
        let mut count: HashMap<&str, usize> = HashMap::new();
        all.retain(|one| {
            let of_pool = count.entry(one.pool).or_default();
            *of_pool += 1;
            *of_pool <= KEPT
        });
        all
    }

    /// Those under way first, then those whose nodes only wait, then those that are over; in each, the newest first.
    pub(super) fn shown(&self, now: Timestamp, fleet: &Fleet, told: &EventHistory) -> Vec<ShownRollout> {
        let mut behind = behind(fleet);
        let mut take = |one: &RolloutRecord<'_>| {
            let of_it = behind.get(one.pool).is_some_and(|b| b.config == one.config);
            of_it.then(|| behind.remove(one.pool)).flatten().map(|b| b.nodes).unwrap_or_default()
        };
        let known = self.known(fleet, told).into_iter();
        let begun: Vec<ShownRollout> = known.map(|one| one.shown(now, MOST, &take(&one), told)).collect();
        let only_wait = behind
            .into_iter()
            .map(|(pool, b)| RolloutRecord::nothing(pool, b.config).shown(now, MOST, &b.nodes, told));
        let mut all: Vec<ShownRollout> = begun.into_iter().chain(only_wait).collect();
        let rank = |one: &ShownRollout| {
            let first = one.counts.iter().map(|(state, _)| *state).min();
            match first {
                Some(State::Fails | State::Moves) => 0,
                // A node that cannot begin may be beside others that are under way.
                Some(State::Stuck) if one.counts.iter().any(|(state, _)| *state == State::Moves) => 0,
                Some(State::Stuck | State::Goes | State::Waits) => 1,
                Some(State::Done | State::Left) | None => 2,
            }
        };
        all.sort_by_key(rank);
        all
    }
}

/// The nodes of a pool that are not in its config.
struct Behind<'a> {
    config: &'a str,
    nodes: Vec<&'a Cell>,
}

/// Those of each pool.
fn behind(fleet: &Fleet) -> BTreeMap<&str, Behind<'_>> {
    let mut all: BTreeMap<&str, Behind<'_>> = BTreeMap::new();
    for cell in fleet.nodes.values() {
        let pool = fleet.pools.get(&cell.pool).filter(|pool| !pool.config.is_empty());
        if let Some(pool) = pool.filter(|_| !matches!(cell.row.phase, Phase::Done | Phase::Unavailable)) {
            let one = all.entry(&pool.name).or_insert_with(|| Behind { config: &pool.config, nodes: vec![] });
            one.nodes.push(cell);
        }
    }
    all
}

/// All that is known of one rollout.
struct RolloutRecord<'a> {
    pool: &'a str,
    config: &'a str,
    /// The latest time that is known of it.
    last: Timestamp,
    /// From MachineConfigNodes.
    nodes: Option<&'a BTreeMap<String, NodeUpdate>>,
    /// From events.
    told: UpdatesOfRollout<'a>,
}

impl<'a> RolloutRecord<'a> {
    /// One of which nothing is known.
    fn nothing(pool: &'a str, config: &'a str) -> Self {
        Self { pool, config, last: Timestamp::default(), nodes: None, told: BTreeMap::new() }
    }

    fn seen(&self, node: &str) -> Option<&'a NodeUpdate> {
        self.nodes?.get(node)
    }

    /// Whether a node is seen on its way here.
    fn is_open(&self, node: &str) -> bool {
        match self.seen(node) {
            Some(track) => track.is_open(),
            None => self.told.get(node).is_some_and(|track| track.is_open()),
        }
    }

    /// As it is shown, with at most so many nodes: the stuck and the slowest first. Reasons are masked. `behind`: nodes that the
    /// fleet shows on their way here.
    fn shown(&self, now: Timestamp, most: usize, behind: &[&Cell], told: &EventHistory) -> ShownRollout {
        let waiting: BTreeMap<&str, ShownNode> = behind
            .iter()
            .filter(|cell| !self.is_open(&cell.row.name))
            .map(|cell| (&*cell.row.name, ShownNode::of(cell, now)))
            .collect();
        let is_other = |node: &str| !waiting.contains_key(node);
        let seen = self.nodes.into_iter().flatten().filter(|(node, _)| is_other(node));
        let mut nodes: Vec<ShownNode> = seen
            .map(|(node, track)| {
                let words = self.told.get(node.as_str()).map(AsRef::as_ref);
                ShownNode::on(track.joined(words.or_else(|| told.unnamed_update(node, track))), node, now)
            })
            .collect();
        let told_alone = self.told.iter().filter(|(node, _)| self.seen(node).is_none() && is_other(node));
        nodes.extend(told_alone.map(|(node, track)| ShownNode::on(Cow::Borrowed(track), node, now)));
        nodes.extend(waiting.into_values());
        nodes.sort_by(|a, b| {
            let key = |l: &ShownNode| (l.state, Reverse(l.seconds));
            key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
        });
        let mut counts: BTreeMap<State, usize> = BTreeMap::new();
        nodes.iter().for_each(|line| *counts.entry(line.state).or_default() += 1);
        let total = nodes.len();
        nodes.truncate(most);
        for line in &mut nodes {
            let texts = line.turn.iter_mut().map(|(what, _)| what).chain([&mut line.waited]);
            texts.filter(|text| !text.is_empty()).for_each(|text| *text = insight::redacted_lines(text));
        }
        let counts = counts.into_iter().collect();
        ShownRollout { pool: self.pool.to_owned(), config: self.config.to_owned(), total, counts, nodes }
    }
}

/// Where a node is in a rollout, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum State {
    /// Its update fails.
    Fails,
    /// It waits, and something on it has to change before it can begin.
    Stuck,
    /// Under way.
    Moves,
    /// It is sent there now.
    Goes,
    /// It waits for its turn.
    Waits,
    /// It got there.
    Done,
    /// It went to another config before it was done.
    Left,
}

/// A rollout as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShownRollout {
    pub(super) pool: String,
    pub(super) config: String,
    /// How many nodes it has; the first of them are shown.
    pub(super) total: usize,
    /// How many of them are in each state.
    pub(super) counts: Vec<(State, usize)>,
    pub(super) nodes: Vec<ShownNode>,
}

/// A node in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ShownNode {
    pub(super) node: String,
    pub(super) bars: Vec<Bar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) done: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) left: Option<Timestamp>,
    pub(super) state: State,
    /// How long it took, or has taken; of a node that waits, how long it does. 0 where that was not seen.
    pub(super) seconds: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) waited: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) turn: Vec<(String, u32)>,
}

impl ShownNode {
    /// A node of whose way there nothing was seen: it waits, or its agent does not report its steps. What for says the fleet.
    fn of(cell: &Cell, now: Timestamp) -> Self {
        let row = &cell.row;
        let state = match row.phase {
            Phase::Failing => State::Fails,
            Phase::Moving => State::Moves,
            Phase::Goes => State::Goes,
            _ if row.stuck => State::Stuck,
            _ => State::Waits,
        };
        let waits = matches!(state, State::Stuck | State::Waits | State::Goes);
        let from = row.since.filter(|_| waits);
        Self {
            node: row.name.clone(),
            bars: from.into_iter().map(|from| Bar { part: Part::Wait, from, to: None }).collect(),
            done: None,
            left: None,
            state,
            seconds: from.map_or(0, |from| now.duration_since(from).as_secs().max(0)),
            waited: String::new(),
            turn: vec![],
        }
    }

    /// A node whose way is known.
    fn on(track: Cow<'_, NodeUpdate>, node: &str, now: Timestamp) -> Self {
        let bars = track.bars();
        let NodeUpdate { steps: _, done, left, failing, waited, turn } = track.into_owned();
        let first = bars.iter().map(|b| b.from).min();
        let last = done.or(left).unwrap_or(now);
        let seconds = first.map_or(0, |first| last.duration_since(first).as_secs().max(0));
        let state = match (failing, done, left) {
            (true, ..) => State::Fails,
            (_, Some(_), _) => State::Done,
            (_, _, Some(_)) => State::Left,
            _ => State::Moves,
        };
        let waits = turn.iter().map(|(_, seconds)| i64::from(*seconds)).sum::<i64>();
        let since = first.filter(|_| waits > 0).and_then(|to| {
            let from = to.checked_sub(SignedDuration::from_secs(waits)).ok()?;
            Some(Bar { part: Part::Wait, from, to: Some(to) })
        });
        let bars = since.into_iter().chain(bars).collect();
        Self { node: node.to_owned(), bars, done, left, state, seconds, waited, turn }
    }
}
