//! The agent: carries out the action that [`protocol::step`] returns, then looks at the Node and the host again.
//!
//! It decides nothing. Its state is in `View`, which a new process can rebuild from the Node and the disk.
//!
//! ```text
//! NodeUpdates (own Node) ─┐
//! disk, boot id ──────────┼─► View ─► step ─► Action ─► patch | GET | host work (blocking thread) ─► View …
//! clock ──────────────────┘
//! ```

mod drift;
mod failures;
mod fetch;
mod join;
pub(crate) mod options;
mod planned_ahead;
pub(crate) mod run;
#[cfg(test)]
mod tests;
pub(crate) mod trial;
pub(crate) mod update;
mod waiting_config;

use crate::agent::options::{Exit, Settings};
use crate::agent::planned_ahead::PlannedAhead;
use crate::cluster::calls::Cluster;
use crate::cluster::milestones::Milestone;
use crate::cluster::own_node::OwnNode;
use crate::cluster::report::Reporter;
use crate::error::DaemonError;
use crate::node::HostTrouble;
use crate::node::drift_watch::{CompareLimit, Watching};
use crate::node::machine::{Machine, MachineError, PlannedUpdate};
use crate::protocol::clock::Moment;
use crate::protocol::{
    Action, AgentNote, Changes, ConfigPair, Cordon, NodeFacts, Phase, View, Waiting, step,
};
use api::drain_request::uncordoned;
use api::k8s::Node;
use api::names::annotation;
use api::node_state::NodeState;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

/// A running agent of one node.
pub(crate) struct Agent {
    cluster: Cluster,
    machine: Arc<Machine>,
    own_node: OwnNode,
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
    compare_limit: CompareLimit,
    /// When the comparison for a change that was seen may take place.
    compare_due: Option<Instant>,
    /// The planned update that belongs to `Phase::Prepared`.
    work: Option<PlannedUpdate>,
    /// The next update, if it was planned a moment ago and is not under way yet.
    planned_ahead: Option<PlannedAhead>,
    /// The number of consecutive failed calls.
    failed_calls: u32,
    /// The update that failed last, and how often it failed in a row.
    failed_update: Option<(ConfigPair, u32)>,
}

/// What to do after an action.
enum Next {
    Step,
    /// Wait until the Node changes, or until this time.
    Wait(Option<Moment>),
    Exit(Exit),
}

impl Agent {
    /// Runs until it is stopped, or has started a reboot.
    pub(crate) async fn run(mut self) -> Result<Exit, DaemonError> {
        let exit = self.work_on().await;
        self.reporter.flush().await;
        exit
    }

    async fn work_on(&mut self) -> Result<Exit, DaemonError> {
        loop {
            // Before the agent stops, too: what the watch has brought since the last step may be the config that waits.
            self.refresh_node().await;
            if self.shutdown.is_cancelled() {
                Box::pin(self.apply_waiting_config()).await;
                return Ok(Exit::Stopped);
            }
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

    /// Reads the state of the disk. If it cannot be read, the agent assumes an unfinished change.
    async fn read_disk_state(&mut self) {
        match self.host(Machine::facts).await {
            Ok(disk) => self.view.disk = disk,
            Err(error) => {
                tracing::warn!(%error, "the state of the host cannot be read");
                self.view.disk.open = true;
            }
        }
    }

    /// Takes in the newest Node, from the watch or, if the watch stays behind, from the API server.
    async fn refresh_node(&mut self) {
        if let Some(trouble) = &mut self.settings.trouble {
            self.view.trouble.clone_from(&trouble.borrow_and_update());
        }
        if let Some(facts) = self.own_node.newest(&self.view.node) {
            self.take_node(facts);
        }
        if let Some(facts) = self.own_node.read_when_behind(&self.cluster, &self.view.node).await {
            self.take_node(facts);
        }
    }

    /// Takes a Node as the current state.
    fn take_node(&mut self, facts: NodeFacts) {
        self.own_node.caught_up();
        if !self.view.node.seen {
            self.view.silent_since = None;
        }
        // An annotation that was there before this process began is not a new request.
        let asked = facts.asks_again(&self.view.node);
        self.view.node = facts;
        if asked && let Some(tried) = &mut self.view.disk.tried {
            tried.retry = true;
        }
        if asked {
            self.view.prefetch_failed = None;
        }
        if asked && let Phase::Failed(failure) = &mut self.view.phase {
            tracing::info!(job = ?failure.job, "asked to try again now");
            failure.retry_at = Moment::now();
        }
        if self.machine.set_rules(&self.view.node.drift) && self.ever_checked {
            self.compare_again();
        }
    }

    /// Takes in the API server's answer to a write.
    fn take_answer(&mut self, node: &Node) {
        self.failed_calls = 0;
        self.view.silent_since = None;
        self.take_node(NodeFacts::of(node));
    }

    /// Runs host work on a blocking thread, always to its end: a step that has begun is finished and recorded even
    /// while the process is being stopped.
    async fn host<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Machine) -> Result<T, MachineError> + Send + 'static,
    ) -> Result<T, MachineError> {
        self.begin(work).await
    }

