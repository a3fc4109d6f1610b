//! Executes a plan: journal, steps in order, commit. If a step fails, the change is rolled back.
//!
//! Not here: choices of any kind (see `plan`), nor what happens to a change after a crash (see `recover`).

use api::formats::text::chain;

use crate::disk::batch::{FileChange, SYNC_ONCE_FROM, first_batch};
use crate::disk::fs_error::FsError;
use crate::disk::root::Root;
use crate::error::Error;
use crate::fault::{Fault, Point};
use crate::host::Host;
use crate::paths;
use crate::plan::HostPlan;
use crate::plan::step::{Step, UnitAction};
use crate::system::os::{OsBackend, OsError};
use crate::system::pull::Pull;
use crate::system::systemd::{ServiceAction, Systemd, SystemdError};
use crate::transaction::journal::{Journal, Stage};
use crate::transaction::lock::Lock;
use crate::transaction::recover::{Recovery, ServiceUndo};

/// The result of [`Host::apply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many steps there were.
    pub steps: usize,
    /// The machine must reboot now, with [`Host::reboot`].
    pub reboot: bool,
}

impl Host {
    /// Applies a plan: all of it, or nothing. The caller starts the reboot that the plan may need.
    ///
    /// # Errors
    /// [`Error::Undone`] with the host in its old state, [`Error::UndoIncomplete`], or another error before anything
    /// was changed.
    pub fn apply(&mut self, plan: &HostPlan) -> Result<Applied, Error> {
        let _lock = Lock::take(&self.root)?;
        let recovery = self.recover_locked()?;
        let applied = Applied { steps: plan.steps.len(), reboot: plan.disruption.needs_reboot() };
        match recovery {
            Recovery::Undone { desired, .. }
            | Recovery::RolledBack { desired, .. }
            | Recovery::AwaitsReturn { desired, .. } => {
                return Err(Error::Interrupted { desired });
            }
            Recovery::Nothing
            | Recovery::Finished { .. }
            | Recovery::AwaitsBoot { .. }
            | Recovery::OnTrial { .. }
                if plan.steps.is_empty() =>
            {
                return Ok(applied);
            }
            Recovery::AwaitsBoot { config } | Recovery::OnTrial { config } => {
                self.take_back_committed()?;
                return Err(Error::Interrupted { desired: config });
            }
            Recovery::Nothing | Recovery::Finished { .. } => {}
        }
        self.fetch(plan, &Pull::default())?;
        let before_os = plan.os_change().map(|_| self.os.mark()).transpose()?;
        let boot = self.boot()?;
        let mut trial = plan.trial.clone();
        if let Some(trial) = &mut trial {
            trial.units = self.running(&trial.asked);
            if trial.asked_logins {
                trial.logins = self.login_units();
            }
        }
        if trial.is_some()
            && let Err(e) = self.reserve_room()
        {
            return Err(e.into());
        }
        let journal = match Journal::begin(&self.root, plan, before_os, boot, trial) {
            Ok(journal) => journal,
            Err(e) if e.killed() => return Err(e),
            Err(e) => {
                // Nothing was changed yet. The remains of the journal are cleared, now or at the next start.
                if let Err(also) = self.recover_locked() {
                    tracing::warn!(error = %also, "cannot clear a journal that was not begun");
                }
                return Err(e);
            }
        };
        if let Err((step, e)) = self.run_all(&plan.steps) {
            return Err(self.undo_after_failure(&journal, step, e));
        }
        if let Err(e) = Journal::commit(&self.root) {
            // If the rename happened and only its sync failed, the change is committed. The journal's state decides.
            if e.killed() || !matches!(Journal::stage(&self.root), Ok(Stage::Done(_))) {
                return Err(self.undo_after_failure(&journal, "commit the change".to_owned(), e.into()));
            }
            tracing::warn!(error = %e, "the change is complete, but may not be synced to the disk yet");
        }
        if journal.trial.is_some() {
            self.begin_trial(&journal)?;
            return Ok(applied);
        }
        if journal.live {
            self.note_kept_os(&journal)?;
            // A boot that loses the staged deployment undoes a change that is only committed. While its journal is cleared, what
            // that needs is gone in part.
            match Journal::finalise(&self.root) {
                Err(error) if !error.killed() => {
                    tracing::warn!(%error, "the change is complete; its journal is cleared at the next start");
                    return Ok(applied);
                }
                done => done?,
            }
        } else if journal.os_change().is_some() {
            // The next boot decides whether the change stays.
            return Ok(applied);
        }
        if let Err(e) = Journal::clear(&self.root, Some(&journal)) {
            if e.killed() {
                return Err(e.into());
            }
            tracing::warn!(error = %e, "the change is complete; its journal is cleared at the next start");
        }
        Ok(applied)
    }

