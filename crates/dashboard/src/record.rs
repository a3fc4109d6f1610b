//! How long each node took for each phase of its update, for the last rollouts of each pool: the steps of an update under way,
//! which its MachineConfigNode shows as conditions, and the updates that are over, which it keeps (see [`rollout::PastUpdate`]).
//! Pure.
//!
//! An agent that does not write its past updates down shows the end of the last one only, unless it was seen under way.
//!
//! What it is not: a store. What is over lives in the MachineConfigNodes.

use api::names::node_condition as c;
use insight::{Milestone, Progress};
use jiff::{SignedDuration, Timestamp};
use rollout::PastUpdate;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How many rollouts of each pool are kept.
const KEPT: usize = 10;
/// How many nodes of a rollout are shown.
const MOST: usize = 200;
/// How long what was written is good for: every open page asks after every change.
const FRESH: SignedDuration = SignedDuration::from_secs(1);

/// A step's times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Times {
    began: Option<Timestamp>,
    done: Option<Timestamp>,
}

/// One node's way to one config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Track {
    steps: BTreeMap<String, Times>,
    done: Option<Timestamp>,
    /// When it went to another config before it was done.
    left: Option<Timestamp>,
    failing: bool,
    /// What its drain waited for last.
    waited: String,
    /// What it waited for before it began, each with its seconds.
    turn: Vec<(String, u32)>,
}

/// One pool's way to one config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rollout {
    pool: String,
    config: String,
    nodes: BTreeMap<String, Track>,
    /// The latest time that is known of it.
    last: Timestamp,
}

/// A part of a node's update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Part {
    /// Its pods leave.
    Drain,
    /// Files, units and the OS are changed.
    Apply,
    /// The machine reboots.
    Reboot,
    /// The kubelet and the agent come back, and the node takes pods again.
    Back,
}

/// A part with its times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Bar {
    part: Part,
    from: Timestamp,
    /// Absent: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Timestamp>,
}

/// The last rollouts.
#[derive(Debug, Default)]
pub(crate) struct Record {
    rollouts: Vec<Rollout>,
    /// The beginning of each node's last past update that was noted: thousands of nodes are looked at many times a second.
    noted: HashMap<String, Timestamp>,
    /// The pool and the config that each node goes to, or is in.
    goals: HashMap<String, (String, String)>,
    /// What is shown, as JSON, and since when.
    written: Option<(Timestamp, Arc<str>)>,
}

/// A node whose progress is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) pool: &'a str,
    pub(crate) node: &'a str,
    /// The config that it is to be in.
    pub(crate) desired: &'a str,
    pub(crate) progress: &'a Progress,
}

impl Record {
    /// Notes what a node's MachineConfigNode shows now.
    pub(crate) fn note(&mut self, seen: Seen<'_>) {
        let Seen { pool, node, desired, progress } = seen;
        self.note_past(pool, node, &progress.updates);
        let done = progress.steps.iter().find(|s| s.step == c::UPDATED && s.done);
        if let Some(done) = done {
            // A node that has not begun yet shows the end of an older rollout. That never takes the place of a newer one.
            if !self.fits(pool, &progress.config, done.since) {
                return;
            }
            let track = self.track(pool, &progress.config, node, done.since);
            track.done.get_or_insert(done.since);
            track.left = None;
            track.failing = false;
            // One that has not begun yet is on its way to nothing.
            if desired == progress.config {
                self.leave_others(pool, desired, node, done.since);
            }
            return;
        }
        // Node and MachineConfigNode come by different watches. What is under way while the node is in its desired config still
        // is on its way to the next one, of which the Node was not heard yet.
        if progress.steps.is_empty() || desired.is_empty() || desired == progress.config {
            return;
        }
        let times = || progress.steps.iter().map(|s| s.since);
        let (first, last) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        self.leave_others(pool, desired, node, first);
        let track = self.track(pool, desired, node, last);
        // It goes there once more: what an earlier way took is over.
        if track.done.take().is_some() || track.left.take().is_some() {
            *track = Track::default();
        }
        track.failing = progress.degraded.is_some();
        if let Some(turn) = progress.turn.as_ref().filter(|turn| turn.config == desired) {
            track.turn.clone_from(&turn.waits);
        }
        for Milestone { step, done, since, message } in &progress.steps {
            let times = track.steps.entry(step.clone()).or_default();
            let place = if *done { &mut times.done } else { &mut times.began };
            place.get_or_insert(*since);
            if step == c::DRAINED && !done && message.contains("waits for") {
                track.waited.clone_from(message);
            }
        }
    }

