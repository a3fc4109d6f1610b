//! One node's way to one config: when each part of its update began and was done, and the bars that this is drawn as. Pure.
//!
//! What it is not: where the times come from (`super` reads MachineConfigNodes, `from_events` events).

use api::names::node_condition as c;
use jiff::{SignedDuration, Timestamp};
use rollout::PastUpdate;
use serde::Serialize;
use std::borrow::Cow;

/// How far the clocks of a node, the controller and the API server may be apart.
const CLOCKS: SignedDuration = SignedDuration::from_secs(60);

/// A step of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Prepared,
    Cordoned,
    Drained,
    Applied,
    Rebooted,
    Uncordoned,
}

impl Stage {
    const ALL: [Self; 6] =
        [Self::Prepared, Self::Cordoned, Self::Drained, Self::Applied, Self::Rebooted, Self::Uncordoned];

    /// The step that a condition of a MachineConfigNode is about; `None`: it has no bar.
    pub(super) fn of(condition: &str) -> Option<Self> {
        match condition {
            c::UPDATE_PREPARED => Some(Self::Prepared),
            c::CORDONED => Some(Self::Cordoned),
            c::DRAINED => Some(Self::Drained),
            c::APPLIED_FILES_AND_OS => Some(Self::Applied),
            c::REBOOTED_NODE => Some(Self::Rebooted),
            c::UNCORDONED => Some(Self::Uncordoned),
            _ => None,
        }
    }
}

/// A step's times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) began: Option<Timestamp>,
    pub(super) done: Option<Timestamp>,
}

/// The times of all steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps([Times; Stage::ALL.len()]);

impl Steps {
    pub(super) fn of(&self, stage: Stage) -> Times {
        self.0[stage as usize]
    }

    pub(super) fn at(&mut self, stage: Stage) -> &mut Times {
        &mut self.0[stage as usize]
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every time that is known.
    fn all(&self) -> impl Iterator<Item = Timestamp> {
        self.0.iter().flat_map(|times| [times.began, times.done]).flatten()
    }

    pub(super) fn last(&self) -> Option<Timestamp> {
        self.all().max()
    }
}

/// One node's way to one config.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NodeUpdate {
    pub(super) steps: Steps,
    pub(super) done: Option<Timestamp>,
    /// When it went to another config before it was done.
    pub(super) left: Option<Timestamp>,
    pub(super) failing: bool,
    /// What its drain waited for last.
    pub(super) waited: String,
    /// What it waited for before it began, each with its seconds.
    pub(super) turn: Vec<(String, u32)>,
}

/// A part of a node's update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Part {
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
pub(super) struct Bar {
    pub(super) part: Part,
    pub(super) from: Timestamp,
    /// Absent: it goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<Timestamp>,
}

impl NodeUpdate {
    /// Whether it goes on.
    pub(super) fn is_open(&self) -> bool {
        self.done.is_none() && self.left.is_none()
    }

    /// The first time that is known of it.
    pub(super) fn first(&self) -> Option<Timestamp> {
        self.steps.all().chain(self.done).min()
    }

    /// The last one.
    pub(super) fn last(&self) -> Option<Timestamp> {
        self.steps.all().chain(self.done).chain(self.left).max()
    }

    /// Takes over what the node has written down at the end of an update. What was seen of that update stays: it has more times, but
    /// an agent that is quick writes several steps at once with the end, and withdraws them with it.
    pub(super) fn end(&mut self, update: &PastUpdate) {
        let end = update.at(update.done);
        if !self.is_open() || self.steps.is_empty() {
            let whole = Self::of(update);
            // The end may have been seen before.
            let more =
                if self.done == Some(end) { std::mem::take(&mut self.steps) } else { Steps::default() };
            *self = whole;
            self.fill(&more);
            return;
        }
        // One that was over before this one began is an earlier one to the same config.
        let parts = [Stage::Prepared, Stage::Cordoned, Stage::Drained, Stage::Applied];
        let times = parts.iter().map(|part| self.steps.of(*part)).flat_map(|t| [t.began, t.done]);
        if times.flatten().min().is_some_and(|first| first > update.began) {
            return;
        }
        let seen = std::mem::replace(self, Self::of(update));
        self.fill(&seen.steps);
        if self.waited.is_empty() {
            self.waited = seen.waited;
        }
        if self.turn.is_empty() {
            self.turn = seen.turn;
        }
    }

    /// Adds times that were seen: where a part began is known from them alone.
    fn fill(&mut self, seen: &Steps) {
        for stage in Stage::ALL {
            let (times, mine) = (seen.of(stage), self.steps.at(stage));
            mine.began = times.began.or(mine.began);
            mine.done = mine.done.or(times.done);
        }
    }

    /// Of an update that is over.
    fn of(update: &PastUpdate) -> Self {
        let at = |after: Option<u32>| after.map(|seconds| update.at(seconds));
        let mut steps = Steps::default();
        let mut put = |stage: Stage, began: Option<Timestamp>, done: Option<Timestamp>| {
            if done.is_some() {
                *steps.at(stage) = Times { began, done };
            }
        };
        let changes = at(update.drained).unwrap_or(update.began);
        put(Stage::Drained, Some(update.began), at(update.drained));
        put(Stage::Applied, Some(changes), at(update.applied));
        put(Stage::Rebooted, at(update.applied), at(update.rebooted));
        put(Stage::Uncordoned, None, at(update.uncordoned));
        Self {
            steps,
            done: Some(update.at(update.done)),
            left: None,
            failing: false,
            waited: update.waited.clone(),
            turn: update.turn.clone(),
        }
    }

    /// Whether events tell of the same way as this one, which MachineConfigNodes show: a node may go to a config more than once.
    pub(super) fn is_same_way(&self, told: &Self) -> bool {
        let before = |a: Option<Timestamp>, b: Option<Timestamp>| match (a, b) {
            (Some(a), Some(b)) => a.duration_since(b) <= CLOCKS,
            _ => true,
        };
        match (self.done, told.done) {
            (Some(a), Some(b)) => a.duration_since(b).abs() <= CLOCKS,
            _ => before(told.first(), self.done.or(self.left)) && before(self.first(), told.last()),
        }
    }

    /// With the times that only events tell of.
    pub(super) fn joined(&self, told: Option<&Self>) -> Cow<'_, Self> {
        let Some(told) = told.filter(|told| self.is_same_way(told)) else { return Cow::Borrowed(self) };
        let mut whole = self.clone();
        for stage in Stage::ALL {
            let (times, mine) = (told.steps.of(stage), whole.steps.at(stage));
            mine.began = mine.began.or(times.began);
            mine.done = mine.done.or(times.done);
        }
        if whole.waited.is_empty() {
            whole.waited.clone_from(&told.waited);
        }
        Cow::Owned(whole)
    }

    pub(super) fn bars(&self) -> Vec<Bar> {
        let at = |stage: Stage| self.steps.of(stage);
        let (cordoned, drained, applied) = (at(Stage::Cordoned), at(Stage::Drained), at(Stage::Applied));
        let (reboot, uncordoned) = (at(Stage::Rebooted), at(Stage::Uncordoned));
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
}
