//! The host as the agent uses it: the `host` crate's operations combined into the protocol's steps. Each error says
//! what it means for the state of the node.
//!
//! Not here: changes of files; what follows from the facts (see `protocol`).

mod error;
mod first_boot;
mod trials;

pub(crate) use error::{MachineError, refusal};
#[cfg(test)]
pub(crate) use first_boot::FIRSTBOOT_FILE;
pub(crate) use first_boot::{ANNOTATIONS_FILE, SERVED_FILE};

use crate::node::boot_units::boot_units;
use crate::node::drift_reason::LastReason;
use crate::node::drift_repair::{Repairs, Rules};
use crate::protocol::{
    AgentNote, Cost, DiskFacts, EMPTY_CONFIG, FailureKind, RebootFact, StateBefore, TrialFacts, TriedFacts,
};
use api::events::AgentEvent;
use api::formats::text::chain;
use api::trial::TrialRules;
use api::v1::MachineConfig;
use desired::{DesiredHost, lacks_image_to_return_to};
use host::{
    Baseline, Change, DisruptionPolicy, Error, Host, HostPlan, Names, OsRelease, Pull, RebootStatus,
    Recovery, Root, ServiceAction, Watch,
};
use jiff::{SignedDuration, Timestamp};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A planned update, with the inputs of the plan.
pub(crate) struct PlannedUpdate {
    plan: HostPlan,
    change: Change,
    policy: DisruptionPolicy,
    /// The digest of the host's record of its config, from which the change leads away.
    record: String,
}

impl std::fmt::Debug for PlannedUpdate {
    /// Shows only the plan, because configs hold contents of files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlannedUpdate").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl PlannedUpdate {
    /// What a person should know before it is applied.
    pub(crate) fn warnings(&self) -> Vec<AgentNote> {
        let note = |text: &String| AgentNote::new(AgentEvent::ConfigWarning, text.clone());
        self.plan.warnings.iter().map(note).collect()
    }

    /// Why it reboots the machine although its extensions were allowed to take effect without. Empty: that is not so.
    pub(crate) fn not_live(&self) -> String {
        self.plan.not_live.clone().unwrap_or_default()
    }

    /// Whether something must be fetched for it.
    pub(crate) fn needs_fetch(&self) -> bool {
        self.plan.os_change().is_some()
    }

    /// Plans the same change again from the current state of the host, because the drain may have taken hours. A file
    /// that the host itself has at a path is saved only if the plan knows of it.
    fn planned_again(self, host: &mut Host) -> Result<Self, MachineError> {
        let Self { plan, change, policy, record } = self;
        let mut facts = host.inspect(&change)?;
        // This is called after the pods have left, or if no drain is needed.
        facts.cleared = true;
        let again = change.plan(&policy, &facts).map_err(|e| refusal(&e))?;
        if cost(&again) == cost(&plan) {
            return Ok(Self { plan: again, change, policy, record });
        }
        let text = format!(
            "the host changed while the node was drained: the update costs {} now, but {} before; it is planned again",
            again.disruption, plan.disruption
        );
        Err(MachineError { kind: FailureKind::Transient, ..MachineError::degraded(text) })
    }
}

fn cost(plan: &HostPlan) -> Cost {
    Cost { drain: plan.disruption.needs_drain(), reboot: plan.disruption.needs_reboot() }
}

/// The host of one agent. Its methods block, so the agent calls them on a blocking thread.
#[derive(Debug)]
pub(crate) struct Machine {
    root: Root,
    host: Mutex<Host>,
    rules: Mutex<Rules>,
    repairs: Mutex<Repairs>,
    last_reason: Mutex<LastReason>,
    /// What the host must look like. It is made from the config that was parsed for an update, or once after a restart.
    baseline: Mutex<Option<Arc<Baseline>>>,
}

impl Machine {
    pub(crate) fn new(host: Host) -> Self {
        let (rules, repairs, last_reason) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (root, baseline) = (host.root().clone(), Mutex::default());
        Self { root, host: Mutex::new(host), rules, repairs, last_reason, baseline }
    }

