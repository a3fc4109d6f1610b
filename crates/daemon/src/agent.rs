//! The agent: does what [`protocol::step`] says, with the API server and the host, and looks again.
//!
//! What it is not: a place for decisions. Everything that it holds is in `View`; a new process finds the same on the
//! Node and on the disk.
//!
//! ```text
//! Feed (own Node) ─┐
//! disk, boot id ───┼─► View ─► step ─► Action ─► patch | GET | host work (blocking thread) ─► View …
//! clock ───────────┘
//! ```

use crate::check::Repair;
use crate::cluster::{CallError, Cluster, is_ours};
use crate::drift::Drift;
use crate::error::DaemonError;
use crate::feed::Feed;
use crate::jitter::jitter;
use crate::join::{self, Membership};
use crate::machine::{Machine, MachineError, Work};
use crate::metrics::Metrics;
use crate::parts::{Exit, Reporting, Trouble};
use crate::policy::policy;
use crate::protocol::{
    Action, Changes, Cordon, Cost, EMPTY_CONFIG, EventKind, Failure, FailureKind, Hand, Job, NodeFacts, Note,
    Pair, View, Waiting, backoff, cut_reason, disturbing_backoff, outage_backoff, step,
};
use crate::report::{Milestone, Reporter};
use api::k8s::Node;
use api::names::{annotation, state};
use api::v1::MachineConfig;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often a node without a pool, or a pool without a config, is looked at again.
const JOIN_POLL: jiff::SignedDuration = jiff::SignedDuration::from_secs(15);

/// A write that came too late is decided anew after a few hundredths of a second.
const CONFLICTS_ARE_OVER_SOONER: i32 = 16;

/// How long a repair waits for the API server to say what services are to be told of it.
const REPAIR_PATIENCE: Duration = Duration::from_secs(2);

/// One node's agent while it runs.
pub(crate) struct Agent {
    cluster: Cluster,
    machine: Arc<Machine>,
    feed: Feed,
    shutdown: CancellationToken,
    settings: Settings,
    reporter: Reporter,
    view: View,
    /// When the disk was last compared with its config.
    checked_at: Instant,
    /// It was, once, by this process.
    ever_checked: bool,
    /// Who tells when the disk changes.
    drift: Drift,
    /// What `Hand::Prepared` stands for.
    work: Option<Work>,
    /// Calls that failed one after the other.
    misses: u32,
    /// The update that failed last, and how often one after the other.
    lost: Option<(Pair, u32)>,
}

/// What an agent is told when it is made.
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
    /// Nothing until the Node changes, or this time comes.
    Wait(Option<Timestamp>),
    Exit(Exit),
}

impl Agent {
    pub(crate) fn new(
        settings: Settings,
        cluster: Cluster,
        machine: Arc<Machine>,
        feed: Feed,
        shutdown: CancellationToken,
    ) -> Self {
        let view = View {
            now: Timestamp::now(),
            node: NodeFacts::default(),
            disk: crate::protocol::DiskFacts::default(),
            checked: false,
            hand: Hand::Nothing,
            trouble: None,
        };
        let reporter = Reporter::new(cluster.clone(), settings.reporting);
        let checked_at = Instant::now();
        Self {
            cluster,
            machine,
            feed,
            shutdown,
            settings,
            reporter,
            view,
            checked_at,
            ever_checked: false,
            drift: Drift::Off,
            work: None,
            misses: 0,
            lost: None,
        }
    }

    /// Runs until it is told to stop, or has asked for a reboot.
    pub(crate) async fn run(mut self) -> Result<Exit, DaemonError> {
        let exit = self.work_on().await;
        self.reporter.last_word().await;
        exit
    }

    async fn work_on(&mut self) -> Result<Exit, DaemonError> {
        if !self.recover().await {
            return Ok(Exit::Stopped);
        }
        loop {
            if self.shutdown.is_cancelled() {
                return Ok(Exit::Stopped);
            }
            self.absorb_feed();
            if self.view.node.uid.is_empty() && self.view.node.resource_version.is_empty() {
                tracing::debug!("there is no such Node yet");
                self.wait(None).await;
                continue;
            }
            self.view.now = Timestamp::now();
            let action = step(&self.view);
            tracing::debug!(?action, "next");
            match self.act(action).await {
                Next::Step => tokio::task::yield_now().await,
                Next::Wait(until) => self.wait(until).await,
                Next::Exit(exit) => return Ok(exit),
            }
        }
    }

