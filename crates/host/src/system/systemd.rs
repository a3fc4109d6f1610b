//! What this crate needs of systemd, as a trait. `dbus` talks to the real one, `fake_systemd` does the same to a
//! folder.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A systemd call that failed.
#[derive(Debug, thiserror::Error)]
#[error("systemd could not {call} {on}: {why}")]
pub struct SystemdError {
    /// The call.
    pub call: &'static str,
    /// The units that it was made for.
    pub on: String,
    /// The error that systemd returned.
    pub why: String,
    /// A fault point simulated the end of the process here.
    pub(crate) killed: bool,
}

impl SystemdError {
    /// An error of an implementation.
    #[must_use]
    pub fn new(call: &'static str, on: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { call, on: on.into(), why: why.to_string(), killed: false }
    }
}

/// An action on a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAction {
    /// As `systemctl reload`.
    Reload,
    /// As `systemctl restart`.
    Restart,
    /// Run a program of the host once, in place of a service that this host does not have, as `systemd-run --wait`
    /// does. The unit is then the program's path.
    Run,
}

impl ServiceAction {
    /// Every action.
    pub(crate) const ALL: [Self; 3] = [Self::Reload, Self::Restart, Self::Run];

    /// The verb for it, as in `systemctl`.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Reload => "reload",
            Self::Restart => "restart",
            Self::Run => "run",
        }
    }
}

/// The enablement state of a unit file, as `systemctl is-enabled` prints it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct UnitFileState(pub String);

impl UnitFileState {
    /// Whether the unit is enabled, permanently or until the next boot.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        matches!(self.0.as_str(), "enabled" | "enabled-runtime")
    }

    /// Whether the unit could be enabled and is not.
    #[must_use]
    pub fn is_disabled(&self) -> bool {
        self.0 == "disabled"
    }

    /// Whether the unit is masked: it cannot be started at all.
    #[must_use]
    pub fn is_masked(&self) -> bool {
        matches!(self.0.as_str(), "masked" | "masked-runtime")
    }
}

/// Why a machine is rebooted. It is written to the host's system journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rationale(pub String);

/// The systemd of one host. Every call returns when its effect has happened. Implementations have their own time
/// limits.
pub trait Systemd: Send + fmt::Debug {
    /// Reloads all units.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn daemon_reload(&mut self) -> Result<(), SystemdError>;
    /// Makes the links that the units' `[Install]` sections ask for.
    ///
    /// # Errors
    /// A unit does not exist, is masked, or is a template without a default instance.
    fn enable(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// Removes these links.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn disable(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// Enables or disables units as the host's presets say.
    ///
    /// # Errors
    /// As [`Systemd::enable`].
    fn preset(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// Starts a unit, or restarts it.
    ///
    /// # Errors
    /// It does not exist or does not start.
    fn restart(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// Makes a service reload its configuration.
    ///
    /// # Errors
    /// It does not exist, does not run, or cannot reload.
    fn reload(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// Runs a program of the host once, as a transient unit, and waits for its end.
    ///
    /// # Errors
    /// It does not exist, or ends with a failure.
    fn run_once(&mut self, program: &str) -> Result<(), SystemdError>;
    /// Queues a restart or reload without waiting for it: during boot, the unit may be ordered after the caller. A
    /// service that does not run is started.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn queue(&mut self, action: ServiceAction, unit: &str) -> Result<(), SystemdError>;
    /// Whether a unit was started in this boot: it is starting or stopping, runs, or has failed.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn was_started(&mut self, unit: &str) -> Result<bool, SystemdError>;
    /// As `systemctl try-reload-or-restart`: a unit that does not run is left alone.
    ///
    /// # Errors
    /// It runs and cannot be reloaded or restarted.
    fn reload_if_running(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// The enablement state of a unit file. `None`: there is no such file.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn state(&mut self, unit: &str) -> Result<Option<UnitFileState>, SystemdError>;
    /// Starts a reboot, and returns when the reboot has begun.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn reboot(&mut self, rationale: &Rationale) -> Result<(), SystemdError>;
    /// The boot id: a different text at each boot.
    ///
    /// # Errors
    /// It cannot be read.
    fn boot_id(&mut self) -> Result<String, SystemdError>;
}
