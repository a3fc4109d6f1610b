//! How long to wait between two looks at something that does not tell when it changes.
//!
//! Not here: the looks, and their time limits.

use std::time::Duration;

/// The shortest pause: what happens at once is seen at once.
const SHORTEST: Duration = Duration::from_millis(50);
/// The longest one: a state that lasts for this long, and for as long as a look takes, is still seen.
const LONGEST: Duration = Duration::from_millis(250);
/// The part of the time so far that a pause may add to it.
const PART: u32 = 8;

/// The pause before the next look, after waiting for this long. It grows with the wait, because a look costs the API server and the
/// waiting test more than all else that they do meanwhile.
#[must_use]
pub fn pause_after(waited: Duration) -> Duration {
    (waited / PART).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_the_wait_up_to_the_longest() {
        let millis = |waited| pause_after(Duration::from_millis(waited)).as_millis();
        assert_eq!([0, 400, 800, 2000, 60_000].map(millis), [50, 50, 100, 250, 250]);
    }
}
