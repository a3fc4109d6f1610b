//! The operating system below the files: image, kernel and its arguments, extensions. Types for what a host has, and a
//! trait for back ends that can change it: rpm-ostree, bootc and boot loaders do it in different ways, and many hosts
//! cannot do it at all.
//!
//! ```text
//! detect ─► status ─► plan (see `plan::os`) ─► fetch ─► (drain) ─► mark ─► stage ─► (reboot) ─► status
//!                                                                    └───── undo ◄┘
//! ```
//!
//! Not here: what a config wants (see `desired::OsWanted`), nor what should be done about it (see `plan::os`).

use std::fmt;

use desired::mask::argument;
use serde::{Deserialize, Serialize, Serializer};

/// An operation on the operating system that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot change the operating system: {why}")]
pub struct OsError {
    /// What happened, and the remedy.
    pub why: String,
}

/// One bootable state of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The image that it was made from. Empty if the host does not use images.
    pub image: String,
    /// All kernel arguments in order, including the host's own. Those that the boot loader adds itself, such as the
    /// name of the kernel's file, are left out.
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// The installed extensions.
    pub extensions: Vec<String>,
}

/// The deployments of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsStatus {
    /// The deployment that is running.
    pub booted: Deployment,
    /// The deployment that replaces it at the next boot.
    pub staged: Option<Deployment>,
    /// The deployment to fall back to.
    pub previous: Option<Deployment>,
}

impl OsStatus {
    /// The deployment that the host will boot into, if nothing fails.
    #[must_use]
    pub fn next(&self) -> &Deployment {
        self.staged.as_ref().unwrap_or(&self.booted)
    }
}

/// Serializes kernel arguments masked, because they can hold passwords.
pub(crate) fn masked<S: Serializer>(arguments: &[String], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(arguments.iter().map(|a| argument(a)))
}

/// Identifies the deployment that a host would boot into. It is opaque to all but the back end. The journal keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    /// Shows nothing of it, because it may hold kernel arguments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<token>")
    }
}

/// A back end that changes the operating system of one host. None of its changes takes effect before the next boot.
pub trait OsBackend: Send + fmt::Debug {
    /// The name of the mechanism on this host, such as rpm-ostree, or why the operating system cannot be changed here.
    ///
    /// # Errors
    /// A text for the user: which kind of host would be needed.
    fn detect(&self) -> Result<&'static str, String>;
    /// The deployments of the host.
    ///
    /// # Errors
    /// The host cannot report it.
    fn status(&mut self) -> Result<OsStatus, OsError>;
    /// Fetches what a deployment needs, such as an image or packages. It may take long, does not change what the host
    /// boots into, and runs before the node is drained. Idempotent: a second run does nothing, or resumes an
    /// interrupted one.
    ///
    /// # Errors
    /// It cannot be fetched, or there is no space for it.
    fn fetch(&mut self, target: &Deployment) -> Result<(), OsError>;
    /// Returns a token for the deployment that the host would boot into now, for [`OsBackend::undo`]. It is recorded
    /// before anything is staged, because a crash may come in between.
    ///
    /// # Errors
    /// The host cannot report it.
    fn mark(&mut self) -> Result<Token, OsError>;
    /// Makes the host boot into a deployment that was fetched. Quick, and idempotent.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn stage(&mut self, target: &Deployment) -> Result<(), OsError>;
    /// Makes the host boot into the deployment of the token, and drops what was staged. Idempotent.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn undo(&mut self, before: &Token) -> Result<(), OsError>;
}

/// The back end of a host whose operating system cannot be changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsupported;

/// The error of such a host.
const UNSUPPORTED: &str = "only rpm-ostree and bootc hosts can change it; on this host remove it from the \
    MachineConfig, or set it with the distribution's tools";

fn unsupported<T>() -> Result<T, OsError> {
    Err(OsError { why: UNSUPPORTED.to_owned() })
}

impl OsBackend for Unsupported {
    fn detect(&self) -> Result<&'static str, String> {
        Err(UNSUPPORTED.to_owned())
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        unsupported()
    }

    fn fetch(&mut self, _: &Deployment) -> Result<(), OsError> {
        unsupported()
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        unsupported()
    }

    fn stage(&mut self, _: &Deployment) -> Result<(), OsError> {
        unsupported()
    }

    fn undo(&mut self, _: &Token) -> Result<(), OsError> {
        unsupported()
    }
}
