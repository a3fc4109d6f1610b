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
    /// What happened, and what to do about it.
    pub why: String,
}

/// One bootable state of the host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Deployment {
    /// The image that it was made of; empty where there is no such thing.
    pub image: String,
    /// All kernel arguments in order, the host's own among them. Those that the boot loader adds by itself, such as the
    /// name of the kernel's file, are left out.
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// Extensions that are installed.
    pub extensions: Vec<String>,
}

/// What a host has, and what it will boot into.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OsStatus {
    /// What runs.
    pub booted: Deployment,
    /// What takes its place at the next boot.
    pub staged: Option<Deployment>,
    /// What can be booted where that fails.
    pub previous: Option<Deployment>,
}

impl OsStatus {
    /// What the host will boot into, if nothing goes wrong.
    #[must_use]
    pub fn next(&self) -> &Deployment {
        self.staged.as_ref().unwrap_or(&self.booted)
    }
}

/// Kernel arguments can hold passwords: shown to people, they are masked.
pub(crate) fn masked<S: Serializer>(arguments: &[String], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(arguments.iter().map(|a| argument(a)))
}

/// What names the state that a host would boot into: for the back end alone to read. The journal keeps it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    /// It may hold kernel arguments.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<token>")
    }
}

/// What changes the operating system of one host. Nothing that it does is seen before the next boot.
pub trait OsBackend: Send + fmt::Debug {
    /// The name of what can do it on this host, or why none of it can be done here.
    ///
    /// # Errors
    /// A text for the user: what kind of host it would take.
    fn detect(&self) -> Result<&'static str, String>;
    /// What the host has.
    ///
    /// # Errors
    /// The host cannot say.
    fn status(&mut self) -> Result<OsStatus, OsError>;
    /// Brings what a deployment needs to the host: an image, packages. It may take long, changes nothing of what boots, and
    /// is run before the node is drained. Run again it does nothing, or goes on where it was cut.
    ///
    /// # Errors
    /// It cannot be had, or there is no room for it.
    fn fetch(&mut self, target: &Deployment) -> Result<(), OsError>;
    /// Names what the host would boot into now, for [`OsBackend::undo`]. Taken before anything is staged, as a crash may
    /// come between the two.
    ///
    /// # Errors
    /// The host cannot say.
    fn mark(&mut self) -> Result<Token, OsError>;
    /// Makes the host boot into a deployment whose parts were fetched. Short; run again with the same one it changes
    /// nothing.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn stage(&mut self, target: &Deployment) -> Result<(), OsError>;
    /// Makes the host boot into what the token names; what was staged is dropped. Run again it changes nothing.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn undo(&mut self, before: &Token) -> Result<(), OsError>;
}

/// A host on which none of it can be changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsupported;

/// What such a host answers.
const UNSUPPORTED: &str = "only rpm-ostree and bootc hosts can change it; on this host take it out of the MachineConfig, \
                           or set it with the tools of the distribution";

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
