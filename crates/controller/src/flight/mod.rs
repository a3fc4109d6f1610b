//! Writes in flight: how many at once, which have no answer yet, and when a refusal is reported.

pub(crate) mod echoes;
pub(crate) mod merge_patch;
pub(crate) mod nodes;
pub(crate) mod own_config;
pub(crate) mod permits;
pub(crate) mod pools;
pub(crate) mod refusals;
pub(crate) mod write_config;
