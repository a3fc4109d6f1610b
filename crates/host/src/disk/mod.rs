//! The root folder of a host as a handle: how paths are resolved, read and changed, and what can block a change.
//!
//! Not here: which files should exist (see `plan`), or how a change is rolled back (see `transaction`).

pub(crate) mod attributes;
pub(crate) mod batch;
pub(crate) mod bounded;
pub(crate) mod fs_error;
pub(crate) mod lookups;
pub(crate) mod names;
pub(crate) mod obstacle;
pub(crate) mod path_state;
pub(crate) mod resolve;
pub(crate) mod root;
pub(crate) mod stat;
mod volume;
pub(crate) mod write;
pub(crate) mod xattr;
