//! Reports the progress of an update: events on the Node, and the conditions of the node's MachineConfigNode.
//!
//! A separate task writes them, so that reporting never delays the update. While a write is under way, or the API
//! server is overloaded, later milestones are collected into the next write. Each condition keeps the time of its own
//! milestone, and the last milestone is always written.
//!
//! Nothing decides on what is written here. What a milestone changes is in `milestones`.

use crate::cluster::calls::Cluster;
use crate::cluster::milestones::{Milestone, TimedProgress, after, finished_update, node_view, patch};
use crate::protocol::{AgentNote, View, outage_backoff};
use api::names::own;
use api::v1::MachineConfigNode;
use client::CallError;
use client::jitter;
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::Patch;
use rollout::machine_config_nodes;
use rollout::view::NodeView;
use serde_json::json;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// If the cluster has no MachineConfigNode kind, it is not asked again for this long.
const MISSING_PAUSE: Duration = Duration::from_mins(10);
/// How often a report that ends in a conflict is made again at once. The controller writes the object too.
const TRIES: usize = 3;
/// Milestones within this time are written together. Nobody reads faster than that.
const GATHER: Duration = Duration::from_secs(1);
/// A report waits this many times as long as the last call took. A fast API server gets each milestone, one under load
/// gets several in one write, because requests that advance the rollout are more important.
const REST: u32 = 20;
/// The longest such wait.
const MOST_REST: Duration = Duration::from_secs(30);
/// How long the agent waits for outstanding reports when it ends. It does not delay a reboot for longer.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);
/// How many milestones, and how many events, are kept while the API server is away. Older ones are dropped. The number
/// is large enough to keep the last milestone of each condition.
const KEPT: usize = 64;

/// What an agent reports besides the Node's annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reporting {
    /// Events on the Node.
    pub events: bool,
    /// A MachineConfigNode.
    pub progress: bool,
}

impl Default for Reporting {
    fn default() -> Self {
        Self { events: true, progress: true }
    }
}

fn pause_after(call: Duration) -> Duration {
    call.saturating_mul(REST).min(MOST_REST)
}

struct QueuedEvent {
    note: AgentNote,
    uid: String,
    at: Timestamp,
}

enum Message {
    Event(QueuedEvent),
    Milestones {
        reached: Vec<TimedProgress>,
        node: Box<NodeView>,
        at_once: bool,
    },
    /// Answer once everything before this message is written, or was tried.
    Flush(oneshot::Sender<()>),
}

/// The handle of the task that writes the reports of one node. When it is dropped, the task writes what it has and
/// ends.
#[derive(Debug)]
pub(crate) struct Reporter {
    name: String,
    reporting: Reporting,
    to_writer: mpsc::UnboundedSender<Message>,
}

impl Reporter {
    pub(crate) fn new(cluster: Cluster, reporting: Reporting) -> Self {
        let (to_writer, messages) = mpsc::unbounded_channel();
        let name = cluster.node_name().to_owned();
        let writer = Writer {
            cluster,
            seen: None,
            reached: vec![],
            node: NodeView::default(),
            events: vec![],
            missing: None,
        };
        tokio::spawn(writer.run(messages));
        Self { name, reporting, to_writer }
    }

    /// Reports a milestone.
    pub(crate) fn report(&self, view: &View, milestone: &Milestone) {
        if !self.reporting.progress {
            return;
        }
        let now = Timestamp::now();
        let reached =
            milestone.progress(&self.name, &view.node).into_iter().map(|step| (now, step)).collect();
        let node = Box::new(node_view(&self.name, &view.node));
        self.send(Message::Milestones { reached, node, at_once: milestone.is_last() });
    }

    /// Reports something to people, as an event.
    pub(crate) fn report_event(&self, view: &View, note: &AgentNote) {
        if self.reporting.events {
            let uid = view.node.uid.clone();
            self.send(Message::Event(QueuedEvent { note: note.clone(), uid, at: Timestamp::now() }));
        } else {
            tracing::info!(event = ?note.kind, "{}", note.text);
        }
    }

