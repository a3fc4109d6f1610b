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
//! After the undo, what failed is looked at for a while (see [`Aftermath`]): if it fails still, the change may not have been
//! to blame, or has left something behind that only a reboot ends.
//!
//! Guarantees: as soon as `failed.json` is on the disk the change is undone, whatever crashes; before that, it is not. A
//! change is undone once: the record of its failure keeps the config from being tried again. A change whose boots never
//! last until the confirmation is undone by the boot after [`MOST_BOOTS`]. A restart of userspace alone counts as a boot.
//! Its undo needs a boot of the kernel: that is sure to end whatever the change has started.
//!
//! Not here: what is checked before a change is confirmed. The caller knows that.

use std::time::Duration;

use desired::SSH_UNITS;
use serde::{Deserialize, Serialize};

use crate::disk::found::FsError;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::steps::PRIVATE;
use crate::record::{Aftermath, Boot, Check, LoginUnit, Names, Trial, TrialFailure, UnitRun};
use crate::system::systemd::ServiceAction;
use crate::transaction::journal::{Journal, Stage};
use crate::transaction::lock::Lock;
use crate::transaction::merge;
use crate::transaction::reboot::RebootStatus;
use crate::transaction::recover::{Recovery, ServiceUndo};

/// The transient unit that undoes a change which nobody confirms.
pub const TRIAL_UNIT: &str = "machine-config-daemon-trial.service";
/// How much of the time has passed.
pub(crate) const CLOCK: &str = "/var/lib/machine-config-daemon/journal/trial.json";
/// Why the change is being undone.
pub(crate) const FAILED: &str = "/var/lib/machine-config-daemon/journal/failed.json";
/// Exists if the change was interrupted before its commit, and the machine booted what it had staged.
pub(crate) const INTERRUPTED: &str = "/var/lib/machine-config-daemon/journal/interrupted";
/// Why the machine reboots after the undo.
const BACK_FROM_TRIAL: &str = "back to what ran before a change that was tried";
/// Why the machine reboots after an undo that needed none.
const EFFECTS_STAY: &str = "what failed in a trial fails after the undo too";
/// How often the time that has passed is written down. A power cut gives back at most this much.
const TICK: Duration = Duration::from_secs(15);
/// So many boots may end before the change is confirmed: a power cut and a second one are no fault of the change.
const MOST_BOOTS: u32 = 3;
/// How often the machine is rebooted because the undo fails. What a reboot does not mend once or twice needs a person.
const MOST_REBOOTS: u32 = 2;
/// The room for the records of a trial's end: each has a block of its own for its contents, its name and a temporary file.
const RESERVE: usize = 64 * 1024;

