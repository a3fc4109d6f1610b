//! The trial of a committed change: its journal is kept, and with it the undo, until the change is confirmed.
//!
//! ```text
//! apply ─► done.json + trial.json ─┬─► confirm_trial ─► finalised.json ─► nothing
//!                                  └─► fail_trial ─► failed.json ─► begin.json ─► (undo) ─► trial-failure.json
//! ```
//!
//! Flow: the time for the confirmation runs from the boot into the change, or from its commit if it needs no boot. It is
//! measured by the machine's monotonic clock, and what has passed is written down every few seconds, so that it goes on
//! after a power cut. The time of day is not used: it may be wrong after a boot.
//!
//! A change that has booted another deployment is undone in two parts: the old deployment is made the default and the
//! machine reboots into it, and only then the files are undone, because each deployment has an `/etc` of its own.
//!
//! A disk that is full when a trial ends: room for its records is kept from before the change on (`trial-reserve`), and given
//! back when one of them does not fit. Until the verdict a record that cannot be written costs nothing but its content.
//!
//! After the undo, what failed is looked at for a while (see [`UndoneTrialCheck`]): if it fails still, the change may not have been
//! to blame, or has left something behind that only a reboot ends.
//!
//! Guarantees: as soon as `failed.json` is on the disk the change is undone, whatever crashes; before that, it is not. A
//! change is undone once: the record of its failure keeps the config from being tried again. A change whose boots never
//! last until the confirmation is undone by the boot after [`MOST_BOOTS`]. A restart of userspace alone counts as a boot.
//! Its undo needs a boot of the kernel: that is sure to end whatever the change has started.
//!
//! Not here: what is checked before a change is confirmed. The caller knows that.

mod clock;
mod health_checks;
mod reserved_space;
mod undo;

use std::time::Duration;

use crate::disk::fs_error::FsError;
use crate::error::Error;
use crate::host::Host;
use crate::paths::{self, INTERRUPTED, TRIAL_VERDICT};
use crate::record::{Check, Names, RebootStatus, Trial, TrialFailure};
use crate::transaction::journal::{Journal, Stage};
use crate::transaction::lock::Lock;
use crate::transaction::recover::Recovery;

/// The transient unit that undoes a change which nobody confirms.
pub const TRIAL_UNIT: &str = "machine-config-daemon-trial.service";
/// So many boots may end before the change is confirmed: a power cut and a second one are no fault of the change.
const MOST_BOOTS: u32 = 3;

/// A committed change that is not confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenTrial {
    /// The old and the new config. The host is in the new one.
    pub names: Names,
    /// The trial.
    pub trial: Trial,
    /// The time runs. `false`: the reboot into the change is still to come.
    pub begun: bool,
    /// How much of the time is left.
    pub left: Duration,
}

impl Host {
    /// Sets the program that [`TRIAL_UNIT`] runs while a change of this host is on trial, with its arguments. Without it
    /// only the caller ends a trial.
    #[must_use]
    pub fn with_trial_watch(self, command: Vec<String>) -> Self {
        Self { trial_watch: command, ..self }
    }

    /// The change that is on trial, if there is one.
    ///
    /// # Errors
    /// The journal or the clock cannot be read.
    pub fn trial(&mut self) -> Result<Option<OpenTrial>, Error> {
        let Some(journal) = self.journal_on_trial()? else { return Ok(None) };
        let Some(trial) = journal.trial.clone() else { return Ok(None) };
        let begun = self.has_begun(&journal)?;
        let spent = if begun { self.clock_now()?.spent } else { 0 };
        let left = Duration::from_secs(trial.within).saturating_sub(Duration::from_millis(spent));
        Ok(Some(OpenTrial { names: journal.names, trial, begun, left }))
    }

    /// Writes down how much of the trial's time has passed, if it was not done for some seconds. Leaves that to another
    /// process that does it, or changes the host, at this moment.
    ///
    /// # Errors
    /// The journal or the clock cannot be read or written.
    pub fn tick_trial(&mut self) -> Result<(), Error> {
        let _lock = match Lock::take(&self.root) {
            Err(Error::Busy { .. }) => return Ok(()),
            taken => taken?,
        };
        match self.journal_on_trial()? {
            Some(journal) if self.has_begun(&journal)? => match self.write_clock() {
                // What has passed in this boot is known without it.
                Err(error) if !error.killed() => {
                    tracing::warn!(%error, "the time of the change's trial cannot be stored");
                    Ok(())
                }
                done => done.map(drop),
            },
            _ => Ok(()),
        }
    }

    /// Keeps the change that is on trial: from here on it is never undone. Returns its config. `None`: no change is on
    /// trial, or its reboot is still to come.
    ///
    /// # Errors
    /// Another process is changing the host, or the journal cannot be read or changed.
    pub fn confirm_trial(&mut self) -> Result<Option<String>, Error> {
        let _lock = Lock::take_soon(&self.root)?;
        let Some(journal) = self.journal_on_trial()? else { return Ok(None) };
        if !self.has_begun(&journal)? {
            return Ok(None);
        }
        self.note_kept_os(&journal)?;
        Journal::finalise(&self.root)?;
        Journal::clear(&self.root, Some(&journal))?;
        Ok(Some(journal.names.desired))
    }

