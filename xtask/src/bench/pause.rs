//! How soon a pause stops further nodes during a rollout, as a watch of the Nodes sees it. The watch adds its own
//! delay, so the figure is an upper bound.
//!
//! Not here: how long those nodes take whose update had already begun.

use lab::NodeNews;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Counts the nodes whose update was started, and how late after the pause the last one was.
#[derive(Default)]
pub(super) struct Pause {
    /// The desired config of each node.
    desired: HashMap<String, String>,
    sent: usize,
    begun: Option<Instant>,
    /// How many updates were started after the pause, and how late the last one was.
    after: (usize, Duration),
}

impl Pause {
    /// Records the config that a node has before the rollout begins.
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

    /// How many updates were started, before and after the pause together.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Call when the API server has accepted the pause.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// How many nodes were started after the pause, and how many milliseconds after it the last of them was.
    pub(super) fn late(&self) -> (usize, f64) {
        (self.after.0, self.after.1.as_secs_f64() * 1000.0)
    }
}
