//! The present time.
//!
//! What it is not: an input that plans read by themselves. They are handed the time.

use api::k8s::Time;

/// The present time, as API objects write it.
pub(crate) fn now() -> Time {
    Time(jiff::Timestamp::now())
}
