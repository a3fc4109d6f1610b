//! Who may talk to the dashboard, and what that person may see and do. Where the dashboard runs in the cluster, the API server
//! decides that.
//!
//! Not here: the answers (see `answers`).

pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod cluster_access;
pub(crate) mod local_access;
pub(crate) mod required_right;
