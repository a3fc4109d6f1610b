//! Commands about manifests.

pub(crate) mod lint;
pub(crate) mod render;
