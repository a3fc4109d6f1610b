//! Writes in flight: how many at once, which have no answer yet, and when a refusal is reported.

pub(crate) mod echo;
pub(crate) mod own_config;
pub(crate) mod permits;
pub(crate) mod put;
pub(crate) mod refusals;
pub(crate) mod requests;
pub(crate) mod writes;
