//! What is read from files: manifests that somebody wrote, and dumps of a cluster.
//!
//! What it is not: what the objects mean.

pub(crate) mod dump;
pub(crate) mod manifests;
