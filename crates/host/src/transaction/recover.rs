//! Recovers a change that a crash interrupted, and undoes a committed one.
//!
//! Not here: what existed where before the change (see `journal`).

use api::formats::text::chain;

use crate::disk::attributes::{Attributes, PRIVATE, PRIVATE_DIR};
use crate::disk::path_state::PathState;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::record::{OsFailure, PendingReboot, RebootStatus};
use crate::system::systemd::ServiceAction;
use crate::transaction::journal::{Journal, Stage};
use crate::transaction::lock::Lock;

/// How services are reloaded or restarted when a change is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceUndo {
    /// The process that made the change undoes it: the services that it acted on are acted on again, and each is
    /// waited for.
    InProcess,
    /// Another process in the same boot undoes it: the same services, but without waiting. During boot a unit may be
    /// ordered after this process, so waiting for it would be a deadlock.
    SameBoot,
    /// It is undone in a later boot: services that have not started yet will find the old state. Those that have
    /// started may have read the change, even if they were not reloaded for it.
    LaterBoot,
}

/// Why the machine reboots into its old operating system.
pub(super) const BACK: &str = "back into the operating system from before the update";

/// Why it reboots once more when it is back there.
const PACKAGES_STAGED: &str = "the packages that were only in the running system before the update are staged again, and \
    need a boot to run";

/// The result of [`Host::recover`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// No change was in progress.
    Nothing,
    /// A change was in progress and has been undone: the host is in `config`.
    Undone {
        /// The config that the host is in.
        config: String,
        /// The config that it was moving to.
        desired: String,
    },
    /// A change was committed and its remains have been cleared: the host is in `config`.
    Finished {
        /// The config that the host is in.
        config: String,
    },
    /// A change is committed, and the boot into the operating system that it staged is still to come.
    AwaitsBoot {
        /// The config that the host will be in then.
        config: String,
    },
    /// A change is committed and on trial: it is undone unless it is confirmed in time (see [`Host::trial`]).
    OnTrial {
        /// The config that the host is in.
        config: String,
    },
    /// The boot that a change waited for came up in the new deployment, but not as the config asks; or the change was on
    /// trial and was not confirmed; or it was interrupted before its commit. The machine has to boot into the old
    /// deployment again. Then the files are undone, and the result is [`Recovery::RolledBack`], or
    /// [`Recovery::Undone`] if the change was interrupted. The reboot is recorded (see [`Host::reboot_status`]).
    AwaitsReturn {
        /// The config that the host will be in then.
        config: String,
        /// The config that it was moving to.
        desired: String,
        /// What was found after the boot.
        why: String,
    },
    /// The boot that a change waited for came up in another deployment, or a change on trial was not confirmed. The
    /// whole change was undone, and the host is in `config`. The new config is not retried (see [`OsFailure`] and
    /// [`crate::TrialFailure`]).
    RolledBack {
        /// The config that the host is in.
        config: String,
        /// The config that it was moving to.
        desired: String,
        /// What was found after the boot.
        why: String,
    },
}

impl Host {
    pub(crate) fn undo(&mut self, journal: &Journal, services: ServiceUndo) -> Result<(), Error> {
        journal.undo(&self.root)?;
        let runs = self.undo_os(journal)?;
        if !runs {
            // The change was never committed, or is undone after its boot: the machine has booted into what it staged.
            self.record_return_reboot(&journal.names.current, BACK, journal.trial.is_some())?;
        }
        self.undone_trial(journal, services)?;
        if journal.daemon_reload {
            // A failure is tolerated: the files are restored, and systemd reads them at the next boot at the latest.
            self.systemd_or_log("daemon-reload", "", |s| s.daemon_reload())?;
        }
        if let Some(unit) = &journal.sshd {
            self.systemd_or_log("reload", unit, |s| match services {
                ServiceUndo::InProcess => s.reload_if_running(unit),
                ServiceUndo::SameBoot | ServiceUndo::LaterBoot if s.was_started(unit)? => {
                    s.queue(ServiceAction::Reload, unit)
                }
                ServiceUndo::SameBoot | ServiceUndo::LaterBoot => Ok(()),
            })?;
        }
        let marked = Journal::services_marked(&self.root)?;
        for (action, unit) in &journal.services {
            let action = *action;
            self.systemd_or_log(action.verb(), unit, |s| match (services, action) {
                (ServiceUndo::InProcess | ServiceUndo::SameBoot, _) if !marked => Ok(()),
                (ServiceUndo::InProcess, ServiceAction::Reload) => s.reload(unit),
                (ServiceUndo::InProcess, ServiceAction::Restart) => s.restart(unit),
                (ServiceUndo::InProcess, ServiceAction::Run) => s.run_once(unit),
                // What a program wrote because of the change is on the disk: a reboot does not undo it.
                (ServiceUndo::LaterBoot, ServiceAction::Run) => s.queue(action, unit),
                (ServiceUndo::LaterBoot, _) if !s.was_started(unit)? => Ok(()),
                (ServiceUndo::SameBoot | ServiceUndo::LaterBoot, _) => s.queue(action, unit),
            })?;
        }
        for effect in &journal.effects {
            self.undo_effect(effect, services, marked)?;
        }
        self.start_units_of_before(journal, services)?;
        // Last, because it may need the network, which the change may have cut.
        self.stage_again(journal)?;
        if runs && !self.bring_back_live(journal)? {
            self.record_return_reboot(&journal.names.current, PACKAGES_STAGED, journal.trial.is_some())?;
        }
        Journal::retract(&self.root)?;
        Journal::clear(&self.root, Some(journal))?;
        Ok(())
    }

