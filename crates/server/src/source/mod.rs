//! Where configs come from: a directory during the bootstrap of a cluster, then the cluster itself.
//!
//! What it is not: how a config becomes an answer (see `prepared`).

pub(crate) mod bootstrap;
pub mod cluster;
