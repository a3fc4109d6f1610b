//! The undo of a change that was tried: what goes back when, and what is looked at afterwards.
//!
//! What it is not: the undo of a journal (see `transaction::recover`).

use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::record::{Check, Names, TrialFailure, UndoneTrialCheck};
use crate::system::systemd::ServiceAction;
use crate::transaction::journal::Journal;
use crate::transaction::lock::Lock;
use crate::transaction::recover::{Recovery, ServiceUndo};

/// Why the machine reboots after the undo.
const BACK_FROM_TRIAL: &str = "back to the state before a change that failed its trial";

/// Why the machine reboots after an undo that needed none.
const EFFECTS_STAY: &str = "a check that failed in a trial still fails after the undo";

/// How often the machine is rebooted because the undo fails. What a reboot does not mend once or twice needs a person.
const MOST_REBOOTS: u32 = 2;

impl Host {
    /// Continues the undo of a trial that failed. `None`: it has not failed.
    pub(crate) fn continue_failed(&mut self, journal: &Journal) -> Result<Option<Recovery>, Error> {
        match self.failed()? {
            Some(_) => self.undo_trial(journal).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn failed(&self) -> Result<Option<TrialFailure>, Error> {
        self.record_of(paths::TRIAL_VERDICT, "remove it to have the change confirmed")
    }

    /// How services are restored when this change is undone now.
    pub(crate) fn undo_mode(&mut self, journal: &Journal) -> Result<ServiceUndo, Error> {
        // Units start with userspace, not with the kernel.
        let same = journal.boot.is_same_userspace(&self.boot()?);
        Ok(if same { ServiceUndo::SameBoot } else { ServiceUndo::LaterBoot })
    }

    /// Called by the undo of a change that was on trial, when its paths are restored: makes the record of the failure
    /// last, and a reboot pending if the machine has booted into the change.
    pub(crate) fn undone_trial(&mut self, journal: &Journal, services: ServiceUndo) -> Result<(), Error> {
        let Some(trial) = &journal.trial else { return Ok(()) };
        let failed = self.failed()?;
        // The machine is back in the deployment from before the change. If no file of the change can cut the node off,
        // units that have started since do not matter. The record of a pending reboot says nothing here, because the undo
        // has restored it.
        let now = self.boot()?;
        let left = failed.as_ref().and_then(|failed| failed.left.as_ref());
        let returned = journal.os_change().is_some()
            && !trial.files
            && left.is_some_and(|left| !left.is_same_boot(&now));
        let reboots = services == ServiceUndo::LaterBoot && !returned;
        // Only now: the undo restores the record of an earlier failure that the change had removed.
        if let Some(failed) = failed {
            let undone_in = (services != ServiceUndo::LaterBoot).then_some(now);
            let (units, before) = (trial.units.clone(), trial.before.clone());
            let aftermath = Some(UndoneTrialCheck { units, before, undone_in });
            let lasting = TrialFailure { aftermath, left: None, reboots: 0, ..failed };
            self.write_record(paths::TRIAL_FAILURE, &lasting)?;
        }
        if reboots {
            // Nobody may be able to give permission: the change may have cut the node off from its cluster.
            self.record_return_reboot(&journal.names.current, BACK_FROM_TRIAL, true)?;
        }
        Ok(())
    }

    /// Called by the undo of a change that was on trial, when services have been acted on: starts what ran before the change
    /// and does not run now, whatever has stopped it.
    pub(crate) fn start_units_of_before(
        &mut self,
        journal: &Journal,
        services: ServiceUndo,
    ) -> Result<(), Error> {
        let Some(trial) = journal.trial.as_ref().filter(|_| services != ServiceUndo::LaterBoot) else {
            return Ok(());
        };
        let logins = trial.logins.iter().filter(|unit| unit.ran).map(|unit| &unit.unit);
        let ran: Vec<String> = trial.units.iter().map(|run| &run.unit).chain(logins).cloned().collect();
        for unit in ran {
            self.systemd_or_log("start", &unit, |s| match s.is_running(&unit)? {
                true => Ok(()),
                false => s.queue(ServiceAction::Restart, &unit),
            })?;
        }
        Ok(())
    }

    /// Whether a change that was on trial has failed and is not undone yet. [`Host::recover`] continues the undo.
    ///
    /// # Errors
    /// The journal's folder cannot be read.
    pub fn has_failed_trial(&self) -> Result<bool, Error> {
        Ok(!self.root.found(paths::TRIAL_VERDICT)?.is_absent()
            && (Journal::is_open(&self.root)? || Journal::is_committed(&self.root)?))
    }

    /// Counts a reboot that is made because the undo of a change on trial fails. `false`: it has been tried often enough,
    /// or cannot be counted.
    ///
    /// # Errors
    /// Another process is changing the host, or the record cannot be read.
    pub fn may_reboot_to_undo(&mut self) -> Result<bool, Error> {
        let _lock = Lock::take_soon(&self.root)?;
        let Some(failed) = self.failed()?.filter(|failed| failed.reboots < MOST_REBOOTS) else {
            return Ok(false);
        };
        let counted = TrialFailure { reboots: failed.reboots.saturating_add(1), ..failed };
        match self.write_record(paths::TRIAL_VERDICT, &counted) {
            Err(error) if !error.killed() => {
                tracing::error!(%error, "no reboot, because it could not be recorded");
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Ends the look at what follows an undo: the config stays refused.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn settle_trial_failure(&mut self) -> Result<(), Error> {
        match self.trial_failure()? {
            Some(failure) if failure.aftermath.is_some() => {
                self.write_record(paths::TRIAL_FAILURE, &TrialFailure { aftermath: None, ..failure })
            }
            _ => Ok(()),
        }
    }

    /// Makes a reboot pending because a check that failed in a trial still fails after the undo: an effect of the change may have
    /// stayed. It is made once: the machine is in another boot then.
    ///
    /// # Errors
    /// Another process is changing the host, or the records cannot be read or written.
    pub fn reboot_after_undo(&mut self) -> Result<(), Error> {
        let _lock = Lock::take_soon(&self.root)?;
        let config = self.current_config()?.map(|config| config.name).unwrap_or_default();
        self.record_return_reboot(&config, EFFECTS_STAY, true)
    }

    pub(super) fn fail_locked(
        &mut self,
        journal: &Journal,
        check: Check,
        why: &str,
    ) -> Result<Recovery, Error> {
        let names = &journal.names;
        tracing::error!(config = %names.current, desired = %names.desired, %why, "a change on trial is undone");
        // In one write with the verdict: whichever process goes on knows which boot had to end.
        let left = match journal.os_change() {
            Some((before, _)) if !self.os.runs(before)? => Some(self.boot()?),
            _ => None,
        };
        self.write_record(
            paths::TRIAL_VERDICT,
            &TrialFailure { left, ..TrialFailure::new(&names.desired, check, why) },
        )?;
        self.undo_trial(journal)
    }

    pub(super) fn undo_trial(&mut self, journal: &Journal) -> Result<Recovery, Error> {
        if !self.undo_os(journal)? {
            let Names { current: config, desired } = journal.names.clone();
            self.record_return_to_old_os(&desired, BACK_FROM_TRIAL, true)?;
            let why = self.failed()?.map(|f| f.why).unwrap_or_default();
            return Ok(Recovery::AwaitsReturn { config, desired, why });
        }
        let services = self.undo_mode(journal)?;
        Journal::reopen(&self.root)?;
        self.undo(journal, services)?;
        let why = self.trial_failure()?.map(|f| f.why).unwrap_or_default();
        let Names { current: config, desired } = journal.names.clone();
        Ok(Recovery::RolledBack { config, desired, why })
    }
}
