//! The API server, as one node's agent talks to it: calls and their errors, the watch of the own Node, the credentials, and
//! what is reported beside the Node's annotations.
//!
//! What it is not: decisions (see [`crate::protocol`]), nor the host (see `node`).

pub(crate) mod calls;
pub(crate) mod credentials;
pub(crate) mod disruption_policy;
pub(crate) mod milestones;
pub(crate) mod node_watch;
mod progress_patch;
pub(crate) mod report;
