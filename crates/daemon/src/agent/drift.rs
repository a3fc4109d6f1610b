//! When the agent compares the disk of a node that has nothing else to do with its config: after an event on a managed path,
//! or periodically. There is no watch while the agent changes the disk itself.
//!
//! Not here: the comparison and the repair (`node::drift_check`), nor the job that runs them (`update`).

use super::{Agent, Next};
use crate::node::drift_watch::Watching;
use crate::protocol::clock::Moment;
use crate::protocol::{AgentNote, Job, Phase};
use api::events::AgentEvent;
use std::time::Instant;

impl Agent {
    /// Nothing to do. A disk that is not watched is compared again after a while.
    pub(super) fn idle(&mut self) -> Next {
        let watched = matches!(self.watching, Watching::Watched(_));
        let Some(period) = self.settings.drift_period.filter(|_| !watched) else { return Next::Wait(None) };
        let left = period.saturating_sub(self.checked_at.elapsed());
        if left.is_zero() {
            // Reset the time even if no comparison follows: a host in the empty config has nothing to be compared
            // with, and an agent whose comparison stays overdue would loop forever.
            self.checked_at = Instant::now();
            self.view.checked = false;
            return Next::Step;
        }
        Next::Wait(jiff::SignedDuration::try_from(left).ok().map(|left| Moment::now() + left))
    }

    /// Handles an event on a managed path: compares now, or as soon as the limit allows.
    pub(super) fn touched(&mut self) {
        self.compare_due = self.compare_limit.take(Instant::now()).err();
        if let Some(due) = self.compare_due {
            let seconds = due.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(
                again_in = seconds,
                "managed paths keep changing, so the disk is compared with its config less often"
            );
            return;
        }
        self.watching.discard_events();
        self.compare_again();
    }

    /// Discards the result of the last comparison, so that the disk is compared again.
    pub(super) fn compare_again(&mut self) {
        self.view.checked = false;
        if let Phase::Failed(failure) = &mut self.view.phase
            && matches!(failure.job, Job::Check { .. } | Job::Update(_))
        {
            failure.retry_at = Moment::now();
        }
    }

    /// Starts to watch the disk of a node that is done. The disk is compared again afterwards, because changes before
    /// the watch were not seen.
    pub(super) async fn watch_disk(&mut self) -> bool {
        if !self.settings.watch_disk || !matches!(self.watching, Watching::Off) {
            return false;
        }
        self.watching = match self.host(|m| Ok(Watching::begin(m))).await {
            Ok(drift) => drift,
            Err(error) => {
                tracing::warn!(%error, "the disk cannot be watched; it is compared with its config at intervals instead");
                Watching::Polled
            }
        };
        let Watching::Watched(guard) = &self.watching else { return false };
        let text = format!("Config Drift Monitor started, watching against {}", guard.config);
        self.report_events(&[AgentNote::new(AgentEvent::ConfigDriftMonitorStarted, text)]);
        self.view.checked = false;
        true
    }

    /// Stops watching before the agent changes the disk itself: that is not drift.
    pub(super) async fn stop_watching(&mut self) {
        self.compare_due = None;
        if let Watching::Watched(guard) = std::mem::replace(&mut self.watching, Watching::Off) {
            let text = format!("Config Drift Monitor stopped, was watching against {}", guard.config);
            drop(guard);
            self.report_events(&[AgentNote::new(AgentEvent::ConfigDriftMonitorStopped, text)]);
        }
    }
}
