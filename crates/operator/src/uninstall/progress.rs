//! What people hear of a removal: its steps, and when a wait is reported.
//!
//! Not here: the choice of what is waited for (see `plan` and `restore::plan`), and requests that are sent again (see
//! [`client::retry`]).

use super::plan::Action;
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;

/// After how long without anything new a wait is reported.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// A step, for people.
#[derive(Debug)]
pub enum Step<'a> {
    /// This action is done.
    Done(&'a Action),
    /// What a long action waits for, and for how long it has.
    Waits(String),
    /// A part of an action that cannot be done, and why. The removal continues.
    NotDone(String),
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(action) => action.fmt(f),
            Self::Waits(what) => write!(f, "waiting for {what}"),
            Self::NotDone(what) => f.write_str(what),
        }
    }
}

/// When a wait was last reported.
#[derive(Debug)]
pub(super) struct WaitReport(Instant);

impl WaitReport {
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    /// Something was said.
    pub(super) fn spoken(&mut self) {
        self.0 = Instant::now();
    }

    /// Whether nothing was said for so long that people should hear what is waited for. It counts as said.
    pub(super) fn is_due(&mut self) -> bool {
        let due = self.0.elapsed() >= SILENCE;
        if due {
            self.spoken();
        }
        due
    }
}
