//! The jobs of an update, in their order: recover the host, check its disk, plan, apply, reboot. Each has its API calls, its
//! work on the host, and the phase that follows.
//!
//! Not here: the loop, the waits and the writes to the Node (see `agent`), nor any decision; how a node gets its first config
//! (see `join`); the fetch of an operating system (see `fetch`).

use super::{Agent, Next};
use crate::agent::options::Exit;
use crate::cluster::milestones::Milestone;
use crate::node::drift_check::Repair;
use crate::node::machine::{Machine, MachineError, PlannedUpdate};
use crate::protocol::{
    AgentNote, ConfigPair, Cost, EMPTY_CONFIG, Failure, Job, Phase, RebootFact, announcement,
};
use api::events::AgentEvent;
use api::node_state::NodeState;
use api::v1::MachineConfig;
use client::CallError;
use desired::{config_and_image, in_image};
use host::DisruptionPolicy;
use jiff::Timestamp;
use std::time::{Duration, Instant};

/// How long a repair waits for the disruption policy, which says which services to reload or restart.
const REPAIR_PATIENCE: Duration = Duration::from_secs(2);

impl Agent {
    /// Completes or undoes a change that a crash or a failed undo left unfinished. Nothing else is done until that has
    /// worked. If it fails, the reason is on the Node.
    pub(super) async fn recover(&mut self) -> Next {
        match self.host(|m| m.recover().and_then(|failed| Ok((failed, m.facts()?)))).await {
            Ok((os_failed, disk)) => {
                if os_failed {
                    self.settings.metrics.pivot(false);
                }
                self.view.disk = disk;
                self.view.checked = false;
                self.report_os().await;
                if let Phase::Failed(Failure { job: Job::Recover, .. }) = self.view.phase {
                    self.view.phase = Phase::Idle;
                }
                Next::Step
            }
            Err(e) => {
                tracing::error!(error = %e, "the host cannot be recovered");
                let event = Some(AgentEvent::OnDiskStateValidationFailed);
                self.failed_after(e.disturbing, Job::Recover, e.kind, event, e.text)
            }
        }
    }

    /// Tells in metrics which operating system the host has. What cannot be read does not keep the agent from its work.
    async fn report_os(&self) {
        match self.host(|m| m.os_and_packages()).await {
            Ok((os, packages)) => self.settings.metrics.host_os(self.cluster.node_name(), &os, packages),
            Err(error) => tracing::warn!(%error, "the host does not say which operating system it has"),
        }
    }

    pub(super) async fn check(&mut self, config: String, record: bool) -> Next {
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
        // A node that said Done and has changed since has drifted. At the agent's start another event reports it.
        let drifts = self.view.node.said_state() == Some(NodeState::Done) && self.ever_checked;
        self.ever_checked = true;
        self.checked_at = Instant::now();
        let clears = config == EMPTY_CONFIG;
        let check = move |m: &Machine| {
            let found = m.check(fetched.as_ref())?;
            if clears && found.is_none() {
                m.clear_host();
            }
            Ok((found, m.facts()?))
        };
        let found = self.host(check).await;
        self.report_events(&self.machine.notes_to_report());
        match found {
            Ok((Some(repair), _)) => self.repair(job, repair).await,
            Ok((None, disk)) => {
                self.view.disk = disk;
                self.view.checked = true;
                self.view.phase = Phase::Idle;
                self.settings.metrics.drift(None);
                Next::Step
            }
            Err(e) => {
                // A person may have asked for a repair with the force file.
                self.read_disk_state().await;
                if e.event.is_some() {
                    self.settings.metrics.drift(Some(Timestamp::now()));
                    // Watch the disk, so that a manual repair is seen as quickly as the drift was.
                    self.watch_disk().await;
                }
                let event = e.event.map(|e| if drifts { AgentEvent::ConfigDriftDetected } else { e });
                self.failed(job, e.kind, event, e.text).await
            }
        }
    }

