//! The watch over a change on trial: a process of the host's own that undoes the change when the time is up. It needs no
//! kubelet, no container runtime and no network, so it is there when the agent is not.
//!
//! It leaves the agent a little longer than the time, because the agent knows better what failed. After the undo it sees to
//! the reboot, and looks for a while whether the node is well again (see `protocol::after_undo`). If the undo fails it goes on
//! trying, in the end after a reboot. With a machine in emergency mode it waits for nothing: a unit of its own starts it there.
//!
//! Not here: the confirmation by the agent (see `protocol::trial`), the clock and the undo (see `host`), nor a person's try
//! (see `try_on_host`).

use crate::entry::open_host::open_with_runtime;
use crate::error::DaemonError;
use crate::protocol::{AfterUndo, StateAfterUndo, StateBefore, after_undo, restarted, restarts};
use api::formats::text::chain;
use host::{
    Check, Error, Host, HostPrograms, OpenTrial, Programs as _, RebootStatus, TrialFailure, UndoneTrialCheck,
    UnitState,
};
use jiff::SignedDuration;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

/// How often the clock is looked at.
const CHECK_PERIOD: Duration = Duration::from_secs(5);
/// How much longer than the trial's time the agent may take for its own verdict: its last look, on a machine that may be busy
/// with its boot.
const GRACE: Duration = Duration::from_secs(20);
/// How long the agent may take for the reboot after the undo: the pods may have to leave first.
const REBOOT_GRACE: Duration = Duration::from_mins(5);
/// The same if this process had to undo the change, and the pods had left for the reboot into it; or if the API server is
/// away, so that nobody could drain the node.
const SHORT_REBOOT_GRACE: Duration = Duration::from_secs(20);
/// The time limit for a new connection to the API server.
const CONNECT: Duration = Duration::from_secs(5);
/// After so many failures of the undo in a row, a minute apart at most, the machine is rebooted to try it again.
const FAILURES: u32 = 12;

/// How a change fails with which the machine does not come up.
const IN_EMERGENCY: &str =
    "the machine stopped in emergency mode with it; see the log of that boot (journalctl) on the node";

/// Watches until no change of this host is on trial, no reboot out of one is pending, and nothing is looked at after one.
///
/// # Errors
/// The root folder or systemd cannot be used.
pub fn watch_trial(root_mount: &Path) -> Result<(), DaemonError> {
    let (host, runtime) = open_with_runtime(root_mount)?;
    // It must not start itself anew.
    let host = host.with_trial_watch(Vec::new());
    let mut watch =
        Watch { host, runtime, grace: REBOOT_GRACE, units: Vec::new(), unwell_since: None, failures: 0 };
    loop {
        match watch.check() {
            Ok(Some(wait)) => std::thread::sleep(wait),
            Ok(None) => return Ok(()),
            Err(Error::Busy { .. }) => std::thread::sleep(CHECK_PERIOD),
            Err(error) => {
                tracing::error!(error = chain(&error), "the change on trial cannot be watched; trying again");
                watch.failed();
                std::thread::sleep(CHECK_PERIOD);
            }
        }
    }
}

/// The watch, with what it keeps from one look to the next.
#[derive(Debug)]
struct Watch {
    host: Host,
    runtime: Runtime,
    /// How long the agent may take for the reboot after the undo.
    grace: Duration,
    /// The units that ran before the change, as they were at the last look.
    units: Vec<(String, UnitState)>,
    /// Since when the node is not well after the undo.
    unwell_since: Option<Instant>,
    /// How often in a row a look has failed.
    failures: u32,
}

