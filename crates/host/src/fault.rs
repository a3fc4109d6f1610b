//! Fault points: a hook that is called before and after every file-system and systemd call.
//!
//! The crash tests use it to stop the crate "at any instruction". The hook can say that the process is dead (nothing
//! may be done after that, not even an undo), or make the call fail with an error of its choice. The product's own
//! hook, [`NoFaults`], never does either.

use std::fmt;
use std::io;

/// The point in the code at which the hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point<'a> {
    /// The call, for example `rename`.
    pub call: &'static str,
    /// The path or unit that it works on.
    pub on: &'a str,
    /// True before the call, false after it.
    pub before: bool,
}

/// The fault that a hook injects at a point.
#[derive(Debug)]
pub enum Fault {
    /// The process ends here, as if by SIGKILL.
    Killed,
    /// The call fails. Only effective before a call.
    Fail(io::Error),
}

/// The hook.
pub trait Faults: Send + Sync + fmt::Debug {
    /// Called before and after each call.
    ///
    /// # Errors
    /// The fault to inject.
    fn at(&self, point: Point<'_>) -> Result<(), Fault>;
}

/// The hook of the product, which never injects a fault.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl Faults for NoFaults {
    fn at(&self, _: Point<'_>) -> Result<(), Fault> {
        Ok(())
    }
}

/// The error that represents the end of the process.
#[derive(Debug, thiserror::Error)]
#[error("killed by a fault point")]
struct KilledHere;

/// The I/O error that carries a [`Fault`] upwards.
pub(crate) fn as_io(fault: Fault) -> io::Error {
    match fault {
        Fault::Killed => io::Error::other(KilledHere),
        Fault::Fail(e) => e,
    }
}

/// Whether an error represents the end of the process: nothing may be cleaned up after it.
pub(crate) fn is_killed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|e| e.is::<KilledHere>())
}
