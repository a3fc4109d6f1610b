//! How much longer a rollout takes, estimated from when nodes of this same rollout finished.
//!
//! What it is not: a promise, or a guess from other rollouts. If too little is known, the answer says so.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::fmt;

/// If the present pause is this many times the longest one so far, something has changed and nothing is estimated.
const STALLED: i32 = 3;
/// A shorter pause never counts as a stall, however fast the earlier nodes were.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// A node of the pool that is in the pool's config, as its MachineConfigNode says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finished(pub Timestamp);

/// The progress of a pool's rollout.
#[derive(Clone, Debug, Default)]
pub struct RolloutProgress {
    /// When the rollout began: the pool's `Updating` became `True`.
    pub began: Option<Timestamp>,
    /// When nodes finished, in any order; may include times before the rollout began.
    pub finished: Vec<Finished>,
    /// How many nodes are not done.
    pub left: usize,
    /// How many of these make no progress by themselves: they fail, or are out of service.
    pub stuck: usize,
    /// Whether no further node is sent now.
    pub held: bool,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "estimate")]
pub enum Estimate {
    /// No node is left.
    #[default]
    Done,
    /// It cannot be estimated.
    Unknown {
        /// Why.
        because: String,
    },
    /// If the pace stays the same.
    #[serde(rename_all = "camelCase")]
    About {
        /// Seconds from now.
        seconds: i64,
        /// How many finished nodes the estimate is based on.
        from_nodes: usize,
    },
}

/// Estimates at the pace of the nodes that finished in this rollout.
pub fn estimate(pace: &RolloutProgress, now: Timestamp) -> Estimate {
    let unknown = |because: &str| Estimate::Unknown { because: because.to_owned() };
    if pace.left == 0 {
        return Estimate::Done;
    }
    if pace.held {
        return unknown("the pool is held");
    }
    let Some(began) = pace.began else { return unknown("the rollout has not begun") };
    // Clocks of nodes differ. A node that finished in the future counts as finished now.
    let mut done: Vec<Timestamp> =
        pace.finished.iter().map(|f| f.0.min(now)).filter(|at| *at >= began).collect();
    done.sort_unstable();
    let Some(last) = done.last().copied() else { return unknown("no node is done in this rollout yet") };
    if pace.stuck >= pace.left {
        return unknown("the remaining nodes do not continue by themselves");
    }
    let starts = std::iter::once(&began).chain(&done);
    let longest = starts.zip(&done).map(|(a, b)| b.duration_since(*a)).max().unwrap_or_default();
    let pause = now.duration_since(last);
    if pause > longest.saturating_mul(STALLED).max(PATIENCE) {
        let because = format!(
            "no node has finished for {} s, much longer than between any two nodes before",
            pause.as_secs()
        );
        return Estimate::Unknown { because };
    }
    let nodes = i64::try_from(done.len()).unwrap_or(i64::MAX).max(1);
    let left = i64::try_from(pace.left).unwrap_or(i64::MAX);
    let spent = last.duration_since(began).as_secs().max(1);
    // The time since the last node finished already counts for the nodes under way.
    let seconds = spent.saturating_mul(left) / nodes - pause.as_secs();
    Estimate::About { seconds: seconds.max(1), from_nodes: done.len() }
}

impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Unknown { because } => write!(f, "unknown: {because}"),
            Self::About { seconds, from_nodes } => {
                let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                f.write_str("about ")?;
                match (hours, minutes) {
                    (0, 0) => write!(f, "{seconds} s")?,
                    (0, minutes) => write!(f, "{minutes} min {seconds} s")?,
                    (hours, minutes) => write!(f, "{hours} h {minutes} min")?,
                }
                write!(f, ", at the pace of the {from_nodes} done so far")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(second)
    }

    #[test]
    fn an_estimate_follows_the_pace_of_this_rollout_or_is_absent() {
        let pace = |finished: &[i64], left, stuck, held| RolloutProgress {
            began: Some(at(1_000)),
            finished: finished.iter().map(|s| Finished(at(*s))).collect(),
            left,
            stuck,
            held,
        };
        let rows = [
            (pace(&[1_100], 0, 0, false), 1_200, "done"),
            (pace(&[], 5, 0, false), 1_200, "unknown: no node is done in this rollout yet"),
            // Finished before the rollout began, so in an earlier one.
            (pace(&[900, 950], 5, 0, false), 1_200, "unknown: no node is done in this rollout yet"),
            (pace(&[1_100, 1_200], 4, 0, false), 1_200, "about 6 min 40 s, at the pace of the 2 done so far"),
            (
                pace(&[1_200, 1_100, 900], 4, 0, false),
                1_250,
                "about 5 min 50 s, at the pace of the 2 done so far",
            ),
            (
                pace(&[1_100, 1_200], 80, 0, false),
                1_200,
                "about 2 h 13 min, at the pace of the 2 done so far",
            ),
            // A clock that is ahead.
            (pace(&[1_160], 1, 0, false), 1_100, "about 1 min 40 s, at the pace of the 1 done so far"),
            (
                pace(&[1_100], 4, 4, false),
                1_150,
                "unknown: the remaining nodes do not continue by themselves",
            ),
            (pace(&[1_100], 4, 1, true), 1_150, "unknown: the pool is held"),
            (
                pace(&[1_100], 4, 1, false),
                1_600,
                "unknown: no node has finished for 500 s, much longer than between any two nodes before",
            ),
            (
                RolloutProgress { left: 1, ..RolloutProgress::default() },
                1_600,
                "unknown: the rollout has not begun",
            ),
        ];
        for (pace, now, want) in rows {
            assert_eq!(estimate(&pace, at(now)).to_string(), want, "{pace:?}");
        }
    }
}
