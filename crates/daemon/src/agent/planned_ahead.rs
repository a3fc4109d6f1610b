//! An update that was planned before its turn: to fetch what it needs, or to tell what it will cost a node that joins. Its two
//! configs stay parsed for a moment, for the case that the update follows at once.
//!
//! Not here: the plan of the update itself, which is made anew (see `Machine::prepare_again`).

use crate::node::machine::PlannedUpdate;
use crate::protocol::ConfigPair;
use std::time::{Duration, Instant};

/// How long the configs stay parsed. An update that waits for its turn or its window comes later than that, and until then
/// the memory of an agent at rest counts for more than the time to parse them.
const STAYS_PARSED: Duration = Duration::from_secs(60);

/// An update that was planned before its turn.
#[derive(Debug)]
pub(super) struct PlannedAhead {
    pair: ConfigPair,
    work: PlannedUpdate,
    /// When it is dropped.
    pub(super) until: Instant,
}

impl PlannedAhead {
    pub(super) fn new(pair: ConfigPair, work: PlannedUpdate) -> Self {
        Self { pair, work, until: Instant::now() + STAYS_PARSED }
    }

    /// What was planned, if it was for this pair of configs.
    pub(super) fn for_pair(self, pair: &ConfigPair) -> Option<PlannedUpdate> {
        (self.pair == *pair).then_some(self.work)
    }
}