    /// Repairs the drift that may be repaired. The disk is compared again afterwards.
    async fn repair(&mut self, job: Job, repair: Repair) -> Next {
        // Wait a moment for the policy, so that services are reloaded. An outage must not delay the repair.
        let asked = tokio::time::timeout(REPAIR_PATIENCE, self.cluster.machine_configuration()).await;
        let policy = match asked {
            Ok(Ok(found)) => DisruptionPolicy::of_cluster(found.as_ref()).ok(),
            Ok(Err(_)) | Err(_) => None,
        };
        let policy = policy.map(|p| p.for_pool(&self.view.node.disruption));
        match self.host(move |m| m.repair(&repair, policy.as_ref())).await {
            Ok(notes) => {
                self.report_events(&notes);
                Next::Step
            }
            Err(e) => {
                self.read_disk_state().await;
                self.watch_disk().await;
                self.failed_after(e.disturbing, job, e.kind, e.event, e.text)
            }
        }
    }

    /// The config that a node says it is in, if the disk has no record of it: the cluster's object, or the copy that
    /// the config server left when it set up the machine. That copy may be older than anything that the cluster still
    /// has.
    async fn config_in_effect(&self, state: &str) -> Result<MachineConfig, PlanError> {
        let name = config_and_image(state).0;
        let found = match self.cluster.config(name).await {
            Err(error) if error.is_not_found() => {
                let wanted = name.to_owned();
                self.host(move |m| m.served(&wanted)).await?.ok_or(PlanError::Call(error))?
            }
            other => other?,
        };
        Ok(in_state(found, state))
    }

    /// Plans the change between two configs. They are parsed for it, unless that was done a moment ago.
    pub(super) async fn plan(&mut self, pair: &ConfigPair) -> Result<(Cost, PlannedUpdate), PlanError> {
        let policy = DisruptionPolicy::of_cluster(self.cluster.machine_configuration().await?.as_ref());
        let policy = policy.map_err(MachineError::degraded)?;
        let only_whole_reboots = self.view.node.keeps_a_quorum();
        let policy = DisruptionPolicy { only_whole_reboots, ..policy }.for_pool(&self.view.node.disruption);
        if let Some(work) = self.planned_ahead.take().and_then(|ahead| ahead.for_pair(pair)) {
            let policy = policy.clone();
            if let Some(planned) = self.host(move |m| m.prepare_again(work, &policy)).await? {
                return Ok(planned);
            }
        }
        let to = in_state(self.cluster.config(config_and_image(&pair.to).0).await?, &pair.to);
        let from = match self.host(Machine::current).await? {
            Some(from) => from,
            None => self.config_in_effect(&pair.from).await?,
        };
        Ok(self.host(move |m| m.prepare(&from, &to, &policy)).await?)
    }

    pub(super) async fn prepare(&mut self, pair: ConfigPair) -> Next {
        self.stop_watching().await;
        self.reporter.report(&self.view, &Milestone::UpdateNeeded);
        let planned = self.plan(&pair).await;
        // Whatever the host says, the API server has answered. A server that can do nothing (5xx, 429) is as good as silent.
        if !matches!(&planned, Err(PlanError::Call(error)) if error.is_outage()) {
            self.view.silent_since = None;
        }
        match planned {
            Ok((cost, work)) => {
                tracing::info!(from = %pair.from, to = %pair.to, ?cost, "prepared");
                self.report_events(&work.warnings());
                let (to_fetch, not_live) = (work.needs_fetch(), work.not_live());
                self.work = Some(work);
                self.view.phase = Phase::Prepared { pair, cost, to_fetch, asked: None };
                self.view.checked = true;
                self.reporter.report(&self.view, &Milestone::Prepared { cost, not_live });
                Next::Step
            }
            Err(PlanError::Call(error)) => self.call_failed(Job::Update(pair), &error).await,
            Err(PlanError::Machine(e)) => {
                self.read_disk_state().await;
                self.reporter.report(&self.view, &Milestone::Refused(e.text.clone()));
                if e.event == Some(AgentEvent::PreflightConfigDriftCheckFailed) {
                    // Watch the disk, so that the update is retried as soon as the drift is repaired.
                    self.watch_disk().await;
                }
                self.failed(Job::Update(pair), e.kind, e.event, e.text).await
            }
        }
    }

