//! The operating system below the files: image, kernel and its arguments, extensions. A trait with the states it can
//! be brought to, because rpm-ostree and bootc hosts can do this and others cannot.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use desired::OsState;

/// An operation on the operating system that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot change the operating system: {why}")]
pub struct OsError {
    /// What happened, and what to do about it.
    pub why: String,
}

/// The operating system of one host. A change takes effect at the next boot.
pub trait OsBackend: Send + fmt::Debug {
    /// The name of the host's system that can do this, or why none of it can be done here.
    ///
    /// # Errors
    /// A text for the user: what kind of host it would take.
    fn supported(&self) -> Result<&'static str, String>;
    /// What it will boot into.
    ///
    /// # Errors
    /// The host cannot say.
    fn state(&mut self) -> Result<OsState, OsError>;
    /// Makes the host boot into `to` instead of `from`. Called again with the same states it changes nothing; called
    /// with the states exchanged it takes the change back.
    ///
    /// # Errors
    /// The host refuses or fails.
    fn stage(&mut self, from: &OsState, to: &OsState) -> Result<(), OsError>;
}

/// A host on which none of it can be changed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsupported;

/// What such a host answers.
const UNSUPPORTED: &str = "only rpm-ostree and bootc hosts can change it; on this host take it out of the MachineConfig, \
                           or set it with the tools of the distribution";

impl OsBackend for Unsupported {
    fn supported(&self) -> Result<&'static str, String> {
        Err(UNSUPPORTED.to_owned())
    }

    fn state(&mut self) -> Result<OsState, OsError> {
        Ok(OsState::default())
    }

    fn stage(&mut self, from: &OsState, to: &OsState) -> Result<(), OsError> {
        if from == to { Ok(()) } else { Err(OsError { why: UNSUPPORTED.to_owned() }) }
    }
}

/// An operating system in memory. Clones share it, so that it outlives a daemon that is restarted.
#[derive(Clone, Debug, Default)]
pub struct FakeOs(Arc<Mutex<OsState>>);

impl OsBackend for FakeOs {
    fn supported(&self) -> Result<&'static str, String> {
        Ok("fake")
    }

    fn state(&mut self) -> Result<OsState, OsError> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn stage(&mut self, _: &OsState, to: &OsState) -> Result<(), OsError> {
        to.clone_into(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}
