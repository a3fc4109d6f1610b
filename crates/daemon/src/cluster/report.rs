//! Reports the progress of an update: events on the Node, and the conditions of the node's MachineConfigNode.
//!
//! A separate task writes them, so that reporting never delays the update. While a write is under way, or the API
//! server is overloaded, later milestones are collected into the next write. Each condition keeps the time of its own
//! milestone, and the last milestone is always written.
//!
//! Nothing decides on what is written here. The rules of the object are in `rollout::mcn`.

use crate::cluster::calls::Cluster;
use crate::cluster::milestones::Milestone;
use crate::cluster::progress_patch;
use crate::protocol::{NodeFacts, Note, View, outage_backoff};
use api::k8s::Time;
use api::v1::{MachineConfigNode, MachineConfigNodeStatus};
use client::CallError;
use client::jitter;
use futures::future::join_all;
use jiff::Timestamp;
use kube::api::Patch;
use rollout::mcn::{self, Progress};
use rollout::view::NodeView;
use serde_json::json;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Where a cluster has no MachineConfigNodes it is not asked again for this long.
const MISSING_PAUSE: Duration = Duration::from_mins(10);
/// The controller writes the object too: a report that comes too late is made again this often before it waits.
const TRIES: usize = 3;
/// Steps that follow each other within this time are one write. Nobody reads faster than that.
const GATHER: Duration = Duration::from_secs(1);
/// A report waits this many times as long as the last call took: an API server with time to spare is told of each step,
/// one under load of a few at a time. What moves nodes on goes before.
const REST: u32 = 20;
/// The longest such rest.
const MOST_REST: Duration = Duration::from_secs(30);
/// How long the agent waits at its end for what is not written yet. A reboot is not held up for longer.
const LAST_WORD: Duration = Duration::from_secs(5);
/// Steps, and events, kept while the API server is away; older ones give way. Each condition's last step is among so many.
const KEPT: usize = 64;

/// What an agent tells beside the Node's annotations.
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

/// A step and when it was taken.
type Said = (Timestamp, Progress);

/// The status after some steps; `None`: nothing but times would change, be it that a step undoes another.
fn after(
    old: Option<&MachineConfigNodeStatus>,
    said: &[Said],
    node: &NodeView,
    generation: i64,
) -> Option<MachineConfigNodeStatus> {
    let mut new: Option<MachineConfigNodeStatus> = None;
    for (at, progress) in said {
        let base = new.as_ref().or(old);
        // The API's times have whole seconds: with a fraction each report would look new.
        let at = Time(Timestamp::from_second(at.as_second()).unwrap_or(*at));
        if let Some(next) = mcn::advance(base, progress, node, generation, &at) {
            new = Some(next);
        }
    }
    new.filter(|new| old.is_none_or(|old| timeless(old) != timeless(new)))
}

fn timeless(status: &MachineConfigNodeStatus) -> MachineConfigNodeStatus {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_transition_time = Time(Timestamp::UNIX_EPOCH);
    }
    status
}

fn rest_after(call: Duration) -> Duration {
    call.saturating_mul(REST).min(MOST_REST)
}

struct Told {
    note: Note,
    uid: String,
    at: Timestamp,
}

enum Message {
    Event(Told),
    Steps {
        said: Vec<Said>,
        node: Box<NodeView>,
        at_once: bool,
    },
    /// Everything before this is written, or was tried: say so.
    Flush(oneshot::Sender<()>),
}

/// Hands over to the task that writes the reports of one node. Dropping it ends that task, once it has written what it
/// has.
#[derive(Debug)]
pub(crate) struct Reporter {
    name: String,
    reporting: Reporting,
    to_writer: mpsc::UnboundedSender<Message>,
}

impl Reporter {
    pub(crate) fn new(cluster: Cluster, reporting: Reporting) -> Self {
        let (to_writer, messages) = mpsc::unbounded_channel();
        let name = cluster.node().to_owned();
        let writer = Writer {
            cluster,
            seen: None,
            said: vec![],
            node: NodeView::default(),
            events: vec![],
            missing: None,
        };
        tokio::spawn(writer.run(messages));
        Self { name, reporting, to_writer }
    }

    /// A milestone was reached.
    pub(crate) fn reach(&self, view: &View, milestone: &Milestone) {
        if !self.reporting.progress {
            return;
        }
        let now = Timestamp::now();
        let said = milestone.says(&self.name, &view.node).into_iter().map(|step| (now, step)).collect();
        let node = Box::new(node_view(&self.name, &view.node));
        self.send(Message::Steps { said, node, at_once: milestone.is_last() });
    }