    /// As [`Agent::host`]; the agent can do something else meanwhile.
    fn begin<T: Send + 'static, W: FnOnce(&Machine) -> Result<T, MachineError> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, MachineError>> + use<T, W> {
        let machine = self.machine.clone();
        let span = tracing::Span::current();
        let thread = tokio::task::spawn_blocking(move || span.in_scope(|| work(&machine)));
        async {
            match thread.await {
                Ok(result) => result,
                Err(error) => Err(MachineError::degraded(format!("the host work ended abnormally: {error}"))),
            }
        }
    }

    /// Waits for a change of the Node, for a point in time, or for the shutdown.
    async fn wait(&mut self, until: Option<Moment>) {
        let asks = self.own_node.time_until_read();
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
        let compare_due = self.compare_due;
        let at = async |time: Option<Instant>| match time {
            Some(time) => tokio::time::sleep_until(time.into()).await,
            None => std::future::pending().await,
        };
        let forget = self.planned_ahead.as_ref().map(|ahead| ahead.until);
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            changed = self.own_node.changed() => {
                if !changed {
                    // The sender was dropped: no further change of the Node will arrive.
                    tracing::error!("the watch of this agent's Node has ended; restart the agent, unless it \
                        is stopping");
                    self.shutdown.cancelled().await;
                }
            }
            () = sleep => {}
            () = trouble_changed(&mut self.settings.trouble) => {}
            () = self.watching.touched(), if compare_due.is_none() => self.touched(),
            () = at(compare_due) => self.touched(),
            () = at(forget) => self.planned_ahead = None,
        }
    }

    async fn act(&mut self, action: Action) -> Next {
        match action {
            Action::Idle => {
                let end = if self.view.trouble.is_none() { Milestone::Updated } else { Milestone::Troubled };
                self.reporter.report(&self.view, &end);
                if self.watch_disk().await {
                    return Next::Step;
                }
                let fetch = self.view.prefetch_failed.as_ref().map(|(_, until)| *until);
                let due = [self.view.leave_again, fetch].into_iter().flatten();
                match (self.idle(), due.filter(|at| *at > Moment::now()).min()) {
                    (Next::Wait(until), Some(again)) => {
                        Next::Wait(Some(until.map_or(again, |until| until.min(again))))
                    }
                    (next, _) => next,
                }
            }
            Action::Wait { why: Waiting::Node, until } => {
                let again = self.own_node.absent(&self.cluster).await;
                Next::Wait(Some(until.map_or(again, |until| until.min(again))))
            }
            Action::Wait { why: Waiting::Boot, until } => {
                let before = self.view.disk.clone();
                self.read_disk_state().await;
                if self.view.disk == before { Next::Wait(until) } else { Next::Step }
            }
            Action::Wait { why, until } => self.begin_wait(&why, until),
            Action::Write { changes, notes, cordon, conditional } => {
                self.write(changes, notes, cordon, conditional).await
            }
            Action::Recover => self.recover().await,
            Action::ObserveTrial => self.observe_trial().await,
            Action::ConfirmTrial => self.confirm_trial().await,
            Action::FailTrial { check, why } => self.fail_trial(check, why).await,
            Action::ForgetTried => self.forget_tried().await,
            Action::AdoptFile => self.adopt_file().await,
            Action::Join => self.join().await,
            Action::Check { config, record } => self.check(config, record).await,
            Action::Prepare(pair) => self.prepare(pair).await,
            Action::Fetch(pair) => Box::pin(self.fetch(pair)).await,
            Action::Prefetch(pair) => Box::pin(self.prefetch(pair)).await,
            Action::Apply(pair) => self.apply(pair).await,
            Action::Reboot { config, announced } => self.reboot(config, announced).await,
            Action::RecordCleared { config, cleared } => self.record_cleared(config, cleared).await,
            Action::ForgetReboot { config } => self.forget_reboot(config).await,
            Action::Leave { asked } => self.leave_host(asked).await,
        }
    }

    /// Starts the time limit of a wait for the drain controller when this process first sees the wait, because the
    /// request may have been made by an earlier process.
    fn begin_wait(&mut self, why: &Waiting, until: Option<Moment>) -> Next {
        let now = self.view.now;
        let config = self.view.node.desired_state();
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
        notes: Vec<AgentNote>,
        cordon: Option<Cordon>,
        conditional: bool,
    ) -> Next {
        if changes.is_empty() && cordon.is_none() {
            return Next::Wait(None);
        }
        match self.cluster.annotate(&changes, cordon, &self.view.node, conditional).await {
            Ok(node) => self.take_answer(&node),
            Err(error) => {
                if let Some(cordon) = cordon.filter(|_| error.is_client_error()) {
                    let (back, why) = (cordon == Cordon::End, error.chain());
                    self.reporter.report(&self.view, &Milestone::NotCordoned { back, why });
                }
                return self.write_failed(&error).await;
            }
        }
        match cordon {
            Some(Cordon::Begin) => self.reporter.report(&self.view, &Milestone::Cordoned),
            Some(Cordon::End) => self.reporter.report(&self.view, &Milestone::Uncordoned),
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
        self.report_events(&notes);
        match changes.get(annotation::STATE).and_then(|state| NodeState::parse(state)) {
            Some(NodeState::Done) => {
                tracing::info!(config = %self.view.node.current, "done");
                self.view.phase = Phase::Idle;
                self.settings.metrics.update_done(&self.view.node.current, Timestamp::now());
                self.tidy().await;
            }
            Some(NodeState::Degraded | NodeState::Unreconcilable) => {
                tracing::error!(state = %self.view.node.state, reason = %self.view.node.reason, "failed");
                self.settings.metrics.update_failed(&self.view.node.reason, Timestamp::now());
                self.reporter.report(&self.view, &Milestone::Degraded);
            }
            Some(NodeState::Working) => {
                tracing::info!(state = %self.view.node.state, desired = %self.view.node.desired, "update begins");
            }
            None => {}
        }
        Next::Step
    }

    fn report_events(&self, notes: &[AgentNote]) {
        for note in notes {
            self.reporter.report_event(&self.view, note);
        }
    }
}

/// Waits until the host's trouble changes. Never returns if nothing reports trouble.
async fn trouble_changed(trouble: &mut Option<HostTrouble>) {
    let told = match trouble {
        Some(trouble) => trouble.changed().await.is_ok(),
        None => false,
    };
    if !told {
        // The reporting task has ended, and the agent is about to end too.
        std::future::pending::<()>().await;
    }
}