    /// A node goes to this config, or is in it: its way to any other one is over, though it never got there.
    fn leave_others(&mut self, pool: &str, config: &str, node: &str, at: Timestamp) {
        if self.goals.get(node).is_some_and(|(of, goal)| of == pool && goal == config) {
            return;
        }
        self.goals.insert(node.to_owned(), (pool.to_owned(), config.to_owned()));
        let others = self.rollouts.iter_mut().filter(|r| r.pool != pool || r.config != config);
        let open = others.filter_map(|r| r.nodes.get_mut(node)).filter(|track| track.done.is_none());
        for track in open.filter(|track| track.left.is_none()) {
            // Clocks differ: it did not leave before what it was seen to do.
            let seen = track.steps.values().flat_map(|t| [t.began, t.done]).flatten().max();
            track.left = Some(seen.map_or(at, |seen| seen.max(at)));
            track.failing = false;
        }
    }

    /// Notes the updates of a node that are over and were not noted before.
    fn note_past(&mut self, pool: &str, node: &str, updates: &[PastUpdate]) {
        let Some(newest) = updates.last().map(|update| update.began) else { return };
        let known = self.noted.get(node).copied();
        if known == Some(newest) {
            return;
        }
        self.noted.insert(node.to_owned(), newest);
        for update in updates.iter().filter(|update| known.is_none_or(|known| update.began > known)) {
            let end = update.at(update.done);
            if self.fits(pool, &update.config, end) {
                let track = self.track(pool, &update.config, node, end);
                // A second way to a config that is under way has taken the place of the first.
                if track.done.is_none_or(|done| done <= end)
                    && (track.done.is_some() || track.steps.is_empty())
                {
                    *track = Track::of(update);
                }
            }
        }
    }

    /// Forgets pools and nodes that are gone.
    pub(crate) fn retain(&mut self, pools: &BTreeSet<&str>, is_node: impl Fn(&str) -> bool) {
        self.noted.retain(|node, _| is_node(node));
        self.goals.retain(|node, _| is_node(node));
        self.rollouts.retain_mut(|rollout| {
            rollout.nodes.retain(|node, _| is_node(node));
            pools.contains(&*rollout.pool) && !rollout.nodes.is_empty()
        });
    }

    fn has_room(&self, pool: &str, config: &str) -> bool {
        let mut of_pool = self.rollouts.iter().filter(|r| r.pool == pool);
        of_pool.clone().count() < KEPT || of_pool.any(|r| r.config == config)
    }

    /// Whether something that ended then is among the last rollouts.
    fn fits(&self, pool: &str, config: &str, end: Timestamp) -> bool {
        self.has_room(pool, config) || self.oldest(pool).is_some_and(|(_, last)| last < end)
    }

    /// The place of a pool's rollout of which nothing was heard for the longest time, and that time.
    fn oldest(&self, pool: &str) -> Option<(usize, Timestamp)> {
        let of_pool = self.rollouts.iter().enumerate().filter(|(_, r)| r.pool == pool);
        of_pool.map(|(place, r)| (place, r.last)).min_by_key(|(_, last)| *last)
    }

    /// A node's track, in the place of the oldest rollout where there is none yet. `at`: the latest time that is known of it.
    fn track(&mut self, pool: &str, config: &str, node: &str, at: Timestamp) -> &mut Track {
        let place = self.rollouts.iter().position(|r| r.pool == pool && r.config == config);
        let place = place.unwrap_or_else(|| {
            if let Some((oldest, _)) = self.oldest(pool).filter(|_| !self.has_room(pool, config)) {
                self.rollouts.remove(oldest);
            }
            let (pool, config) = (pool.to_owned(), config.to_owned());
            self.rollouts.push(Rollout { pool, config, nodes: BTreeMap::new(), last: at });
            self.rollouts.len() - 1
        });
        let rollout = &mut self.rollouts[place];
        rollout.last = rollout.last.max(at);
        rollout.nodes.entry(node.to_owned()).or_default()
    }

    /// What the page shows, as JSON; the same text for a second.
    pub(crate) fn json(&mut self, now: Timestamp) -> Arc<str> {
        if let Some((since, text)) = &self.written
            && (SignedDuration::ZERO..FRESH).contains(&now.duration_since(*since))
        {
            return Arc::clone(text);
        }
        let text: Arc<str> = json!({"now": now, "rollouts": self.shown(now)}).to_string().into();
        self.written = Some((now, Arc::clone(&text)));
        text
    }

