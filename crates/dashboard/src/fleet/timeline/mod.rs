//! How long each node took for each phase of its update, for the last rollouts of each pool: the steps of an update under way,
//! which its MachineConfigNode shows as conditions, and the updates that are over, which it keeps (see [`rollout::PastUpdate`]).
//! What else happened before this dashboard began, events tell (see [`EventHistory`]). Pure.
//!
//! An agent that does not write its past updates down shows the end of the last one only, unless it was seen under way, or events
//! tell of it.
//!
//! Nodes that have not begun are in a pool's present rollout too: they come from the [`Fleet`](crate::fleet::snapshot::Fleet), with
//! what they wait for.
//!
//! What it is not: a store. What is over lives in the MachineConfigNodes.

mod from_events;
mod node_update;
mod rollout_rows;

pub(crate) use from_events::{EventHistory, NodeEvent};

use api::names::node_condition as c;
use insight::{Milestone, Progress};
use jiff::Timestamp;
use node_update::{NodeUpdate, Stage};
use rollout::PastUpdate;
use rollout_rows::LastWritten;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// How many rollouts of each pool are kept.
const KEPT: usize = 10;

/// One pool's way to one config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Rollout {
    pool: String,
    config: String,
    nodes: BTreeMap<String, NodeUpdate>,
    /// The latest time that is known of it.
    last: Timestamp,
}

/// The last rollouts.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    rollouts: Vec<Rollout>,
    /// The beginning of each node's last past update that was noted: thousands of nodes are looked at many times a second.
    noted: HashMap<String, Timestamp>,
    /// The pool and the config that each node goes to, or is in.
    goals: HashMap<String, (String, String)>,
    /// What was noted last of each node: most stay as they are, many times a second.
    last: HashMap<String, Noted>,
    /// What is shown, as JSON.
    written: LastWritten,
}

/// What was noted of a node.
#[derive(Debug)]
struct Noted {
    pool: String,
    desired: String,
    progress: Arc<Progress>,
    waits_for: Option<Arc<str>>,
}

/// A node whose progress is noted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeProgress<'a> {
    pub(crate) pool: &'a str,
    pub(crate) node: &'a str,
    /// The config that it is to be in.
    pub(crate) desired: &'a str,
    pub(crate) progress: &'a Arc<Progress>,
    /// What its drain waits for now, as the controller says on its Node.
    pub(crate) waits_for: Option<&'a Arc<str>>,
}

impl Timeline {
    /// Notes what a node's MachineConfigNode shows now.
    pub(crate) fn note(&mut self, seen: NodeProgress<'_>) {
        let NodeProgress { pool, node, desired, progress, waits_for } = seen;
        let is_known = |was: &Noted| {
            let same = Arc::ptr_eq(&was.progress, progress) && was.waits_for.as_ref() == waits_for;
            same && was.pool == pool && was.desired == desired
        };
        if self.last.get(node).is_some_and(is_known) {
            return;
        }
        let (progress, waits_for) = (Arc::clone(progress), waits_for.cloned());
        let noted = Noted {
            pool: pool.to_owned(),
            desired: desired.to_owned(),
            progress: Arc::clone(&progress),
            waits_for: waits_for.clone(),
        };
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
            *track = NodeUpdate::default();
        }
        track.failing = progress.degraded.is_some();
        if let Some(turn) = progress.turn.as_ref().filter(|turn| turn.config == desired) {
            track.turn.clone_from(&turn.waits);
        }
        for Milestone { step, done, since } in &progress.steps {
            let Some(stage) = Stage::of(step) else { continue };
            let times = track.steps.at(stage);
            let place = if *done { &mut times.done } else { &mut times.began };
            place.get_or_insert(*since);
        }
        if let Some(what) = waits_for.filter(|_| track.steps.of(Stage::Drained).done.is_none()) {
            track.waited = what.as_ref().to_owned();
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
            let seen = track.steps.last();
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
    fn track(&mut self, pool: &str, config: &str, node: &str, at: Timestamp) -> &mut NodeUpdate {
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
}

#[cfg(test)]
mod tests;
