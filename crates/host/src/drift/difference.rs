//! One difference between the host and its config, with the path that it is about.
//!
//! Not here: how differences are found (see `compare` and `os`).

use crate::paths;
use desired::OsField;

/// A difference between the host and its config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    /// A file, unit file or drop-in has other contents.
    #[error("content mismatch for file {path:?}")]
    Content {
        /// The path.
        path: String,
    },
    /// A file has another mode, or is not a regular file.
    #[error("mode mismatch for file: {path:?}; expected: {expected:04o}; received: {received}")]
    Mode {
        /// The path.
        path: String,
        /// The permission bits in the config.
        expected: u32,
        /// What was found on the host.
        received: String,
    },
    /// A file does not exist.
    #[error("could not stat file {path:?}: it does not exist")]
    Missing {
        /// The path.
        path: String,
    },
    /// A file has another owner.
    #[error("owner mismatch for file: {path:?}; expected: {expected}; received: {received}")]
    Owner {
        /// The path.
        path: String,
        /// User and group id in the config.
        expected: String,
        /// What was found on the host.
        received: String,
    },
    /// Something other than the config's folder or link is at the path.
    #[error("{path:?} should be {expected} and is {received}")]
    Kind {
        /// The path.
        path: String,
        /// What the config asks for.
        expected: String,
        /// What was found on the host.
        received: String,
    },
    /// A unit should be masked and is not.
    #[error("unit {unit:?} should be masked and {path:?} is not a link to /dev/null")]
    NotMasked {
        /// The unit.
        unit: String,
        /// Its path.
        path: String,
    },
    /// A unit is enabled and should be disabled, or the other way round.
    #[error("unit {unit:?} should be {} and is {received}", if *enabled { "enabled" } else { "disabled" })]
    Enablement {
        /// The unit.
        unit: String,
        /// Whether it should be enabled.
        enabled: bool,
        /// The state that systemd reports.
        received: String,
    },
    /// The operating system is not what the config asks for.
    #[error("{path}: {why}", path = field.path())]
    Os {
        /// The field of the config.
        field: OsField,
        /// What the host has instead.
        why: String,
    },
}

impl Drift {
    /// The managed path that drifted. For a unit's enablement it is the path of the unit; for the operating system, the field
    /// of the MachineConfig, which no repair writes.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Content { path }
            | Self::Mode { path, .. }
            | Self::Missing { path }
            | Self::Owner { path, .. }
            | Self::Kind { path, .. }
            | Self::NotMasked { path, .. } => path.clone(),
            Self::Os { field, .. } => field.path().to_owned(),
            Self::Enablement { unit, .. } => paths::unit(unit),
        }
    }
}
