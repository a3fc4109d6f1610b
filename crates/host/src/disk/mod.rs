//! The root folder of a host as a handle: how paths are found, read and changed, and what stands in the way.
//!
//! What it is not: what is to stand where (see `plan`), or how a change is taken back (see `transaction`).

pub(crate) mod batch;
pub(crate) mod bounded;
pub(crate) mod found;
pub(crate) mod lookups;
pub(crate) mod obstacle;
pub(crate) mod resolve;
pub(crate) mod root;
pub(crate) mod write;
pub(crate) mod xattr;
