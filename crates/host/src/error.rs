//! Errors of operations on a host. Each text has the path and the remedy.

use crate::disk::fs_error::FsError;
use crate::system::os::OsError;
use crate::system::systemd::ServiceAction;
use crate::system::systemd::SystemdError;
use crate::system::users::ShadowError;

/// An error of this crate. Texts do not repeat their source, so print the whole chain.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// A systemd call.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// The operating system's back end.
    #[error(transparent)]
    Os(#[from] OsError),
    /// An effect of a change (a kernel parameter, a program, a unit) failed, or its check did.
    #[error("{effect}, for {paths}: {why}; {remedy}")]
    Effect {
        /// The paths and units of the config.
        paths: String,
        /// The effect.
        effect: String,
        /// What the kernel, the program or systemd said.
        why: String,
        /// The remedy.
        remedy: String,
    },
    /// The user database.
    #[error(transparent)]
    Shadow(#[from] ShadowError),
    /// Another program holds the lock of the user database.
    #[error("another program is changing the user database (it holds {path}); retry when it is done")]
    PasswdLocked {
        /// The lock file.
        path: &'static str,
    },
    /// Another process changes or recovers this host.
    #[error(
        "another process is changing this host (it holds the lock {path}); retry when it is done, and make sure that only \
         one agent runs on this host"
    )]
    Busy {
        /// The lock.
        path: &'static str,
    },
    /// The record of a pending reboot cannot be read.
    #[error(
        "{path} cannot be read ({why}), so whether a reboot is pending is unknown; remove it, then reboot"
    )]
    RebootRecord {
        /// Its file.
        path: &'static str,
        /// The reason.
        why: String,
    },
    /// A config cannot be parsed.
    #[error("{name} is not a readable MachineConfig: {why}")]
    Config {
        /// Its name, or the file that holds it.
        name: String,
        /// The reason.
        why: String,
    },
    /// An earlier change had been interrupted.
    #[error("an earlier change (to {desired}) had been interrupted and was undone just now; plan again")]
    Interrupted {
        /// The config that it was moving to.
        desired: String,
    },
    /// There is less free space than the change needs.
    #[error("{path}: {need} bytes are needed on its file system and {free} are free; free space and retry")]
    NoSpace {
        /// A path on the file system in question.
        path: String,
        /// Bytes that the change may need there.
        need: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The journal of an unfinished change cannot be read.
    #[error(
        "{path} is damaged ({why}); it was kept as {kept}; apply the current config again to repair the host"
    )]
    Journal {
        /// The journal's file.
        path: String,
        /// How it is damaged.
        why: String,
        /// Where it is now.
        kept: String,
    },
    /// The journal of an unfinished change was written by a later version.
    #[error(
        "{path} was written by a newer version (format {found}, this one knows {known}); start that version on this host again so that it finishes or undoes its change"
    )]
    JournalNewer {
        /// The journal's file.
        path: &'static str,
        /// Its format.
        found: u32,
        /// The newest format that is known here.
        known: u32,
    },
    /// A step failed and everything before it was undone: the host is in its old state.
    #[error("could not {step}; every change was undone")]
    Undone {
        /// The step.
        step: String,
        /// Why it failed.
        source: Box<Error>,
    },
    /// A step failed and so did the undo. The journal is kept, and the next [`crate::Host::recover`] continues the
    /// undo.
    #[error(
        "could not {step} ({cause}), and the undo is not complete; it is tried again at the next start or retry"
    )]
    UndoIncomplete {
        /// The step.
        step: String,
        /// Why it failed.
        cause: String,
        /// Why the undo failed.
        source: Box<Error>,
    },
}

/// Calls that act on units besides those of services.
const OF_UNITS: [&str; 3] = ["start", "stop", "check"];

impl Error {
    /// Whether services were reloaded or restarted for a change that was then undone because one of them failed. Each
    /// retry would restart them again.
    #[must_use]
    pub fn disturbed_services(&self) -> bool {
        let verbs = ServiceAction::ALL.map(ServiceAction::verb);
        let told = |e: &Self| match e {
            Self::Systemd(e) => verbs.contains(&e.call) || OF_UNITS.contains(&e.call),
            Self::Effect { .. } => true,
            _ => false,
        };
        match self {
            Self::Undone { source, .. } => told(source),
            // Only the text of the cause is kept, so the step has to tell.
            Self::UndoIncomplete { step, .. } => step
                .split_once(' ')
                .is_some_and(|(verb, _)| verbs.contains(&verb) || OF_UNITS.contains(&verb)),
            _ => false,
        }
    }

    /// Whether a fault point simulated the end of the process here: nothing may be cleaned up.
    #[must_use]
    pub fn killed(&self) -> bool {
        match self {
            Self::Fs(e) => e.killed(),
            Self::Systemd(e) => e.killed,
            Self::Os(e) => e.killed,
            Self::Undone { source, .. } | Self::UndoIncomplete { source, .. } => source.killed(),
            _ => false,
        }
    }
}
