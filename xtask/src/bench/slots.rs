//! How soon a slot that a node frees is used by the next node, as a watch of the Nodes sees it.
//!
//! Only useful if there are fewer slots than nodes. Not here: whether `maxUnavailable` is respected.

use lab::NodeNews;
use std::collections::HashMap;
use std::time::Instant;

/// Slots freed and used.
#[derive(Default)]
pub(super) struct Slots {
    /// The desired config of each node, and whether it was out of service.
    seen: HashMap<String, (String, bool)>,
    /// The times at which slots became free that are not used yet, oldest first.
    free: Vec<Instant>,
    /// Milliseconds from the moment a slot is free until it is used.
    waits: Vec<f64>,
}

impl Slots {
    pub(super) fn see(&mut self, (name, facts): &NodeNews) {
        let Some(facts) = facts else { return };
        let out = facts.current != facts.desired || facts.state != "Done" || facts.unschedulable;
        let old = self.seen.insert(name.clone(), (facts.desired.clone(), out));
        let Some((desired, was_out)) = old else { return };
        let now = Instant::now();
        if was_out && !out {
            self.free.push(now);
        } else if desired != facts.desired && !self.free.is_empty() {
            let since = self.free.remove(0);
            self.waits.push(now.duration_since(since).as_secs_f64() * 1000.0);
        }
    }

    /// Median, 99th percentile and maximum; empty without samples.
    pub(super) fn latencies(&self) -> Vec<(&'static str, f64)> {
        let mut all = self.waits.clone();
        all.sort_by(f64::total_cmp);
        let at = |percent: usize| all.get((all.len().saturating_sub(1)) * percent / 100).copied();
        [
            ("freed slot used: p50", at(50)),
            ("freed slot used: p99", at(99)),
            ("freed slot used: max", at(100)),
        ]
        .into_iter()
        .filter_map(|(what, value)| Some((what, value?)))
        .collect()
    }
}
