//! `daemon try` and `daemon confirm`: a person tries a config on this host, and says whether it is kept.
//!
//! Not here: the watch that undoes it if the person is cut off (see `trial`), nor the clock and the undo (see `host`).

use crate::entry::open_host::open_with_runtime;
use crate::entry::without_cluster::plan_once;
use crate::error::DaemonError;
use crate::protocol::StateBefore;
use api::formats::text::chain;
use api::v1::MachineConfig;
use host::{Check, Error, Host, RebootStatus};
use std::path::Path;
use std::time::Duration;

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
        let fail = |why: String| DaemonError::WithoutCluster { from: from.to_owned(), why };
        let (mut host, runtime) = open_with_runtime(root_mount)?;
        let mut plan = plan_once(&mut host, from, config)?;
        let before = StateBefore { person: true, ..StateBefore::default() };
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
    pub fn check(&mut self) -> Result<TryState, DaemonError> {
        match self.host.trial().map_err(DaemonError::Recover)? {
            Some(open) if open.left.is_zero() => self.give_up("nobody confirmed it in time"),
            Some(open) => {
                self.host.tick_trial().map_err(DaemonError::Recover)?;
                Ok(TryState::Open(open.left))
            }
            None => self.ended(),
        }
    }

    /// Confirms the change: it stays.
    ///
    /// # Errors
    /// The host cannot be changed.
    pub fn confirm(&mut self) -> Result<TryState, DaemonError> {
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
    let (mut host, _runtime) = open_with_runtime(root_mount)?;
    host.confirm_trial().map_err(DaemonError::Recover)
}
