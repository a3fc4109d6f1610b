//! How much of a trial's time has passed. It is measured by the machine's monotonic clock, and written down every few seconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::disk::attributes::PRIVATE;
use crate::error::Error;
use crate::host::Host;
use crate::paths::TRIAL_CLOCK;
use crate::record::Boot;
use crate::transaction::journal::Journal;

/// How often the time that has passed is written down. A power cut gives back at most this much.
const TICK: Duration = Duration::from_secs(15);

/// How much of a trial's time has passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Clock {
    /// The boot in which it was written.
    #[serde(flatten)]
    pub(super) boot: Boot,
    /// The machine's uptime then, in milliseconds.
    pub(super) up: u64,
    /// How much of the time had passed then, in milliseconds.
    pub(super) spent: u64,
    /// In how many boots the change has been on trial.
    pub(super) boots: u32,
}

impl Host {
    /// Whether what was changed is in effect: at once, after a restart of userspace, or after a boot of the kernel.
    pub(super) fn has_begun(&mut self, journal: &Journal) -> Result<bool, Error> {
        let Some(trial) = &journal.trial else { return Ok(true) };
        let now = self.boot()?;
        let waits = journal.os_change().is_some() && !journal.live;
        Ok(if waits || trial.reboots && !trial.soft {
            !journal.boot.is_same_boot(&now)
        } else {
            !trial.reboots || !journal.boot.is_same_userspace(&now)
        })
    }

    pub(super) fn clock(&self) -> Result<Option<Clock>, Error> {
        self.record_of(TRIAL_CLOCK, "remove it to restart the time")
    }

    /// The clock as it would be written now.
    pub(super) fn clock_now(&mut self) -> Result<Clock, Error> {
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

    pub(super) fn write_clock(&mut self) -> Result<Clock, Error> {
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
            .map_err(|e| Error::Config { name: TRIAL_CLOCK.to_owned(), why: e.to_string() })?;
        // Without a first record no time would ever pass. The others are not worth the room that is kept for the end.
        match then {
            None => self.write_needed(TRIAL_CLOCK, &json)?,
            Some(_) => self.root.write_bytes(TRIAL_CLOCK, &json, PRIVATE)?,
        }
        Ok(now)
    }
}