    /// What the host must look like by its record of the config that was applied last. `None`: it has no record. The
    /// config is parsed only if this process has not parsed it for an update, or if another process has changed the
    /// record.
    pub(crate) fn baseline(&self, host: &mut Host) -> Result<Option<Arc<Baseline>>, MachineError> {
        let mut held = self.baseline.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(baseline) = &*held
            && host.is_current(baseline)?
        {
            return Ok(Some(baseline.clone()));
        }
        *held = host.baseline()?.map(Arc::new);
        Ok(held.clone())
    }

    /// Holds the baseline of a config that was just applied, and drops the parsed config.
    pub(crate) fn set_baseline(&self, host: &Host, name: &str, config: DesiredHost) {
        let baseline = host.baseline_of(name, config).map(Arc::new);
        if let Err(error) = &baseline {
            tracing::warn!(
                error = chain(error),
                "the record of the config cannot be read; it is read again later"
            );
        }
        *self.baseline.lock().unwrap_or_else(PoisonError::into_inner) = baseline.ok();
    }

    /// Locks the host. If a thread panicked with the lock held, it left a journal, which the next recovery handles.
    pub(crate) fn host(&self) -> MutexGuard<'_, Host> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn repairs(&self) -> MutexGuard<'_, Repairs> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn last_reason(&self) -> MutexGuard<'_, LastReason> {
        self.last_reason.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes or undoes a change that a crash interrupted, and removes what a first boot left.
    /// Returns whether the machine did not come up in the operating system of an update.
    pub(crate) fn recover(&self) -> Result<bool, MachineError> {
        let recovery = self.host().recover()?;
        let failed = matches!(recovery, Recovery::AwaitsReturn { .. })
            || matches!(recovery, Recovery::RolledBack { .. }) && self.host().os_failure()?.is_some();
        match recovery {
            Recovery::Nothing => {}
            Recovery::Undone { config, desired } => {
                tracing::warn!(%config, %desired, "an interrupted update was rolled back");
            }
            Recovery::Finished { config } => {
                tracing::info!(%config, "an interrupted update was completed");
            }
            Recovery::AwaitsBoot { config } => {
                tracing::info!(%config, "an update is complete except for the boot into its operating system");
            }
            Recovery::OnTrial { config } => {
                tracing::info!(%config, "an update is on trial: it is undone unless it is confirmed");
            }
            Recovery::AwaitsReturn { config, desired, why } => {
                tracing::error!(%config, %desired, %why, "the machine did not boot as the update requires; it reboots into \
                    its old operating system, and then the update is undone");
            }
            Recovery::RolledBack { config, desired, why } => {
                tracing::error!(%config, %desired, %why, "an update was undone");
            }
        }
        self.clear_first_boot()?;
        Ok(failed)
    }

    /// What the disk says of where the host stands.
    pub(crate) fn facts(&self) -> Result<DiskFacts, MachineError> {
        let mut host = self.host();
        let trial = host.trial()?.map(trial_facts);
        let status = host.reboot_status()?;
        let back = matches!(&status, RebootStatus::Owed(r) if r.back);
        let returns = if let RebootStatus::Owed(r) = &status { r.returns } else { 0 };
        let reboot = match status {
            RebootStatus::None => RebootFact::None,
            RebootStatus::Owed(r) => {
                RebootFact::Owed { config: r.config, tries: r.tries, cleared: r.cleared }
            }
            RebootStatus::Rebooted(r) => {
                let boot_id = r.boot.boot_id;
                let began = match host.boot()?.boot_id == boot_id {
                    true => Timestamp::from_second(host.boot_marked()?.unwrap_or_default()).ok(),
                    false => None,
                };
                RebootFact::Rebooted { config: r.config, boot_id, began }
            }
        };
        let tried = match host.trial_failure()? {
            Some(failed) => {
                let now = host.boot()?;
                let undone_in_this_boot = |aftermath: &host::UndoneTrialCheck| {
                    aftermath.undone_in.as_ref().is_some_and(|boot| boot.is_same_boot(&now))
                };
                let in_doubt =
                    failed.aftermath.as_ref().is_some_and(|aftermath| !undone_in_this_boot(aftermath));
                Some(TriedFacts { config: failed.config, check: failed.check, retry: false, in_doubt })
            }
            None => None,
        };
        Ok(DiskFacts {
            // The undo of a trial that waits for nothing but its reboot goes on by itself.
            open: host.has_unfinished_change()? || host.has_failed_trial()? && !back,
            current: host.current_config()?.map(|c| c.name),
            annotations_file: !self.root.found(ANNOTATIONS_FILE)?.is_absent(),
            force: !self.root.found(host::paths::FORCE_FILE)?.is_absent(),
            reboot,
            reboot_of_trial: back,
            returns,
            trial,
            tried,
            takes_images: host.takes_node_image(),
        })
    }

