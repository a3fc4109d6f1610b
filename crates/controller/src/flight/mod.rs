//! Writes on their way: how many at once, what has no answer yet, and when a refusal is told.

pub(crate) mod echo;
pub(crate) mod own_config;
pub(crate) mod permits;
pub(crate) mod put;
pub(crate) mod refusals;
pub(crate) mod requests;
pub(crate) mod writes;
