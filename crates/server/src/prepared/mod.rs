//! Configs as the bytes that are sent: prepared for each Ignition version, and kept in memory.
//!
//! What it is not: where configs come from (see `source`), and who may have one (see `answer`).

pub(crate) mod cache;
pub mod document;
pub mod prepare;
pub(crate) mod unpacked;
