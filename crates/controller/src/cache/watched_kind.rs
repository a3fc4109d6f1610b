//! The watched kinds, as the start of a leader's term sees them: which objects, and what happens when a kind cannot be
//! read.

use crate::cache::store::Cache;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use std::sync::Arc;

/// What happens when a kind cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing is decided until it can.
    Always,
    /// If it is not served, or we may not read it, it counts as empty.
    WhereServed,
    /// A kind of setting: while it cannot be read nothing is rendered, and pools say so.
    Setting,
    /// No decision rests on it: while it cannot be read, what is in the cache counts.
    Aside,
}

/// A kind that is watched for as long as this process lives.
pub(crate) struct WatchedKind {
    pub(crate) kind: String,
    pub(crate) need: Need,
    pub(crate) api: Api<DynamicObject>,
    /// Which of its objects are watched.
    pub(crate) which: watcher::Config,
    pub(crate) cache: Arc<dyn Cache>,
}
