//! How long the controller waits before it retries, for each kind of failure.

use client::Backoff;
use std::time::Duration;

/// For work that failed. The cap is how long people wait at most after an outage or a mistake is over.
pub(crate) const WORK: Backoff = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(20) };

/// For work that was decided on an old version of an object: the watch delivers the new one within milliseconds.
pub(crate) const CONFLICT: Backoff =
    Backoff { first: Duration::from_millis(5), last: Duration::from_millis(500) };

/// For watches. An API server that is back is noticed within the cap.
pub(crate) const WATCH: Backoff = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(3) };
