//! What is checked on a host before a change on trial, and after it: units that run, and whether people can log in.

use desired::SSH_UNITS;

use crate::error::Error;
use crate::host::Host;
use crate::record::{LoginUnit, Trial, UnitRun};

impl Host {
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
}
