//! How the lab uses this computer: processes that never outlive it, short commands, its folder, the paths of programs and data, Debian packages,
//! locks between runs, cached build steps, pauses between looks, and the bridge and the control groups of its nodes.
//!
//! Not here: anything about Kubernetes.

pub(crate) mod cache;
pub(crate) mod cgroup;
pub(crate) mod command;
pub(crate) mod debian;
pub(crate) mod file_lock;
pub(crate) mod folder;
pub(crate) mod network;
pub(crate) mod packages;
pub(crate) mod paths;
pub(crate) mod polling;
pub(crate) mod process;
pub(crate) mod random;