    pub(super) async fn apply(&mut self, pair: ConfigPair) -> Next {
        let (Some(work), Phase::Prepared { cost, .. }) = (self.work.take(), &self.view.phase) else {
            self.view.phase = Phase::Idle;
            return Next::Step;
        };
        let reboots = cost.reboot;
        let changes_os = work.needs_fetch();
        if cost.drain && self.view.node.own_cordon {
            self.reporter.report(&self.view, &Milestone::Drained);
            let note = AgentNote::new(AgentEvent::Drained, "The pods have left, and the update begins");
            self.report_events(&[note.on_the_way_to(&pair.to)]);
        }
        self.reporter.report(&self.view, &Milestone::Applying);
        let (rules, before) = self.trial_of_next();
        let done = {
            let mut work = std::pin::pin!(self.host(move |m| m.apply(work, &rules, &before)));
            tokio::select! {
                done = &mut work => done,
                () = self.shutdown.cancelled() => {
                    let text = "Got SIGTERM during an update; the present step is finished first".to_owned();
                    self.report_events(&[AgentNote::new(AgentEvent::GotSigtermDuringUpdate, text)]);
                    work.await
                }
            }
        };
        self.read_disk_state().await;
        match done {
            Ok(notes) => {
                self.settings.metrics.pivot(true);
                tracing::info!(config = %pair.to, reboots, "applied");
                let notes: Vec<AgentNote> =
                    notes.into_iter().map(|note| note.on_the_way_to(&pair.to)).collect();
                self.report_events(&notes);
                let served = [AgentEvent::ServiceReload, AgentEvent::ServiceRestart];
                let services =
                    notes.into_iter().filter(|n| served.contains(&n.kind)).map(|n| n.text).collect();
                self.reporter.report(&self.view, &Milestone::Applied { reboots, services });
                self.view.checked = true;
                self.checked_at = Instant::now();
                self.ever_checked = true;
                self.failed_update = None;
                self.view.phase = Phase::Applied { config: pair.to, asked: None };
                Next::Step
            }
            Err(e) => {
                if changes_os {
                    self.settings.metrics.pivot(false);
                }
                self.failed_after(e.disturbing, Job::Update(pair), e.kind, e.event, e.text)
            }
        }
    }

    pub(super) async fn reboot(&mut self, config: String, announced: bool) -> Next {
        self.reporter.report(&self.view, &Milestone::Rebooting);
        self.reporter.flush().await;
        let mut why = announcement(&self.view, &config);
        if !announced {
            let minutes = self.view.silent_since.map(|since| self.view.now.left(since).as_secs() / 60);
            why = format!(
                "{why} without announcing it: no request to the API server has succeeded for {} minutes. The node is drained and the change is on the disk",
                minutes.unwrap_or_default()
            );
            tracing::warn!("{why}");
        }
        match self.host(move |m| Ok(m.host().reboot(&why)?)).await {
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

    pub(super) async fn record_cleared(&mut self, config: String, cleared: bool) -> Next {
        match self.host(move |m| Ok(m.host().reboot_cleared(cleared)?)).await {
            Ok(()) => {
                // Even if the write to the disk failed: this process knows it.
                if let RebootFact::Owed { cleared: known, .. } = &mut self.view.disk.reboot {
                    *known = cleared;
                }
                Next::Step
            }
            Err(e) => self.failed(Job::Reboot { config }, e.kind, e.event, e.text).await,
        }
    }

    pub(super) async fn forget_reboot(&mut self, config: String) -> Next {
        let done = self.host(|m| {
            m.host().reboot_done()?;
            m.facts()
        });
        match done.await {
            Ok(disk) => {
                self.view.disk = disk;
                self.view.checked = false;
                tracing::info!(%config, "rebooted");
                self.reporter.report(&self.view, &Milestone::Rebooted);
                Next::Step
            }
            Err(e) => self.failed(Job::Reboot { config }, e.kind, e.event, e.text).await,
        }
    }
}

/// The config of a state as it is with the state's image.
pub(crate) fn in_state(config: MachineConfig, state: &str) -> MachineConfig {
    MachineConfig::new(state, in_image(config.spec, config_and_image(state).1))
}

pub(super) enum PlanError {
    Call(CallError),
    Machine(MachineError),
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(error) => f.write_str(&error.chain()),
            Self::Machine(error) => write!(f, "{error}"),
        }
    }
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
