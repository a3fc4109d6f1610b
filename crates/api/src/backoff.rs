//! How long to wait between failed attempts: doubling, capped, and with jitter, so that many waiters do not come back at once. Pure:
//! the random number is an argument.
//!
//! What it is not: a rate limit, or the waiting itself (see `client::Backoff`, which also has random numbers).

use std::time::Duration;

/// The longest wait before retry number `attempt` (0 is the first): `first` doubled for each attempt, and at most `last`.
pub fn longest(first: Duration, last: Duration, attempt: u32) -> Duration {
    first.saturating_mul(1_u32 << attempt.min(20)).min(last)
}

/// The wait: between half of the longest one and all of it. `jitter` is a number from 0 to 1.
pub fn wait(first: Duration, last: Duration, attempt: u32, jitter: f64) -> Duration {
    longest(first, last, attempt).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_last_one_and_jitter_shortens_them_by_half_at_most() {
        let (first, last) = (Duration::from_millis(100), Duration::from_secs(1));
        for (attempt, full) in [(0, 100), (1, 200), (3, 800), (4, 1000), (40, 1000), (u32::MAX, 1000)] {
            assert_eq!(longest(first, last, attempt).as_millis(), full, "{attempt}");
            for (jitter, part) in [(-1.0, 2), (0.0, 2), (1.0, 1), (7.0, 1)] {
                assert_eq!(wait(first, last, attempt, jitter).as_millis(), full / part, "{attempt} {jitter}");
            }
        }
        assert_eq!(wait(first, last, 0, 0.5).as_millis(), 75);
        assert_eq!(longest(Duration::from_secs(5), last, 0), last);
    }
}
