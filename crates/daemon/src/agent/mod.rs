//! The agent: carries out the action that [`protocol::step`] returns, then looks at the Node and the host again.
//!
//! It decides nothing. Its state is in `View`, which a new process can rebuild from the Node and the disk.
//!
//! ```text
//! NodeUpdates (own Node) ─┐
//! disk, boot id ───┼─► View ─► step ─► Action ─► patch | GET | host work (blocking thread) ─► View …
//! clock ───────────┘
//! ```

mod failures;
mod jobs;
pub(crate) mod options;
mod own_node;
pub(crate) mod run;
#[cfg(test)]
mod tests;

use crate::agent::options::Exit;
use crate::cluster::calls::Cluster;
use crate::cluster::milestones::Milestone;
use crate::cluster::node_watch::NodeUpdates;
use crate::cluster::report::{Reporter, Reporting};
use crate::error::DaemonError;
use crate::metrics::Metrics;
use crate::node::Trouble;
use crate::node::drift_watch::{LookLimit, Watching};
use crate::node::machine::{Machine, MachineError, Work};
use crate::protocol::clock::Moment;
use crate::protocol::{
    Action, Changes, Cordon, DiskFacts, Job, NodeFacts, Note, Pair, Phase, View, Waiting, step,
};
use api::drain_request::uncordoned;
use api::events::AgentEvent;
use api::names::{annotation, state};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long the watch may show an older Node than the API server's last answer. Events normally arrive some hundredths
/// of a second after the answer. If they do not arrive within this time, etcd may have been restored from a backup,
/// and the agent reads the Node.
const WATCH_CATCHES_UP: Duration = Duration::from_secs(5);

/// A running agent of one node.
pub(crate) struct Agent {
    cluster: Cluster,
    machine: Arc<Machine>,
    updates: NodeUpdates,
    shutdown: CancellationToken,
    settings: Settings,
    reporter: Reporter,
    view: View,
    /// When the disk was last compared with its config.
    checked_at: Instant,
    /// Whether this process has compared it at least once.
    ever_checked: bool,
    /// Whether the disk is watched for changes.
    watching: Watching,
    /// Limits how often such a change may lead to a comparison.
    look_limit: LookLimit,
    /// When the comparison for a change that was seen may take place.
    look_due: Option<Instant>,
    /// The planned update that belongs to `Phase::Prepared`.
    work: Option<Work>,
    /// The number of consecutive failed calls.
    failed_calls: u32,
    /// The update that failed last, and how often it failed in a row.
    failed_update: Option<(Pair, u32)>,
    /// The resource version of the watch's newest Node when it was last read.
    watched_version: String,
    /// Since when the watch has shown an older Node than the API server's last answer.
    behind_since: Option<Instant>,
    /// When to report, or report again, that the cluster has no such Node.
    tell_absence_at: Option<Moment>,
}

/// The settings of an agent.
pub(crate) struct Settings {
    pub(crate) reporting: Reporting,
    pub(crate) watch_disk: bool,
    pub(crate) drift_period: Option<Duration>,
    pub(crate) trouble: Option<Trouble>,
    pub(crate) metrics: Metrics,
}

/// What to do after an action.
enum Next {
    Step,
    /// Wait until the Node changes, or until this time.
    Wait(Option<Moment>),
    Exit(Exit),
}

impl Agent {
    pub(crate) fn new(
        settings: Settings,
        cluster: Cluster,
        machine: Arc<Machine>,
        updates: NodeUpdates,
        shutdown: CancellationToken,
    ) -> Self {
        let view = View {
            now: Moment::now(),
            node: NodeFacts::default(),
            // Not known yet, so assume that a change is unfinished.
            disk: DiskFacts { open: true, ..DiskFacts::default() },
            checked: false,
            phase: Phase::Idle,
            trouble: None,
            silent_since: Some(Moment::now()),
        };
        let reporter = Reporter::new(cluster.clone(), settings.reporting);
        let checked_at = Instant::now();
        Self {
            cluster,
            machine,
            updates,
            shutdown,
            settings,
            reporter,
            view,
            checked_at,
            ever_checked: false,
            watching: Watching::Off,
            look_limit: LookLimit::new(checked_at),
            look_due: None,
            work: None,
            failed_calls: 0,
            failed_update: None,
            watched_version: String::new(),
            behind_since: None,
            tell_absence_at: None,
        }
    }

    /// Runs until it is stopped, or has started a reboot.
    pub(crate) async fn run(mut self) -> Result<Exit, DaemonError> {
        let exit = self.work_on().await;
        self.reporter.last_word().await;
        exit
    }

    async fn work_on(&mut self) -> Result<Exit, DaemonError> {
        loop {
            if self.shutdown.is_cancelled() {
                return Ok(Exit::Stopped);
            }
            self.take_watched_node();
            self.ask_when_behind().await;
            self.view.now = Moment::now();
            let action = step(&self.view);
            tracing::debug!(?action, "next");
            match self.act(action).await {
                Next::Step => tokio::task::yield_now().await,
                Next::Wait(until) => self.wait(until).await,
                Next::Exit(exit) => return Ok(exit),
            }
        }
    }

