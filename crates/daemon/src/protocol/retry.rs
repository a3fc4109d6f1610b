//! How long to wait before something that failed is tried again. Pure.
//!
//! What it is not: what is tried again (see `step`).

use client::Backoff;
use jiff::SignedDuration;
use std::time::Duration;

/// The waits between two tries: a host that was repaired manually is back within a minute.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), last: Duration::from_secs(60) };
/// The waits between two tries that restart services: a service is restarted at most four times an hour for a config with which
/// it does not start.
const DISTURBING_RETRY: Backoff =
    Backoff { first: Duration::from_secs(5), last: Duration::from_secs(15 * 60) };

/// How long to wait after the nth failure (n from 1). `jitter` is a random number from 0 to 1. Half of the wait is
/// random, so that nodes that failed together do not retry together.
pub fn backoff(tries: u32, jitter: f64) -> SignedDuration {
    signed(RETRY.delay_with(tries.saturating_sub(1), jitter))
}

/// The same for an API server that does not answer: at most 8 s, so that a node continues soon after an outage,
/// however long the outage was.
pub fn outage_backoff(tries: u32, jitter: f64) -> SignedDuration {
    const DOUBLINGS: u32 = 4;
    backoff(tries.min(DOUBLINGS), jitter)
}

/// The same for a try that disturbs the node's services and is then rolled back: soon at first, because the failure
/// may have been temporary, then more and more rarely. After a change of the desired config or a restart of the agent
/// the next try is made at once.
pub fn disturbing_backoff(tries: u32, jitter: f64) -> SignedDuration {
    // Four times as long each time.
    signed(DISTURBING_RETRY.delay_with(2 * tries.saturating_sub(1).min(8), jitter))
}

/// A wait for calculations with moments.
pub(crate) fn signed(wait: Duration) -> SignedDuration {
    SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX)
}
