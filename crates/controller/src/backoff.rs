//! Waits between failed tries: doubling, capped, with jitter so that many waiters do not come back at once.
//!
//! What it is not: a rate limit. Nothing that succeeds ever waits here.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// First and last wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

/// For work that failed. The cap is what someone waits at most after an outage or a mistake is over.
pub(crate) const WORK: Limits = Limits { first: Duration::from_millis(100), last: Duration::from_secs(20) };

/// For work that was decided on an old version of an object: the watch brings the new one within milliseconds.
pub(crate) const CONFLICT: Limits =
    Limits { first: Duration::from_millis(5), last: Duration::from_millis(500) };

/// For watches. An API server that comes back is seen within the cap.
pub(crate) const WATCH: Limits = Limits { first: Duration::from_millis(100), last: Duration::from_secs(3) };

impl Limits {
    /// The wait before try number `attempt` (0 is the first repetition): between half of the doubled wait and all
    /// of it.
    pub(crate) fn delay(self, attempt: u32) -> Duration {
        let full = self.first.saturating_mul(1_u32 << attempt.min(20)).min(self.last);
        let half = full / 2;
        half + half.mul_f64(random_fraction())
    }
}

/// A number in `0.0..1.0` from the hasher's random keys: jitter needs no better source.
fn random_fraction() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    let fraction = bits as f64 / (1_u64 << 53) as f64;
    fraction
}

/// The same as an endless series, for the watch streams.
#[derive(Debug)]
pub(crate) struct Series {
    limits: Limits,
    attempt: u32,
}

impl Series {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, attempt: 0 }
    }
}

impl Iterator for Series {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.limits.delay(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        Some(delay)
    }
}

impl kube::runtime::utils::Backoff for Series {
    fn reset(&mut self) {
        self.attempt = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap_and_never_pass_it() {
        let limits = Limits { first: Duration::from_millis(100), last: Duration::from_secs(1) };
        for (attempt, full_ms) in [(0, 100), (1, 200), (3, 800), (4, 1000), (40, 1000)] {
            let delay = limits.delay(attempt).as_millis();
            assert!((full_ms / 2..=full_ms).contains(&delay), "attempt {attempt}: {delay} ms");
        }
    }
}
