//! What this crate needs of systemd, as a trait. `dbus` talks to the real one, `fake_systemd` does the same to a
//! folder.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A systemd call that failed.
#[derive(Debug, thiserror::Error)]
#[error("systemd could not {call} {on}: {why}")]
pub struct SystemdError {
    /// What was asked.
    pub call: &'static str,
    /// Of which units.
    pub on: String,
    /// What systemd said.
    pub why: String,
    /// A fault point ended the process here.
    pub(crate) killed: bool,
}

impl SystemdError {
    /// An error of an implementation.
    #[must_use]
    pub fn new(call: &'static str, on: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { call, on: on.into(), why: why.to_string(), killed: false }
    }
}

/// What happens to a running service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAction {
    /// As `systemctl reload`.
    Reload,
    /// As `systemctl restart`.
    Restart,
    /// Run a program of the host once, in place of a service that this host does not have: as `systemd-run --wait`. What is
    /// told is the program's path.
    Run,
}

impl ServiceAction {
    /// Each of them.
    pub(crate) const ALL: [Self; 3] = [Self::Reload, Self::Restart, Self::Run];

    /// The word for it, as `systemctl` has it.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Restart => "restart",
            Self::Run => "run",
        }
    }
}

/// How unit files are enabled, as `systemctl is-enabled` says it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct UnitFileState(pub String);

impl UnitFileState {
    /// It is started by something, for good or until the next boot.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        matches!(self.0.as_str(), "enabled" | "enabled-runtime")
    }

    /// It could be enabled and is not.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.0 == "disabled"
    }

    /// It cannot be started at all.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        matches!(self.0.as_str(), "masked" | "masked-runtime")
    }
}

/// Why a machine is rebooted; written to the journal of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rationale(pub String);

/// systemd of one host. Every call returns when it has happened; implementations have their own time limits.
pub trait Systemd: Send + fmt::Debug {
    /// Reads all units again.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn daemon_reload(&mut self) -> Result<(), SystemdError>;
    /// Makes the links that `[Install]` asks for.
    ///
    /// # Errors
    /// A unit does not exist, is masked, or is a template without a default instance.
    fn enable(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// Removes these links.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn disable(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// Enables or disables as the host's presets say.
    ///
    /// # Errors
    /// As [`Systemd::enable`].
    fn preset(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// Starts a unit, or restarts it.
    ///
    /// # Errors
    /// It does not exist or does not start.
    fn restart(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// Lets a unit read its configuration again.
    ///
    /// # Errors
    /// It does not exist, does not run, or cannot reload.
    fn reload(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// Runs a program of the host once, as a unit that is gone afterwards, and waits for its end.
    ///
    /// # Errors
    /// It does not exist, or ends with a failure.
    fn run_once(&mut self, program: &str) -> Result<(), SystemdError>;
    /// Asks for a restart or reload and does not wait for it: where a host boots, a unit may wait for whoever asks.
    /// Where it does not run it is started.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn queue(&mut self, action: ServiceAction, unit: &str) -> Result<(), SystemdError>;
    /// Whether a unit was started in this boot: it is on its way up or down, runs, or has failed.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn was_started(&mut self, unit: &str) -> Result<bool, SystemdError>;
    /// As `systemctl try-reload-or-restart`: one that does not run is left alone.
    ///
    /// # Errors
    /// It runs and cannot be reloaded or restarted.
    fn reload_if_running(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// How a unit file is enabled; `None` when there is none.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn state(&mut self, unit: &str) -> Result<Option<UnitFileState>, SystemdError>;
    /// Starts a reboot, and returns when it has begun.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn reboot(&mut self, rationale: &Rationale) -> Result<(), SystemdError>;
    /// Another text at each boot.
    ///
    /// # Errors
    /// It cannot be read.
    fn boot_id(&mut self) -> Result<String, SystemdError>;
}