    /// Makes the machine boot into the operating system that it had before the change. Returns whether that one runs; if not,
    /// a reboot is still to come.
    pub(crate) fn undo_os(&mut self, journal: &Journal) -> Result<bool, Error> {
        let Some((before, _)) = journal.os_change() else { return Ok(true) };
        let is_out = self.undo_live(journal)?;
        if self.os.mark()? != *before {
            self.os_call("undo", |os| os.undo(before))?;
        }
        Ok(self.os.runs(before)? && is_out)
    }

    /// Records that the machine has to reboot into what it ran before a change. `config`: the one in effect now.
    /// `cleared`: the reboot leads out of a change that was tried, and needs no further permission. One that is pending already
    /// becomes such a reboot; its reasons and its tries stay.
    pub(crate) fn record_return_reboot(
        &mut self,
        config: &str,
        why: &str,
        cleared: bool,
    ) -> Result<(), Error> {
        self.record_reboot_back(config, why, cleared, false)
    }

    /// The same where the machine runs the operating system that it has to leave: reboots that did not lead out of it are counted.
    pub(crate) fn record_return_to_old_os(
        &mut self,
        config: &str,
        why: &str,
        cleared: bool,
    ) -> Result<(), Error> {
        self.record_reboot_back(config, why, cleared, true)
    }

    fn record_reboot_back(
        &mut self,
        config: &str,
        why: &str,
        cleared: bool,
        is_in_new_os: bool,
    ) -> Result<(), Error> {
        let (because, tries, returns) = match self.reboot_status()? {
            RebootStatus::Owed(owed) if !cleared || owed.back => return Ok(()),
            RebootStatus::Owed(owed) => (owed.because, owed.tries, owed.returns),
            // It has rebooted for this already, and came up where it was.
            RebootStatus::Rebooted(p)
                if is_in_new_os && p.config == config && (p.back && cleared || p.because == [why]) =>
            {
                (p.because, 0, p.returns.saturating_add(1))
            }
            RebootStatus::None | RebootStatus::Rebooted(_) => (vec![why.to_owned()], 0, 0),
        };
        let (config, boot) = (config.to_owned(), self.boot()?);
        // A restart of userspace alone may not end what the change has left.
        let pending =
            PendingReboot { config, boot, because, tries, cleared, soft: false, back: cleared, returns };
        let path = paths::REBOOT_PENDING;
        let json = serde_json::to_vec(&pending)
            .map_err(|e| Error::Config { name: path.to_owned(), why: e.to_string() })?;
        Ok(self.write_needed(path, &json)?)
    }

    /// Completes or undoes a change that a crash interrupted. Call it at start-up, before anything else. A second call
    /// finds nothing to do.
    ///
    /// # Errors
    /// Another process is changing the host, the journal is damaged, or the undo fails. The next call continues.
    pub fn recover(&mut self) -> Result<Recovery, Error> {
        let _lock = Lock::take_soon(&self.root)?;
        // First, because the recovery asks whether userspace has been restarted since the change.
        match self.mark_boot() {
            Err(e) if !e.killed() => {
                tracing::warn!(error = %e, "this boot has no token; only the kernel's boot ID tells whether \
                    the machine has rebooted");
            }
            done => done?,
        }
        let recovery = match self.recover_locked() {
            // An undo that fails now may succeed later; nobody may be there to try it again.
            Err(failed) if !failed.killed() => {
                if let Err(error) = self.watch_if_needed() {
                    tracing::warn!(error = %chain(&error), "the watch is not started");
                }
                return Err(failed);
            }
            done => done?,
        };
        match self.watch_if_needed() {
            Err(error) if !error.killed() => {
                tracing::warn!(error = %chain(&error), "the watch is not started");
            }
            done => done?,
        }
        // Housekeeping: its failure must not keep an unfinished change from being undone.
        let chores = [self.close_originals(), Journal::forget_damaged(&self.root).map_err(Error::from)];
        for chore in chores {
            match chore {
                Err(e) if !e.killed() => {
                    tracing::warn!(error = %chain(&e), "tidying up after earlier changes");
                }
                done => done?,
            }
        }
        Ok(recovery)
    }

