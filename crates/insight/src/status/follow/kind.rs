//! The objects of one kind, as its watch reports them.
//!
//! What it is not: which kinds there are (see `watches`).

use kube::ResourceExt;
use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// The objects of one kind: the known ones, and a new list that is not complete yet.
pub(super) struct Kind<T> {
    pub(super) known: BTreeMap<String, T>,
    coming: BTreeMap<String, T>,
    pub(super) listed: bool,
}

impl<T> Kind<T> {
    pub(super) fn new() -> Self {
        Self { known: BTreeMap::new(), coming: BTreeMap::new(), listed: false }
    }

    /// For an optional kind: if it is not installed, there is no list to wait for.
    pub(super) fn expected(served: bool) -> Self {
        Self { listed: !served, ..Self::new() }
    }

    pub(super) fn take<K: ResourceExt>(&mut self, event: Event<K>, keep: impl FnOnce(&K) -> T) {
        match event {
            Event::Init => self.coming.clear(),
            Event::InitApply(object) => {
                self.coming.insert(object.name_any(), keep(&object));
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.coming);
                self.listed = true;
            }
            Event::Apply(object) => {
                self.known.insert(object.name_any(), keep(&object));
            }
            Event::Delete(object) => {
                self.known.remove(&object.name_any());
            }
        }
    }
}
