//! What images said of themselves, by digest. A digest names the same bytes for ever, so an entry never grows old; the oldest
//! goes when there are too many.
//!
//! What it is not: a cache of tags, which move.

use crate::facts::ImageFacts;
use crate::reference::Digest;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

/// Images that are kept: more than the streams and pools of a cluster have, and a megabyte at most.
const MOST: usize = 128;

/// A digest, and the architecture that was looked at.
type Key = (Digest, String);

#[derive(Default)]
struct CacheEntries {
    facts: HashMap<Key, Arc<ImageFacts>>,
    order: VecDeque<Key>,
}

/// The facts of images that were looked into. Clones share them.
#[derive(Clone, Default)]
pub struct Cache(Arc<Mutex<CacheEntries>>);

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cache(…)")
    }
}

impl Cache {
    pub(crate) fn get(&self, digest: &Digest, architecture: &str) -> Option<Arc<ImageFacts>> {
        let entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.facts.get(&(digest.clone(), architecture.to_owned())).cloned()
    }

    pub(crate) fn put(&self, digest: Digest, architecture: String, facts: Arc<ImageFacts>) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (digest, architecture);
        if entries.facts.insert(key.clone(), facts).is_none() {
            entries.order.push_back(key);
        }
        while entries.order.len() > MOST {
            if let Some(oldest) = entries.order.pop_front() {
                entries.facts.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let cache = Cache::default();
        let digest = |i: usize| Digest::of(i.to_string().as_bytes());
        for i in 0..=MOST {
            cache.put(digest(i), "amd64".to_owned(), Arc::default());
            cache.put(digest(i), "amd64".to_owned(), Arc::default());
        }
        assert!(cache.get(&digest(0), "amd64").is_none());
        assert!(cache.get(&digest(1), "amd64").is_some() && cache.get(&digest(MOST), "amd64").is_some());
        assert!(cache.get(&digest(1), "arm64").is_none());
    }
}
