//! When people should hear what a removal waits for.
//!
//! What it is not: the choice of what is waited for (see `plan` and `restore::plan`), or a request that is sent again (see
//! [`client::retry`]).

use std::time::Duration;
use tokio::time::Instant;

/// After how long without anything new a wait is reported.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

/// When something was last said.
#[derive(Debug)]
pub(super) struct LastWord(Instant);

impl LastWord {
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
