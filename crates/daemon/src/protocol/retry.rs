//! How long to wait before something that failed is tried again. Pure.
//!
//! What it is not: what is tried again (see `step`).

use jiff::SignedDuration;

/// The wait after the first failure.
const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(1);
/// The longest wait between two tries: a host that was repaired manually is back within a minute.
const LONGEST_RETRY: SignedDuration = SignedDuration::from_secs(60);

/// The wait after the first failure of a try that restarts services.
const FIRST_DISTURBING_RETRY: SignedDuration = SignedDuration::from_secs(5);
/// The longest wait between two such tries: a service is restarted at most four times an hour for a config with which
/// it does not start.
const LONGEST_DISTURBING_RETRY: SignedDuration = SignedDuration::from_mins(15);

/// How long to wait after the nth failure (n from 1). `jitter` is a random number from 0 to 1. Half of the wait is
/// random, so that nodes that failed together do not retry together.
pub fn backoff(tries: u32, jitter: f64) -> SignedDuration {
    let doubled = FIRST_RETRY.as_secs().saturating_mul(1 << tries.saturating_sub(1).min(16));
    let most = SignedDuration::from_secs(doubled).min(LONGEST_RETRY);
    most.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
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
    let doubled = FIRST_DISTURBING_RETRY.as_secs().saturating_mul(1 << (2 * tries.saturating_sub(1).min(8)));
    let most = SignedDuration::from_secs(doubled).min(LONGEST_DISTURBING_RETRY);
    most.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}