    /// Whether a change of this host is neither committed nor undone. Then [`Host::recover`] must be called first.
    ///
    /// # Errors
    /// The journal's folder cannot be read.
    pub fn has_unfinished_change(&self) -> Result<bool, Error> {
        Ok(Journal::is_open(&self.root)?)
    }

    /// Makes the folder of saved originals private. Earlier versions made it readable by everybody, including
    /// originals from folders that are not.
    fn close_originals(&self) -> Result<(), Error> {
        let path = paths::ORIGINALS;
        if let PathState::Dir { mode, uid, gid } = self.root.found(path)?
            && mode & 0o077 != 0
        {
            self.root.make_dir(path, Attributes { uid, gid, ..PRIVATE_DIR })?;
        }
        Ok(())
    }

    pub(crate) fn recover_locked(&mut self) -> Result<Recovery, Error> {
        match Journal::stage(&self.root)? {
            Stage::Nothing => Ok(Recovery::Nothing),
            Stage::Ended(journal) => {
                Journal::clear(&self.root, journal.as_deref())?;
                Ok(Recovery::Nothing)
            }
            Stage::Done(journal) => self.after_commit(&journal),
            Stage::Begun(journal) if !self.runs_old_os(&journal)? => {
                tracing::error!(desired = %journal.names.desired, "a change was interrupted, and the machine has booted \
                    the operating system that it had staged; going back before the change is undone");
                // Each deployment has an `/etc` of its own. The one to restore is that of the old deployment.
                self.root.write_bytes(paths::INTERRUPTED, b"", PRIVATE)?;
                Journal::commit(&self.root)?;
                self.after_commit(&journal)
            }
            Stage::Begun(journal) => {
                tracing::warn!(desired = %journal.names.desired, "a change was interrupted; undoing it");
                // Units start with userspace, not with the kernel.
                let services = if journal.boot.is_same_userspace(&self.boot()?) {
                    ServiceUndo::SameBoot
                } else {
                    ServiceUndo::LaterBoot
                };
                self.undo(&journal, services)?;
                let (has_os, tried) = (journal.os_change().is_some(), journal.trial.is_some());
                let names = journal.names;
                let of_os = self.os_failure()?.filter(|f| has_os && f.config == names.desired);
                let of_trial = self.trial_failure()?.filter(|f| tried && f.config == names.desired);
                let (config, desired) = (names.current, names.desired);
                Ok(match of_os.map(|OsFailure { why, .. }| why).or(of_trial.map(|f| f.why)) {
                    Some(why) => Recovery::RolledBack { config, desired, why },
                    None => Recovery::Undone { config, desired },
                })
            }
        }
    }

    /// Whether the machine runs the operating system from before the change.
    fn runs_old_os(&mut self, journal: &Journal) -> Result<bool, Error> {
        match journal.os_change() {
            Some((before, _)) => Ok(self.os.runs(before)?),
            None => Ok(true),
        }
    }

    /// Undoes a committed change that still waits for its boot, because another change replaces it.
    pub(crate) fn take_back_committed(&mut self) -> Result<(), Error> {
        if let Stage::Done(journal) = Journal::stage(&self.root)? {
            tracing::warn!(desired = %journal.names.desired, "a change that waits for its boot is abandoned; \
                undoing it");
            if self.replace_trial(&journal)? {
                return Ok(());
            }
            let services = self.undo_mode(&journal)?;
            Journal::reopen(&self.root)?;
            self.undo(&journal, services)?;
        }
        Ok(())
    }

    /// The config into whose operating system the machine failed to boot, if there is such a record.
    ///
    /// # Errors
    /// The record cannot be read.
    pub fn os_failure(&self) -> Result<Option<OsFailure>, Error> {
        let path = paths::OS_FAILURE;
        let bytes = self.root.read_if_there(path)?;
        let unreadable = |e: serde_json::Error| Error::Config {
            name: path.to_owned(),
            why: format!("{e}; remove it to have the config that failed tried again"),
        };
        bytes.map(|b| serde_json::from_slice(&b).map_err(unreadable)).transpose()
    }
}
