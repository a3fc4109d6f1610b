//! Why an image cannot be looked into.
//!
//! What it is not: what follows from it. Texts name the registry and what it answered, and never credentials.

use crate::credentials::BrokenEntry;
use crate::reference::ReferenceError;
use std::time::Duration;

/// What one place answered, or did not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFailure {
    /// 404.
    #[error("it does not have the image")]
    NotFound,
    /// 401 or 403.
    #[error("{}", if *sent { "it refuses the given credentials" } else { "it asks for credentials, and there are none for \
        it; add them to the pull secret" })]
    Denied {
        /// Whether credentials were sent.
        sent: bool,
    },
    /// It asks for credentials, and those that there are for it cannot be read.
    #[error("it asks for credentials, and {0}; correct the pull secret")]
    Credentials(#[from] BrokenEntry),
    /// No connection, or none that is trusted.
    #[error("it cannot be reached: {0}")]
    Unreachable(String),
    /// Another status.
    #[error("it answers with status {code}{words}")]
    Status {
        /// The status.
        code: u16,
        /// Its words; empty, or beginning with a colon.
        words: String,
        /// When it says that it can be asked again.
        again: Option<Duration>,
    },
    /// No answer in time.
    #[error("no answer within {} s", after.as_secs_f32())]
    Silent {
        /// How long was waited.
        after: Duration,
    },
    /// The connection ended in the middle of an answer.
    #[error("its answer was cut off: {0}")]
    Cut(String),
    /// What it sent is not what was asked for.
    #[error("its answer is invalid: {0}")]
    Lies(String),
    /// More than is read.
    #[error("its answer is longer than {most} bytes")]
    TooLarge {
        /// What is read at most.
        most: usize,
    },
    /// An answer of a form that is not known.
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
}

impl RequestFailure {
    /// Whether the same request may succeed soon.
    #[must_use]
    pub fn should_retry(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::Silent { .. } | Self::Cut(_) => true,
            Self::Status { code, .. } => *code == 408 || *code == 429 || *code >= 500,
            Self::NotFound
            | Self::Denied { .. }
            | Self::Credentials(_)
            | Self::Lies(_)
            | Self::TooLarge { .. }
            | Self::Unreadable(_) => false,
        }
    }
}

/// Why an image cannot be looked into.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Its name.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The settings of registries block it.
    #[error("image {image}: {scope} is blocked by the registry settings")]
    Blocked {
        /// The image.
        image: String,
        /// What is blocked.
        scope: String,
    },
    /// No place has it.
    #[error("image {image}: {}", tried.iter().map(|(place, why)| format!("{place}: {why}")).collect::<Vec<_>>().join("; "))]
    Failed {
        /// The image.
        image: String,
        /// Each place that was asked, in order, and why it is none.
        tried: Vec<(String, RequestFailure)>,
    },
    /// Not for this architecture.
    #[error("image {image} is for {}, not for {wanted}", has.join(", "))]
    Architecture {
        /// The image.
        image: String,
        /// What was asked for.
        wanted: String,
        /// What there is.
        has: Vec<String>,
    },
    /// A file that is not in it.
    #[error("image {image} has no file {path}")]
    NoFile {
        /// The image.
        image: String,
        /// The file.
        path: String,
    },
}

impl RegistryError {
    /// Whether a later attempt may end otherwise without a change of the image or of settings.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Failed { tried, .. } => tried.iter().any(|(_, why)| why.should_retry()),
            Self::Reference(_) | Self::Blocked { .. } | Self::Architecture { .. } | Self::NoFile { .. } => {
                false
            }
        }
    }
}