    /// One rollout with all of its nodes, as JSON; `None`: it is not among the last ones.
    pub(crate) fn whole(&self, pool: &str, config: &str, now: Timestamp) -> Option<String> {
        let one = self.rollouts.iter().find(|r| r.pool == pool && r.config == config)?;
        Some(json!({"now": now, "rollout": one.shown(now, usize::MAX)}).to_string())
    }

    /// The newest rollout first.
    fn shown(&self, now: Timestamp) -> Vec<Shown> {
        let mut all: Vec<&Rollout> = self.rollouts.iter().rev().collect();
        all.sort_by_key(|rollout| std::cmp::Reverse(rollout.last));
        all.into_iter().map(|rollout| rollout.shown(now, MOST)).collect()
    }
}

impl Rollout {
    /// As it is shown, with at most so many nodes: the stuck and the slowest first. Reasons are masked.
    fn shown(&self, now: Timestamp, most: usize) -> Shown {
        let mut nodes: Vec<Line> = self.nodes.iter().map(|(node, track)| track.line(node, now)).collect();
        nodes.sort_by(|a, b| {
            let over = |l: &Line| l.done.is_some() || l.left.is_some();
            let key = |l: &Line| (!l.failing, over(l), std::cmp::Reverse(l.seconds));
            key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
        });
        let total = nodes.len();
        nodes.truncate(most);
        for line in &mut nodes {
            let texts = line.turn.iter_mut().map(|(what, _)| what).chain([&mut line.waited]);
            texts.filter(|text| !text.is_empty()).for_each(|text| *text = insight::redacted_lines(text));
        }
        Shown { pool: self.pool.clone(), config: self.config.clone(), total, nodes }
    }
}

/// A rollout as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Shown {
    pool: String,
    config: String,
    /// How many nodes it has; the first of them are shown.
    total: usize,
    nodes: Vec<Line>,
}

/// A node in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Line {
    node: String,
    bars: Vec<Bar>,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<Timestamp>,
    failing: bool,
    /// How long it took, or has taken; 0 where that was not seen.
    seconds: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    waited: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    turn: Vec<(String, u32)>,
}

impl Track {
    /// Of an update that is over.
    fn of(update: &PastUpdate) -> Self {
        let at = |after: Option<u32>| after.map(|seconds| update.at(seconds));
        let mut steps = BTreeMap::new();
        let mut put = |step: &str, began: Option<Timestamp>, done: Option<Timestamp>| {
            if done.is_some() {
                steps.insert(step.to_owned(), Times { began, done });
            }
        };
        let changes = at(update.drained).unwrap_or(update.began);
        put(c::DRAINED, Some(update.began), at(update.drained));
        put(c::APPLIED_FILES_AND_OS, Some(changes), at(update.applied));
        put(c::REBOOTED_NODE, at(update.applied), at(update.rebooted));
        put(c::UNCORDONED, None, at(update.uncordoned));
        Self {
            steps,
            done: Some(update.at(update.done)),
            left: None,
            failing: false,
            waited: update.waited.clone(),
            turn: update.turn.clone(),
        }
    }

    fn bars(&self) -> Vec<Bar> {
        let at = |step: &str| self.steps.get(step).copied().unwrap_or_default();
        let (cordoned, drained, applied) = (at(c::CORDONED), at(c::DRAINED), at(c::APPLIED_FILES_AND_OS));
        let (reboot, uncordoned) = (at(c::REBOOTED_NODE), at(c::UNCORDONED));
        let back = reboot.done.or(applied.done.filter(|_| reboot == Times::default()));
        let parts = [
            (Part::Drain, cordoned.done.or(drained.began), drained.done.or(applied.began)),
            (Part::Apply, applied.began.or(drained.done.filter(|_| applied.done.is_some())), applied.done),
            (Part::Reboot, reboot.began, reboot.done),
            (Part::Back, back, uncordoned.done.or(self.done)),
        ];
        let bar = |(part, from, to): (Part, Option<Timestamp>, Option<Timestamp>)| {
            let from = from?;
            // What comes later ends what has no end of its own; clocks of nodes and of the controller differ.
            Some(Bar { part, from, to: to.or(self.done).or(self.left).map(|to| to.max(from)) })
        };
        parts.into_iter().filter_map(bar).collect()
    }

    fn line(&self, node: &str, now: Timestamp) -> Line {
        let bars = self.bars();
        let first = bars.iter().map(|b| b.from).min();
        let last = self.done.or(self.left).unwrap_or(now);
        let seconds = first.map_or(0, |first| last.duration_since(first).as_secs().max(0));
        let Self { steps: _, done, left, failing, waited, turn } = self.clone();
        Line { node: node.to_owned(), bars, done, left, failing, seconds, waited, turn }
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
