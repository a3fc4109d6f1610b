//! The units of a host that continue a trial after a boot; this crate only makes sure that they exist.
//!
//! Not here: their texts (the caller has them), nor what they do (see `recover` and `trial`).

use crate::disk::attributes::Attributes;
use crate::error::Error;
use crate::host::Host;
use crate::paths;
use crate::record::RebootStatus;
use crate::system::systemd::SystemdError;
use crate::transaction::lock::Lock;

/// Mode and owner of a unit file.
const UNIT_FILE: Attributes = Attributes { mode: 0o644, uid: 0, gid: 0 };

impl Host {
    /// Makes sure that the host has these units (name and text) and that they start at boot. One that is there stays as it
    /// is. Without a watch over trials (see [`Host::with_trial_watch`]) nothing is done: then there is nothing to start.
    ///
    /// # Errors
    /// Another process is changing the host; a unit is masked, or cannot be written or enabled; or the program that it
    /// starts is not there.
    pub fn ensure_units(&mut self, units: &[(&str, String)]) -> Result<(), Error> {
        if self.trial_watch.is_empty() {
            return Ok(());
        }
        let _lock = Lock::take_soon(&self.root)?;
        let mut enable = Vec::new();
        let mut written = false;
        for (unit, text) in units {
            match self.systemd.state(unit)? {
                Some(state) if state.is_enabled() => continue,
                Some(state) if state.is_masked() => {
                    return Err(SystemdError::new("enable", *unit, "it is masked").into());
                }
                Some(_) => {}
                None => {
                    self.has_program(unit, text)?;
                    self.note_own_unit(unit)?;
                    self.root.make_parents(&paths::unit(unit))?;
                    self.root.write_bytes(&paths::unit(unit), text.as_bytes(), UNIT_FILE)?;
                    written = true;
                }
            }
            tracing::info!(%unit, "the unit that resumes a trial after a boot is enabled");
            enable.push((*unit).to_owned());
        }
        if written {
            self.systemd.daemon_reload()?;
        }
        if !enable.is_empty() {
            self.systemd.enable(&enable)?;
            self.root.sync_file_system(paths::UNITS_DIR)?;
        }
        Ok(())
    }

    /// Writes down that a unit is ours, before its file is there.
    fn note_own_unit(&self, unit: &str) -> Result<(), Error> {
        let known = self.root.text(paths::OWN_UNITS)?.unwrap_or_default();
        if !known.lines().any(|line| line == unit) {
            self.root.write_bytes(paths::OWN_UNITS, format!("{known}{unit}\n").as_bytes(), UNIT_FILE)?;
        }
        Ok(())
    }

    /// Removes the units that [`Host::ensure_units`] has written, unless they are still needed: a change on trial, an undo,
    /// a reboot. Units that others have installed stay. Returns whether any unit was removed.
    ///
    /// # Errors
    /// Another process is changing the host; a unit cannot be disabled or removed. The next call continues.
    pub fn remove_own_units(&mut self) -> Result<bool, Error> {
        let Some(units) = self.root.text(paths::OWN_UNITS)? else { return Ok(false) };
        let is_watched = self.trial_failure()?.is_some_and(|failed| failed.aftermath.is_some());
        let owes_reboot = matches!(self.reboot_status()?, RebootStatus::Owed(_));
        let is_open = self.trial()?.is_some() || self.has_unfinished_change()? || self.has_failed_trial()?;
        if is_open || is_watched || owes_reboot {
            return Ok(false);
        }
        let _lock = Lock::take_soon(&self.root)?;
        for unit in units.lines().filter(|unit| !unit.is_empty() && !unit.contains('/')) {
            if self.systemd.state(unit)?.is_some_and(|state| state.is_enabled()) {
                self.systemd.disable(&[unit.to_owned()])?;
            }
            self.root.remove(&paths::unit(unit))?;
            tracing::info!(%unit, "the unit that resumes a trial after a boot is removed");
        }
        self.systemd.daemon_reload()?;
        self.root.remove(paths::OWN_UNITS)?;
        Ok(true)
    }

    /// Whether there are units that [`Host::ensure_units`] has written.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn has_own_units(&self) -> Result<bool, Error> {
        Ok(!self.root.found(paths::OWN_UNITS)?.is_absent())
    }

    /// Whether the program that a unit starts is on the disk.
    fn has_program(&self, unit: &str, text: &str) -> Result<(), Error> {
        let program =
            text.lines().find_map(|line| line.strip_prefix("ExecStart=")?.split_whitespace().next());
        match program {
            Some(program) if self.root.found(program)?.is_absent() => {
                let why = format!("the program that it starts is not there: {program}");
                Err(SystemdError::new("install", unit, why).into())
            }
            _ => Ok(()),
        }
    }
}