    /// Undoes the change that is on trial, and records why, so that its config is not tried again. If the machine has
    /// booted into the change, a reboot is pending afterwards (see [`Host::reboot_status`]).
    ///
    /// # Errors
    /// Another process is changing the host, or the undo fails. [`Host::recover`] continues it.
    pub fn fail_trial(&mut self, check: Check, why: &str) -> Result<Recovery, Error> {
        let _lock = Lock::take_soon(&self.root)?;
        match self.journal_on_trial()? {
            Some(journal) => self.fail_locked(&journal, check, why),
            None => self.recover_locked(),
        }
    }

    /// The config that was tried and undone, if there is such a record.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn trial_failure(&self) -> Result<Option<TrialFailure>, Error> {
        self.record_of(paths::TRIAL_FAILURE, "remove it to have the config that failed tried again")
    }

    /// Removes that record: the config may be tried again.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget_trial_failure(&self) -> Result<(), Error> {
        Ok(self.root.remove(paths::TRIAL_FAILURE)?)
    }

    /// Begins the trial of a change that was just committed and needs no boot.
    pub(crate) fn begin_trial(&mut self, journal: &Journal) -> Result<(), Error> {
        if !self.has_begun(journal)? {
            return Ok(());
        }
        match self.write_clock() {
            Err(error) if !error.killed() => {
                tracing::warn!(%error, "the time of the change's trial begins at the next check");
            }
            done => drop(done?),
        }
        self.start_trial_watch()
    }

    /// Continues the trial at start-up, or the undo of one that failed.
    pub(crate) fn continue_trial(&mut self, journal: &Journal) -> Result<Recovery, Error> {
        let config = journal.names.desired.clone();
        let Some(trial) = &journal.trial else { return Ok(Recovery::Nothing) };
        if self.has_begun(journal)? {
            let clock = match self.write_clock() {
                // The time that has passed still counts.
                Err(error) if !error.killed() => {
                    tracing::warn!(%error, "the time of the change's trial cannot be stored");
                    self.clock_now()?
                }
                done => done?,
            };
            if clock.boots > MOST_BOOTS {
                let why = format!(
                    "the machine has booted {MOST_BOOTS} times into it, and no boot lasted until the change was confirmed"
                );
                return self.fail_locked(journal, Check::Boot, &why);
            }
            if Duration::from_millis(clock.spent) >= Duration::from_secs(trial.within) {
                let why = format!("nobody confirmed it within {} s", trial.within);
                return self.fail_locked(journal, Check::Confirmation, &why);
            }
            self.start_trial_watch()?;
        }
        Ok(Recovery::OnTrial { config })
    }

    /// Undoes a change on trial because another one replaces it. `false`: it has not booted another deployment, so it can
    /// be undone at once.
    pub(crate) fn replace_trial(&mut self, journal: &Journal) -> Result<bool, Error> {
        let runs_old = match journal.os_change() {
            Some((before, _)) => self.os.runs(before)?,
            None => true,
        };
        if runs_old || !self.has_begun(journal)? {
            return Ok(false);
        }
        self.fail_locked(journal, Check::Confirmation, "another config replaces it before it was confirmed")?;
        Ok(true)
    }

    /// Whether the watch has something to do on this host.
    pub(crate) fn watch_if_needed(&mut self) -> Result<(), Error> {
        let back = matches!(self.reboot_status()?, RebootStatus::Owed(owed) if owed.back);
        let looks = self.trial_failure()?.is_some_and(|failure| failure.aftermath.is_some());
        // A running watch covers all of this, and must not be restarted while it waits.
        if (back || looks || self.has_failed_trial()?) && !self.watch_runs() {
            self.start_trial_watch()?;
        }
        Ok(())
    }

    fn watch_runs(&mut self) -> bool {
        !self.trial_watch.is_empty() && self.systemd.is_running(TRIAL_UNIT).unwrap_or(false)
    }

    fn journal_on_trial(&self) -> Result<Option<Journal>, Error> {
        let ends = |path| Ok::<_, Error>(!self.root.found(path)?.is_absent());
        if !Journal::is_committed(&self.root)? || ends(TRIAL_VERDICT)? || ends(INTERRUPTED)? {
            return Ok(None);
        }
        match Journal::stage(&self.root)? {
            Stage::Done(journal) if journal.trial.is_some() => Ok(Some(journal)),
            _ => Ok(None),
        }
    }

    fn start_trial_watch(&mut self) -> Result<(), Error> {
        if self.trial_watch.is_empty() {
            return Ok(());
        }
        let command = self.trial_watch.clone();
        Ok(self.systemd_or_log("start", TRIAL_UNIT, |s| s.start_watch(TRIAL_UNIT, &command))?)
    }

    fn record_of<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        remedy: &str,
    ) -> Result<Option<T>, Error> {
        let bytes = self.root.read_if_there(path)?;
        let unreadable =
            |e: serde_json::Error| Error::Config { name: path.to_owned(), why: format!("{e}; {remedy}") };
        bytes.map(|b| serde_json::from_slice(&b).map_err(unreadable)).transpose()
    }
}

impl Journal {
    /// Whether there is a journal of a committed change.
    pub(crate) fn is_committed(root: &crate::disk::root::Root) -> Result<bool, FsError> {
        Ok(!root.found(crate::transaction::journal::DONE)?.is_absent())
    }
}
