//! The fleet as watches and events tell it: what the page shows of it, the differences between two looks, and the times of updates,
//! also of past ones.
//!
//! Not here: what is read from the API server when somebody asks for it, and the stream to each viewer (see `answers`).

pub(crate) mod feed;
pub(crate) mod follow;
pub(crate) mod node_events;
pub(crate) mod snapshot;
pub(crate) mod timeline;