    /// Finishes or undoes what a crash left half done. Nothing else is done before that has worked; why it does not is
    /// on the Node. `false`: told to stop.
    async fn recover(&mut self) -> bool {
        let mut tries = 0;
        loop {
            let found = self.host(|m| m.recover().and_then(|()| m.facts())).await;
            match found {
                Ok(disk) => {
                    self.view.disk = disk;
                    return true;
                }
                Err(error) => {
                    tries += 1;
                    tracing::error!(%error, "the host cannot be recovered");
                    let reason = cut_reason(&error.text);
                    let changes: Changes =
                        [(annotation::STATE, state::DEGRADED.to_owned()), (annotation::REASON, reason)]
                            .into();
                    if let Err(error) = self.cluster.annotate(&changes, None, None).await {
                        tracing::warn!(%error, "the node's state cannot be told");
                    }
                    let until = Timestamp::now() + backoff(tries, jitter());
                    if self.sleep_or_stop(until).await {
                        return false;
                    }
                }
            }
        }
    }

    /// Runs host work in a thread of its own, always to its end: a step that has begun is finished and recorded even
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

    /// Takes in the newest Node, unless a patch of ours has shown a newer one already.
    fn absorb_feed(&mut self) {
        if let Some(trouble) = &mut self.settings.trouble {
            self.view.trouble.clone_from(&trouble.borrow_and_update());
        }
        let newest = self.feed.borrow_and_update().clone();
        if let Some(facts) = newest {
            self.absorb(facts);
        }
    }

    fn absorb(&mut self, facts: NodeFacts) {
        let version = |f: &NodeFacts| f.resource_version.parse::<u64>().ok();
        if let (Some(old), Some(new)) = (version(&self.view.node), version(&facts))
            && new < old
            && facts.uid == self.view.node.uid
        {
            return;
        }
        self.view.node = facts;
        if self.machine.set_rules(&self.view.node.drift) && self.ever_checked {
            self.look_again();
        }
    }

