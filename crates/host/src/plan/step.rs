//! The steps of a plan: what each one does and to which path. Secrets are kept out of everything that is printed.

use std::fmt;

use desired::Content;
use serde::{Serialize, Serializer};

use crate::system::systemd::ServiceAction;

use crate::disk::attributes::Attributes;
use crate::plan::effects::Planned;
use crate::plan::os::OsChange;
use crate::plan::secret::Secret;

/// A change of the enablement of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum UnitAction {
    /// As `systemctl enable`.
    Enable,
    /// As `systemctl disable`.
    Disable,
    /// As `systemctl preset`. A failure is only logged, because many units cannot be preset.
    Preset,
}

/// What a step's file replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Replaces {
    /// Nothing was there.
    Nothing,
    /// A file.
    File,
    /// A link.
    Link,
}

/// One step. The executor makes no choices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Step {
    /// Copy a file or link, with mode, owner and times.
    Copy {
        /// The path to copy from.
        from: String,
        /// The path to copy to.
        to: String,
        /// The reason.
        why: &'static str,
    },
    /// Write a file.
    Write {
        /// The path.
        path: String,
        /// The contents to write.
        content: Content,
        /// Mode and owner.
        attributes: Attributes,
        /// What was there before.
        replaces: Replaces,
        /// Whether the hash of the contents may be shown.
        #[serde(skip)]
        public: bool,
    },
    /// Make a symbolic link.
    Link {
        /// The path.
        path: String,
        /// The target.
        target: String,
        /// Its user and group.
        owner: (u32, u32),
        /// What was there before.
        replaces: Replaces,
    },
    /// Make a hard link of a file. It replaces what is at the path.
    HardLink {
        /// The path.
        path: String,
        /// The file that it becomes a name of.
        target: String,
    },
    /// Remove a file or link.
    Remove {
        /// The path.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// Remove a folder if it is empty.
    RemoveDir {
        /// The path.
        path: String,
        /// The reason.
        why: &'static str,
    },
    /// Make a folder, or change the mode and owner of an existing one.
    MakeDir {
        /// The path.
        path: String,
        /// Mode and owner.
        attributes: Attributes,
    },
    /// Rename something out of the way. It is deleted when the whole change is committed.
    MoveAside {
        /// The path.
        path: String,
        /// The name until then.
        to: String,
        /// The reason.
        why: &'static str,
    },
    /// Enable, disable or preset units.
    Units {
        /// The action.
        action: UnitAction,
        /// The units.
        units: Vec<String>,
    },
    /// Set a user's password hash.
    Password {
        /// The user.
        user: String,
        /// The new hash.
        hash: Secret,
        /// The day of the change for the user database, counted from 1970-01-01 (shadow(5)).
        day: u64,
    },
    /// Stage another deployment of the operating system for the next boot.
    Os {
        /// What changes. On the heap: a plan has one of them and many other steps.
        #[serde(serialize_with = "shown")]
        change: Box<OsChange>,
    },
    /// Bring the packages that were staged into the running system.
    Live {
        /// The config, for the record of a refusal.
        config: String,
        /// The extensions.
        extensions: Vec<String>,
    },
    /// Make systemd reload its units.
    DaemonReload,
    /// Make the SSH server reload its configuration, if it runs. A failure is only logged.
    TellSshd {
        /// Its unit.
        unit: String,
    },
    /// Reload or restart a service.
    Service {
        /// The action.
        action: ServiceAction,
        /// The unit.
        unit: String,
    },
    /// Make a changed path or unit take effect.
    Effect(Planned),
}

/// Serializes the change without secrets: a plan is shown to people, and kernel arguments can hold passwords.
fn shown<S: Serializer>(change: &OsChange, s: S) -> Result<S::Ok, S::Error> {
    change.shown().serialize(s)
}

impl Step {
    /// The paths that the step changes. The journal records what was there before.
    #[must_use]
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Copy { to: path, .. }
            | Self::Write { path, .. }
            | Self::Link { path, .. }
            | Self::HardLink { path, .. }
            | Self::Remove { path, .. }
            | Self::RemoveDir { path, .. }
            | Self::MakeDir { path, .. } => vec![path],
            // In the database itself only one line is undone, see `shadow`.
            Self::Password { .. } => vec![crate::paths::SHADOW_BACKUP],
            Self::MoveAside { .. }
            | Self::Units { .. }
            | Self::Os { .. }
            | Self::Live { .. }
            | Self::DaemonReload
            | Self::TellSshd { .. }
            | Self::Service { .. }
            | Self::Effect(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { from, to, why } => write!(f, "copy {from} to {to} ({why})"),
            Self::Write { path, content, attributes: a, replaces, public } => {
                let verb = if *replaces == Replaces::Nothing { "write" } else { "replace" };
                write!(f, "{verb} {path} {content:?} mode {:04o} owner {}:{}", a.mode, a.uid, a.gid)?;
                if *public {
                    write!(f, " sha256 {}", content.sha256().get(..12).unwrap_or_default())?;
                }
                Ok(())
            }
            Self::Link { path, target, .. } => write!(f, "link {path} to {target}"),
            Self::HardLink { path, target } => write!(f, "hard-link {path} to {target}"),
            Self::RemoveDir { path, why } => write!(f, "remove the folder {path} if it is empty ({why})"),
            Self::Remove { path, why } => write!(f, "remove {path} ({why})"),
            Self::MakeDir { path, attributes: a } => {
                write!(f, "make folder {path} mode {:04o} owner {}:{}", a.mode, a.uid, a.gid)
            }
            Self::MoveAside { path, why, .. } => write!(f, "remove {path} and what is in it ({why})"),
            Self::Units { action, units } => {
                let verb = match action {
                    UnitAction::Enable => "enable",
                    UnitAction::Disable => "disable",
                    UnitAction::Preset => "preset",
                };
                write!(f, "{verb} {}", units.join(" "))
            }
            Self::Password { user, .. } => write!(f, "set the password hash of {user}"),
            Self::Os { change } => write!(f, "stage the operating system: {change}"),
            Self::Live { extensions, .. } => {
                write!(f, "apply {} to the running system, without a reboot", extensions.join(" "))
            }
            Self::DaemonReload => f.write_str("daemon-reload"),
            Self::TellSshd { unit } => write!(f, "reload {unit}, if it runs"),
            Self::Service { action, unit } => write!(f, "{} {unit}", action.verb()),
            Self::Effect(planned) => {
                write!(f, "{} (for {})", planned.effect, planned.because.join(", "))
            }
        }
    }
}