    /// Something for people to know, as an event.
    pub(crate) fn tell(&self, view: &View, note: &Note) {
        if self.reporting.events {
            let uid = view.node.uid.clone();
            self.send(Message::Event(Told { note: note.clone(), uid, at: Timestamp::now() }));
        } else {
            tracing::info!(event = ?note.kind, "{}", note.text);
        }
    }

    /// For the agent's end, and a reboot: waits until all is written, but not for long.
    pub(crate) async fn last_word(&self) {
        let (done, answer) = oneshot::channel();
        self.send(Message::Flush(done));
        if tokio::time::timeout(LAST_WORD, answer).await.is_err() {
            tracing::info!("the last steps of this update are not reported: the API server does not answer");
        }
    }

    fn send(&self, message: Message) {
        // The writer ends after its sender: it takes everything.
        let _ = self.to_writer.send(message);
    }
}

struct Writer {
    cluster: Cluster,
    /// The object as it was last seen.
    seen: Option<MachineConfigNode>,
    /// What is to be written.
    said: Vec<Said>,
    /// The node as it was at the last step.
    node: NodeView,
    /// Events for an API server that has more important things to do.
    events: Vec<Told>,
    /// The kind was found not to be installed then.
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
                    let rest = rest_after(self.cluster.last_call());
                    if warning || rest <= GATHER {
                        events_due = Some(Instant::now());
                    } else {
                        events_due = events_due.or(Some(Instant::now() + rest));
                    }
                }
                Some(Some(Message::Steps { said, node, at_once })) => {
                    self.take(said, node);
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
                // A new process learns from its first call how much the API server has to do.
                let begun = Instant::now();
                if !all && !urgent && self.look().await && self.pace(begun) > Instant::now() {
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
                join_all(told.iter().map(|t| self.cluster.tell(&t.note, &t.uid, t.at))).await;
            }
            for waiter in waiters {
                // Who waited may have given up.
                let _ = waiter.send(());
            }
        }
    }

    /// When steps that are not urgent are written, if the first of them came at that time.
    fn pace(&self, from: Instant) -> Instant {
        from + rest_after(self.cluster.last_call()).max(GATHER)
    }

    /// Gets the object where it was not seen yet; `true` if it had to be asked for and is there.
    async fn look(&mut self) -> bool {
        if self.seen.is_some() || self.missing.is_some() {
            return false;
        }
        self.seen = self.cluster.progress(false).await.ok().flatten();
        self.seen.is_some()
    }

    fn take(&mut self, said: Vec<Said>, node: Box<NodeView>) {
        self.said.extend(said);
        let over = self.said.len().saturating_sub(KEPT);
        self.said.drain(..over);
        self.node = *node;
    }

    /// Writes what was said. What cannot be written now is kept; what never can is not.
    async fn write(&mut self) -> Result<(), CallError> {
        if self.missing.is_some_and(|at| at.elapsed() < MISSING_PAUSE) {
            self.said.clear();
        }
        if self.said.is_empty() {
            return Ok(());
        }
        let mut left = TRIES;
        loop {
            left -= 1;
            let Err(error) = self.try_write(left + 1 < TRIES).await else {
                self.said.clear();
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
                    "the API server refuses the report of this update; it is not in the MachineConfigNode"
                );
                self.said.clear();
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
                // Its pool is the controller's to say.
                None => self.cluster.create_progress(&mcn::new(&self.node, None)).await?,
            },
        };
        let generation = seen.metadata.generation.unwrap_or(1).max(1);
        let Some(new) = after(seen.status.as_ref(), &self.said, &self.node, generation) else {
            self.seen = Some(seen);
            return Ok(());
        };
        // Refused once, the whole is written: somebody may spell a time otherwise than we read it.
        let old = seen.status.as_ref().filter(|_| !latest);
        let guarded = old.and_then(|old| progress_patch::patch(old, &new));
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
}

fn node_view(name: &str, node: &NodeFacts) -> NodeView {
    let note = |text: &str| Some(text).filter(|t| !t.is_empty()).map(Into::into);
    NodeView {
        name: name.into(),
        uid: node.uid.as_str().into(),
        current_config: note(&node.current),
        desired_config: note(&node.desired),
        ..NodeView::default()
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
