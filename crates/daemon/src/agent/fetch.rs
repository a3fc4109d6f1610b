//! The fetch of what an update needs, while the node is in service: for the update that is next, or ahead of it because the
//! pool wants that. A pull may take hours, or hang: it ends when the agent stops or another config is desired, and people see
//! how far it is.
//!
//! Not here: what is fetched, and how it is ended and resumed (see `host`).

use super::planned_ahead::PlannedAhead;
use super::update::PlanError;
use super::{Agent, Next};
use crate::cluster::milestones::Milestone;
use crate::node::machine::{Machine, MachineError, PlannedUpdate};
use crate::protocol::clock::Moment;
use crate::protocol::{Changes, ConfigPair, Job, NodeFacts, Phase, cut_reason, disturbing_backoff};
use api::images::prefetch::{Answer, Request};
use api::names::own;
use client::jitter;
use host::Pull;
use std::time::Duration;

/// How often progress is reported. Each report that differs is a write to the API server.
const REPORT: Duration = Duration::from_secs(10);

/// How a fetch ended.
pub(super) enum Fetched {
    /// What the update needs is on the host.
    Done(Box<PlannedUpdate>),
    /// The agent stops, or another config is desired. What was fetched stays on the host. `None`: the host's work ended
    /// abnormally.
    Ended(Option<Box<PlannedUpdate>>),
    /// It cannot be fetched. Whether people have been told of it as of a pull.
    Failed(MachineError, bool),
}

impl Agent {
    /// Fetches what the update needs.
    pub(super) async fn fetch(&mut self, pair: ConfigPair) -> Next {
        let Some(work) = self.work.take() else {
            self.view.phase = Phase::Idle;
            return Next::Step;
        };
        tracing::info!(to = %pair.to, "fetching what the update needs");
        match self.pull(work, |node| node.desired_state() == pair.to).await {
            Fetched::Done(work) => {
                self.work = Some(*work);
                if let Phase::Prepared { to_fetch, .. } = &mut self.view.phase {
                    *to_fetch = false;
                }
                Next::Step
            }
            // The next step plans anew, for another config.
            Fetched::Ended(_) => {
                self.view.phase = Phase::Idle;
                Next::Step
            }
            Fetched::Failed(e, told) => {
                if told {
                    self.reporter.report(&self.view, &Milestone::NotPulled(e.text.clone()));
                }
                self.settings.metrics.pivot(false);
                self.failed(Job::Update(pair), e.kind, e.event, e.text).await
            }
        }
    }

    /// Fetches what the next update will need, as the controller asks, and answers. The update is planned for it as if it were
    /// made now, so an answer also says what would be in its way.
    pub(super) async fn prefetch(&mut self, pair: ConfigPair) -> Next {
        let before = self.view.node.clone();
        let Some(request) = Request::parse(&before.prefetch) else { return Next::Step };
        tracing::info!(to = %pair.to, attempt = request.attempt, "fetching what the next update needs");
        let failed = match self.plan(&pair).await {
            Ok((_, work)) if !work.needs_fetch() => {
                self.planned_ahead = Some(PlannedAhead::new(pair.clone(), work));
                None
            }
            Ok((_, work)) => {
                let wanted = |node: &NodeFacts| {
                    let same = (&node.prefetch, &node.leave) == (&before.prefetch, &before.leave);
                    same && node.desired_state() == before.desired_state() && !node.deleted
                };
                match self.pull(work, wanted).await {
                    Fetched::Done(work) => {
                        self.planned_ahead = Some(PlannedAhead::new(pair.clone(), *work));
                        None
                    }
                    Fetched::Ended(work) => {
                        // The update itself may be next.
                        self.planned_ahead = work.map(|work| PlannedAhead::new(pair, *work));
                        return Next::Step;
                    }
                    Fetched::Failed(e, _) => {
                        self.settings.metrics.pivot(false);
                        Some(e.text)
                    }
                }
            }
            Err(PlanError::Machine(e)) => Some(e.text),
            Err(PlanError::Call(e)) if e.is_client_error() || e.is_malformed() => Some(e.chain()),
            Err(PlanError::Call(e)) => return self.wait_after_error(&e),
        };
        let failed = failed.map(|why| cut_reason(&why));
        if let Some(why) = &failed {
            tracing::warn!(to = %pair.to, %why, "the next OS image cannot be fetched");
            self.reporter.report(&self.view, &Milestone::NotPulled(why.clone()));
            let until = Moment::now() + disturbing_backoff(request.attempt, jitter());
            self.view.prefetch_failed = Some((pair.to, until));
        } else {
            self.view.prefetch_failed = None;
            // What was said of a try that failed is over.
            if request.attempt > 1 {
                self.settings.metrics.pivot(true);
                self.reporter.report(&self.view, &Milestone::Pulled);
            }
        }
        let answer = Answer { request, failed: failed.as_deref() };
        self.write(Changes::from([(own::PREFETCHED, answer.to_string())]), vec![], None, false).await
    }

    /// Removes the OS images that nothing needs any more, after an update. It is no part of the update: if it fails, it is
    /// tried after the next one.
    pub(super) async fn tidy(&self) {
        match self.host(Machine::tidy_os).await {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => {
                tracing::info!(images = %gone.join(", "), "removed OS images that nothing needs any more");
            }
            Err(error) => tracing::warn!(%error, "OS images that nothing needs any more stay on the host"),
        }
    }

    /// Fetches until it is done, or no longer `wanted` on the Node.
    pub(super) async fn pull(&mut self, work: PlannedUpdate, wanted: impl Fn(&NodeFacts) -> bool) -> Fetched {
        let pull = Pull::for_cluster(self.cluster.version().await);
        let theirs = pull.clone();
        let mut fetching = Box::pin(self.begin(move |m| {
            let fetched = m.fetch(&work, &theirs);
            Ok((work, fetched))
        }));
        let mut told = String::new();
        let mut reports = tokio::time::interval(REPORT);
        let mut ended = None;
        let shutdown = self.shutdown.clone();
        let done = loop {
            tokio::select! {
                done = &mut fetching => break done,
                () = shutdown.cancelled(), if ended.is_none() => {
                    ended = Some("the agent stops");
                    pull.cancel();
                }
                changed = self.own_node.changed(), if ended.is_none() => {
                    // A watch that has ended shows no other wish; the agent is stopping then.
                    if !changed {
                        shutdown.cancelled().await;
                        continue;
                    }
                    self.refresh_node().await;
                    if !wanted(&self.view.node) {
                        ended = Some("another config is desired");
                        pull.cancel();
                    }
                }
                _ = reports.tick() => {
                    let text = pull.progress().map(|p| p.to_string()).unwrap_or_default();
                    if !text.is_empty() && text != told {
                        tracing::info!(progress = %text, "pulling the OS image");
                        self.reporter.report(&self.view, &Milestone::Pulling(text.clone()));
                        told = text;
                    }
                }
            }
        };
        match (done, ended) {
            (done, Some(why)) => {
                tracing::info!(why, "the fetch was stopped");
                Fetched::Ended(done.ok().map(|(work, _)| Box::new(work)))
            }
            (Ok((work, Ok(()))), None) => {
                if !told.is_empty() {
                    self.reporter.report(&self.view, &Milestone::Pulled);
                }
                Fetched::Done(Box::new(work))
            }
            (Ok((_, Err(e))) | Err(e), None) => Fetched::Failed(e, !told.is_empty()),
        }
    }
}
