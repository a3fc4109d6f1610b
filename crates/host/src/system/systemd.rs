//! What this crate needs of systemd, as a trait. `dbus` talks to the real one, `fake_systemd` does the same to a
//! folder.

use std::fmt;
use std::time::Duration;

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

/// An action on a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnitVerb {
    /// As `systemctl start`.
    Start,
    /// As `systemctl stop`.
    Stop,
    /// As `systemctl restart`: a unit that has failed meanwhile is started.
    Restart,
    /// As `systemctl try-reload-or-restart`.
    Reload,
}

impl UnitVerb {
    /// The verb, as in `systemctl`.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Reload => "reload",
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

/// Whether a unit runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitState {
    /// systemd's word: `active`, `activating`, `failed` and so on.
    pub active: String,
    /// systemd's id of this run; each start has another one. Empty: it was never started.
    pub invocation: String,
}

impl UnitState {
    /// Whether it runs.
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.active.as_str(), "active" | "reloading")
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
    /// Whether a unit runs.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn unit_state(&mut self, unit: &str) -> Result<UnitState, SystemdError>;
    /// Starts a program as the transient unit `unit` and does not wait for it. It goes on when the caller ends, when
    /// another target is isolated, and is started again if it fails.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn start_watch(&mut self, unit: &str, command: &[String]) -> Result<(), SystemdError>;
    /// How long the machine has been up, by a clock that nobody sets. Comparable within one boot only.
    fn up_for(&mut self) -> Duration;
    /// As `systemctl try-reload-or-restart`: a unit that does not run is left alone.
    ///
    /// # Errors
    /// It runs and cannot be reloaded or restarted.
    fn reload_if_running(&mut self, unit: &str) -> Result<(), SystemdError>;
    /// Acts on a unit, and waits for the end of that.
    ///
    /// # Errors
    /// It does not exist, or its job fails.
    fn act(&mut self, action: UnitVerb, unit: &str) -> Result<(), SystemdError>;
    /// As [`Systemd::act`], without waiting: during boot, the unit may be ordered after the caller.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn queue_act(&mut self, action: UnitVerb, unit: &str) -> Result<(), SystemdError>;
    /// Whether a unit runs, or is about to.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn is_running(&mut self, unit: &str) -> Result<bool, SystemdError>;
    /// Whether units that were just acted on are well. A job ends when a simple service's process has started, so the
    /// real systemd is asked a moment later: a process that cannot read its settings has ended by then.
    ///
    /// # Errors
    /// One of them has failed, or is started again and again.
    fn check(&mut self, units: &[String]) -> Result<(), SystemdError>;
    /// How often userspace was restarted alone since the kernel started. `None`: this systemd cannot do that, or does
    /// not count it (it does since version 256).
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn soft_reboots(&mut self) -> Result<Option<u64>, SystemdError>;
    /// Whether the machine reboots as a whole now. One that is switched off does not.
    ///
    /// # Errors
    /// systemd cannot be reached.
    fn is_stopping(&mut self) -> Result<bool, SystemdError>;
    /// Restarts userspace alone (`systemctl soft-reboot`), and returns when that has begun.
    ///
    /// # Errors
    /// systemd cannot be reached or refuses.
    fn soft_reboot(&mut self, rationale: &Rationale) -> Result<(), SystemdError>;
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
