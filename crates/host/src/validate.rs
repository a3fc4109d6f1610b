//! Does the host look as its config says? What a difference is called, without ever showing contents.

/// A difference between the host and its config, or the reason why they could not be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Drift {
    /// A file, unit file or drop-in has other contents.
    #[error("content mismatch for file {path:?}")]
    Content {
        /// Which.
        path: String,
    },
    /// It has another mode, or is no regular file.
    #[error("mode mismatch for file: {path:?}; expected: {expected:04o}; received: {received}")]
    Mode {
        /// Which.
        path: String,
        /// The permission bits that the config says.
        expected: u32,
        /// What was found.
        received: String,
    },
    /// It is not there.
    #[error("could not stat file {path:?}: it does not exist")]
    Missing {
        /// Which.
        path: String,
    },
    /// A masked unit is not.
    #[error("unit {unit:?} should be masked and {path:?} is not a link to /dev/null")]
    NotMasked {
        /// The unit.
        unit: String,
        /// Its path.
        path: String,
    },
    /// A unit is enabled and should not be, or the other way round.
    #[error("unit {unit:?} should be {expected} and is {received}")]
    Enablement {
        /// The unit.
        unit: String,
        /// `enabled` or `disabled`.
        expected: &'static str,
        /// What systemd says.
        received: String,
    },
}
