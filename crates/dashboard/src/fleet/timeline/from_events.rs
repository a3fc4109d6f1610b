//! What events tell of updates: the ways of nodes to configs, as far as the events of the agents, the controller and the kubelets
//! are still there (an API server keeps them for an hour, unless it is told otherwise). They tell of updates whose conditions in
//! the MachineConfigNode were overwritten before this dashboard began: of a node that was sent elsewhere before it was done, and of
//! agents that do not write their past updates down. Pure.
//!
//! An event of our agents names the config that it is about ([`api::k8s::Event::related`]). Others belong to the way that the node
//! was on; a way without a name is that to a config in which the node arrived at the same time.
//!
//! What it is not: the reading of events (see `crate::fleet::node_events`).

use super::KEPT;
use super::node_update::{NodeUpdate, Stage};
use crate::fleet::snapshot::{Cell, Fleet};
use api::events::{AgentEvent, ControllerEvent};
use api::k8s::Event;
use insight::Phase;
use jiff::Timestamp;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

/// The kubelet's reason for the event about a boot with another id.
const KUBELET_REBOOTED: &str = "Rebooted";

/// What happened to a node, in the order of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happened {
    Cordoned,
    DrainAsked,
    DrainWaits,
    Drained,
    NoReboot,
    Reboots,
    Rebooted,
    Uncordoned,
    Done,
}

impl Happened {
    /// What an event of this reason tells; `None`: nothing of an update's times.
    fn of(reason: &str) -> Option<Self> {
        if let Some(event) = AgentEvent::named(reason) {
            return match event {
                AgentEvent::Cordon => Some(Self::Cordoned),
                AgentEvent::Drain => Some(Self::DrainAsked),
                AgentEvent::Drained => Some(Self::Drained),
                AgentEvent::SkipReboot | AgentEvent::ServiceReload | AgentEvent::ServiceRestart => {
                    Some(Self::NoReboot)
                }
                AgentEvent::Reboot => Some(Self::Reboots),
                AgentEvent::Uncordon => Some(Self::Uncordoned),
                AgentEvent::NodeDone => Some(Self::Done),
                _ => None,
            };
        }
        match ControllerEvent::named(reason) {
            Some(
                ControllerEvent::DrainWaiting
                | ControllerEvent::DrainThresholdExceeded
                | ControllerEvent::DrainFailed,
            ) => Some(Self::DrainWaits),
            Some(_) => None,
            None => (reason == KUBELET_REBOOTED).then_some(Self::Rebooted),
        }
    }
}

/// What one event tells of a node's update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeEvent {
    node: String,
    /// The config that it is about, where the event says so.
    config: Option<String>,
    at: Timestamp,
    what: Happened,
    /// What a drain waits for, in words.
    waits: String,
}

impl NodeEvent {
    /// `None`: the event is about something else.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        let about = &event.involved_object;
        let what = Happened::of(event.reason.as_deref()?)?;
        let node = about.name.clone().filter(|_| about.kind.as_deref() == Some("Node"))?;
        let related = event.related.as_ref().filter(|r| r.kind.as_deref() == Some("MachineConfig"));
        let micro = || event.event_time.as_ref().map(|t| t.0);
        let first = event.first_timestamp.as_ref().map(|t| t.0).or_else(micro);
        Some(Self {
            node,
            config: related.and_then(|r| r.name.clone()),
            at: first.or(event.metadata.creation_timestamp.as_ref().map(|t| t.0))?,
            what,
            waits: event.message.clone().filter(|_| what == Happened::DrainWaits).unwrap_or_default(),
        })
    }
}

/// A node's way to a config.
#[derive(Debug, Default, PartialEq, Eq)]
struct ObservedUpdate {
    /// `None`: the events do not say.
    config: Option<String>,
    track: NodeUpdate,
    /// When the last of its events was.
    last: Timestamp,
}

/// What events tell of updates.
#[derive(Debug, Default)]
pub(crate) struct EventHistory {
    /// The ways of each node, the oldest first.
    updates: HashMap<String, Vec<ObservedUpdate>>,
    /// Why it is not all that there is, as a sentence.
    pub(crate) unread: Option<String>,
    /// It is for people who may not list events.
    hidden: bool,
}

/// What tells of one rollout, by node.
pub(super) type UpdatesOfRollout<'a> = BTreeMap<&'a str, Cow<'a, NodeUpdate>>;

impl EventHistory {
    pub(crate) fn of(mut words: Vec<NodeEvent>) -> Self {
        words.sort_by_key(|word| (word.at, word.what));
        let mut updates: HashMap<String, Vec<ObservedUpdate>> = HashMap::new();
        for word in words {
            let known = updates.entry(word.node.clone()).or_default();
            put(known, word);
        }
        for known in updates.values_mut() {
            let begins: Vec<Option<Timestamp>> = known.iter().map(|update| update.track.first()).collect();
            for (update, next) in known.iter_mut().zip(begins.into_iter().skip(1)) {
                // It went elsewhere.
                update.track.left = next.filter(|_| update.track.done.is_none());
            }
            let over = known.len().saturating_sub(KEPT);
            known.drain(..over);
        }
        Self { updates, unread: None, hidden: false }
    }

