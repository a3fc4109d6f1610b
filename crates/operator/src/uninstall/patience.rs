//! Waiting during a removal: an API server that serves nobody is asked again, and a long wait is reported.
//!
//! What it is not: the choice of what is waited for (see `plan` and `restore::plan`).

use client::{Backoff, CallError, chain};
use std::time::Duration;
use tokio::time::Instant;

/// The waits between two tries of a call.
const TRY_AGAIN: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(5) };
/// How many changes of others in a row are believed.
const MOST_CONFLICTS: u32 = 20;
/// After how long without anything new a wait is reported.
const SILENCE: Duration = Duration::from_secs(30);

/// The answer to a request, which is sent again while the API server serves nobody, for `limit`. The first time, `tell` gets the
/// reason.
pub(super) async fn answered<T>(
    limit: Duration,
    tell: impl FnOnce(String),
    mut request: impl AsyncFnMut() -> Result<T, CallError>,
) -> Result<T, CallError> {
    let (mut tell, begin, mut attempt) = (Some(tell), Instant::now(), 0);
    loop {
        let error = match request().await {
            Err(error) if error.is_outage() && begin.elapsed() <= limit => error,
            done => return done,
        };
        if let Some(tell) = tell.take() {
            tell(chain(&error));
        }
        tokio::time::sleep(TRY_AGAIN.delay(attempt)).await;
        attempt += 1;
    }
}

/// Makes a change that is bound to the version of an object that was read, again while others change the object in between.
pub(super) async fn despite_conflicts(
    mut change: impl AsyncFnMut() -> Result<(), CallError>,
) -> Result<(), CallError> {
    let mut attempt = 0;
    loop {
        match change().await {
            Err(error) if error.is_conflict() && attempt < MOST_CONFLICTS => {}
            done => return done,
        }
        tokio::time::sleep(TRY_AGAIN.delay(attempt)).await;
        attempt += 1;
    }
}

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
