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
    failing: bool,
    /// What its drain waited for last.
    waited: String,
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
    /// The beginning of each node's last past update that was noted: thousands of nodes are looked at ten times a second.
    noted: HashMap<String, Timestamp>,
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
            track.failing = false;
            return;
        }
        // Node and MachineConfigNode come by different watches. What is under way while the node is in its desired config still
        // is on its way to the next one, of which the Node was not heard yet.
        if progress.steps.is_empty() || desired.is_empty() || desired == progress.config {
            return;
        }
        let last = progress.steps.iter().map(|s| s.since).max().unwrap_or_default();
        let track = self.track(pool, desired, node, last);
        // It goes there once more: what an earlier way took is over.
        if track.done.take().is_some() {
            *track = Track::default();
        }
        track.failing = progress.degraded.is_some();
        for Milestone { step, done, since, message } in &progress.steps {
            let times = track.steps.entry(step.clone()).or_default();
            let place = if *done { &mut times.done } else { &mut times.began };
            place.get_or_insert(*since);
            if step == c::DRAINED && !done && message.contains("waits for") {
                track.waited.clone_from(message);
            }
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

    /// The newest rollout first, in it the stuck and the slowest nodes first. Reasons are masked.
    fn shown(&self, now: Timestamp) -> Vec<Shown> {
        let shown = |rollout: &Rollout| {
            let mut nodes: Vec<Line> =
                rollout.nodes.iter().map(|(node, track)| track.line(node, now)).collect();
            nodes.sort_by(|a, b| {
                let key = |l: &Line| (!l.failing, l.done.is_some(), std::cmp::Reverse(l.seconds));
                key(a).cmp(&key(b)).then_with(|| a.node.cmp(&b.node))
            });
            let total = nodes.len();
            nodes.truncate(MOST);
            for line in nodes.iter_mut().filter(|l| !l.waited.is_empty()) {
                line.waited = insight::redacted_lines(&line.waited);
            }
            Shown { pool: rollout.pool.clone(), config: rollout.config.clone(), total, nodes }
        };
        let mut all: Vec<&Rollout> = self.rollouts.iter().rev().collect();
        all.sort_by_key(|rollout| std::cmp::Reverse(rollout.last));
        all.into_iter().map(shown).collect()
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
    failing: bool,
    /// How long it took, or has taken; 0 where that was not seen.
    seconds: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    waited: String,
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
        Self { steps, done: Some(update.at(update.done)), failing: false, waited: update.waited.clone() }
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
            Some(Bar { part, from, to: to.or(self.done).map(|to| to.max(from)) })
        };
        parts.into_iter().filter_map(bar).collect()
    }

    fn line(&self, node: &str, now: Timestamp) -> Line {
        let bars = self.bars();
        let first = bars.iter().map(|b| b.from).min();
        let last = self.done.unwrap_or(now);
        let seconds = first.map_or(0, |first| last.duration_since(first).as_secs().max(0));
        let (done, failing, waited) = (self.done, self.failing, self.waited.clone());
        Line { node: node.to_owned(), bars, done, failing, seconds, waited }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn progress(config: &str, steps: &[(&str, bool, i64, &str)]) -> Progress {
        let steps = steps.iter().map(|(step, done, since, message)| Milestone {
            step: (*step).to_owned(),
            done: *done,
            since: at(*since),
            message: (*message).to_owned(),
        });
        Progress {
            config: config.to_owned(),
            done: None,
            step: None,
            degraded: None,
            pull: None,
            steps: steps.collect(),
            updates: vec![],
        }
    }

    fn note(record: &mut Record, node: &str, desired: &str, progress: &Progress) {
        record.note(Seen { pool: "worker", node, desired, progress });
    }

    #[test]
    fn the_phases_of_an_update_are_known_as_far_as_they_were_seen() {
        let mut record = Record::default();
        let waits = "Node n is being drained; it waits for pod a/b: budget";
        let states: [&[(&str, bool, i64, &str)]; 6] = [
            &[(c::UPDATE_PREPARED, true, 10, "")],
            &[
                (c::UPDATE_PREPARED, true, 10, ""),
                (c::CORDONED, true, 11, ""),
                (c::DRAINED, false, 11, waits),
            ],
            &[
                (c::CORDONED, true, 11, ""),
                (c::DRAINED, true, 31, ""),
                (c::APPLIED_FILES_AND_OS, false, 32, ""),
            ],
            &[
                (c::CORDONED, true, 11, ""),
                (c::DRAINED, true, 31, ""),
                (c::APPLIED_FILES_AND_OS, true, 40, ""),
                (c::REBOOTED_NODE, false, 41, ""),
            ],
            &[(c::REBOOTED_NODE, true, 80, ""), (c::UNCORDONED, true, 85, "")],
            &[(c::UPDATED, true, 86, "")],
        ];
        for (n, steps) in states.into_iter().enumerate() {
            let config = if n == 5 { "new" } else { "old" };
            note(&mut record, "n", "new", &progress(config, steps));
        }
        let shown = record.shown(at(100));
        let line = &shown[0].nodes[0];
        let bars: Vec<_> = line.bars.iter().map(|b| (b.part, b.from, b.to)).collect();
        let bar = |part, from, to| (part, at(from), Some(at(to)));
        assert_eq!(
            bars,
            [
                bar(Part::Drain, 11, 31),
                bar(Part::Apply, 32, 40),
                bar(Part::Reboot, 41, 80),
                bar(Part::Back, 80, 85)
            ]
        );
        assert_eq!((line.seconds, line.done, &*line.waited), (75, Some(at(86)), waits));
    }

    #[test]
    fn the_stuck_and_the_slowest_come_first_and_what_goes_on_has_no_end() {
        let mut record = Record::default();
        let moving = |since| progress("old", &[(c::CORDONED, true, since, "")]);
        note(&mut record, "fast", "new", &moving(90));
        note(&mut record, "slow", "new", &moving(10));
        note(&mut record, "over", "new", &progress("new", &[(c::UPDATED, true, 50, "")]));
        note(&mut record, "stuck", "new", &Progress { degraded: Some(at(95)), ..moving(94) });
        let shown = record.shown(at(100));
        let order: Vec<_> = shown[0].nodes.iter().map(|l| (&*l.node, l.seconds)).collect();
        assert_eq!(order, [("stuck", 6), ("slow", 90), ("fast", 10), ("over", 0)]);
        assert_eq!(shown[0].nodes[1].bars, [Bar { part: Part::Drain, from: at(10), to: None }]);
    }

    #[test]
    fn a_second_way_to_a_config_begins_anew_and_only_the_last_rollouts_are_kept() {
        let mut record = Record::default();
        note(&mut record, "n", "a", &progress("a", &[(c::UPDATED, true, 5, "")]));
        note(&mut record, "n", "a", &progress("b", &[(c::CORDONED, true, 20, "")]));
        assert_eq!(record.shown(at(30))[0].nodes[0].seconds, 10);
        for n in 0..2 * KEPT {
            note(&mut record, "n", &format!("c{n}"), &progress("b", &[(c::CORDONED, true, 20, "")]));
        }
        let shown = record.shown(at(30));
        assert_eq!((shown.len(), &*shown[0].config), (KEPT, "c19"));
    }

    #[test]
    fn what_was_seen_of_one_pool_outlives_what_other_pools_show_and_goes_with_its_node() {
        let mut record = Record::default();
        let steps = [
            (c::CORDONED, true, 10, ""),
            (c::DRAINED, true, 20, ""),
            (c::APPLIED_FILES_AND_OS, false, 21, ""),
            (c::APPLIED_FILES_AND_OS, true, 30, ""),
            (c::REBOOTED_NODE, false, 31, ""),
            (c::REBOOTED_NODE, true, 50, ""),
            (c::UNCORDONED, true, 55, ""),
        ];
        let note = |record: &mut Record, pool: &str, node: &str, desired: &str, progress: &Progress| {
            record.note(Seen { pool, node, desired, progress });
        };
        note(&mut record, "p0", "n", "new", &progress("old", &steps));
        let done = |config: &str| progress(config, &[(c::UPDATED, true, 60, "")]);
        let bars = |record: &Record| {
            let shown = record.shown(at(100));
            let one = shown.iter().find(|r| r.pool == "p0" && r.config == "new");
            one.map(|r| r.nodes.iter().map(|l| l.bars.len()).sum::<usize>())
        };
        for _ in 0..2 {
            for p in 0..=11 {
                note(&mut record, &format!("p{p}"), "n", "new", &done("new"));
            }
        }
        assert_eq!(bars(&record), Some(4), "other pools");
        // Nodes of one pool that have not begun stand in more configs than are kept.
        for _ in 0..2 {
            for n in 0..=KEPT {
                note(&mut record, "p0", &format!("n{n}"), "new", &done(&format!("c{n}")));
            }
        }
        assert_eq!(bars(&record), Some(4), "older configs");
        record.retain(&BTreeSet::from(["p0"]), |node| node == "n");
        assert_eq!((record.rollouts.len(), bars(&record)), (1, Some(4)));
        record.retain(&BTreeSet::new(), |_| true);
        assert_eq!(record.rollouts.len(), 0);
    }

    #[test]
    fn what_was_over_before_it_began_to_look_is_read_from_the_nodes() {
        let update = |n: i64| PastUpdate {
            config: format!("c{n}"),
            began: at(100 * n),
            drained: Some(20),
            applied: Some(28),
            rebooted: Some(67),
            uncordoned: Some(72),
            done: 75,
            waited: "pod a/b: its budget".to_owned(),
        };
        let progress = |updates: Vec<PastUpdate>, steps: &[(&str, bool, i64, &str)]| Progress {
            updates,
            ..progress(&format!("c{KEPT}"), steps)
        };
        let all: Vec<PastUpdate> = (1..=10).map(update).collect();
        let over = progress(all.clone(), &[(c::UPDATED, true, 1075, "")]);
        let mut record = Record::default();
        // The nodes of a pool need not have gone through the same; the newest ten rollouts are kept, whoever is read first.
        let older = progress((-20..=-5).map(update).collect(), &[(c::UPDATED, true, -425, "")]);
        let older = Progress { config: "c-5".to_owned(), ..older };
        let desired = format!("c{KEPT}");
        for _ in 0..2 {
            note(&mut record, "older", "c-5", &older);
            note(&mut record, "n", &desired, &over);
        }
        let shown = record.shown(at(2000));
        let configs: Vec<_> = shown.iter().map(|r| &*r.config).collect();
        assert_eq!(configs, ["c10", "c9", "c8", "c7", "c6", "c5", "c4", "c3", "c2", "c1"]);
        let line = &shown[9].nodes[0];
        let bars: Vec<_> = line.bars.iter().map(|b| (b.part, b.from, b.to)).collect();
        let bar = |part, from, to| (part, at(from), Some(at(to)));
        assert_eq!(
            bars,
            [
                bar(Part::Drain, 100, 120),
                bar(Part::Apply, 120, 128),
                bar(Part::Reboot, 128, 167),
                bar(Part::Back, 167, 172)
            ]
        );
        assert_eq!((line.seconds, line.done, &*line.waited), (75, Some(at(175)), "pod a/b: its budget"));
        // A light one: nothing was drained, nothing rebooted.
        let light = PastUpdate {
            drained: None,
            rebooted: None,
            uncordoned: None,
            applied: Some(3),
            done: 4,
            ..update(11)
        };
        let next = progress(vec![light], &[(c::UPDATED, true, 1104, "")]);
        note(&mut record, "n", "c11", &next);
        let bars: Vec<_> =
            record.shown(at(2000))[0].nodes[0].bars.iter().map(|b| (b.part, b.from, b.to)).collect();
        assert_eq!(bars, [bar(Part::Apply, 1100, 1103), bar(Part::Back, 1103, 1104)]);
        // What is under way is not taken for over: it goes to c10 once more.
        let under_way = progress(all, &[(c::CORDONED, true, 1200, "")]);
        // The Node says still that it is to be in c10, where it is: that rollout is over.
        note(&mut record, "n", "c10", &under_way);
        assert!(
            record.shown(at(1210)).into_iter().find(|r| r.config == "c10").unwrap().nodes[0].done.is_some()
        );
        note(&mut record, "n", "c10", &Progress { config: "c11".to_owned(), ..under_way });
        let again = record.shown(at(1210)).into_iter().find(|r| r.config == "c10").unwrap();
        assert_eq!((again.nodes[0].done, again.nodes[0].seconds), (None, 10));
    }

    #[test]
    fn a_large_pool_is_cut_and_masked_and_is_written_once_a_second() {
        let mut record = Record::default();
        let waits = "Node n is being drained; it waits for pod a/b: password=hunter2-s3cr3t-Zx81Qp0";
        let drain = progress("old", &[(c::CORDONED, true, 10, ""), (c::DRAINED, false, 11, waits)]);
        for n in 0..=MOST {
            note(&mut record, &format!("n{n}"), "new", &drain);
        }
        let text = record.json(at(20));
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let one = &value["rollouts"][0];
        assert_eq!((one["nodes"].as_array().unwrap().len(), &one["total"]), (MOST, &json!(MOST + 1)));
        assert!(!text.contains("hunter2"));
        note(&mut record, "late", "new", &drain);
        assert!(Arc::ptr_eq(&text, &record.json(at(20))), "the same second");
        assert!(!Arc::ptr_eq(&text, &record.json(at(21))), "the next");
    }
}