/// How much of a trial's time has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Clock {
    /// The boot in which it was written.
    #[serde(flatten)]
    boot: Boot,
    /// The machine's uptime then, in milliseconds.
    up: u64,
    /// How much of the time had passed then, in milliseconds.
    spent: u64,
    /// In how many boots the change has been on trial.
    boots: u32,
}

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
                    tracing::warn!(%error, "the time of the change's trial cannot be written down");
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

    /// Which of these units run now. A unit whose state systemd does not tell does not count.
    pub(crate) fn running(&mut self, units: &[String]) -> Vec<UnitRun> {
        let mut out = Vec::new();
        for unit in units {
            match self.systemd.unit_state(unit) {
                Ok(state) if state.runs() => {
                    out.push(UnitRun { unit: unit.clone(), invocation: state.invocation });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "whether a unit runs is unknown; it is not checked later");
                }
            }
        }
        out
    }

    /// What the units that ran before the change do now: the name, systemd's word, and the id of the run.
    ///
    /// # Errors
    /// systemd cannot be reached.
    pub fn trial_units(&mut self, trial: &Trial) -> Result<Vec<(String, crate::UnitState)>, Error> {
        let mut out = Vec::new();
        for run in &trial.units {
            out.push((run.unit.clone(), self.systemd.unit_state(&run.unit)?));
        }
        Ok(out)
    }

    /// Which of these units run now, in whichever run.
    ///
    /// # Errors
    /// systemd cannot be reached.
    pub fn running_of(&mut self, units: &[UnitRun]) -> Result<Vec<String>, Error> {
        let mut out = Vec::new();
        for run in units {
            if self.systemd.unit_state(&run.unit)?.runs() {
                out.push(run.unit.clone());
            }
        }
        Ok(out)
    }

    /// Whether the machine has stopped in emergency mode.
    pub fn in_emergency(&mut self) -> bool {
        self.systemd.is_running("emergency.service").unwrap_or_else(|error| {
            tracing::warn!(%error, "whether the machine is in emergency mode is unknown");
            false
        })
    }

    /// How people log in on this host: what of the SSH server's units runs, and what of them starts at boot.
    pub(crate) fn login_units(&mut self) -> Vec<LoginUnit> {
        let mut out = Vec::new();
        for unit in SSH_UNITS {
            let ran = self.systemd.unit_state(unit).is_ok_and(|state| state.runs());
            let enabled = self.systemd.state(unit).ok().flatten().is_some_and(|state| state.is_enabled());
            if ran || enabled {
                out.push(LoginUnit { unit: unit.to_owned(), ran, enabled });
            }
        }
        out
    }

    /// Why people can no longer log in as before a change on trial, or could not after the next boot. A server may have been
    /// replaced by the socket that starts it, and the other way round. `None`: they can.
    pub fn lost_logins(&mut self, trial: &Trial) -> Option<String> {
        let now = self.login_units();
        let named = |of: fn(&LoginUnit) -> bool| {
            let units = trial.logins.iter().filter(|unit| of(unit)).map(|unit| unit.unit.as_str());
            Some(units.collect::<Vec<_>>().join(" and ")).filter(|units| !units.is_empty())
        };
        if let Some(ran) = named(|unit| unit.ran)
            && !now.iter().any(|unit| unit.ran)
        {
            return Some(format!("{ran} ran before the change, and no SSH server runs now"));
        }
        let enabled = named(|unit| unit.enabled)?;
        (!now.iter().any(|unit| unit.enabled)).then(|| {
            format!("{enabled} started at boot before the change, and no SSH server does now: it is masked or disabled")
        })
    }

    /// Begins the trial of a change that was just committed and needs no boot.
    pub(crate) fn begin_trial(&mut self, journal: &Journal) -> Result<(), Error> {
        if !self.has_begun(journal)? {
            return Ok(());
        }
        match self.write_clock() {
            Err(error) if !error.killed() => {
                tracing::warn!(%error, "the time of the change's trial begins at the next look");
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
                // The time that has passed counts all the same.
                Err(error) if !error.killed() => {
                    tracing::warn!(%error, "the time of the change's trial cannot be written down");
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

    /// Continues the undo of a trial that failed. `None`: it has not failed.
    pub(crate) fn continue_failed(&mut self, journal: &Journal) -> Result<Option<Recovery>, Error> {
        match self.failed()? {
            Some(_) => self.undo_trial(journal).map(Some),
            None => Ok(None),
        }
    }

    fn failed(&self) -> Result<Option<TrialFailure>, Error> {
        self.record_of(FAILED, "remove it to have the change confirmed")
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
        // The machine is back in the deployment of before the change. If no file of the change can cut the node off, what
        // has started since does not matter. The undo has restored the record of a pending reboot, so that one does not
        // tell.
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
            let aftermath = Some(Aftermath { units, before, undone_in });
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
    pub(crate) fn start_what_ran(&mut self, journal: &Journal, services: ServiceUndo) -> Result<(), Error> {
        let Some(trial) = journal.trial.as_ref().filter(|_| services != ServiceUndo::LaterBoot) else {
            return Ok(());
        };
        let logins = trial.logins.iter().filter(|unit| unit.ran).map(|unit| &unit.unit);
        let ran: Vec<String> = trial.units.iter().map(|run| &run.unit).chain(logins).cloned().collect();
        for unit in ran {
            self.tolerate("start", &unit, |s| match s.is_running(&unit)? {
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
        Ok(!self.root.found(FAILED)?.is_absent()
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
        match self.write_record(FAILED, &counted) {
            Err(error) if !error.killed() => {
                tracing::error!(%error, "a reboot that cannot be counted is not made");
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

    /// Makes a reboot pending because what failed in a trial fails after the undo too: an effect of the change may have
    /// stayed. It is made once: the machine is in another boot then.
    ///
    /// # Errors
    /// Another process is changing the host, or the records cannot be read or written.
    pub fn reboot_after_undo(&mut self) -> Result<(), Error> {
        let _lock = Lock::take_soon(&self.root)?;
        let config = self.current_config()?.map(|config| config.name).unwrap_or_default();
        self.record_return_reboot(&config, EFFECTS_STAY, true)
    }

    /// Whether the watch has something to do on this host.
    pub(crate) fn watch_if_needed(&mut self) -> Result<(), Error> {
        let back = matches!(self.reboot_status()?, RebootStatus::Owed(owed) if owed.back);
        let looks = self.trial_failure()?.is_some_and(|failure| failure.aftermath.is_some());
        // One that runs looks at all of it, and must not be started anew while it waits.
        if (back || looks || self.has_failed_trial()?) && !self.watch_runs() {
            self.start_trial_watch()?;
        }
        Ok(())
    }

    fn watch_runs(&mut self) -> bool {
        !self.trial_watch.is_empty() && self.systemd.is_running(TRIAL_UNIT).unwrap_or(false)
    }

    fn fail_locked(&mut self, journal: &Journal, check: Check, why: &str) -> Result<Recovery, Error> {
        let names = &journal.names;
        tracing::error!(config = %names.current, desired = %names.desired, %why, "a change on trial is undone");
        // In one write with the verdict: whichever process goes on knows which boot had to end.
        let left = match journal.os_change() {
            Some((before, _)) if !self.os.runs(before)? => Some(self.boot()?),
            _ => None,
        };
        self.write_record(FAILED, &TrialFailure { left, ..TrialFailure::new(&names.desired, check, why) })?;
        self.undo_trial(journal)
    }

    fn undo_trial(&mut self, journal: &Journal) -> Result<Recovery, Error> {
        if !self.undo_os(journal)? {
            let Names { current: config, desired } = journal.names.clone();
            self.record_return_reboot(&desired, BACK_FROM_TRIAL, true)?;
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

    /// Keeps room for the records of the trial's end.
    pub(crate) fn reserve_room(&self) -> Result<(), FsError> {
        // Not the same byte again and again: a file system may store that in no room at all.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let bytes = std::iter::repeat_with(|| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()
        });
        let bytes: Vec<u8> = bytes.flatten().take(RESERVE).collect();
        self.root.write_bytes(paths::TRIAL_RESERVE, &bytes, PRIVATE)
    }

    /// Writes a record that a trial's end cannot do without. On a full disk the room that was kept for it is given back.
    pub(crate) fn write_needed(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        match self.root.write_bytes(path, bytes, PRIVATE) {
            Err(full) if is_full(&full) && !self.root.found(paths::TRIAL_RESERVE)?.is_absent() => {
                tracing::warn!(%path, "the disk is full; using the room that was kept for the end of the trial");
                self.root.discard_temporary(path)?;
                self.root.remove(paths::TRIAL_RESERVE)?;
                self.root.write_bytes(path, bytes, PRIVATE)
            }
            done => done,
        }
    }

    fn write_record(&self, path: &str, record: &impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_vec(record)
            .map_err(|e| Error::Config { name: path.to_owned(), why: e.to_string() })?;
        Ok(self.write_needed(path, &json)?)
    }

    fn journal_on_trial(&self) -> Result<Option<Journal>, Error> {
        let ends = |path| Ok::<_, Error>(!self.root.found(path)?.is_absent());
        if !Journal::is_committed(&self.root)? || ends(FAILED)? || ends(INTERRUPTED)? {
            return Ok(None);
        }
        match Journal::stage(&self.root)? {
            Stage::Done(journal) if journal.trial.is_some() => Ok(Some(journal)),
            _ => Ok(None),
        }
    }

    /// Whether what was changed is in effect: at once, after a restart of userspace, or after a boot of the kernel.
    fn has_begun(&mut self, journal: &Journal) -> Result<bool, Error> {
        let Some(trial) = &journal.trial else { return Ok(true) };
        let now = self.boot()?;
        Ok(if journal.os_change().is_some() || trial.reboots && !trial.soft {
            !journal.boot.is_same_boot(&now)
        } else {
            !trial.reboots || !journal.boot.is_same_userspace(&now)
        })
    }

    fn clock(&self) -> Result<Option<Clock>, Error> {
        self.record_of(CLOCK, "remove it to have the time begin again")
    }

    /// The clock as it would be written now.
    fn clock_now(&mut self) -> Result<Clock, Error> {
        let then = self.clock()?;
        self.clock_after(then.as_ref())
    }

    fn clock_after(&mut self, then: Option<&Clock>) -> Result<Clock, Error> {
        let up = u64::try_from(self.systemd.up_for().as_millis()).unwrap_or(u64::MAX);
        let boot = self.boot()?;
        Ok(match then {
            None => Clock { boot, up, spent: 0, boots: 1 },
            Some(then) if then.boot.is_same_userspace(&boot) => {
                Clock { spent: then.spent.saturating_add(up.saturating_sub(then.up)), up, ..then.clone() }
            }
            Some(then) => Clock { boot, up, spent: then.spent, boots: then.boots.saturating_add(1) },
        })
    }

    fn write_clock(&mut self) -> Result<Clock, Error> {
        let then = self.clock()?;
        let now = self.clock_after(then.as_ref())?;
        let recent = |then: &Clock| {
            then.boots == now.boots
                && now.up.saturating_sub(then.up) < u64::try_from(TICK.as_millis()).unwrap_or(0)
        };
        if then.as_ref().is_some_and(recent) {
            return Ok(now);
        }
        let json = serde_json::to_vec(&now)
            .map_err(|e| Error::Config { name: CLOCK.to_owned(), why: e.to_string() })?;
        // Without a first record no time would ever pass. The others are not worth the room that is kept for the end.
        match then {
            None => self.write_needed(CLOCK, &json)?,
            Some(_) => self.root.write_bytes(CLOCK, &json, PRIVATE)?,
        }
        Ok(now)
    }

    fn start_trial_watch(&mut self) -> Result<(), Error> {
        if self.trial_watch.is_empty() {
            return Ok(());
        }
        let command = self.trial_watch.clone();
        Ok(self.tolerate("start", TRIAL_UNIT, |s| s.start_watch(TRIAL_UNIT, &command))?)
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

/// Whether there was no room for a write.
fn is_full(error: &FsError) -> bool {
    use std::io::ErrorKind;
    matches!(error.source.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// What a trial, or the way back from a change, leaves beside its journal.
pub(crate) const REMAINS: [&str; 5] = [CLOCK, FAILED, INTERRUPTED, paths::TRIAL_RESERVE, merge::NOTE];

impl Journal {
    /// Whether there is a journal of a committed change.
    pub(crate) fn is_committed(root: &crate::disk::root::Root) -> Result<bool, FsError> {
        Ok(!root.found(crate::transaction::journal::DONE)?.is_absent())
    }
}
