//! Decides which drift is repaired automatically, how often, and when the agent gives up.
//!
//! It holds the pool's rules, as the Node's annotations carry them, and a count of repairs for each path. The counts
//! last as long as the process, so restarting the agent is a way to say "try again".
//!
//! Not here: finding drift, and the repair itself (`machine`).

use crate::protocol::clock::Moment;
use crate::protocol::signed;
use api::drift::{DriftAction, DriftPolicy};
use client::Backoff;
use host::Drift;
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a path is repaired within [`WINDOW`]. If it changes once more, something keeps working against the
/// config.
pub(crate) const MOST: usize = 5;
/// The period over which repairs are counted: an older one does not count any more.
pub(crate) const WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// The pauses between two repairs of a path; the first repair is made at once. They are not varied at random, because each is
/// about a file of one host.
const PAUSES: Backoff = Backoff { first: Duration::from_secs(2), last: WINDOW.unsigned_abs() };

/// What to do about drift that the rules want repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Repair it now. The number of earlier repairs within the window.
    Now(usize),
    /// It was repaired a moment ago: wait until this time.
    Later(Moment),
    /// It was repaired too often: it is reported instead.
    GaveUp,
}

/// The counts of repairs.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    paths: BTreeMap<String, Vec<Moment>>,
    /// The paths that are no longer repaired, and whether that was reported.
    given_up: BTreeMap<String, bool>,
}

impl Repairs {
    /// What to do about a path that drifted.
    pub(crate) fn decide(&self, path: &str, now: Moment) -> Decision {
        let Some(times) = self.paths.get(path) else { return Decision::Now(0) };
        let Some(last) = times.last() else { return Decision::Now(0) };
        if times.len() >= MOST {
            return Decision::GaveUp;
        }
        let earlier = u32::try_from(times.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let pause = signed(PAUSES.longest(earlier));
        match *last + pause {
            then if then > now => Decision::Later(then),
            _ => Decision::Now(times.len()),
        }
    }

    /// Counts a repair of a path, once it has been made: one that failed says nothing about what changes the path. One that failed at
    /// a service counts, too: it restarts that service each time.
    pub(crate) fn count(&mut self, path: String, now: Moment) {
        self.paths.entry(path).or_default().push(now);
    }

    /// Marks a path as no longer repaired.
    pub(crate) fn give_up(&mut self, path: String) {
        self.given_up.entry(path).or_default();
    }

    /// The paths that were given up since the last call.
    pub(crate) fn newly_given_up(&mut self) -> Vec<String> {
        let new = self.given_up.iter_mut().filter(|(_, told)| !**told);
        new.map(|(path, told)| {
            *told = true;
            path.clone()
        })
        .collect()
    }

    /// Called after a comparison: forgets repairs that are older than the window. A path that was given up stays so as long as it
    /// drifts.
    pub(crate) fn forget_old(&mut self, drifted: &[Drift], now: Moment) {
        let given_up = &self.given_up;
        self.paths.retain(|path, times| {
            if !given_up.contains_key(path) || !drifted.iter().any(|d| d.path() == *path) {
                times.retain(|at| *at + WINDOW >= now);
            }
            !times.is_empty()
        });
        self.given_up.retain(|path, _| self.paths.contains_key(path));
    }
}

/// The drift rules, and what is wrong with them until that was reported.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    text: String,
    policy: DriftPolicy,
    complaint: Option<String>,
}

impl Rules {
    /// Sets the text of the Node's annotation. True if it has changed. A text that cannot be parsed is reported once
    /// and counts as no rules: drift is then reported and not repaired.
    pub(crate) fn set(&mut self, text: &str) -> bool {
        if self.text == text {
            return false;
        }
        text.clone_into(&mut self.text);
        (self.policy, self.complaint) = match DriftPolicy::parse(text) {
            Ok(policy) => (policy, None),
            Err(bad) => {
                let key = api::names::annotation::DRIFT;
                let why = format!(
                    "the annotation {key} has no effect: {bad}; correct it on the MachineConfigPool. Until then all drift is reported"
                );
                (DriftPolicy::default(), Some(why))
            }
        };
        true
    }

