//! What a lab is made of on this computer: processes that never outlive it, its folder, Debian packages, and where things
//! are looked for.
//!
//! What it is not: anything of Kubernetes.

pub(crate) mod folder;
pub(crate) mod packages;
pub(crate) mod paths;
pub(crate) mod process;