    /// Waits for a change of the Node, a time, or the end.
    async fn wait(&mut self, until: Option<Timestamp>) {
        let sleep = async {
            match until {
                Some(t) => tokio::time::sleep(until_then(t)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.shutdown.cancelled() => {}
            changed = self.feed.changed() => {
                if changed.is_err() {
                    // Whoever feeds us is gone: nothing will ever change again.
                    tracing::error!("nothing tells of the Node any more; restart the agent unless it is being stopped");
                    self.shutdown.cancelled().await;
                }
            }
            () = sleep => {}
            () = comes_or_goes(&mut self.settings.trouble) => {}
            () = self.drift.touched() => self.look_again(),
        }
    }

    /// A managed path was touched: what the last comparison said no longer counts.
    fn look_again(&mut self) {
        self.view.checked = false;
        if let Hand::Failed(failure) = &mut self.view.hand
            && matches!(failure.job, Job::Check { .. } | Job::Update(_))
        {
            failure.retry_at = Timestamp::now();
        }
    }

    /// Watches the disk of a node that is done. It is compared once more then: nobody was looking before.
    async fn watch_disk(&mut self) -> bool {
        if !self.settings.watch_disk || !matches!(self.drift, Drift::Off) {
            return false;
        }
        self.drift = match self.host(|m| Ok(Drift::begin(m))).await {
            Ok(drift) => drift,
            Err(error) => {
                tracing::warn!(%error, "the disk cannot be watched; it is looked at now and then");
                Drift::Polled
            }
        };
        let Drift::Watched(guard) = &self.drift else { return false };
        let text = format!("Config Drift Monitor started, watching against {}", guard.config);
        self.tell(&[Note { kind: EventKind::ConfigDriftMonitorStarted, text }]);
        self.view.checked = false;
        true
    }

    /// What follows changes the disk: that is not drift.
    async fn stop_watching(&mut self) {
        if let Drift::Watched(guard) = std::mem::replace(&mut self.drift, Drift::Off) {
            let text = format!("Config Drift Monitor stopped, was watching against {}", guard.config);
            drop(guard);
            self.tell(&[Note { kind: EventKind::ConfigDriftMonitorStopped, text }]);
        }
    }

    /// Waits for a time; `true` if told to stop before.
    async fn sleep_or_stop(&self, until: Timestamp) -> bool {
        self.shutdown.run_until_cancelled(tokio::time::sleep(until_then(until))).await.is_none()
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
            Action::Wait { why, until } => self.begin_wait(&why, until),
            Action::Write { changes, notes, cordon, conditional } => {
                self.write(changes, notes, cordon, conditional).await
            }
            Action::AdoptFile => self.adopt_file().await,
            Action::Join => self.join().await,
            Action::Check { config, record } => self.check(config, record).await,
            Action::Prepare(pair) => self.prepare(pair).await,
            Action::Apply(pair) => self.apply(pair).await,
            Action::Reboot { config } => self.reboot(config).await,
            Action::ForgetReboot { config } => self.forget_reboot(config).await,
        }
    }

    /// Nothing to do: a disk that is not watched is looked at again in a while.
    fn idle(&mut self) -> Next {
        let watched = matches!(self.drift, Drift::Watched(_));
        let Some(period) = self.settings.drift_period.filter(|_| !watched) else { return Next::Wait(None) };
        let left = period.saturating_sub(self.checked_at.elapsed());
        if left.is_zero() {
            self.view.checked = false;
            return Next::Step;
        }
        Next::Wait(jiff::SignedDuration::try_from(left).ok().map(|left| Timestamp::now() + left))
    }

    /// A wait for the drain controller starts its clock when it is first seen: the request may be an older process's.
    fn begin_wait(&mut self, why: &Waiting, until: Option<Timestamp>) -> Next {
        let now = self.view.now;
        let config = self.view.node.desired.clone();
        let hand = &mut self.view.hand;
        match (why, &mut *hand) {
            (Waiting::Drain, Hand::Prepared { asked: asked @ None, .. }) => *asked = Some(now),
            (Waiting::Kubelet, Hand::Returned { .. }) => return Next::Wait(until),
            (Waiting::Kubelet, _) => *hand = Hand::Returned { since: now },
            (Waiting::Uncordon, Hand::Applied { asked: Some(_), .. }) => return Next::Wait(until),
            (Waiting::Uncordon, _) => *hand = Hand::Applied { config, asked: Some(now) },
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
            Ok(node) => self.absorb_answer(&node),
            Err(error) => {
                if let Some(cordon) = cordon.filter(|_| error.is_refusal()) {
                    let (back, why) = (cordon == Cordon::End, error.to_string());
                    self.reporter.reach(&self.view, &Milestone::NotCordoned { back, why });
                }
                return self.missed(&error);
            }
        }
        match cordon {
            Some(Cordon::Begin) => self.reporter.reach(&self.view, &Milestone::Cordoned),
            Some(Cordon::End) => self.reporter.reach(&self.view, &Milestone::Uncordoned),
            None => {}
        }
        self.settings.metrics.state(&self.view.node, self.view.now);
        if let Some(request) = changes.get(annotation::DESIRED_DRAIN) {
            let now = self.view.now;
            match (&mut self.view.hand, request.strip_prefix("uncordon-")) {
                (Hand::Prepared { asked, .. }, None) => *asked = Some(now),
                (hand, Some(config)) if !changes.contains_key(annotation::STATE) => {
                    *hand = Hand::Applied { config: config.to_owned(), asked: Some(now) };
                }
                _ => {}
            }
        }
        self.tell(&notes);
        match changes.get(annotation::STATE).map(String::as_str) {
            Some(state::DONE) => {
                tracing::info!(config = %self.view.node.current, "done");
                self.view.hand = Hand::Nothing;
                self.settings.metrics.update_done(&self.view.node.current, self.view.now);
            }
            Some(state::DEGRADED | state::UNRECONCILABLE) => {
                tracing::error!(state = %self.view.node.state, reason = %self.view.node.reason, "failed");
                self.settings.metrics.update_failed(&self.view.node.reason, self.view.now);
                self.reporter.reach(&self.view, &Milestone::Degraded);
            }
            Some(_) => {
                tracing::info!(state = %self.view.node.state, desired = %self.view.node.desired, "update begins");
            }
            None => {}
        }
        Next::Step
    }

    fn absorb_answer(&mut self, node: &Node) {
        self.misses = 0;
        self.absorb(NodeFacts::of(node));
    }

    /// The API server did not do what was asked: nothing is lost, look again in a while.
    fn missed(&mut self, error: &CallError) -> Next {
        self.misses = self.misses.saturating_add(1);
        let wait = outage_backoff(self.misses, jitter());
        // Somebody else was faster, and what they wrote is on its way here.
        let wait = if error.is_conflict() { wait / CONFLICTS_ARE_OVER_SOONER } else { wait };
        tracing::warn!(%error, again_in = %wait, "the API server did not take it");
        Next::Wait(Some(Timestamp::now() + wait))
    }

    fn tell(&self, notes: &[Note]) {
        for note in notes {
            self.reporter.tell(&self.view, note);
        }
    }

    /// Puts a failure in hand; the next step writes it onto the Node and waits.
    async fn failed(
        &mut self,
        job: Job,
        kind: FailureKind,
        event: Option<EventKind>,
        reason: String,
    ) -> Next {
        self.failed_after(false, job, kind, event, reason)
    }

    /// As [`Self::failed`]; `disturbing`: the try itself disturbed the node's services.
    fn failed_after(
        &mut self,
        disturbing: bool,
        job: Job,
        kind: FailureKind,
        event: Option<EventKind>,
        reason: String,
    ) -> Next {
        let before = match (&self.view.hand, &job, &self.lost) {
            (Hand::Failed(f), _, _) if f.job == job => f.tries,
            // It was planned anew in between.
            (_, Job::Update(pair), Some((lost, tries))) if pair == lost => *tries,
            _ => 0,
        };
        let tries = before.saturating_add(1);
        if let Job::Update(pair) = &job {
            self.lost = Some((pair.clone(), tries));
        }
        let now = Timestamp::now();
        let wait = match kind {
            FailureKind::Transient => outage_backoff,
            _ if disturbing => disturbing_backoff,
            _ => backoff,
        };
        let retry_at = now + wait(tries, jitter());
        tracing::warn!(?job, %reason, %retry_at, "failed");
        if before == 0
            && let Some(kind) = event
        {
            self.tell(&[Note { kind, text: reason.clone() }]);
        }
        self.work = None;
        self.view.hand = Hand::Failed(Failure { job, kind, reason, tries, retry_at });
        Next::Step
    }

    async fn call_failed(&mut self, job: Job, error: &CallError) -> Next {
        // A config that does not exist, or may not be read, is a fault that people must see; an API server that is
        // away is not the node's.
        let kind = if error.is_refusal() { FailureKind::Degraded } else { FailureKind::Transient };
        self.failed(job, kind, None, error.to_string()).await
    }

    async fn adopt_file(&mut self) -> Next {
        let notes = match self.host(Machine::first_annotations).await {
            Ok(notes) => notes,
            Err(e) => return self.failed(Job::AdoptFile, e.kind, None, e.text).await,
        };
        // A Node that has a config keeps what it says: the file is of an earlier life of this machine.
        if self.view.node.current.is_empty() {
            let notes = notes.into_iter().filter(|(k, _)| is_ours(k)).collect();
            match self.cluster.annotate_from_file(&notes).await {
                Ok(node) => self.absorb_answer(&node),
                Err(error) => return self.missed(&error),
            }
        }
        match self.host(|m| m.retire_first_annotations().and_then(|()| m.facts())).await {
            Ok(disk) => self.view.disk = disk,
            Err(e) => return self.failed(Job::AdoptFile, e.kind, None, e.text).await,
        }
        Next::Step
    }

    async fn join(&mut self) -> Next {
        let pools = match self.cluster.pools().await {
            Ok(pools) => pools,
            // No pools' kind yet: the operator is still installing.
            Err(error) if error.is_not_found() => return self.not_yet("there are no MachineConfigPools yet"),
            Err(error) => return self.call_failed(Job::Join, &error).await,
        };
        let config = match join::membership(&self.view.node.labels, &pools) {
            Ok(Membership::Pool { config, .. }) if !config.is_empty() => config,
            Ok(Membership::Pool { pool, .. }) => {
                return self.not_yet(&format!("MachineConfigPool {pool} has no rendered config yet"));
            }
            Ok(Membership::NoPool) => return self.not_yet("no MachineConfigPool selects this node"),
            Err(error) => {
                return self.failed(Job::Join, FailureKind::Degraded, None, error.to_string()).await;
            }
        };
        let pair = Pair { from: EMPTY_CONFIG.to_owned(), to: config.clone() };
        let cost = match self.plan(&pair).await {
            Ok((cost, _)) => cost,
            Err(PlanError::Call(error)) => return self.call_failed(Job::Join, &error).await,
            // The update itself will meet the same refusal, and say it on the Node.
            Err(PlanError::Machine(_)) => Cost::default(),
        };
        let changes = join::first_annotations(&self.view.node, &config, cost);
        tracing::info!(%config, ?cost, first = ?changes.get(annotation::DESIRED_CONFIG), "first contact");
        self.write(changes, vec![], None, true).await
    }

    fn not_yet(&self, why: &str) -> Next {
        tracing::info!(%why, "waiting for a config");
        Next::Wait(Some(Timestamp::now() + JOIN_POLL.mul_f64(0.5 + jitter() / 2.0)))
    }

    async fn check(&mut self, config: String, record: bool) -> Next {
        let job = Job::Check { config: config.clone() };
        let fetched = if record {
            match self.config_in_effect(&config).await {
                Ok(fetched) => Some(fetched),
                Err(PlanError::Call(error)) => return self.call_failed(job, &error).await,
                Err(PlanError::Machine(e)) => return self.failed(job, e.kind, e.event, e.text).await,
            }
        } else {
            None
        };
        // A node that said Done and is found changed has drifted; at the start that has another name.
        let drifts = self.view.node.state == state::DONE && self.ever_checked;
        self.ever_checked = true;
        self.checked_at = Instant::now();
        let found = self.host(move |m| m.check(fetched.as_ref()).and_then(|r| Ok((r, m.facts()?)))).await;
        self.tell(&self.machine.remarks());
        match found {
            Ok((Some(repair), _)) => self.repair(job, repair).await,
            Ok((None, disk)) => {
                self.view.disk = disk;
                self.view.checked = true;
                self.view.hand = Hand::Nothing;
                self.settings.metrics.drift(None);
                Next::Step
            }
            Err(e) => {
                // A person may have asked by a file for a repair.
                if let Ok(disk) = self.host(Machine::facts).await {
                    self.view.disk = disk;
                }
                if e.event.is_some() {
                    self.settings.metrics.drift(Some(self.view.now));
                    // A repair by hand is to be seen as soon as the damage.
                    self.watch_disk().await;
                }
                let event = e.event.map(|e| if drifts { EventKind::ConfigDriftDetected } else { e });
                self.failed(job, e.kind, event, e.text).await
            }
        }
    }

    /// Puts back what drifted and may be put back; the disk is looked at once more then.
    async fn repair(&mut self, job: Job, repair: Repair) -> Next {
        // What services are told is worth a moment of waiting; the repair is not held up by an outage.
        let asked = tokio::time::timeout(REPAIR_PATIENCE, self.cluster.machine_configuration()).await;
        let policy = match asked {
            Ok(Ok(found)) => policy(found.as_ref()).ok(),
            Ok(Err(_)) | Err(_) => None,
        };
        match self.host(move |m| m.repair(&repair, policy.as_ref())).await {
            Ok(notes) => {
                self.tell(&notes);
                Next::Step
            }
            Err(e) => {
                self.watch_disk().await;
                self.failed(job, e.kind, e.event, e.text).await
            }
        }
    }

    /// The config that a node says it is in, where the disk has no record of it: the cluster's object, or what the
    /// config server left when it set the machine up. That may be older than anything that the cluster still has.
    async fn config_in_effect(&self, name: &str) -> Result<MachineConfig, PlanError> {
        match self.cluster.config(name).await {
            Err(error) if error.is_not_found() => {
                let wanted = name.to_owned();
                self.host(move |m| m.served(&wanted)).await?.ok_or(PlanError::Call(error))
            }
            other => Ok(other?),
        }
    }

    async fn plan(&self, pair: &Pair) -> Result<(Cost, Work), PlanError> {
        let to = self.cluster.config(&pair.to).await?;
        let from = match self.host(Machine::current).await? {
            Some(from) => from,
            None => self.config_in_effect(&pair.from).await?,
        };
        let policy = policy(self.cluster.machine_configuration().await?.as_ref());
        let policy = policy.map_err(MachineError::broken)?;
        Ok(self.host(move |m| m.prepare(&from, &to, &policy)).await?)
    }

    async fn prepare(&mut self, pair: Pair) -> Next {
        self.stop_watching().await;
        self.reporter.reach(&self.view, &Milestone::Wanted);
        match self.plan(&pair).await {
            Ok((cost, work)) => {
                tracing::info!(from = %pair.from, to = %pair.to, ?cost, "prepared");
                self.work = Some(work);
                self.view.hand = Hand::Prepared { pair, cost, asked: None };
                self.view.checked = true;
                self.reporter.reach(&self.view, &Milestone::Prepared(cost));
                Next::Step
            }
            Err(PlanError::Call(error)) => self.call_failed(Job::Update(pair), &error).await,
            Err(PlanError::Machine(e)) => {
                self.reporter.reach(&self.view, &Milestone::Refused(e.text.clone()));
                if e.event == Some(EventKind::PreflightConfigDriftCheckFailed) {
                    // Tried again as soon as it is repaired.
                    self.watch_disk().await;
                }
                self.failed(Job::Update(pair), e.kind, e.event, e.text).await
            }
        }
    }

    async fn apply(&mut self, pair: Pair) -> Next {
        let (Some(work), Hand::Prepared { cost, .. }) = (self.work.take(), &self.view.hand) else {
            self.view.hand = Hand::Nothing;
            return Next::Step;
        };
        let reboots = cost.reboot;
        if cost.drain && self.view.node.own_cordon {
            self.reporter.reach(&self.view, &Milestone::Drained);
        }
        self.reporter.reach(&self.view, &Milestone::Applying);
        let done = {
            let mut work = std::pin::pin!(self.host(move |m| {
                let applied = m.apply(work);
                Ok((applied, m.facts()?))
            }));
            tokio::select! {
                done = &mut work => done,
                () = self.shutdown.cancelled() => {
                    let text = "Told to stop during an update; the step under way is finished first".to_owned();
                    self.tell(&[Note { kind: EventKind::GotSigtermDuringUpdate, text }]);
                    work.await
                }
            }
        };
        let (applied, disk) = match done {
            Ok(done) => done,
            Err(e) => return self.failed(Job::Update(pair), e.kind, e.event, e.text).await,
        };
        self.view.disk = disk;
        match applied {
            Ok(notes) => {
                tracing::info!(config = %pair.to, reboots, "applied");
                self.tell(&notes);
                let served = [EventKind::ServiceReload, EventKind::ServiceRestart];
                let services = notes.into_iter().filter(|n| served.contains(&n.kind)).map(|n| n.text).collect();
                self.reporter.reach(&self.view, &Milestone::Applied { reboots, services });
                self.view.checked = true;
                self.checked_at = Instant::now();
                self.ever_checked = true;
                self.lost = None;
                self.view.hand = Hand::Applied { config: pair.to, asked: None };
                Next::Step
            }
            Err(e) => self.failed_after(e.disturbing, Job::Update(pair), e.kind, e.event, e.text),
        }
    }

    async fn reboot(&mut self, config: String) -> Next {
        self.reporter.reach(&self.view, &Milestone::Rebooting);
        self.reporter.last_word().await;
        let why = format!("Node will reboot into config {config}");
        match self.host(move |m| m.reboot(&why)).await {
            Ok(()) => {
                tracing::info!(%config, "rebooting");
                Next::Exit(Exit::Rebooting)
            }
            Err(e) => {
                self.settings.metrics.reboot_failed();
                self.failed(Job::Reboot { config }, e.kind, e.event, e.text).await
            }
        }
    }

    async fn forget_reboot(&mut self, config: String) -> Next {
        match self.host(|m| m.reboot_done().and_then(|()| m.facts())).await {
            Ok(disk) => {
                self.view.disk = disk;
                self.view.checked = false;
                tracing::info!(%config, "rebooted");
                self.reporter.reach(&self.view, &Milestone::Rebooted);
                Next::Step
            }
            Err(e) => self.failed(Job::Reboot { config }, e.kind, e.event, e.text).await,
        }
    }
}

enum PlanError {
    Call(CallError),
    Machine(MachineError),
}

impl From<CallError> for PlanError {
    fn from(e: CallError) -> Self {
        Self::Call(e)
    }
}

impl From<MachineError> for PlanError {
    fn from(e: MachineError) -> Self {
        Self::Machine(e)
    }
}

/// Waits until the trouble of the host is another one; for ever where nobody tells.
async fn comes_or_goes(trouble: &mut Option<Trouble>) {
    let told = match trouble {
        Some(trouble) => trouble.changed().await.is_ok(),
        None => false,
    };
    if !told {
        // Whoever tells has ended, and the agent is about to.
        std::future::pending().await
    }
}

/// How long until then; nothing if it is past.
pub(crate) fn until_then(then: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(Timestamp::now())).unwrap_or_default()
}
