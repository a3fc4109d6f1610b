//! The failures that a pass meets, and what it reports of them. Pure.
//!
//! What it is not: the steps (see `pass`), and the conditions (see `status`).

use super::{Step, Stop, Stopped};
use api::names::VERSION_RAW;
use std::ops::ControlFlow;

/// The failures that a pass has met.
#[derive(Debug, Default)]
pub(super) struct PassFailures {
    /// Failures that hold up no other step, as the pass has met them: the step and why. Steps come in their order, and what is known of
    /// watches after all of them.
    remembered: Vec<(Step, String)>,
    /// Where the pass stopped.
    stopped: Option<Stopped>,
}

impl PassFailures {
    /// Records a step that did not succeed. Returns whether the pass goes on.
    pub(super) fn record(&mut self, stopped: Stopped) -> ControlFlow<()> {
        match stopped {
            Stopped { step, stop: Stop::Failed(why) } if !step.is_needed() => {
                self.remember(step, why);
                ControlFlow::Continue(())
            }
            stopped => {
                self.stopped = Some(stopped);
                ControlFlow::Break(())
            }
        }
    }

    /// Records what is wrong although a step has done its work: no other step waits for it.
    pub(super) fn remember(&mut self, step: Step, why: String) {
        self.remembered.push((step, why));
    }

    /// Whether every step has succeeded. What says nothing of the installation is no failure of one.
    pub(super) fn is_empty(&self) -> bool {
        self.stopped.is_none() && self.remembered.iter().all(|(step, _)| !step.is_of_installation())
    }

    /// Adds at the end why changes are seen late, if they are.
    pub(super) fn with_watches(mut self, unwatched: Option<String>) -> Self {
        self.remembered.extend(unwatched.map(|why| {
            let why = format!(
                "{why}; `mco install` of {VERSION_RAW} with the same --image gives the operator a right that is missing; otherwise \
                 check the proxy or load balancer between the operator and the API server"
            );
            (Step::Watch, why)
        }));
        self
    }

    /// What the pass reports. While parts are rolled out, that is what it waits for; pools may take days. Of several failures
    /// the one that holds up other steps gives the reason, else the first one. What says nothing of the installation gives it only
    /// where nothing else has failed.
    pub(super) fn reported(mut self) -> Option<Stopped> {
        self.remembered.sort_by_key(|(step, _)| !step.is_of_installation());
        let first = match self.stopped {
            Some(Stopped { step, stop: Stop::Failed(why) }) => Some((step, why)),
            None | Some(Stopped { step: Step::RequiredPools, .. }) if !self.remembered.is_empty() => None,
            stopped => return stopped,
        };
        let mut all = first.into_iter().chain(self.remembered);
        let (step, mut why) = all.next()?;
        for (_, also) in all {
            why += &format!("; also: {also}");
        }
        Some(Stopped { step, stop: Stop::Failed(why) })
    }
}