impl Watch {
    /// One look. Returns when to look again; `None`: there is nothing left to watch.
    fn check(&mut self) -> Result<Option<Duration>, Error> {
        if let Some(open) = self.host.trial()? {
            return self.on_trial(&open).map(Some);
        }
        if self.host.has_unfinished_change()? || self.host.has_failed_trial()? {
            // An undo that was interrupted or has failed. Usually the agent continues it.
            self.host.recover()?;
        }
        self.failures = 0;
        if let RebootStatus::Owed(owed) = self.host.reboot_status()?
            && owed.back
        {
            if owed.returns >= host::MOST_REBOOTS {
                tracing::error!(config = %owed.config, because = ?owed.because, "{} reboots did not lead back; boot what this \
                    machine ran before the change by hand", owed.returns);
                return Ok(None);
            }
            std::thread::sleep(self.grace);
            if let RebootStatus::Owed(owed) = self.host.reboot_status()?
                && owed.back
            {
                reboot_back(&mut self.host)?;
            }
            return Ok(Some(CHECK_PERIOD));
        }
        match self.host.trial_failure()? {
            Some(failed) => match failed.aftermath.clone() {
                Some(aftermath) => self.after_undo(&failed, &aftermath),
                None => Ok(None),
            },
            None => Ok(None),
        }
    }

    /// Waits for the end of the time, and undoes the change then.
    fn on_trial(&mut self, open: &OpenTrial) -> Result<Duration, Error> {
        if open.begun && self.host.in_emergency() {
            // The recovery of this boot has not run.
            self.host.recover()?;
            self.host.fail_trial(Check::Boot, IN_EMERGENCY)?;
            self.grace = Duration::ZERO;
            return Ok(Duration::ZERO);
        }
        let before = before(&open.trial.before);
        if !open.left.is_zero() {
            self.host.tick_trial()?;
            // Not in the last moment: what is compared with it later must have had time to end.
            if open.left >= CHECK_PERIOD {
                self.units = self.host.trial_units(&open.trial).unwrap_or_default();
            }
            return Ok(open.left.min(CHECK_PERIOD));
        }
        if !before.person {
            std::thread::sleep(GRACE);
            match self.host.trial()? {
                Some(still) if still.names == open.names => {}
                _ => return Ok(Duration::ZERO),
            }
        }
        let units = self.host.trial_units(&open.trial).unwrap_or_default();
        let logins = self.host.lost_logins(&open.trial);
        let seen = Seen { units: &units, earlier: &self.units, logins, api: self.ask(&before) };
        let (check, why) = failing(&seen, open.trial.within, before.person);
        self.host.fail_trial(check, &why)?;
        if before.person {
            self.grace = Duration::ZERO;
        } else if open.trial.reboots {
            self.grace = SHORT_REBOOT_GRACE;
        }
        Ok(Duration::ZERO)
    }

    /// Looks whether the node is well in the old config, and does what follows from that.
    fn after_undo(
        &mut self,
        failed: &TrialFailure,
        after: &UndoneTrialCheck,
    ) -> Result<Option<Duration>, Error> {
        let before = before(&after.before);
        let api = self.ask(&before);
        let running = self.host.running_of(&after.units)?;
        let stopped = after.units.iter().find(|run| !running.contains(&run.unit)).map(|run| &run.unit);
        let now = self.host.boot()?;
        let same_boot = after.undone_in.as_ref().is_some_and(|boot| boot.is_same_boot(&now));
        let unwell = match (&api, stopped) {
            (Ok(()), None) => Duration::ZERO,
            _ => self.unwell_since.get_or_insert_with(Instant::now).elapsed(),
        };
        let seen = StateAfterUndo {
            check: failed.check,
            api: api.is_ok(),
            units: stopped.is_none(),
            same_boot,
            unwell: SignedDuration::try_from(unwell).unwrap_or(SignedDuration::MAX),
        };
        match after_undo(seen) {
            AfterUndo::LookAgain => Ok(Some(CHECK_PERIOD)),
            AfterUndo::Settled => {
                tracing::info!(config = %failed.config, ?seen, "the config that was undone stays refused");
                self.host.settle_trial_failure()?;
                Ok(None)
            }
            AfterUndo::Reboot => {
                tracing::error!(config = %failed.config, ?api, ?stopped, "the change is undone, but the check still fails: \
                    an effect of the change may have stayed; rebooting");
                self.host.reboot_after_undo()?;
                self.grace = if api.is_ok() { REBOOT_GRACE } else { SHORT_REBOOT_GRACE };
                // Whatever became of it: never at once, so that this cannot spin.
                Ok(Some(CHECK_PERIOD))
            }
            AfterUndo::NotToBlame => {
                tracing::warn!(config = %failed.config, "the API server does not answer in the old config either: the change \
                    is not the cause, and may be tried again");
                self.host.forget_trial_failure()?;
                Ok(None)
            }
        }
    }

