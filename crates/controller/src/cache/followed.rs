//! The watched kinds, as the start of a leader's term sees them: which objects, and what happens when a kind cannot be
//! read.

use crate::cache::store::Cache;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use std::sync::Arc;

/// What is done where a kind cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing is decided.
    Always,
    /// Where it is not served, or not for us, there is none of it.
    WhereServed,
    /// A kind of setting: as long as it cannot be read nothing is rendered, and pools say so.
    Setting,
    /// No decision rests on it: where it cannot be read, what is known of it counts.
    Aside,
}

/// A kind that is followed for as long as this process lives.
pub(crate) struct Followed {
    pub(crate) kind: String,
    pub(crate) need: Need,
    pub(crate) api: Api<DynamicObject>,
    /// Which objects of it.
    pub(crate) which: watcher::Config,
    pub(crate) cache: Arc<dyn Cache>,
}
