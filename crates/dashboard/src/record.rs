//! How long each node took for each phase of its update, for the last rollouts of each pool: the steps of an update under way,
//! which its MachineConfigNode shows as conditions, and the updates that are over, which it keeps (see [`rollout::PastUpdate`]).
//! Pure.
//!
//! An agent that does not write its past updates down shows the end of the last one only, unless it was seen under way.
//!
//! Nodes that have not begun are in a pool's present rollout too: they come from the [`Picture`], with what they wait for.
//!
//! What it is not: a store. What is over lives in the MachineConfigNodes.

use crate::picture::{Cell, Picture};
use api::names::node_condition as c;
use insight::{Milestone, Phase, Progress};
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
    /// It waits for its turn.
    Wait,
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
    /// What was noted last of each node: most stay as they are, many times a second.
    last: HashMap<String, Noted>,
    /// What is shown, as JSON, and since when.
    written: Option<(Timestamp, Arc<str>)>,
}

/// What was noted of a node.
#[derive(Debug)]
struct Noted {
    pool: String,
    desired: String,
    progress: Arc<Progress>,
}

/// A node whose progress is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) pool: &'a str,
    pub(crate) node: &'a str,
    /// The config that it is to be in.
    pub(crate) desired: &'a str,
    pub(crate) progress: &'a Arc<Progress>,
}

