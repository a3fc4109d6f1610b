//! Waits between failed attempts, with random numbers, and as a series for streams.
//!
//! What it is not: how long each wait is (see `api::backoff`), or a rate limit. Nothing that succeeds ever waits here.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// The first and the last wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the first retry.
    pub first: Duration,
    /// The longest wait of all, and so how late a recovery is noticed.
    pub last: Duration,
}

impl Backoff {
    /// The wait before retry number `attempt` (0 is the first): between half of the doubled wait and all of it.
    pub fn delay(self, attempt: u32) -> Duration {
        self.delay_with(attempt, jitter())
    }

    /// The same with a random number from 0 to 1 of the caller's, for decisions that are pure.
    pub fn delay_with(self, attempt: u32, jitter: f64) -> Duration {
        api::backoff::wait(self.first, self.last, attempt, jitter)
    }

    /// The longest wait before retry number `attempt`: the doubled one, without jitter. For waits that are no call, so that
    /// nobody is asked by many at once.
    pub fn longest(self, attempt: u32) -> Duration {
        api::backoff::longest(self.first, self.last, attempt)
    }

    /// The same waits as an endless series, for what is tried again after each failure for ever (see [`crate::watch`]).
    pub fn series(self) -> Series {
        Series { backoff: self, attempt: 0, ended: None }
    }
}

/// A time to wait before something that many do, and nobody needs at once: between three quarters of `longest` and all of it, so that
/// they do not come back at the same time.
pub fn spread(longest: Duration) -> Duration {
    longest.mul_f64(0.75 + jitter() / 4.0)
}

/// A number in `0.0..1.0`, different in each process and call; its source is the hasher's random keys. Good enough for
/// waits, but not for anything that must be unpredictable.
pub fn jitter() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 11;
    bits as f64 / (1_u64 << 53) as f64
}

/// The waits of a [`Backoff`], one after the other. They begin again with the first one after a time without failures that is twice
/// as long as the last wait.
///
/// Not with the first item that a stream has after a failure: the watcher of `kube` says that a list begins before it has asked for
/// it, and an API server that refuses lists would be asked again and again without a wait that grows.
#[derive(Debug)]
pub struct Series {
    backoff: Backoff,
    attempt: u32,
    /// When the wait ends that was given last.
    ended: Option<Instant>,
}

impl Iterator for Series {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let worked =
            self.ended.is_some_and(|ended| now.saturating_duration_since(ended) > self.backoff.last * 2);
        self.attempt = if worked { 0 } else { self.attempt };
        let delay = self.backoff.delay(self.attempt);
        self.attempt = self.attempt.saturating_add(1);
        self.ended = Some(now + delay);
        Some(delay)
    }
}

impl kube::runtime::utils::Backoff for Series {
    /// Nothing: time tells that the stream works.
    fn reset(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    use kube::runtime::utils::Backoff as _;

    #[tokio::test(start_paused = true)]
    async fn delays_double_up_to_the_maximum() {
        let backoff = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(1) };
        for (attempt, full_ms) in [(0, 100), (1, 200), (3, 800), (4, 1000), (40, 1000)] {
            let delay = backoff.delay(attempt).as_millis();
            assert!((full_ms / 2..=full_ms).contains(&delay), "attempt {attempt}: {delay} ms");
        }
        let mut series = backoff.series();
        assert!(series.by_ref().take(40).all(|wait| wait <= backoff.last));
        // An item says nothing, and a failure soon after the last wait is one more of them.
        series.reset();
        assert!(series.next().unwrap() >= backoff.last / 2);
        tokio::time::advance(backoff.last * 2).await;
        assert!(series.next().unwrap() >= backoff.last / 2);
        tokio::time::advance(backoff.last * 3 + Duration::from_millis(1)).await;
        assert!(series.next().unwrap() <= backoff.first);
    }

    #[test]
    fn the_delays_of_two_clients_differ() {
        let all: Vec<f64> = (0..20).map(|_| jitter()).collect();
        assert!(all.iter().all(|x| (0.0..1.0).contains(x)), "{all:?}");
        assert!(all.windows(2).any(|w| w.first() != w.last()), "{all:?}");
    }

    #[test]
    fn waits_of_many_are_spread_over_a_quarter() {
        let all: Vec<Duration> = (0..200).map(|_| spread(Duration::from_secs(4))).collect();
        let (first, last) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        assert!(*first >= Duration::from_secs(3) && *last <= Duration::from_secs(4), "{first:?} {last:?}");
        assert!(*last - *first > Duration::from_millis(500), "{first:?} {last:?}");
    }
}