    /// Which operating system the host has, and how many packages were layered on it by hand. A host that does not
    /// answer has none.
    pub(crate) fn os_and_packages(&self) -> Result<(OsRelease, usize), MachineError> {
        let mut host = self.host();
        let packages = host.unsupported_packages().unwrap_or_else(|error| {
            tracing::warn!(error = %chain(&error), "the host does not say which packages it has");
            0
        });
        Ok((host.os_release()?, packages))
    }

    /// The config that was applied last.
    pub(crate) fn current(&self) -> Result<Option<MachineConfig>, MachineError> {
        Ok(self.host().current_config()?.map(|c| MachineConfig::new(&c.name, c.spec)))
    }

    /// A watch of the paths that the config on the disk manages, with the config's name. `None`: there is no such
    /// config yet.
    pub(crate) fn watch(&self) -> Result<Option<(String, Watch)>, MachineError> {
        let mut host = self.host();
        let Some(baseline) = self.baseline(&mut host)? else { return Ok(None) };
        let watch = Watch::new(&self.root, &baseline)?.with_more(host.os_paths(&baseline))?;
        Ok(Some((baseline.name().to_owned(), watch)))
    }

    /// Plans the change from one config to another. Refuses what cannot be done, and a host that has drifted.
    pub(crate) fn prepare(
        &self,
        from: &MachineConfig,
        to: &MachineConfig,
        policy: &DisruptionPolicy,
    ) -> Result<(Cost, PlannedUpdate), MachineError> {
        let name = |c: &MachineConfig| c.metadata.name.clone().unwrap_or_default();
        let names = Names { current: name(from), desired: name(to) };
        let mut host = self.host();
        // An unfinished change is completed or undone first.
        host.recover()?;
        if let Some(why) = lacks_image_to_return_to(&names.current, &names.desired, &to.spec) {
            return Err(refusal(&[why]));
        }
        let change = Change::parse(&from.spec, &to.spec, names).map_err(|e| refusal(&e))?;
        self.plan(&mut host, change, policy)
    }

    /// Plans once more what was planned a moment ago, as [`Machine::prepare`] does, with both configs as they were parsed
    /// then. `None`: the host is not in the same config any more.
    pub(crate) fn prepare_again(
        &self,
        work: PlannedUpdate,
        policy: &DisruptionPolicy,
    ) -> Result<Option<(Cost, PlannedUpdate)>, MachineError> {
        let PlannedUpdate { plan: _, change, policy: _, record } = work;
        let mut host = self.host();
        host.recover()?;
        if host.record_digest()? != record {
            return Ok(None);
        }
        self.plan(&mut host, change, policy).map(Some)
    }

    /// Plans a change from the present state of the host.
    fn plan(
        &self,
        host: &mut Host,
        change: Change,
        policy: &DisruptionPolicy,
    ) -> Result<(Cost, PlannedUpdate), MachineError> {
        let record = host.record_digest()?;
        let names = change.names();
        let facts = host.inspect(&change)?;
        let plan = change.plan(policy, &facts).map_err(|e| refusal(&e))?;
        if !facts.force && names.current != EMPTY_CONFIG {
            // Drift that the update itself overwrites is no reason to refuse it: the update is the repair.
            self.refuse_drifted(host, &change)?;
        }
        host.check_room(&plan)?;
        for note in &plan.notes {
            tracing::info!("{note}");
        }
        let cost = cost(&plan);
        tracing::info!(from = %names.current, to = %names.desired, disruption = %plan.disruption, "planned");
        Ok((cost, PlannedUpdate { plan, change, policy: policy.clone(), record }))
    }

