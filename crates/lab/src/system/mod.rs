//! How the lab uses this computer: processes that never outlive it, its folder, Debian packages, and the paths of
//! programs and data.
//!
//! Not here: anything about Kubernetes.

pub(crate) mod debian;
pub(crate) mod folder;
pub(crate) mod packages;
pub(crate) mod paths;
pub(crate) mod process;
