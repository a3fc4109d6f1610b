//! The objects of one kind as a watch tells of them. Pure.
//!
//! What it is not: the watch (see `source::cluster`).

use kube::runtime::watcher::Event;
use std::collections::BTreeMap;

/// The objects of one kind by name, kept up to date by a watch.
#[derive(Debug)]
pub(crate) struct WatchedObjects<T> {
    /// The objects of the last complete list, with what has changed since.
    pub(crate) items: BTreeMap<String, T>,
    listing: BTreeMap<String, T>,
    ready: bool,
}

impl<T> Default for WatchedObjects<T> {
    fn default() -> Self {
        Self { items: BTreeMap::new(), listing: BTreeMap::new(), ready: false }
    }
}

impl<T> WatchedObjects<T> {
    /// Applies an event. A new list replaces the old items only once it is complete.
    pub(crate) fn apply<K>(&mut self, event: Event<K>, keep: impl Fn(K) -> (String, T)) {
        match event {
            Event::Init => self.listing.clear(),
            Event::InitApply(object) => self.listing.extend([keep(object)]),
            Event::InitDone => {
                self.items = std::mem::take(&mut self.listing);
                self.ready = true;
            }
            Event::Apply(object) => self.items.extend([keep(object)]),
            Event::Delete(object) => {
                self.items.remove(&keep(object).0);
            }
        }
    }

    /// Whether a complete list has been received.
    pub(crate) fn ready(&self) -> bool {
        self.ready
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.items.get(name)
    }
}