    /// Fetches what a plan needs for its change of the operating system. Takes long, and changes nothing. Idempotent.
    pub(crate) fn fetch(&self, work: &PlannedUpdate, pull: &Pull) -> Result<(), MachineError> {
        Ok(self.host().fetch(&work.plan, pull)?)
    }

    /// Removes the OS images that nothing needs any more.
    pub(crate) fn tidy_os(&self) -> Result<Vec<String>, MachineError> {
        Ok(self.host().tidy_os()?)
    }

    /// Applies what was planned: all of it or nothing.
    ///
    /// A change that can cut the node off is put on trial, if `rules` say so. `before`: how the node was.
    pub(crate) fn apply(
        &self,
        work: PlannedUpdate,
        rules: &TrialRules,
        before: &StateBefore,
    ) -> Result<Vec<AgentNote>, MachineError> {
        let mut host = self.host();
        let work = if work.plan.disruption.needs_drain() { work.planned_again(&mut host)? } else { work };
        let PlannedUpdate { mut plan, change, policy: _, record: _ } = work;
        if rules.on && !plan.cut_offs.is_empty() {
            let before = serde_json::to_string(before).map_err(|e| MachineError::degraded(e.to_string()))?;
            plan.on_trial(rules.within.unsigned_abs(), &rules.units, before);
        }
        let mut notes = Vec::new();
        if plan.trial.is_some()
            && let Err(error) = host.ensure_units(&boot_units())
        {
            let text = format!(
                "this host can undo the change by itself only until its next boot, because the units that would continue the \
                 trial then are missing: {}; install them, see machine-config-daemon-recover.service in the documentation",
                chain(&error)
            );
            tracing::warn!("{text}");
            notes.push(AgentNote::new(AgentEvent::ConfigWarning, text));
        }
        if let Err(error) = host.apply(&plan) {
            return Err(live_refused(&host, &plan, error));
        }
        self.set_baseline(&host, &plan.names.desired, change.into_new_config());
        let services = plan.disruption.services.iter().map(|s| match s.action {
            ServiceAction::Reload => AgentNote::new(
                AgentEvent::ServiceReload,
                format!("Config changes do not require reboot. Service {} was reloaded.", s.unit),
            ),
            ServiceAction::Restart => AgentNote::new(
                AgentEvent::ServiceRestart,
                format!("Config changes do not require reboot. Service {} was restarted.", s.unit),
            ),
            ServiceAction::Run => AgentNote::new(
                AgentEvent::ServiceRestart,
                format!("Config changes do not require reboot. {} was run.", s.unit),
            ),
        });
        notes.extend(services);
        if plan.disruption.services.is_empty() && !plan.disruption.needs_reboot() {
            let text = "Config changes do not require reboot.".to_owned();
            notes.push(AgentNote::new(AgentEvent::SkipReboot, text));
        }
        Ok(notes)
    }
}

/// A change on trial, as the protocol sees it. What was noted before it is unreadable only if another program wrote it:
/// then nothing but its units is asked for.
fn trial_facts(open: host::OpenTrial) -> TrialFacts {
    let within = SignedDuration::from_secs(open.trial.within.try_into().unwrap_or(i64::MAX));
    TrialFacts {
        config: open.names.desired,
        begun: open.begun,
        reboots: open.trial.reboots,
        within,
        left: SignedDuration::try_from(open.left).unwrap_or(within),
        units: open.trial.units,
        before: serde_json::from_str(&open.trial.before).unwrap_or_default(),
    }
}

/// The failure of a change that could not be applied. If the host refused to bring extensions into its running system, all of it
/// was undone, and it is planned again with a reboot.
fn live_refused(host: &Host, plan: &HostPlan, error: Error) -> MachineError {
    let refused = match (&error, host.live_refusal()) {
        (Error::Undone { .. }, Ok(Some(refusal))) => plan.is_live() && refusal.config == plan.names.desired,
        _ => false,
    };
    let failed = MachineError::from(error);
    match refused {
        true => MachineError { kind: FailureKind::Transient, ..failed },
        false => failed,
    }
}

#[cfg(test)]
mod tests;