    /// Whether the API server can be reached: as far as it can be seen without credentials.
    fn ask(&self, before: &StateBefore) -> Result<(), String> {
        let Some((host, port)) = &before.api_server else { return Ok(()) };
        let at = format!("no new connection to {host}:{port}");
        let connecting =
            async { tokio::time::timeout(CONNECT, TcpStream::connect((host.as_str(), *port))).await };
        match self.runtime.block_on(connecting) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(format!("{at}: {error}")),
            Err(_) => Err(format!("{at} within {} s", CONNECT.as_secs())),
        }
    }

    /// Counts a look that failed, and reboots if a reboot may be what helps.
    fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if !self.failures.is_multiple_of(FAILURES) {
            return;
        }
        match self.host.may_reboot_to_undo() {
            Ok(true) => {
                let why = "the undo of a change that was tried fails; it is tried again after a reboot";
                if let Err(error) = reboot_because(&mut self.host, why) {
                    tracing::error!(error = chain(&error), "the machine does not reboot");
                }
            }
            Ok(false) => tracing::error!("the undo fails after reboots too: repair the host by hand"),
            Err(error) => tracing::error!(error = chain(&error), "whether a reboot may help is not known"),
        }
    }
}

/// What the agent noted before the change. Another program's note says nothing.
fn before(text: &str) -> StateBefore {
    serde_json::from_str(text).unwrap_or_default()
}

/// What the watch sees when the time is up.
struct Seen<'s> {
    units: &'s [(String, UnitState)],
    /// The units at an earlier look.
    earlier: &'s [(String, UnitState)],
    /// Why people can no longer log in.
    logins: Option<String>,
    /// Whether a connection to the API server can be made.
    api: Result<(), String>,
}

/// What failed, as far as it can be seen from the host alone.
fn failing(seen: &Seen<'_>, within: u64, person: bool) -> (Check, String) {
    let stopped = seen.units.iter().find(|(_, state)| !state.runs());
    let restarted = restarted(seen.earlier, seen.units);
    if person {
        let also =
            stopped.map(|(unit, state)| format!("; {unit} ran before the change and was {}", state.active));
        let also = also.or_else(|| restarted.map(|unit| format!("; {}", restarts(unit))));
        let why = format!("nobody confirmed it within {within} s{}", also.unwrap_or_default());
        return (Check::Confirmation, why);
    }
    if let Some((unit, state)) = stopped {
        let why = format!(
            "{unit} ran before the change and was {} when the {within} s for its confirmation were over; see \
             journalctl -u {unit} on the node",
            state.active
        );
        return (Check::Unit, why);
    }
    if let Some(unit) = restarted {
        return (Check::Unit, restarts(unit));
    }
    if let Some(why) = &seen.logins {
        return (Check::Unit, why.clone());
    }
    match &seen.api {
        Err(why) => (Check::Api, format!("the API server does not answer this node: {why}")),
        Ok(()) => (
            Check::Confirmation,
            format!("the agent did not confirm it within {within} s; does its pod run?"),
        ),
    }
}

/// Reboots by systemd's bus; if that is gone, by systemd's own socket; and if that does not work, at once.
fn reboot_because(host: &mut Host, why: &str) -> Result<(), Error> {
    let Err(error) = host.reboot(why) else { return Ok(()) };
    tracing::error!(error = chain(&error), "the reboot was refused; asking systemctl");
    for arguments in [&["reboot"][..], &["--force", "reboot"]] {
        match HostPrograms.run("systemctl", arguments, Duration::from_secs(60)) {
            Ok(_) => return Ok(()),
            Err(error) => tracing::error!(error = chain(&error), "systemctl does not reboot"),
        }
    }
    Err(error)
}

/// Reboots back out of a change that was tried. Which config the record of the reboot names depends on the change: where the OS
/// changed, the files are undone after the boot only.
fn reboot_back(host: &mut Host) -> Result<(), Error> {
    reboot_because(host, "back to the state before a change that was tried and not confirmed")
}

#[cfg(test)]
mod tests;
