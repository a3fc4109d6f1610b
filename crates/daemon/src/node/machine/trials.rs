//! Changes on trial, and what the agent brings to a host for them.
//!
//! What it is not: the verdict (see `protocol::trial`).

use super::{Machine, MachineError};
use crate::protocol::EMPTY_CONFIG;
use api::formats::text::chain;

/// What runs of the units that ran before a change, and why people can no longer log in.
pub(crate) type TrialState = (Vec<(String, host::UnitState)>, Option<String>);

impl Machine {
    /// Looks at the units of the change that is on trial, and at why people can no longer log in, and writes down how much
    /// of its time has passed.
    pub(crate) fn observe_trial(&self) -> Result<TrialState, MachineError> {
        let mut host = self.host();
        host.tick_trial()?;
        match host.trial()? {
            Some(open) => Ok((host.trial_units(&open.trial)?, host.lost_logins(&open.trial))),
            None => Ok(TrialState::default()),
        }
    }

    /// Keeps the change that is on trial.
    pub(crate) fn confirm_trial(&self) -> Result<Option<String>, MachineError> {
        let kept = self.host().confirm_trial()?;
        self.clear_host();
        Ok(kept)
    }

    /// Takes away what the agent itself has brought to the host, if that is in the empty config: its own files are back, for
    /// example before the product is removed. The next change on trial brings it again.
    pub(crate) fn clear_host(&self) {
        let mut host = self.host();
        let result = match host.current_config() {
            Ok(Some(config)) if config.name == EMPTY_CONFIG => host.remove_own_units(),
            Ok(_) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            tracing::warn!(error = %chain(&error), "the units that continue a trial after a boot could not be removed from \
                the host");
        }
    }

    /// Takes away what the agent has brought to the host for trials, and ends the look at what follows an undo: the product is
    /// removed, and files stay as they are.
    pub(crate) fn leave_host(&self) -> Result<(), MachineError> {
        let mut host = self.host();
        host.settle_trial_failure()?;
        host.remove_own_units()?;
        if host.has_own_units()? {
            return Err(MachineError::degraded("a change is on trial, or a reboot is pending"));
        }
        Ok(())
    }
}
