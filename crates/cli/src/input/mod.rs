//! What is read: manifests that somebody wrote, and answers on a terminal.
//!
//! What it is not: what the objects mean.

pub(crate) mod confirm;
pub(crate) mod manifests;