    /// Reads the state of the disk. If it cannot be read, a change may be unfinished.
    async fn look(&mut self) {
        match self.host(Machine::facts).await {
            Ok(disk) => self.view.disk = disk,
            Err(error) => {
                tracing::warn!(%error, "the state of the host cannot be read");
                self.view.disk.open = true;
            }
        }
    }

    /// Runs host work on a blocking thread, always to its end: a step that has begun is finished and recorded even
    /// while the process is being stopped.
    async fn host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machine) -> Result<T, MachineError> + Send + 'static,
    ) -> Result<T, MachineError> {
        let machine = self.machine.clone();
        let span = tracing::Span::current();
        match tokio::task::spawn_blocking(move || span.in_scope(|| work(&machine))).await {
            Ok(result) => result,
            Err(error) => Err(MachineError::broken(format!("the host work ended abnormally: {error}"))),
        }
    }

    /// Waits for a change of the Node, for a point in time, or for the shutdown.
    async fn wait(&mut self, until: Option<Moment>) {
        let asks = self.behind_since.map(|since| WATCH_CATCHES_UP.saturating_sub(since.elapsed()));
        let sleep = async {
            if let Some(left) = asks {
                return tokio::time::sleep(
                    until.map_or(left, |t| left.min(crate::protocol::clock::until(t))),
                )
                .await;
            }
            match until {
                Some(t) => tokio::time::sleep(crate::protocol::clock::until(t)).await,
                None => std::future::pending().await,
            }
        };
        let look_due = self.look_due;
        let look = async {
            match look_due {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            changed = self.updates.changed() => {
                if changed.is_err() {
                    // The sender is gone: no further change of the Node will arrive.
                    tracing::error!("the watch of this agent's Node has ended; restart the agent, unless it \
                        is stopping");
                    self.shutdown.cancelled().await;
                }
            }
            () = sleep => {}
            () = comes_or_goes(&mut self.settings.trouble) => {}
            () = self.watching.touched(), if look_due.is_none() => self.touched(),
            () = look => self.touched(),
        }
    }

    /// Handles an event on a managed path: compares now, or as soon as the limit allows.
    fn touched(&mut self) {
        self.look_due = self.look_limit.take(Instant::now()).err();
        if let Some(due) = self.look_due {
            let seconds = due.saturating_duration_since(Instant::now()).as_secs();
            tracing::info!(
                again_in = seconds,
                "managed paths keep changing, so the disk is compared with its config less often"
            );
            return;
        }
        self.watching.seen();
        self.look_again();
    }

    /// Discards the result of the last comparison, so that the disk is compared again.
    fn look_again(&mut self) {
        self.view.checked = false;
        if let Phase::Failed(failure) = &mut self.view.phase
            && matches!(failure.job, Job::Check { .. } | Job::Update(_))
        {
            failure.retry_at = Moment::now();
        }
    }

    /// Starts to watch the disk of a node that is done. The disk is compared again afterwards, because changes before
    /// the watch were not seen.
    async fn watch_disk(&mut self) -> bool {
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
        self.tell(&[Note { kind: AgentEvent::ConfigDriftMonitorStarted, text }]);
        self.view.checked = false;
        true
    }

    /// Stops watching before the agent changes the disk itself: that is not drift.
    async fn stop_watching(&mut self) {
        self.look_due = None;
        if let Watching::Watched(guard) = std::mem::replace(&mut self.watching, Watching::Off) {
            let text = format!("Config Drift Monitor stopped, was watching against {}", guard.config);
            drop(guard);
            self.tell(&[Note { kind: AgentEvent::ConfigDriftMonitorStopped, text }]);
        }
    }

    async fn act(&mut self, action: Action) -> Next {
        match action {
            Action::Idle => {
                let end = if self.view.trouble.is_none() { Milestone::Updated } else { Milestone::Troubled };
                self.reporter.reach(&self.view, &end);
                if self.watch_disk().await {
                    return Next::Step;
                }
                self.idle()
            }
            Action::Wait { why: Waiting::Node, until } => self.wait_for_node(until).await,
            Action::Wait { why: Waiting::Boot, until } => {
                let before = self.view.disk.clone();
                self.look().await;
                if self.view.disk == before { Next::Wait(until) } else { Next::Step }
            }
            Action::Wait { why, until } => self.begin_wait(&why, until),
            Action::Write { changes, notes, cordon, conditional } => {
                self.write(changes, notes, cordon, conditional).await
            }
            Action::Recover => self.recover().await,
            Action::AdoptFile => self.adopt_file().await,
            Action::Join => self.join().await,
            Action::Check { config, record } => self.check(config, record).await,
            Action::Prepare(pair) => self.prepare(pair).await,
            Action::Fetch(pair) => self.fetch(pair).await,
            Action::Apply(pair) => self.apply(pair).await,
            Action::Reboot { config, announced } => self.reboot(config, announced).await,
            Action::RecordCleared { config, cleared } => self.record_cleared(config, cleared).await,
            Action::ForgetReboot { config } => self.forget_reboot(config).await,
        }
    }

    /// Nothing to do. A disk that is not watched is compared again after a while.
    fn idle(&mut self) -> Next {
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

    /// Starts the time limit of a wait for the drain controller when this process first sees the wait, because the
    /// request may have been made by an earlier process.
    fn begin_wait(&mut self, why: &Waiting, until: Option<Moment>) -> Next {
        let now = self.view.now;
        let config = self.view.node.desired.clone();
        let phase = &mut self.view.phase;
        match (why, &mut *phase) {
            (Waiting::Drain, Phase::Prepared { asked: asked @ None, .. }) => *asked = Some(now),
            (Waiting::Drain, Phase::Prepared { .. } | Phase::Redraining { .. }) => return Next::Wait(until),
            (Waiting::Drain, _) => *phase = Phase::Redraining { since: now },
            (Waiting::Kubelet, Phase::AwaitingKubelet { .. }) => return Next::Wait(until),
            (Waiting::Kubelet, _) => *phase = Phase::AwaitingKubelet { since: now },
            (Waiting::Uncordon, Phase::Applied { asked: Some(_), .. }) => return Next::Wait(until),
            (Waiting::Uncordon, _) => *phase = Phase::Applied { config, asked: Some(now) },
            _ => return Next::Wait(until),
        }
        Next::Step
    }

    async fn write(
        &mut self,
        changes: Changes,
        notes: Vec<Note>,
        cordon: Option<Cordon>,
        conditional: bool,
    ) -> Next {
        if changes.is_empty() && cordon.is_none() {
            return Next::Wait(None);
        }
        let at = conditional.then(|| self.view.node.resource_version.clone());
        match self.cluster.annotate(&changes, cordon, at.as_deref()).await {
            Ok(node) => self.take_answer(&node),
            Err(error) => {
                if let Some(cordon) = cordon.filter(|_| error.is_client_error()) {
                    let (back, why) = (cordon == Cordon::End, error.chain());
                    self.reporter.reach(&self.view, &Milestone::NotCordoned { back, why });
                }
                return self.wait_after_error(&error);
            }
        }
        match cordon {
            Some(Cordon::Begin) => self.reporter.reach(&self.view, &Milestone::Cordoned),
            Some(Cordon::End) => self.reporter.reach(&self.view, &Milestone::Uncordoned),
            None => {}
        }
        self.settings.metrics.state(&self.view.node, Timestamp::now());
        let now = self.view.now;
        let request = changes.get(annotation::DESIRED_DRAIN);
        match (&mut self.view.phase, request.and_then(|r| uncordoned(r))) {
            // A repeated request has the same text, and is recognised by its cordon.
            (Phase::Prepared { asked, .. }, None) if request.is_some() || cordon == Some(Cordon::Begin) => {
                *asked = Some(now);
            }
            (Phase::Redraining { since }, None) if request.is_some() || cordon == Some(Cordon::Begin) => {
                *since = now;
            }
            (phase, Some(config)) if !changes.contains_key(annotation::STATE) => {
                *phase = Phase::Applied { config: config.to_owned(), asked: Some(now) };
            }
            _ => {}
        }
        self.tell(&notes);
        match changes.get(annotation::STATE).map(String::as_str) {
            Some(state::DONE) => {
                tracing::info!(config = %self.view.node.current, "done");
                self.view.phase = Phase::Idle;
                self.settings.metrics.update_done(&self.view.node.current, Timestamp::now());
            }
            Some(state::DEGRADED | state::UNRECONCILABLE) => {
                tracing::error!(state = %self.view.node.state, reason = %self.view.node.reason, "failed");
                self.settings.metrics.update_failed(&self.view.node.reason, Timestamp::now());
                self.reporter.reach(&self.view, &Milestone::Degraded);
            }
            Some(_) => {
                tracing::info!(state = %self.view.node.state, desired = %self.view.node.desired, "update begins");
            }
            None => {}
        }
        Next::Step
    }

    fn tell(&self, notes: &[Note]) {
        for note in notes {
            self.reporter.tell(&self.view, note);
        }
    }
}

/// Waits until the host's trouble changes. Never returns if nothing reports trouble.
async fn comes_or_goes(trouble: &mut Option<Trouble>) {
    let told = match trouble {
        Some(trouble) => trouble.changed().await.is_ok(),
        None => false,
    };
    if !told {
        // The reporting task has ended, and the agent is about to end too.
        std::future::pending::<()>().await;
    }
}
