//! The clock for measuring waits. It is monotonic.
//!
//! It is not the time of day, which NTP, an administrator or a machine without a battery-backed clock can set back by
//! hours: "try again at 12:00:05" would then be hours away. What people read (events, conditions, metrics) uses the
//! time of day.

use jiff::SignedDuration;
use std::ops::{Add, AddAssign};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// When this process first read the clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A point in time of this process: the time since its start, by the kernel's monotonic clock. It has no meaning in
/// another process or after a reboot, so it is never stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(SignedDuration);

impl Moment {
    /// The start of the process.
    pub const START: Self = Self(SignedDuration::ZERO);

    /// Now.
    pub(crate) fn now() -> Self {
        Self(SignedDuration::try_from(START.elapsed()).unwrap_or(SignedDuration::MAX))
    }

    /// How long from `now` until this moment; zero if it is past.
    pub(crate) fn left(self, now: Self) -> Duration {
        Duration::try_from(self.0.saturating_sub(now.0)).unwrap_or_default()
    }
}

/// How long until this moment; zero if it is past.
pub(crate) fn until(then: Moment) -> Duration {
    then.left(Moment::now())
}

impl Add<SignedDuration> for Moment {
    type Output = Self;

    fn add(self, wait: SignedDuration) -> Self {
        Self(self.0.saturating_add(wait))
    }
}

impl AddAssign<SignedDuration> for Moment {
    fn add_assign(&mut self, wait: SignedDuration) {
        *self = *self + wait;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_a_past_moment_is_zero() {
        let then = Moment::now() + SignedDuration::from_secs(5);
        assert!(then.left(Moment::now()) > Duration::from_secs(4));
        assert_eq!(Moment::now().left(then), Duration::ZERO, "a past moment needs no wait");
        assert!(Moment::START + SignedDuration::from_secs(-3) < Moment::START);
    }
}
