//! How soon a pause holds further nodes back, in the middle of a rollout, as a watch of the Nodes sees it: late by as
//! much as the watch is, so the figure is an upper bound.
//!
//! What it is not: how long the nodes take that were on their way.

use lab::NodeNews;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Nodes that are sent on their way, and when the last of them was since the pause.
#[derive(Default)]
pub(super) struct Pause {
    /// What each node was asked to be in.
    desired: HashMap<String, String>,
    sent: usize,
    begun: Option<Instant>,
    /// How many were sent after it, and how late the last of them.
    after: (usize, Duration),
}

impl Pause {
    /// A node that is in that config before anything begins.
    pub(super) fn knows(&mut self, name: &str, config: &str) {
        self.desired.insert(name.to_owned(), config.to_owned());
    }

    pub(super) fn see(&mut self, (name, facts): &NodeNews) {
        let Some(facts) = facts else { return };
        let old = self.desired.insert(name.clone(), facts.desired.clone());
        if old.is_none_or(|old| old == facts.desired) {
            return;
        }
        self.sent += 1;
        if let Some(begun) = self.begun {
            self.after = (self.after.0 + 1, begun.elapsed());
        }
    }

    /// How many were sent, before and after the pause.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// The API server has the pause.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// How many nodes were sent after the pause, and how many milliseconds after it the last of them.
    pub(super) fn late(&self) -> (usize, f64) {
        (self.after.0, self.after.1.as_secs_f64() * 1000.0)
    }
}