    /// Waits for a limited time until everything is written. Called before the agent ends or reboots.
    pub(crate) async fn flush(&self) {
        let (done, answer) = oneshot::channel();
        self.send(Message::Flush(done));
        if tokio::time::timeout(FLUSH_LIMIT, answer).await.is_err() {
            tracing::info!("the last steps of this update are not reported: the API server does not answer");
        }
    }

    fn send(&self, message: Message) {
        // Cannot fail: the writer ends only after its sender is dropped.
        let _ = self.to_writer.send(message);
    }
}

struct Writer {
    cluster: Cluster,
    /// The object as it was last seen.
    seen: Option<MachineConfigNode>,
    /// The milestones that are not written yet.
    reached: Vec<TimedProgress>,
    /// The node at the last milestone.
    node: NodeView,
    /// Events that wait until the API server has time.
    events: Vec<QueuedEvent>,
    /// When the kind was found not to be installed.
    missing: Option<Instant>,
}

impl Writer {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        let (mut steps_due, mut events_due): (Option<Instant>, Option<Instant>) = (None, None);
        let mut failures = 0;
        let mut urgent = false;
        let mut closed = false;
        while !closed {
            let mut waiters = vec![];
            let due = steps_due.into_iter().chain(events_due).min();
            let message = match due {
                None => messages.recv().await.map(Some),
                Some(at) => match tokio::time::timeout_at(at, messages.recv()).await {
                    Ok(message) => message.map(Some),
                    Err(_) => Some(None),
                },
            };
            match message {
                Some(Some(Message::Event(told))) => {
                    let warning = told.note.kind.severity() == api::events::Severity::Warning;
                    self.events.push(told);
                    let over = self.events.len().saturating_sub(KEPT);
                    self.events.drain(..over);
                    let rest = pause_after(self.cluster.last_call());
                    if warning || rest <= GATHER {
                        events_due = Some(Instant::now());
                    } else {
                        events_due = events_due.or(Some(Instant::now() + rest));
                    }
                }
                Some(Some(Message::Milestones { reached, node, at_once })) => {
                    self.take(reached, node);
                    urgent |= at_once;
                    steps_due = if urgent {
                        Some(Instant::now())
                    } else {
                        steps_due.or(Some(self.pace(Instant::now())))
                    };
                }
                Some(Some(Message::Flush(waiter))) => waiters.push(waiter),
                Some(None) => {}
                None => closed = true,
            }
            let all = !waiters.is_empty() || closed;
            if all || steps_due.is_some_and(|at| at <= Instant::now()) {
                // A new process measures the API server's load with its first call.
                let begun = Instant::now();
                if !all && !urgent && self.read_if_unknown().await && self.pace(begun) > Instant::now() {
                    steps_due = Some(self.pace(begun));
                    continue;
                }
                steps_due = match self.write().await {
                    Ok(()) => {
                        (failures, urgent) = (0, false);
                        None
                    }
                    Err(error) => {
                        failures += 1;
                        let wait = outage_backoff(failures, jitter());
                        tracing::warn!(error = error.chain(), again_in = %wait, "the MachineConfigNode could not be updated; trying again");
                        Duration::try_from(wait).ok().map(|wait| Instant::now() + wait)
                    }
                };
            }
            if all || events_due.is_some_and(|at| at <= Instant::now()) {
                events_due = None;
                let told = std::mem::take(&mut self.events);
                join_all(told.iter().map(|t| self.cluster.create_event(&t.note, &t.uid, t.at))).await;
            }
            for waiter in waiters {
                // Fails if the caller no longer waits.
                let _ = waiter.send(());
            }
        }
    }

    /// When milestones that are not urgent are written, given the time of the first of them.
    fn pace(&self, from: Instant) -> Instant {
        from + pause_after(self.cluster.last_call()).max(GATHER)
    }

    /// Reads the object if it was not read yet. True if it was read now and exists.
    async fn read_if_unknown(&mut self) -> bool {
        if self.seen.is_some() || self.missing.is_some() {
            return false;
        }
        self.seen = self.cluster.progress(false).await.ok().flatten();
        self.seen.is_some()
    }

    fn take(&mut self, reached: Vec<TimedProgress>, node: Box<NodeView>) {
        self.reached.extend(reached);
        let over = self.reached.len().saturating_sub(KEPT);
        self.reached.drain(..over);
        self.node = *node;
    }

    /// Writes the outstanding milestones. What cannot be written now is kept; what never can be written is dropped.
    async fn write(&mut self) -> Result<(), CallError> {
        if self.missing.is_some_and(|at| at.elapsed() < MISSING_PAUSE) {
            self.reached.clear();
        }
        if self.reached.is_empty() {
            return Ok(());
        }
        let mut left = TRIES;
        loop {
            left -= 1;
            let Err(error) = self.try_write(left + 1 < TRIES).await else {
                self.reached.clear();
                return Ok(());
            };
            self.seen = None;
            if (error.is_conflict() || error.is_invalid()) && left > 0 {
                continue;
            }
            if error.is_not_found() {
                self.missing = Some(Instant::now());
            }
            if error.is_client_error() {
                tracing::warn!(
                    error = error.chain(),
                    "the API server refuses the report of this update, so the MachineConfigNode does not show it"
                );
                self.reached.clear();
                return Ok(());
            }
            return Err(error);
        }
    }

    async fn try_write(&mut self, latest: bool) -> Result<(), CallError> {
        let seen = match self.seen.take() {
            Some(seen) => seen,
            None => match self.cluster.progress(latest).await? {
                Some(seen) => seen,
                // The controller fills in its pool.
                None => self.cluster.create_progress(&machine_config_nodes::new(&self.node, None)).await?,
            },
        };
        let generation = seen.metadata.generation.unwrap_or(1).max(1);
        let seen = self.write_down(seen, generation).await?;
        let Some(new) = after(seen.status.as_ref(), &self.reached, &self.node, generation) else {
            self.seen = Some(seen);
            return Ok(());
        };
        // After a refusal the whole status is written: somebody may have written a time in another form than the one
        // that we test for.
        let old = seen.status.as_ref().filter(|_| !latest);
        let guarded = old.and_then(|old| patch(old, &new));
        let patch = match guarded {
            Some(patch) => Patch::Json(patch),
            None => Patch::Merge(json!({
                "metadata": { "resourceVersion": seen.metadata.resource_version },
                "status": {
                    "observedGeneration": new.observed_generation,
                    "configVersion": new.config_version,
                    "conditions": new.conditions,
                },
            })),
        };
        let mut seen = self.cluster.patch_progress_status(&patch).await?;
        seen.metadata.managed_fields = None;
        self.seen = Some(seen);
        Ok(())
    }

    /// Writes an update down that is over, before its conditions are withdrawn. Where that is refused, the status is worth more.
    async fn write_down(
        &self,
        seen: MachineConfigNode,
        generation: i64,
    ) -> Result<MachineConfigNode, CallError> {
        let past = finished_update(seen.status.as_ref(), &self.reached, &self.node, generation);
        let Some(text) = past.and_then(|update| update.with_this_update(&seen.metadata)) else {
            return Ok(seen);
        };
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { own::UPDATES: text } } }));
        match self.cluster.patch_progress(&patch).await {
            Ok(mut new) => {
                new.metadata.managed_fields = None;
                Ok(new)
            }
            Err(error) if error.is_client_error() => {
                tracing::warn!(error = error.chain(), "the times of this update's steps could not be stored");
                Ok(seen)
            }
            Err(error) => Err(error),
        }
    }
}
