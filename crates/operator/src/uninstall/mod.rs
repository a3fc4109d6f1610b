//! `mco uninstall`: takes away everything that was installed, in an order that leaves nothing behind. Hosts keep their files.
//!
//! Flow: [`look`] finds what there is → [`plan()`] lists what goes and what stays, and why (pure) → [`carry_out`] does it.
//!
//! The order: first who would make things again (the operator), then the rest that acts, then what refuses changes, then what
//! is held by finalizers whose controller is gone, then the rights, the definitions with all of their objects, and at last
//! the namespaces. A run that is cut off is continued by the next one.
//!
//! What it is not: a way to change hosts.

mod execute;
mod look;
mod plan;

pub use execute::carry_out;
pub use look::look;
pub use plan::{Action, Facts, Plan, plan};

use client::CallError;

/// Why it cannot be taken away.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// The API server refused a request, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Something does not go.
    #[error(
        "{what} is still there after {seconds} s; see what holds it: kubectl get -o yaml, metadata.finalizers; then run it again"
    )]
    Stays {
        /// The object.
        what: String,
        /// How long was waited.
        seconds: u64,
    },
}