    /// For people who may not list events.
    pub(crate) fn hidden(why: &str) -> Self {
        Self { unread: Some(why.to_owned()), hidden: true, ..Self::default() }
    }

    /// The same, with a sentence that says why it is not all.
    pub(crate) fn incomplete(self, why: String) -> Self {
        Self { unread: Some(why), ..self }
    }

    /// Of how many nodes it tells something.
    #[cfg(test)]
    pub(crate) fn nodes(&self) -> usize {
        self.updates.len()
    }

    pub(super) fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// By rollout: the pool that a node is in now, and the config.
    pub(super) fn rollouts<'a>(
        &'a self,
        fleet: &'a Fleet,
    ) -> BTreeMap<(&'a str, &'a str), UpdatesOfRollout<'a>> {
        let mut all: BTreeMap<(&str, &str), UpdatesOfRollout<'_>> = BTreeMap::new();
        for (node, updates) in &self.updates {
            let Some(cell) = fleet.nodes.get(node) else { continue };
            for update in updates {
                if let Some(config) = &update.config {
                    let one = all.entry((&cell.pool, config)).or_default();
                    one.insert(node, ended(update, config, cell));
                }
            }
        }
        all
    }

    /// The way without a name that is the one which MachineConfigNodes show.
    pub(super) fn unnamed_update(&self, node: &str, seen: &NodeUpdate) -> Option<&NodeUpdate> {
        seen.done?;
        let updates = self.updates.get(node)?.iter().filter(|update| update.config.is_none());
        updates.map(|update| &update.track).find(|told| told.done.is_some() && seen.is_same_way(told))
    }
}

/// Adds what an event tells to the ways of its node.
fn put(updates: &mut Vec<ObservedUpdate>, word: NodeEvent) {
    let NodeEvent { node: _, config, at, what, waits } = word;
    let is_its =
        |update: &ObservedUpdate| config.is_none() || update.config.is_none() || update.config == config;
    let found = match (&config, what) {
        // It comes along with the end, in any order.
        (Some(_), Happened::Uncordoned) => updates.iter().rposition(|update| update.config == config),
        (Some(_), _) => {
            let named = |update: &ObservedUpdate| update.config == config && update.track.done.is_none();
            updates.iter().rposition(named).or(updates.len().checked_sub(1))
        }
        (None, _) => updates.len().checked_sub(1),
    };
    let is_open = |update: &ObservedUpdate| update.track.done.is_none() || what == Happened::Uncordoned;
    let found = found.filter(|at| updates.get(*at).is_some_and(|update| is_its(update) && is_open(update)));
    let place = match (found, what) {
        (Some(place), _) => place,
        // Events of the others belong to a way that is known.
        (None, Happened::Cordoned | Happened::DrainAsked | Happened::Reboots | Happened::NoReboot)
        | (None, Happened::Drained) => {
            updates.push(ObservedUpdate::default());
            updates.len() - 1
        }
        // The rest of it is forgotten already. One that is known to be over does not end once more.
        (None, Happened::Done)
            if config.is_some() && updates.iter().all(|update| update.config != config) =>
        {
            updates.push(ObservedUpdate::default());
            updates.len() - 1
        }
        (None, _) => return,
    };
    let Some(update) = updates.get_mut(place) else { return };
    update.config = update.config.take().or(config);
    update.last = update.last.max(at);
    let steps = &mut update.track.steps;
    match what {
        Happened::Cordoned => _ = steps.at(Stage::Cordoned).done.get_or_insert(at),
        Happened::DrainAsked => _ = steps.at(Stage::Drained).began.get_or_insert(at),
        Happened::DrainWaits => update.track.waited = waits,
        Happened::Drained => {
            steps.at(Stage::Drained).done.get_or_insert(at);
            steps.at(Stage::Applied).began.get_or_insert(at);
        }
        Happened::NoReboot => _ = steps.at(Stage::Applied).done.get_or_insert(at),
        Happened::Reboots => {
            steps.at(Stage::Applied).done.get_or_insert(at);
            steps.at(Stage::Rebooted).began.get_or_insert(at);
        }
        // Of reboots that no update asked for there is nothing to tell.
        Happened::Rebooted if steps.of(Stage::Rebooted).began.is_some() => {
            steps.at(Stage::Rebooted).done.get_or_insert(at);
        }
        Happened::Rebooted => {}
        Happened::Uncordoned => _ = steps.at(Stage::Uncordoned).done.get_or_insert(at),
        Happened::Done => update.track.done = Some(at),
    }
}

/// A way whose end no event tells, with what the fleet shows of it: the node is there, it fails, or it goes elsewhere.
fn ended<'a>(update: &'a ObservedUpdate, config: &str, cell: &Cell) -> Cow<'a, NodeUpdate> {
    let mut track = Cow::Borrowed(&update.track);
    if !track.is_open() {
        return track;
    }
    let row = &cell.row;
    if row.desired != config {
        track.to_mut().left = Some(update.last);
    } else if row.current == config && matches!(row.phase, Phase::Done | Phase::Unavailable) {
        track.to_mut().done = Some(update.last);
    } else if row.phase == Phase::Failing {
        track.to_mut().failing = true;
    }
    track
}

#[cfg(test)]
mod tests;
