//! The fetch of what an update needs, while the node is in service. A pull may take hours, or hang: it ends when the agent
//! stops or another config is desired, and people see how far it is.
//!
//! Not here: what is fetched, and how it is ended and resumed (see `host`).

use super::{Agent, Next};
use crate::cluster::milestones::Milestone;
use crate::protocol::{Job, Pair, Phase};
use host::Pull;
use std::time::Duration;

/// How often progress is reported. Each report that differs is a write to the API server.
const REPORT: Duration = Duration::from_secs(10);

/// What ended a fetch before it was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    Shutdown,
    OtherConfig,
}

impl Agent {
    /// Fetches what the update needs.
    pub(super) async fn fetch(&mut self, pair: Pair) -> Next {
        let Some(work) = self.work.take() else {
            self.view.phase = Phase::Idle;
            return Next::Step;
        };
        tracing::info!(to = %pair.to, "fetching what the update needs");
        let pull = Pull::for_cluster(self.cluster.version().await);
        let theirs = pull.clone();
        let mut fetching = Box::pin(self.begin(move |m| m.fetch(&work, &theirs).map(|()| work)));
        let mut told = String::new();
        let mut reports = tokio::time::interval(REPORT);
        let mut stopped = None;
        let shutdown = self.shutdown.clone();
        let done = loop {
            tokio::select! {
                done = &mut fetching => break done,
                () = shutdown.cancelled(), if stopped.is_none() => {
                    stopped = Some(Stopped::Shutdown);
                    pull.cancel();
                }
                changed = self.own_node.changed(), if stopped.is_none() => {
                    // A watch that has ended shows no other config; the agent is stopping then.
                    if !changed {
                        shutdown.cancelled().await;
                        continue;
                    }
                    self.refresh_node().await;
                    if self.view.node.desired_state() != pair.to {
                        stopped = Some(Stopped::OtherConfig);
                        pull.cancel();
                    }
                }
                _ = reports.tick() => {
                    let text = pull.progress().map(|p| p.to_string()).unwrap_or_default();
                    if !text.is_empty() && text != told {
                        tracing::info!(progress = %text, "pulling the OS image");
                        self.reporter.reach(&self.view, &Milestone::Pulling(text.clone()));
                        told = text;
                    }
                }
            }
        };
        match (done, stopped) {
            (Ok(work), None) => {
                if !told.is_empty() {
                    self.reporter.reach(&self.view, &Milestone::Pulled);
                }
                self.work = Some(work);
                if let Phase::Prepared { to_fetch, .. } = &mut self.view.phase {
                    *to_fetch = false;
                }
                Next::Step
            }
            // The next step plans anew. What was fetched stays on the host.
            (_, Some(why)) => {
                tracing::info!(to = %pair.to, ?why, "the fetch was ended");
                self.view.phase = Phase::Idle;
                Next::Step
            }
            (Err(e), None) => {
                if !told.is_empty() {
                    self.reporter.reach(&self.view, &Milestone::NotPulled(e.text.clone()));
                }
                self.settings.metrics.pivot(false);
                self.failed(Job::Update(pair), e.kind, e.event, e.text).await
            }
        }
    }
}
