//! The root folder of a host as a handle: how paths are resolved, read and changed, and what can block a change.
//!
//! Not here: which files should exist (see `plan`), or how a change is rolled back (see `transaction`).

pub(crate) mod batch;
pub(crate) mod bounded;
pub(crate) mod examine;
pub(crate) mod found;
pub(crate) mod lookups;
pub(crate) mod names;
pub(crate) mod obstacle;
pub(crate) mod resolve;
pub(crate) mod root;
mod volume;
pub(crate) mod write;
pub(crate) mod xattr;
