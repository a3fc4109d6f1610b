//! The edges: the connection to the API server, events, metrics, files.

pub(crate) mod backoff;
pub(crate) mod certificate_metrics;
pub(crate) mod clock;
pub(crate) mod connection;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod image_metrics;
pub(crate) mod labels;
pub(crate) mod metrics;
