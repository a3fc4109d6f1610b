//! What people do to a rollout: [`pause()`] and resume, [`approve()`], [`undo()`], [`retry()`]. `mco` and the dashboard do these
//! here, so that both check the same and say the same.
//!
//! Each first says what it means, as a plain value, and then writes one object, bound to what was looked at. [`preview()`] says
//! what nodes do once they may continue; an undo says it itself.
//!
//! What it is not: the question whether a person is sure, which whoever calls asks; or what becomes of it, which the
//! controller and the node's agent decide.

mod approve;
pub mod messages;
mod pause;
mod pool_subject;
mod preview;
mod retry;
mod undo;

pub use approve::{Approval, ApprovalSubject, PolicyVersion, approve};
pub use pause::{Paused, pause};
pub use pool_subject::PoolSubject;
pub use preview::{Continue, Preview, preview};
pub use retry::{RetriedNode, retry};
pub use undo::{PlannedUndo, Undo, UndoSubject, undo};

use client::CallError;
use insight::{ChangeError, FollowError, ListError, RollbackError, UnreadableConfig, UnrenderableError};
use rollout::SituationError;

/// Whether anything is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only what it means is said.
    Preview,
    /// It is done.
    Write,
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    /// It cannot be done, or not any more; the text says why and what to look at. It is this program's own, with names of objects,
    /// and is shown as it is: nothing that others wrote belongs into it.
    #[error("{0}")]
    Refused(String),
    /// A request failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The cluster cannot be looked at.
    #[error(transparent)]
    Follow(#[from] FollowError),
    /// Its objects cannot be listed.
    #[error(transparent)]
    List(#[from] ListError),
    /// An object that matters cannot be read.
    #[error(transparent)]
    Object(#[from] SituationError),
    /// A MachineConfig cannot be read.
    #[error(transparent)]
    Config(#[from] UnreadableConfig),
    /// It cannot be said what it means for the nodes.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// The pool's MachineConfigs cannot be rendered, so that it cannot follow them.
    #[error("its MachineConfigs cannot be rendered; correct them first")]
    Unrenderable(#[source] UnrenderableError),
    /// There is no config to go back to.
    #[error(transparent)]
    Rollback(#[from] RollbackError),
    /// The program failed while it worked that out.
    #[error("the effect could not be computed because of an internal error; the log has the details")]
    Failed(#[from] tokio::task::JoinError),
}

/// Works something out from a whole cluster's objects. That takes up to seconds, in which the thread serves nobody else.
async fn worked_out<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ActionError> + Send + 'static,
) -> Result<T, ActionError> {
    tokio::task::spawn_blocking(work).await?
}

impl ActionError {
    /// The API server refused a request because of a missing right.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Call(error) => error.is_forbidden(),
            Self::List(error) => error.is_forbidden(),
            _ => false,
        }
    }
}
