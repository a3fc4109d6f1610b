//! Times as plans write them.
//!
//! What it is not: a clock. The time is an input of every plan.

use api::k8s::Time;
use jiff::Timestamp;

/// A time for readers of a plan: whole seconds, as API objects write it.
pub(crate) fn time(at: Timestamp) -> Time {
    let second = at.as_second();
    Time(Timestamp::from_second(second).unwrap_or(at))
}
