//! The watch over a change on trial: a process of the host's own that undoes the change when the time is up. It needs no
//! kubelet, no container runtime and no network, so it is there when the agent is not.
//!
//! It leaves the agent a little longer than the time, because the agent knows better what failed.
//!
//! Not here: the confirmation by the agent (see `protocol::trial`), nor the clock and the undo (see `host`).

use crate::entry::without_cluster::plan_once;
use crate::error::DaemonError;
use crate::protocol::{Before, restarted, restarts};
use api::text::chain;
use api::v1::MachineConfig;
use host::{Check, Error, Host, HostPrograms, Programs as _, RebootStatus, UnitState};
use std::path::Path;
use std::time::Duration;

/// How often the clock is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How much longer than the trial's time the agent may take for its own verdict. Its last look tries a new connection (5 s)
/// and asks the API server (30 s) before it decides, on a machine that may be busy with its boot.
const GRACE: Duration = Duration::from_secs(50);
/// How long the agent may take for the reboot after the undo: the pods may have to leave first.
const REBOOT_GRACE: Duration = Duration::from_mins(5);
/// The same if this process had to undo the change, and the pods had left for the reboot into it.
const SHORT_REBOOT_GRACE: Duration = Duration::from_secs(20);
/// The program of the host on hosts whose `/usr` can be written to; the units that run before the kubelet start it too.
const PROGRAM: &str = "/usr/local/bin/mco";

/// The command of the unit that watches. The program may have been replaced by another version since this process began.
pub(crate) fn command() -> Vec<String> {
    let own = std::env::current_exe().ok().and_then(|path| path.to_str().map(str::to_owned));
    let own = own.map(|path| path.trim_end_matches(" (deleted)").to_owned());
    let program = own.filter(|path| Path::new(path).exists()).unwrap_or_else(|| PROGRAM.to_owned());
    ["daemon", "watch-trial", "--root-mount=/"].iter().fold(vec![program], |mut all, word| {
        all.push((*word).to_owned());
        all
    })
}

