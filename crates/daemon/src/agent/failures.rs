//! Turns a failure of the agent into the reason that is reported and the time of the next try.
//!
//! Not here: the back-off times (`protocol::backoff` and its siblings), nor when a failure is written to the Node.

use super::{Agent, Next};
use crate::protocol::clock::Moment;
use crate::protocol::{
    AgentNote, Failure, FailureKind, Job, NodeFacts, Phase, backoff, disturbing_backoff, outage_backoff,
};
use api::events::AgentEvent;
use client::{CallError, jitter};

/// The divisor of the wait after a conflict: the write is decided again after a few hundredths of a second.
const CONFLICTS_ARE_OVER_SOONER: i32 = 16;

impl Agent {
    /// Handles a write to the Node that failed. After a conflict the Node is read: the watch may not show it for minutes.
    pub(super) async fn write_failed(&mut self, error: &CallError) -> Next {
        if error.is_conflict() {
            match self.cluster.own_node().await {
                Ok(node) => self.take_node(NodeFacts::of(&node)),
                Err(error) => return self.wait_after_error(&error),
            }
        }
        self.wait_after_error(error)
    }

    /// Handles a failed call to the API server: nothing is lost, and the agent looks again after a while.
    pub(super) fn wait_after_error(&mut self, error: &CallError) -> Next {
        self.failed_calls = self.failed_calls.saturating_add(1);
        // A conflict is an answer, so the API server is not silent.
        let since = self.view.silent_since.unwrap_or_else(Moment::now);
        self.view.silent_since = (!error.is_conflict()).then_some(since);
        let wait = outage_backoff(self.failed_calls, jitter());
        // Somebody else wrote first, and the watch is about to deliver that change.
        let wait = if error.is_conflict() { wait / CONFLICTS_ARE_OVER_SOONER } else { wait };
        tracing::warn!(error = error.chain(), again_in = %wait, "a request to the API server failed; trying again");
        Next::Wait(Some(Moment::now() + wait))
    }

    /// Records a failure. The next step writes it to the Node and waits.
    pub(super) async fn failed(
        &mut self,
        job: Job,
        kind: FailureKind,
        event: Option<AgentEvent>,
        reason: String,
    ) -> Next {
        self.failed_after(false, job, kind, event, reason)
    }

    /// As [`Self::failed`]. `disturbing`: the try itself disturbed the node's services.
    pub(super) fn failed_after(
        &mut self,
        disturbing: bool,
        job: Job,
        kind: FailureKind,
        event: Option<AgentEvent>,
        reason: String,
    ) -> Next {
        let before = match (&self.view.phase, &job, &self.failed_update) {
            (Phase::Failed(f), _, _) if f.job == job => f.tries,
            // The same update was planned again in between.
            (_, Job::Update(pair), Some((lost, tries))) if pair == lost => *tries,
            _ => 0,
        };
        let tries = before.saturating_add(1);
        if let Job::Update(pair) = &job {
            self.failed_update = Some((pair.clone(), tries));
        }
        let now = Moment::now();
        let wait = match kind {
            FailureKind::Transient => outage_backoff,
            _ if disturbing => disturbing_backoff,
            _ => backoff,
        };
        let again_in = wait(tries, jitter());
        let retry_at = now + again_in;
        tracing::warn!(?job, %reason, %again_in, "failed");
        if before == 0
            && let Some(kind) = event
        {
            self.report_events(&[AgentNote::new(kind, reason.clone())]);
        }
        self.work = None;
        self.view.phase = Phase::Failed(Failure { job, kind, reason, tries, retry_at });
        Next::Step
    }

    pub(super) async fn call_failed(&mut self, job: Job, error: &CallError) -> Next {
        // A config that does not exist, or may not be read, is a fault that people must see. An API server that is not
        // available is no fault of this node.
        let lasts = error.is_client_error() || error.is_malformed();
        let kind = if lasts { FailureKind::Degraded } else { FailureKind::Transient };
        self.failed(job, kind, None, error.chain()).await
    }
}
