//! A failure of work on the host, and what it means for the state of the node.
//!
//! Not here: when the work is tried again (see `protocol::retry`).

use crate::protocol::FailureKind;
use api::events::AgentEvent;
use api::formats::text::chain;
use host::{Error, Scope};

/// A failure of work on the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct MachineError {
    /// What it means for the node's state.
    pub(crate) kind: FailureKind,
    /// The event that reports it, if there is one.
    pub(crate) event: Option<AgentEvent>,
    /// The whole chain of causes.
    pub(crate) text: String,
    /// Whether services of the node were restarted or reloaded for it. Such work must not be retried often.
    pub(crate) disturbing: bool,
}

impl MachineError {
    pub(crate) fn degraded(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Degraded, event: None, text: text.into(), disturbing: false }
    }

    pub(crate) fn with_event(mut self, event: AgentEvent) -> Self {
        self.event = Some(event);
        self
    }
}

impl From<Error> for MachineError {
    fn from(error: Error) -> Self {
        Self { disturbing: error.disturbed_services(), ..Self::degraded(chain(&error)) }
    }
}

impl From<host::FsError> for MachineError {
    fn from(error: host::FsError) -> Self {
        Self::degraded(chain(&error))
    }
}

/// The failure for a refused plan: Unreconcilable if no machine can do what the config asks for, Degraded if only this
/// machine has an obstacle.
pub(crate) fn refusal(why: &[host::Irreconcilable]) -> MachineError {
    let machine_only = why.iter().all(|i| i.scope == Scope::Machine);
    let kind = if machine_only { FailureKind::Degraded } else { FailureKind::Unreconcilable };
    let text = why.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    MachineError { kind, event: Some(AgentEvent::FailedToReconcile), ..MachineError::degraded(text) }
}