/// Watches until no change of this host is on trial and no reboot out of one is pending.
///
/// # Errors
/// The root folder or systemd cannot be used.
pub fn watch_trial(root_mount: &Path) -> Result<(), DaemonError> {
    let (mut host, _runtime) = open(root_mount)?;
    let mut seen = Seen { grace: REBOOT_GRACE, units: Vec::new() };
    loop {
        match look(&mut host, &mut seen) {
            Ok(Some(wait)) => std::thread::sleep(wait),
            Ok(None) => return Ok(()),
            Err(Error::Busy { .. }) => std::thread::sleep(LOOK),
            Err(error) => {
                tracing::error!(error = chain(&error), "the change on trial cannot be watched; trying again");
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// What the watch keeps from one look to the next.
#[derive(Debug)]
struct Seen {
    /// How long the agent may take for the reboot after the undo.
    grace: Duration,
    /// The units that ran before the change, as they were at the last look.
    units: Vec<(String, UnitState)>,
}

/// One look. Returns when to look again; `None`: there is nothing left to watch.
fn look(host: &mut Host, seen: &mut Seen) -> Result<Option<Duration>, Error> {
    let Some(open) = host.trial()? else {
        if host.has_unfinished_change()? {
            // An undo that was interrupted. Usually the agent continues it.
            host.recover()?;
        }
        let RebootStatus::Owed(owed) = host.reboot_status()? else { return Ok(None) };
        if !owed.back {
            return Ok(None);
        }
        std::thread::sleep(seen.grace);
        if let RebootStatus::Owed(owed) = host.reboot_status()?
            && owed.back
        {
            reboot(host, &owed.config)?;
        }
        return Ok(Some(LOOK));
    };
    let person = serde_json::from_str::<Before>(&open.trial.before).is_ok_and(|b| b.person);
    if !open.left.is_zero() {
        host.tick_trial()?;
        // Not in the last moment: what is compared with it later must have had time to end.
        if open.left >= LOOK {
            seen.units = host.trial_units(&open.trial).unwrap_or_default();
        }
        return Ok(Some(open.left.min(LOOK)));
    }
    if !person {
        std::thread::sleep(GRACE);
        match host.trial()? {
            Some(still) if still.names == open.names => {}
            _ => return Ok(Some(Duration::ZERO)),
        }
    }
    let units = host.trial_units(&open.trial).unwrap_or_default();
    let (check, why) = failing(&units, &seen.units, open.trial.within, person);
    host.fail_trial(check, &why)?;
    if person {
        seen.grace = Duration::ZERO;
    } else if open.trial.reboots {
        seen.grace = SHORT_REBOOT_GRACE;
    }
    Ok(Some(Duration::ZERO))
}

/// A config that a person tries on this host.
#[derive(Debug)]
pub struct TryOnHost {
    host: Host,
    /// What systemd is talked to with.
    _runtime: tokio::runtime::Runtime,
    /// The config that is tried.
    pub config: String,
    /// The machine is rebooting into it.
    pub reboots: bool,
    /// What in it can cut the host off.
    pub because: Vec<String>,
}

/// How a try stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TryState {
    /// It is neither kept nor undone; so much of the time is left.
    Open(Duration),
    /// It is kept.
    Kept,
    /// It was undone. `true`: the machine reboots for that.
    Undone(bool),
}

impl TryOnHost {
    /// Applies a config for a try. Starts the reboot that it needs.
    ///
    /// # Errors
    /// The host belongs to a cluster, or the config cannot be applied. Then nothing is changed.
    pub fn begin(
        root_mount: &Path,
        from: &str,
        config: &MachineConfig,
        within: Duration,
    ) -> Result<Self, DaemonError> {
        let fail = |why: String| DaemonError::Once { from: from.to_owned(), why };
        let (mut host, runtime) = open(root_mount)?;
        let mut plan = plan_once(&mut host, from, config)?;
        let before = Before { person: true, ..Before::default() };
        let before = serde_json::to_string(&before).map_err(|e| fail(e.to_string()))?;
        plan.on_trial(within, &[], before);
        host.apply(&plan).map_err(|e| fail(chain(&e)))?;
        let reboots = plan.disruption.needs_reboot();
        let because = plan.cut_offs.iter().map(ToString::to_string).collect();
        let config = plan.names.desired;
        if reboots && let Err(refused) = host.reboot(&format!("trying config {config} from {from}")) {
            let why = format!("{}; the change is undone", chain(&refused));
            host.fail_trial(Check::Confirmation, &why).map_err(DaemonError::Recover)?;
            return Err(fail(why));
        }
        Ok(Self { host, _runtime: runtime, config, reboots, because })
    }

    /// How the try stands. Undoes it when its time is up.
    ///
    /// # Errors
    /// The host cannot be read, or the undo fails.
    pub fn look(&mut self) -> Result<TryState, DaemonError> {
        match self.host.trial().map_err(DaemonError::Recover)? {
            Some(open) if open.left.is_zero() => self.give_up("nobody confirmed it in time"),
            Some(open) => {
                self.host.tick_trial().map_err(DaemonError::Recover)?;
                Ok(TryState::Open(open.left))
            }
            None => self.ended(),
        }
    }

    /// Keeps the change.
    ///
    /// # Errors
    /// The host cannot be changed.
    pub fn keep(&mut self) -> Result<TryState, DaemonError> {
        self.host.confirm_trial().map_err(DaemonError::Recover)?;
        self.ended()
    }

    /// Undoes the change now.
    ///
    /// # Errors
    /// The undo fails. `mco daemon recover` continues it.
    pub fn give_up(&mut self, why: &str) -> Result<TryState, DaemonError> {
        match self.host.fail_trial(Check::Confirmation, why) {
            // The watch does it at this moment.
            Ok(_) | Err(Error::Busy { .. }) => {}
            Err(error) => return Err(DaemonError::Recover(error)),
        }
        self.ended()
    }

    fn ended(&mut self) -> Result<TryState, DaemonError> {
        if let Some(open) = self.host.trial().map_err(DaemonError::Recover)? {
            return Ok(TryState::Open(open.left));
        }
        let current = self.host.current_config().map_err(DaemonError::Recover)?;
        if current.is_some_and(|c| c.name == self.config) {
            return Ok(TryState::Kept);
        }
        let owed = self.host.reboot_status().map_err(DaemonError::Recover)?;
        Ok(TryState::Undone(matches!(owed, RebootStatus::Owed(_))))
    }
}

/// Keeps the change that is on trial on this host. Returns its config. `None`: none is, or its reboot is still to come.
///
/// # Errors
/// The host cannot be read or changed.
pub fn confirm_on_host(root_mount: &Path) -> Result<Option<String>, DaemonError> {
    let (mut host, _runtime) = open(root_mount)?;
    host.confirm_trial().map_err(DaemonError::Recover)
}

/// Opens the host, with the runtime whose own thread talks to systemd while this thread waits.
fn open(root_mount: &Path) -> Result<(Host, tokio::runtime::Runtime), DaemonError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    let (host, _) = crate::entry::start::open(root_mount, runtime.handle().clone())?;
    Ok((host, runtime))
}

/// What failed, as far as it can be seen without the API server. `earlier`: the units at an earlier look.
fn failing(
    units: &[(String, UnitState)],
    earlier: &[(String, UnitState)],
    within: u64,
    person: bool,
) -> (Check, String) {
    let stopped = units.iter().find(|(_, state)| !state.runs());
    let restarted = restarted(earlier, units);
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
    match restarted {
        Some(unit) => (Check::Unit, restarts(unit)),
        None => (
            Check::Confirmation,
            format!("the agent did not confirm it within {within} s; does its pod run?"),
        ),
    }
}

/// Reboots by systemd's bus; if that is gone, by systemd's own socket; and if that does not work, at once.
fn reboot(host: &mut Host, config: &str) -> Result<(), Error> {
    let why = format!("back to config {config}: a change was tried and not confirmed");
    let Err(error) = host.reboot(&why) else { return Ok(()) };
    tracing::error!(error = chain(&error), "the reboot was refused; asking systemctl");
    for arguments in [&["reboot"][..], &["--force", "reboot"]] {
        match HostPrograms.run("systemctl", arguments, Duration::from_secs(60)) {
            Ok(_) => return Ok(()),
            Err(error) => tracing::error!(error = chain(&error), "systemctl does not reboot"),
        }
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubelet(active: &str, run: &str) -> Vec<(String, UnitState)> {
        let state = UnitState { active: active.to_owned(), invocation: run.to_owned() };
        vec![("kubelet.service".to_owned(), state)]
    }

    #[test]
    fn the_watch_names_a_unit_that_is_down_or_started_again_and_again_before_an_agent_that_is_silent() {
        for (now, earlier, check, word) in [
            (kubelet("failed", "a"), kubelet("active", "a"), Check::Unit, "was failed"),
            (kubelet("active", "b"), kubelet("activating", "a"), Check::Unit, "again and again"),
            (kubelet("active", "b"), kubelet("inactive", ""), Check::Confirmation, "the agent did not"),
            (kubelet("active", "a"), kubelet("active", "a"), Check::Confirmation, "the agent did not"),
            (kubelet("active", "a"), vec![], Check::Confirmation, "the agent did not"),
        ] {
            let (found, why) = failing(&now, &earlier, 60, false);
            assert!(found == check && why.contains(word), "{now:?} after {earlier:?}: {why}");
            let (found, _) = failing(&now, &earlier, 60, true);
            assert_eq!(found, Check::Confirmation, "a person decides");
        }
    }
}
