//! The state of a committed change after a boot: it is completed, its trial continues, or it is undone because the machine
//! came up without it.
//!
//! Not here: changes that were interrupted, and how a change is undone (see `recover`).

use std::time::Duration;

use desired::OsField;

use crate::disk::attributes::PRIVATE;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::plan::os::OsChange;
use crate::record::{Names, OsFailure};
use crate::transaction::journal::Journal;
use crate::transaction::recover::{BACK, Recovery, ServiceUndo};

/// The unit with which OSTree makes a staged deployment bootable, at shutdown.
const FINALISE: &str = "ostree-finalize-staged.service";
const JOURNALCTL: &str = "/usr/bin/journalctl";
/// The journal of one unit is read within a moment, also from a slow disk.
const PATIENCE: Duration = Duration::from_secs(20);
/// Errors of OSTree have a line.
const LONGEST_ERROR: usize = 300;

/// The first error that a unit told.
fn error_in(said: &str) -> Option<String> {
    let line = said.lines().map(str::trim).find(|line| line.starts_with("error:"))?;
    Some(api::formats::text::cut(line, LONGEST_ERROR).into_owned())
}

impl Host {
    /// Undoes a change that was interrupted before its commit, but whose operating system was booted: first the machine
    /// boots into the old one, then the files are undone there.
    fn return_interrupted(&mut self, journal: &Journal) -> Result<Recovery, Error> {
        let Names { current: config, desired } = journal.names.clone();
        if self.undo_os(journal)? {
            Journal::reopen(&self.root)?;
            self.undo(journal, ServiceUndo::LaterBoot)?;
            return Ok(Recovery::Undone { config, desired });
        }
        // The record says which config the files are in, or rather which one they say.
        let says = self.current_config()?.map_or_else(|| config.clone(), |c| c.name);
        self.record_return_to_old_os(&says, BACK, journal.trial.is_some())?;
        let why = "the change was interrupted, and its operating system was booted".to_owned();
        Ok(Recovery::AwaitsReturn { config, desired, why })
    }

    /// Completes a committed change. One that has staged an operating system ends with the next boot: it is finalised
    /// if the machine came up in the new deployment, and undone as a whole if it did not.
    pub(super) fn after_commit(&mut self, journal: &Journal) -> Result<Recovery, Error> {
        let (config, desired) = (journal.names.current.clone(), journal.names.desired.clone());
        if !self.root.found(paths::INTERRUPTED)?.is_absent() {
            return self.return_interrupted(journal);
        }
        if let Some(undone) = self.continue_failed(journal)? {
            return Ok(undone);
        }
        if let Some((_, change)) = journal.os_change() {
            let same_boot = journal.boot.is_same_boot(&self.boot()?);
            if same_boot && !journal.live {
                return Ok(Recovery::AwaitsBoot { config: desired });
            }
            if journal.live && !same_boot && self.lost_in_boot(journal)? {
                tracing::warn!(%desired, "the staged deployment was not made bootable at the last shutdown; undoing the \
                    change");
                Journal::reopen(&self.root)?;
                self.undo(journal, ServiceUndo::LaterBoot)?;
                return Ok(Recovery::Undone { config, desired });
            }
            // The plan removed what earlier tries recorded. A record is of this try: the machine is on its way back.
            let earlier = self.os_failure()?.filter(|f| f.config == desired).map(|f| f.why);
            let came_up = match earlier {
                Some(why) => Err(why),
                None if same_boot => Ok(()),
                None => self.check_boot(change, &desired)?,
            };
            if let Err(why) = came_up {
                if !self.undo_os(journal)? {
                    self.record_return_to_old_os(&desired, BACK, false)?;
                    return Ok(Recovery::AwaitsReturn { config, desired, why });
                }
                Journal::reopen(&self.root)?;
                self.undo(journal, ServiceUndo::LaterBoot)?;
                return Ok(Recovery::RolledBack { config, desired, why });
            }
            if !same_boot {
                self.restore_after_merge_or_log(journal)?;
            }
            if journal.trial.is_none() {
                self.note_kept_os(journal)?;
                Journal::finalise(&self.root)?;
            }
        }
        if journal.trial.is_some() {
            return self.continue_trial(journal);
        }
        Journal::clear(&self.root, Some(journal))?;
        Ok(Recovery::Finished { config: desired })
    }

    /// Whether the boot lost what a change had brought into the running system: the power failed before OSTree had made it
    /// bootable, which it does at shutdown. The config is not to blame.
    fn lost_in_boot(&mut self, journal: &Journal) -> Result<bool, Error> {
        let Some((before, change)) = journal.os_change() else { return Ok(false) };
        Ok(self.os.runs(before)? && change.check_boot(&self.os.status()?).is_err())
    }

    /// Whether the machine came up as planned. If not, that is recorded.
    fn check_boot(&mut self, change: &OsChange, desired: &str) -> Result<Result<(), String>, Error> {
        let Err(mut why) = change.check_boot(&self.os.status()?) else { return Ok(Ok(())) };
        if let Some(said) = self.os.fell_back() {
            why = format!("{why}; {said}");
        }
        if let Some(said) = self.finalisation_error() {
            why = format!("{why}; at the last shutdown, {FINALISE} said {said:?}");
        }
        tracing::error!(%desired, %why, "the machine did not boot into the staged operating system; \
            undoing the change");
        let failure = OsFailure { config: desired.to_owned(), why: why.clone() };
        let path = paths::OS_FAILURE;
        let json = serde_json::to_vec(&failure)
            .map_err(|e| Error::Config { name: path.to_owned(), why: e.to_string() })?;
        self.root.write_bytes(path, &json, PRIVATE)?;
        Ok(Err(why))
    }

    /// What the unit said that makes a staged deployment bootable at shutdown. If it fails, the machine boots the old one.
    /// Best effort: the journal of the boot before may be gone.
    fn finalisation_error(&mut self) -> Option<String> {
        self.os.refuses(OsField::Image).is_none().then_some(())?;
        let asked = ["-b", "-1", "-o", "cat", "-n", "100", "-u", FINALISE];
        let said = self.programs.as_mut()?.run(JOURNALCTL, &asked, PATIENCE);
        match said {
            Ok(output) => error_in(&output.text),
            Err(error) => {
                tracing::debug!(%error, "what {FINALISE} said is not known");
                None
            }
        }
    }
}
