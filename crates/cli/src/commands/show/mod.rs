//! Commands that only show: they write nothing to a cluster.

pub(crate) mod bundle;
pub(crate) mod dashboard;
pub(crate) mod explain;
pub(crate) mod history;
pub(crate) mod plan;
pub(crate) mod status;
