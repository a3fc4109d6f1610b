//! The objects of our own parts: pods, and what they may do in a cluster. Pure.
//!
//! What it is not: putting these into the cluster (see `install`).

pub(crate) mod agents;
pub(crate) mod pods;
pub(crate) mod rights;