impl Record {
    /// Notes what a node's MachineConfigNode shows now.
    pub(crate) fn note(&mut self, seen: Seen<'_>) {
        let Seen { pool, node, desired, progress } = seen;
        let is_known =
            |was: &Noted| Arc::ptr_eq(&was.progress, progress) && was.pool == pool && was.desired == desired;
        if self.last.get(node).is_some_and(is_known) {
            return;
        }
        let noted =
            Noted { pool: pool.to_owned(), desired: desired.to_owned(), progress: Arc::clone(progress) };
        self.last.insert(node.to_owned(), noted);
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
        // An agent writes an update down before it withdraws its conditions: these are of the one that is over.
        let over = progress.updates.last().filter(|update| update.config == desired);
        if over.is_some_and(|update| progress.steps.iter().all(|s| s.since <= update.at(update.done))) {
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
                self.track(pool, &update.config, node, end).end(update);
            }
        }
    }

    /// Forgets pools and nodes that are gone.
    pub(crate) fn retain(&mut self, pools: &BTreeSet<&str>, is_node: impl Fn(&str) -> bool) {
        self.last.retain(|node, noted| is_node(node) && pools.contains(&*noted.pool));
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

    /// What the page shows, as JSON; the same text for a second. `picture`: the fleet as it is now.
    pub(crate) fn json(&mut self, now: Timestamp, picture: &Picture) -> Arc<str> {
        if let Some((since, text)) = &self.written
            && (SignedDuration::ZERO..FRESH).contains(&now.duration_since(*since))
        {
            return Arc::clone(text);
        }
        let text: Arc<str> = json!({"now": now, "rollouts": self.shown(now, picture)}).to_string().into();
        self.written = Some((now, Arc::clone(&text)));
        text
    }

    /// One rollout with all of its nodes, as JSON; `None`: it is not among the last ones.
    pub(crate) fn whole(
        &self,
        pool: &str,
        config: &str,
        now: Timestamp,
        picture: &Picture,
    ) -> Option<String> {
        let one = self.rollouts.iter().find(|r| r.pool == pool && r.config == config);
        let behind = behind(picture).remove(pool).filter(|b| b.config == config);
        let nodes = behind.map(|b| b.nodes).unwrap_or_default();
        let one = match one {
            Some(one) => one,
            None if nodes.is_empty() => return None,
            None => &Rollout::of(pool, config),
        };
        Some(json!({"now": now, "rollout": one.shown(now, usize::MAX, &nodes)}).to_string())
    }

    /// Those under way first, then those whose nodes only wait, then those that are over; in each, the newest first.
    fn shown(&self, now: Timestamp, picture: &Picture) -> Vec<Shown> {
        let mut behind = behind(picture);
        let mut all: Vec<&Rollout> = self.rollouts.iter().rev().collect();
        all.sort_by_key(|rollout| std::cmp::Reverse(rollout.last));
        let mut take = |rollout: &Rollout| {
            let of_it = behind.get(&*rollout.pool).is_some_and(|b| b.config == rollout.config);
            of_it.then(|| behind.remove(&*rollout.pool)).flatten().map(|b| b.nodes).unwrap_or_default()
        };
        let begun: Vec<Shown> =
            all.into_iter().map(|rollout| rollout.shown(now, MOST, &take(rollout))).collect();
        let only_wait =
            behind.into_iter().map(|(pool, b)| Rollout::of(pool, b.config).shown(now, MOST, &b.nodes));
        let mut all: Vec<Shown> = begun.into_iter().chain(only_wait).collect();
        let rank = |one: &Shown| {
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
fn behind(picture: &Picture) -> BTreeMap<&str, Behind<'_>> {
    let mut all: BTreeMap<&str, Behind<'_>> = BTreeMap::new();
    for cell in picture.nodes.values() {
        let pool = picture.pools.get(&cell.pool).filter(|pool| !pool.config.is_empty());
        if let Some(pool) = pool.filter(|_| !matches!(cell.row.phase, Phase::Done | Phase::Unavailable)) {
            let one = all.entry(&pool.name).or_insert_with(|| Behind { config: &pool.config, nodes: vec![] });
            one.nodes.push(cell);
        }
    }
    all
}

impl Rollout {
    /// One of which nothing was seen.
    fn of(pool: &str, config: &str) -> Self {
        Self { pool: pool.to_owned(), config: config.to_owned(), ..Self::default() }
    }

    /// As it is shown, with at most so many nodes: the stuck and the slowest first. Reasons are masked. `behind`: nodes that the
    /// fleet shows on their way here.
    fn shown(&self, now: Timestamp, most: usize, behind: &[&Cell]) -> Shown {
        let waiting: BTreeMap<&str, Line> = behind
            .iter()
            .filter(|cell| self.nodes.get(&cell.row.name).is_none_or(|track| !track.is_open()))
            .map(|cell| (&*cell.row.name, Line::of(cell, now)))
            .collect();
        let seen = self.nodes.iter().filter(|(node, _)| !waiting.contains_key(node.as_str()));
        let mut nodes: Vec<Line> = seen.map(|(node, track)| track.line(node, now)).collect();
        nodes.extend(waiting.into_values());
        nodes.sort_by(|a, b| {
            let key = |l: &Line| (l.state, std::cmp::Reverse(l.seconds));
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
        Shown { pool: self.pool.clone(), config: self.config.clone(), total, counts, nodes }
    }
}

/// Where a node is in a rollout, in the order in which they are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
enum State {
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
struct Shown {
    pool: String,
    config: String,
    /// How many nodes it has; the first of them are shown.
    total: usize,
    /// How many of them are in each state.
    counts: Vec<(State, usize)>,
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
    state: State,
    /// How long it took, or has taken; of a node that waits, how long it does. 0 where that was not seen.
    seconds: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    waited: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    turn: Vec<(String, u32)>,
}

impl Line {
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
}

impl Track {
    /// Whether it goes on.
    fn is_open(&self) -> bool {
        self.done.is_none() && self.left.is_none()
    }

    /// Takes over what the node has written down at the end of an update. What was seen of that update stays: it has more times, but
    /// an agent that is quick writes several steps at once with the end, and withdraws them with it.
    fn end(&mut self, update: &PastUpdate) {
        let end = update.at(update.done);
        if self.done.or(self.left).is_some_and(|at| at > end) {
            return;
        }
        if !self.is_open() || self.steps.is_empty() {
            let whole = Self::of(update);
            // The end may have been seen before.
            let more = if self.done == Some(end) { std::mem::take(&mut self.steps) } else { BTreeMap::new() };
            *self = whole;
            self.fill(more);
            return;
        }
        // One that was over before this one began is an earlier one to the same config.
        let parts = [c::UPDATE_PREPARED, c::CORDONED, c::DRAINED, c::APPLIED_FILES_AND_OS];
        let times = parts.iter().filter_map(|part| self.steps.get(*part)).flat_map(|t| [t.began, t.done]);
        if times.flatten().min().is_some_and(|first| first > update.began) {
            return;
        }
        let seen = std::mem::replace(self, Self::of(update));
        self.fill(seen.steps);
        if self.waited.is_empty() {
            self.waited = seen.waited;
        }
        if self.turn.is_empty() {
            self.turn = seen.turn;
        }
    }

    /// Adds times that were seen: where a part began is known from them alone.
    fn fill(&mut self, seen: BTreeMap<String, Times>) {
        for (step, times) in seen {
            let mine = self.steps.entry(step).or_default();
            mine.began = times.began.or(mine.began);
            mine.done = mine.done.or(times.done);
        }
    }

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
        let state = match (failing, done, left) {
            (true, ..) => State::Fails,
            (_, Some(_), _) => State::Done,
            (_, _, Some(_)) => State::Left,
            _ => State::Moves,
        };
        let waits = turn.iter().map(|(_, seconds)| i64::from(*seconds)).sum::<i64>();
        let since = first.filter(|_| waits > 0).and_then(|to| {
            Some(Bar {
                part: Part::Wait,
                from: to.checked_sub(SignedDuration::from_secs(waits)).ok()?,
                to: Some(to),
            })
        });
        let bars = since.into_iter().chain(bars).collect();
        Line { node: node.to_owned(), bars, done, left, state, seconds, waited, turn }
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