/// Adds to what a pass reports why machines that join wait, if they do. It was looked at after the steps, and of a pass with
/// nothing but a watch that does not work, or a CA that ends soon, it gives the reason.
pub(super) fn with_joining(reported: Option<Stopped>, why: Option<String>) -> Option<Stopped> {
    let Some(why) = why else { return reported };
    let joining = Stopped { step: Step::Joining, stop: Stop::Failed(why) };
    let (before, after) = match reported {
        Some(beside) if !beside.step.is_of_installation() => (None, Some(beside)),
        steps => (steps, None),
    };
    let mut failures = PassFailures::default();
    for stopped in [before, Some(joining), after].into_iter().flatten() {
        // No step follows.
        let _ = failures.record(stopped);
    }
    failures.reported()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_that_hold_up_no_other_step_are_reported_at_the_end() {
        let failed = |step, why: &str| Stopped { step, stop: Stop::Failed(why.to_owned()) };
        let waiting = |step| Stopped { step, stop: Stop::Waiting("w".to_owned()) };
        let (config, data) = (Step::MachineConfiguration, Step::UserData);
        let rows = [
            (vec![], None, None),
            (vec![], Some(waiting(Step::RequiredPools)), Some(waiting(Step::RequiredPools))),
            (vec![config], None, Some(failed(config, "stale"))),
            (vec![data], Some(waiting(Step::RequiredPools)), Some(failed(data, "stale"))),
            (
                vec![config],
                Some(waiting(Step::MachineConfigDaemon)),
                Some(waiting(Step::MachineConfigDaemon)),
            ),
            (vec![config, data], None, Some(failed(config, "stale; also: stale"))),
            (vec![config], Some(failed(Step::Rights, "no")), Some(failed(Step::Rights, "no; also: stale"))),
        ];
        for (remembered, later, want) in rows {
            let mut failures = PassFailures::default();
            for step in &remembered {
                assert_eq!(failures.record(failed(*step, "stale")), ControlFlow::Continue(()));
            }
            if let Some(later) = later.clone() {
                assert_eq!(failures.record(later), ControlFlow::Break(()), "it holds up those after it");
            }
            assert_eq!(failures.reported(), want, "{remembered:?}, then {later:?}");
        }
    }

    #[test]
    fn a_watch_that_does_not_work_gives_the_reason_only_where_nothing_else_has_failed() {
        // Columns: what has failed; the step that is reported, with how many reasons.
        for (failed, step, reasons) in [
            (vec![], Step::Watch, 1),
            (vec![Step::UserData], Step::UserData, 2),
            (vec![Step::MachineConfiguration, Step::Rights], Step::Rights, 3),
        ] {
            let mut failures = PassFailures::default();
            for step in &failed {
                let _ = failures.record(Stopped { step: *step, stop: Stop::Failed("stale".to_owned()) });
            }
            assert_eq!(failures.is_empty(), failed.is_empty());
            let stopped = failures.with_watches(Some("the watch of x".to_owned())).reported();
            let Some(Stopped { step: reported, stop: Stop::Failed(why) }) = stopped else {
                panic!("{failed:?}: {stopped:?}")
            };
            assert_eq!((reported, why.split("; also: ").count()), (step, reasons), "{why}");
            assert!(why.split("; also: ").last().unwrap().starts_with("the watch of x"), "{why}");
        }
        assert_eq!(PassFailures::default().with_watches(None).reported(), None);
    }

    #[test]
    fn machines_that_wait_are_reported_beside_whatever_else_has_failed() {
        let failed = |step, why: &str| Some(Stopped { step, stop: Stop::Failed(why.to_owned()) });
        let waiting = |step| Some(Stopped { step, stop: Stop::Waiting("w".to_owned()) });
        // Columns: what the steps report; what the pass reports where machines wait, too.
        for (steps, want) in [
            (None, failed(Step::Joining, "j")),
            (waiting(Step::RequiredPools), failed(Step::Joining, "j")),
            (failed(Step::Watch, "w"), failed(Step::Joining, "j; also: w")),
            (failed(Step::CaLifetime, "c"), failed(Step::Joining, "j; also: c")),
            (failed(Step::UserData, "u"), failed(Step::UserData, "u; also: j")),
            (failed(Step::Settings, "s"), failed(Step::Settings, "s; also: j")),
            // It is said when the parts run.
            (waiting(Step::MachineConfigServer), waiting(Step::MachineConfigServer)),
        ] {
            assert_eq!(with_joining(steps.clone(), Some("j".to_owned())), want);
            assert_eq!(with_joining(steps.clone(), None), steps);
        }
    }

    #[test]
    fn what_a_step_says_although_it_has_done_its_work_is_reported_at_the_end() {
        let waiting = |step| Stopped { step, stop: Stop::Waiting("w".to_owned()) };
        let failed = |step, why: &str| Stopped { step, stop: Stop::Failed(why.to_owned()) };
        let ends = failed(Step::CaLifetime, "the CA ends; also: the watch");
        // Columns: what stops the pass later, or fails; what is reported.
        for (later, want) in [
            (None, ends.clone()),
            (Some(waiting(Step::RequiredPools)), ends),
            (Some(waiting(Step::MachineConfigServer)), waiting(Step::MachineConfigServer)),
            (
                Some(failed(Step::UserData, "no")),
                failed(Step::UserData, "no; also: the CA ends; also: the watch"),
            ),
            (
                Some(failed(Step::Rights, "no")),
                failed(Step::Rights, "no; also: the CA ends; also: the watch"),
            ),
        ] {
            let mut failures = PassFailures::default();
            failures.remember(Step::CaLifetime, "the CA ends".to_owned());
            assert!(failures.is_empty(), "every step has succeeded");
            let is_done = later.is_none();
            if let Some(later) = later {
                let _ = failures.record(later);
            }
            assert_eq!(failures.is_empty(), is_done);
            failures.remember(Step::Watch, "the watch".to_owned());
            assert_eq!(failures.reported(), Some(want));
        }
    }
}