    /// What is wrong with the rules. Returned only once.
    pub(crate) fn take_rules_error(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// The rules' action for a drift.
    pub(crate) fn action(&self, drift: &Drift) -> DriftAction {
        self.policy.action(&drift.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Moment {
        Moment::START + SignedDuration::from_secs(second)
    }

    #[test]
    fn repairs_are_immediate_then_delayed_then_stopped() {
        let mut repairs = Repairs::default();
        let rows = [
            (0, Decision::Now(0)),
            (1, Decision::Later(at(2))),
            (2, Decision::Now(1)),
            (5, Decision::Later(at(6))),
        ];
        for (now, want) in rows {
            assert_eq!(repairs.decide("/etc/a", at(now)), want, "at {now}");
            if matches!(want, Decision::Now(_)) {
                repairs.count("/etc/a".to_owned(), at(now));
            }
        }
        for now in [6, 14, 30] {
            assert!(matches!(repairs.decide("/etc/a", at(now)), Decision::Now(_)), "at {now}");
            repairs.count("/etc/a".to_owned(), at(now));
        }
        assert_eq!(repairs.decide("/etc/b", at(30)), Decision::Now(0), "repairs are counted by path");
        repairs.give_up("/etc/a".to_owned());
        repairs.give_up("/etc/a".to_owned());
        assert_eq!((repairs.newly_given_up(), repairs.newly_given_up()), (vec!["/etc/a".to_owned()], vec![]));
        for now in [31, 600, 100_000] {
            assert_eq!(repairs.decide("/etc/a", at(now)), Decision::GaveUp, "at {now}");
        }
    }

    #[test]
    fn a_path_that_was_given_up_is_repaired_again_after_a_window_in_order() {
        let drift = [Drift::Missing { path: "/etc/a".to_owned() }];
        let mut repairs = Repairs::default();
        for now in 0..5 {
            repairs.count("/etc/a".to_owned(), at(now));
        }
        repairs.forget_old(&[], at(300));
        assert_eq!(repairs.decide("/etc/a", at(300)), Decision::GaveUp, "too soon");
        repairs.give_up("/etc/a".to_owned());
        repairs.forget_old(&drift, at(10_000));
        assert_eq!(repairs.decide("/etc/a", at(10_000)), Decision::GaveUp, "it still drifts");
        repairs.forget_old(&[], at(10_000));
        assert_eq!(repairs.decide("/etc/a", at(10_000)), Decision::Now(0));
    }

    /// Whoever changes a file once a day is no program that works against the config. Each comparison is made because it drifts.
    #[test]
    fn repairs_of_other_days_do_not_count() {
        let drift = [Drift::Missing { path: "/etc/a".to_owned() }];
        let mut repairs = Repairs::default();
        for day in 0..10 {
            let now = at(day * 86_400);
            repairs.forget_old(&drift, now);
            assert_eq!(repairs.decide("/etc/a", now), Decision::Now(0), "day {day}");
            repairs.count("/etc/a".to_owned(), now);
        }
    }

    #[test]
    fn invalid_rules_are_reported_once_and_ignored() {
        let drift = Drift::Missing { path: "/etc/a".to_owned() };
        let mut rules = Rules::default();
        assert!(rules.set("repair /etc/**") && !rules.set("repair /etc/**"));
        assert_eq!((rules.action(&drift), rules.take_rules_error()), (DriftAction::Repair, None));
        assert!(rules.set("repair /etc/**\nmend /x"));
        assert_eq!(rules.action(&drift), DriftAction::Report);
        let why = rules.take_rules_error().unwrap();
        assert!(why.contains("line 2: \"mend\"") && why.contains("MachineConfigPool"), "{why}");
        assert_eq!(rules.take_rules_error(), None);
    }
}
