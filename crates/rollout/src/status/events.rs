//! The events for what changed in a pool's status.
//!
//! What it is not: the sending of events.

use crate::event::{EventObject, EventPlan};
use api::conditions::{self, Condition, StatusCondition as _};
use api::events::ControllerEvent;
use api::names::pool_condition::{DEGRADED, MEMBERSHIP_CONFLICT, UPDATING};
use api::v1::MachineConfigPoolStatus;

/// An event about a pool.
pub(super) fn event(pool: &str, reason: ControllerEvent, message: String) -> EventPlan {
    EventPlan::new(reason, EventObject::Pool(pool.into()), message)
}

/// The events for what changed between two statuses.
pub(super) fn events(
    pool: &str,
    old: &MachineConfigPoolStatus,
    before: &[Condition],
    new: &MachineConfigPoolStatus,
    after: &[Condition],
    line: &str,
) -> Vec<EventPlan> {
    let mut list = vec![];
    let changed = |type_: &str| {
        let (b, a) = (conditions::get(before, type_), conditions::get(after, type_));
        a.filter(|a| b.is_none_or(|b| (&b.status, &b.message) != (&a.status, &a.message)))
    };
    if let Some(now) = changed(UPDATING).filter(|c| c.is_true()) {
        list.push(event(pool, ControllerEvent::Updating, now.message.clone()));
    }
    if old.configuration.name != new.configuration.name {
        let message = format!("Pool {pool} has completed its update to {line}");
        list.push(event(pool, ControllerEvent::Completed, message));
    }
    let was_degraded = conditions::is_true(before, DEGRADED);
    if let Some(now) = changed(DEGRADED).filter(|c| c.is_true() && !was_degraded) {
        list.push(event(pool, ControllerEvent::Degraded, now.message.clone()));
    }
    if let Some(now) = changed(MEMBERSHIP_CONFLICT).filter(|c| c.is_true()) {
        list.push(event(pool, ControllerEvent::MembershipConflict, now.message.clone()));
    }
    list
}
