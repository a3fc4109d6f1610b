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
    /// watches after all of them, so that it gives the reason only where nothing else has failed.
    remembered: Vec<(Step, String)>,
    /// Where the pass stopped.
    stopped: Option<Stopped>,
}

impl PassFailures {
    /// Records a step that did not succeed. Returns whether the pass goes on.
    pub(super) fn record(&mut self, stopped: Stopped) -> ControlFlow<()> {
        match stopped {
            Stopped { step, stop: Stop::Failed(why) } if !step.is_needed() => {
                self.remembered.push((step, why));
                ControlFlow::Continue(())
            }
            stopped => {
                self.stopped = Some(stopped);
                ControlFlow::Break(())
            }
        }
    }

    /// Whether every step has succeeded.
    pub(super) fn is_empty(&self) -> bool {
        self.remembered.is_empty() && self.stopped.is_none()
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
    /// the one that holds up other steps gives the reason, else the first one.
    pub(super) fn reported(self) -> Option<Stopped> {
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
}
