//! An event to record: what, about which object, in which words.
//!
//! What it is not: the sending, or the list of events (`api::events`).

use api::events::{ControllerEvent, Severity};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The object that an event is about. Both kinds are cluster-scoped: the event is in our own namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventObject {
    /// A MachineConfigPool.
    Pool(Arc<str>),
    /// A Node.
    Node(Arc<str>),
}

/// An event to record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPlan {
    /// Normal or Warning.
    pub kind: Severity,
    /// Which event.
    pub reason: ControllerEvent,
    /// The object.
    pub about: EventObject,
    /// A sentence.
    pub message: String,
}

impl EventPlan {
    pub(crate) fn new(reason: ControllerEvent, about: EventObject, message: String) -> Self {
        Self { kind: reason.severity(), reason, about, message }
    }
}
