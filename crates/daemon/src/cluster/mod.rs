//! How one node's agent talks to the API server: its calls and their errors, the watch of its own Node, its
//! credentials, and what it reports besides the Node's annotations.
//!
//! Not here: decisions (see [`crate::protocol`]), nor the host (see `node`).

pub(crate) mod calls;
pub(crate) mod credentials;
pub(crate) mod milestones;
pub(crate) mod own_node;
pub(crate) mod report;
