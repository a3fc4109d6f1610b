//! What works over manifests.

pub(crate) mod lint;
pub(crate) mod render;
