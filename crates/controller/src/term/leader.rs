//! Which of several controllers leads: the holder of the Lease `machine-config-controller`.
//!
//! What it is not: the election itself (see `client::lease`).

use api::k8s::Time;

pub(crate) use client::lease::{Handover, STRAY, TermSignals};

/// The lease's name.
pub(crate) const LEASE: &str = "machine-config-controller";

/// The present time, as API objects write it.
pub(crate) fn now() -> Time {
    Time(jiff::Timestamp::now())
}