    /// Undoes everything after a failed step.
    fn undo_after_failure(&mut self, journal: &Journal, step: String, cause: Error) -> Error {
        if cause.killed() {
            return cause;
        }
        tracing::error!(%step, error = %cause, "a step failed; undoing the change");
        match self.undo(journal, ServiceUndo::InProcess) {
            Ok(()) => Error::Undone { step, source: Box::new(cause) },
            Err(e) if e.killed() => e,
            Err(e) => Error::UndoIncomplete { step, cause: chain(&cause), source: Box::new(e) },
        }
    }

    /// Checks that the disk has space for a plan and its journal.
    ///
    /// # Errors
    /// [`Error::NoSpace`] with the path that does not fit, or a file system cannot be queried.
    pub fn check_room(&self, plan: &HostPlan) -> Result<(), Error> {
        crate::transaction::journal::begin::check_space(&self.root, plan)
    }

    /// Makes one systemd call, with the fault points around it.
    pub(crate) fn systemd(
        &mut self,
        call: &'static str,
        on: &str,
        f: impl FnOnce(&mut dyn Systemd) -> Result<(), SystemdError>,
    ) -> Result<(), SystemdError> {
        let fault = |before: bool| {
            self.root.faults().at(Point { call, on, before }).map_err(|f| match f {
                Fault::Killed => {
                    SystemdError { killed: true, ..SystemdError::new(call, on, "killed by a fault point") }
                }
                Fault::Fail(e) => SystemdError::new(call, on, e),
            })
        };
        fault(true)?;
        f(self.systemd.as_mut())?;
        fault(false)
    }

    /// As [`Host::systemd`], but a failure is only logged, unless it is the simulated end of the process.
    pub(crate) fn systemd_or_log(
        &mut self,
        call: &'static str,
        on: &str,
        f: impl FnOnce(&mut dyn Systemd) -> Result<(), SystemdError>,
    ) -> Result<(), SystemdError> {
        match self.systemd(call, on, f) {
            Err(e) if !e.killed => {
                tracing::warn!(error = %e, "systemd refused; continuing");
                Ok(())
            }
            other => other,
        }
    }

    /// Fetches what a plan needs for its change of the operating system. It may take long, and changes nothing that
    /// runs or boots, so it is done before the node is drained. Idempotent.
    ///
    /// # Errors
    /// It cannot be fetched, or it was cancelled.
    pub fn fetch(&mut self, plan: &HostPlan, pull: &Pull) -> Result<(), Error> {
        match plan.os_change() {
            Some(change) => {
                self.os.use_extensions(&change.wanted.extensions_image);
                Ok(self.os.fetch(&change.to, pull)?)
            }
            None => Ok(()),
        }
    }

    /// Notes in a plan how large the OS image is that will be pulled, if its registry says so. It may take a minute.
    ///
    /// # Errors
    /// The host cannot report what it has.
    pub fn note_image_size(&mut self, plan: &mut HostPlan) -> Result<(), Error> {
        let Some(image) = plan.os_change().filter(|c| c.from.image != c.to.image).map(|c| c.to.clone())
        else {
            return Ok(());
        };
        let size = self.os.image_size(&image)?.map(api::formats::text::size);
        plan.notes.push(match size {
            Some(size) => {
                format!("pulls the OS image {}: {size}, less the layers that the host has", image.image)
            }
            None => {
                format!("pulls the OS image {}, unless the host has it; its size is not known", image.image)
            }
        });
        Ok(())
    }

    /// Removes the OS images that nothing needs any more. It waits for no other process, and for the end of a change that is not
    /// kept yet: then nothing goes. Returns what went.
    ///
    /// # Errors
    /// The journal cannot be read, or the host refuses or fails.
    pub fn tidy_os(&mut self) -> Result<Vec<String>, Error> {
        let _lock = match Lock::take(&self.root) {
            Err(Error::Busy { .. }) => return Ok(Vec::new()),
            taken => taken?,
        };
        match Journal::stage(&self.root)? {
            Stage::Nothing => Ok(self.os.tidy()?),
            Stage::Begun(_) | Stage::Done(_) | Stage::Ended(_) => Ok(Vec::new()),
        }
    }

    /// Makes one call of the operating system's back end, with the fault points around it.
    pub(crate) fn os_call(
        &mut self,
        call: &'static str,
        f: impl FnOnce(&mut dyn OsBackend) -> Result<(), OsError>,
    ) -> Result<(), Error> {
        let on = "the operating system";
        let fault = |root: &Root, before| {
            root.faults()
                .at(Point { call, on, before })
                .map_err(|f| FsError::new(call, on, crate::fault::as_io(f)))
        };
        fault(&self.root, true)?;
        f(self.os.as_mut())?;
        fault(&self.root, false)?;
        Ok(())
    }

