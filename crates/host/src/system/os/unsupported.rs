//! The back end of a host whose operating system cannot be changed: it refuses each part of it with one reason, and every command
//! fails with the same.
//!
//! Not here: which hosts get it (see `os_choice`).

use desired::OsField;

use super::{Deployment, OsBackend, OsError, OsStatus, Token};
use crate::system::pull::Pull;

/// The back end of a host whose operating system cannot be changed.
#[derive(Clone, Debug)]
pub struct Unsupported {
    /// Why not, and the remedy.
    why: String,
}

impl Unsupported {
    /// With the reason and the remedy.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    fn fail<T>(&self) -> Result<T, OsError> {
        Err(OsError::new(self.why.clone()))
    }
}

impl Default for Unsupported {
    /// For an ordinary host, whose packages and boot loader are changed with the distribution's tools.
    fn default() -> Self {
        Self::new(UNSUPPORTED)
    }
}

/// The error of an ordinary host.
pub(crate) const UNSUPPORTED: &str = "none of rpm-ostree, bootc and OSTree manages this host; remove it from the \
    MachineConfig, or set it with the distribution's tools";

impl OsBackend for Unsupported {
    fn name(&self) -> &'static str {
        "none"
    }

    fn refuses(&self, _: OsField) -> Option<String> {
        Some(self.why.clone())
    }

    fn status(&mut self) -> Result<OsStatus, OsError> {
        self.fail()
    }

    fn fetch(&mut self, _: &Deployment, _: &Pull) -> Result<(), OsError> {
        self.fail()
    }

    fn mark(&mut self) -> Result<Token, OsError> {
        self.fail()
    }

    fn stage(&mut self, _: &Deployment) -> Result<(), OsError> {
        self.fail()
    }

    fn undo(&mut self, _: &Token) -> Result<(), OsError> {
        self.fail()
    }
}