    /// Runs the steps in order. An error is returned with its step.
    pub(crate) fn run_all(&mut self, steps: &[Step]) -> Result<(), (String, Error)> {
        let mut told = false;
        let mut rest = steps;
        while let Some(step) = rest.first() {
            let changes = first_batch(rest.iter().map_while(file_change));
            let many = if changes.len() < SYNC_ONCE_FROM { 1 } else { changes.len() };
            let (now, later) = rest.split_at(many);
            for step in now {
                tracing::info!(%step, "applying");
            }
            if many == 1 {
                self.run(step, &mut told).map_err(|e| (step.to_string(), e))?;
            } else {
                self.root
                    .change_many(&changes)
                    .map_err(|(i, e)| (now.get(i).map(ToString::to_string).unwrap_or_default(), e.into()))?;
            }
            rest = later;
        }
        let effects = steps.iter().filter_map(|s| match s {
            Step::Effect(planned) => Some(&planned.effect),
            _ => None,
        });
        self.check_units(effects).map_err(|e| ("check the units that were acted on".to_owned(), e))?;
        if let Some(last) = steps.iter().rfind(|s| matches!(s, Step::Units { .. })) {
            // systemd does not sync the links that it makes: they must be on the disk before the commit.
            self.root.sync_file_system(paths::UNITS_DIR).map_err(|e| (last.to_string(), e.into()))?;
        }
        Ok(())
    }

    fn run(&mut self, step: &Step, told: &mut bool) -> Result<(), Error> {
        let root = &self.root;
        match step {
            Step::Copy { from, to, .. } => root.copy(from, to)?,
            Step::Write { path, content, attributes, .. } => {
                root.write_bytes(path, content.bytes(), *attributes)?;
            }
            Step::Link { path, target, owner, .. } => root.link(path, target, Some(*owner))?,
            Step::HardLink { path, target } => root.hard_link(path, target)?,
            Step::Remove { path, .. } => root.remove(path)?,
            Step::MakeDir { path, attributes } => {
                root.make_parents(path)?;
                root.make_dir(path, *attributes)?;
            }
            Step::RemoveDir { path, .. } => root.remove_empty_dir(path)?,
            Step::MoveAside { path, to, .. } => root.rename(path, to)?,
            Step::Units { action, units } => {
                let on = units.join(" ");
                match action {
                    UnitAction::Enable => self.systemd("enable", &on, |s| s.enable(units))?,
                    UnitAction::Disable => self.systemd("disable", &on, |s| s.disable(units))?,
                    UnitAction::Preset => {
                        for unit in units {
                            self.systemd_or_log("preset", unit, |s| s.preset(std::slice::from_ref(unit)))?;
                        }
                    }
                }
            }
            Step::Password { user, hash, day } => crate::transaction::shadow::set(root, user, &hash.0, *day)?,
            Step::Os { change } => self.os_call("stage", |os| {
                os.use_extensions(&change.wanted.extensions_image);
                os.stage(&change.to)
            })?,
            Step::Live { config, .. } => self.apply_live(config)?,
            Step::DaemonReload => self.systemd("daemon-reload", "", |s| s.daemon_reload())?,
            Step::TellSshd { unit } => {
                // The configuration takes effect at its next start at the latest, so a failure does not undo the
                // change.
                self.systemd_or_log("reload, if it runs,", unit, |s| s.reload_if_running(unit))?;
            }
            Step::Effect(planned) => {
                if !*told {
                    Journal::mark_services(root)?;
                    *told = true;
                }
                self.effect(&planned.effect, &planned.because)?;
            }
            Step::Service { action, unit } => {
                if !*told {
                    Journal::mark_services(root)?;
                    *told = true;
                }
                match action {
                    ServiceAction::Reload => self.systemd("reload", unit, |s| s.reload(unit))?,
                    ServiceAction::Restart => self.systemd("restart", unit, |s| s.restart(unit))?,
                    ServiceAction::Run => self.systemd("run", unit, |s| s.run_once(unit))?,
                }
            }
        }
        Ok(())
    }
}

/// The file change of a step, if the step can be part of a batch.
fn file_change(step: &Step) -> Option<FileChange<'_>> {
    Some(match step {
        Step::Write { path, content, attributes, .. } => {
            FileChange::Write(path, content.bytes(), *attributes)
        }
        Step::Copy { from, to, .. } => FileChange::Copy(from, to),
        Step::Link { path, target, owner, .. } => FileChange::Link(path, target, *owner),
        Step::Remove { path, .. } => FileChange::Remove(path),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_that_depend_on_each_other_are_not_batched() {
        let copy = |from: &str, to: &str| Step::Copy { from: from.to_owned(), to: to.to_owned(), why: "" };
        let remove = |path: &str| Step::Remove { path: path.to_owned(), why: "" };
        for (steps, want) in [
            (vec![copy("/a", "/orig/a"), remove("/a"), remove("/b")], 3),
            (vec![remove("/a"), copy("/a", "/b")], 1),
            (vec![remove("/a"), copy("/c", "/a")], 1),
            (vec![remove("/a"), copy("/c", "/a/b")], 1),
            (vec![remove("/a"), Step::DaemonReload, remove("/b")], 1),
        ] {
            assert_eq!(first_batch(steps.iter().map_while(file_change)).len(), want, "{steps:?}");
        }
    }
}
