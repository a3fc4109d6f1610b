//! The cache of one kind: for each name, what we keep of the object, and its resource version.
//!
//! Three writers feed it: the watch, a list after a lost watch, and the answers to our own writes. The answers matter:
//! without them, a pass that runs before the watch delivers our last write would decide on the state before that write.
//! An older version never replaces a newer one of the same object, whichever writer delivers it.
//!
//! What it is not: decoding or trimming (see [`crate::cache::watch`]), or what a change means.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// One object in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Item<T> {
    /// `metadata.resourceVersion` as a number; the API server guarantees that it grows (KEP-5504).
    pub(crate) version: u64,
    /// `metadata.uid`: another one under the same name is another object.
    pub(crate) uid: String,
    /// What we keep of it.
    pub(crate) value: Arc<T>,
}

/// A change that a writer made to a store.
#[derive(Debug, Clone)]
pub(crate) struct Change<T> {
    pub(crate) name: String,
    pub(crate) old: Option<Arc<T>>,
    pub(crate) new: Option<Arc<T>>,
}

/// The cache of one kind.
#[derive(Debug)]
pub(crate) struct Store<T> {
    items: RwLock<BTreeMap<String, Item<T>>>,
    synced: watch::Sender<bool>,
    /// The watch's last error and since when it fails. Until it works again, the cache may be out of date or empty.
    trouble: Mutex<Option<(String, Instant)>>,
    /// Objects that cannot be decoded, with the newest version that was seen.
    undecodable: Mutex<BTreeMap<String, u64>>,
    list_again: Notify,
    doubted: Notify,
    /// The uids of the objects that were deleted last: an answer about one of them may still be on its way.
    deleted: Mutex<VecDeque<String>>,
}

/// How long until a pass looks again whether a kind [is known](Store::is_known).
pub(crate) const KNOWN_AGAIN: Duration = Duration::from_secs(5);
/// How many deleted objects are remembered. An answer is late by seconds.
const DELETED: usize = 64;

/// A cache of any kind, as the start of a term sees it.
pub(crate) trait Cache: Send + Sync {
    /// The first object that is missing here, older here than in the list, or gone from the list; `None` if the cache
    /// is as new as the list. `at` is the version of the list itself.
    fn behind(&self, list: &BTreeMap<String, u64>, at: u64) -> Option<String>;
    /// Asks the watch to list everything again: at once, or after the list that is under way.
    fn list_again(&self);
    /// Marks the cache as possibly out of date: nothing counts as known until the next list.
    fn doubt(&self);
    /// Whether a first complete list was seen, or the kind is known to be absent.
    fn is_synced(&self) -> bool;
    /// Why the watch that fills it fails, if it has failed for at least this long.
    fn trouble_for(&self, least: Duration) -> Option<String>;
}

impl<T: Send + Sync> Cache for Store<T> {
    fn behind(&self, list: &BTreeMap<String, u64>, at: u64) -> Option<String> {
        let undecodable = self.undecodable.lock().unwrap_or_else(PoisonError::into_inner);
        self.read(|items| {
            let known = |name: &str| {
                let known = items.get(name).map(|i| i.version);
                known.max(undecodable.get(name).copied())
            };
            let older = list.iter().find(|(name, version)| known(name).is_none_or(|have| have < **version));
            let gone = || items.iter().find(|(name, item)| item.version <= at && !list.contains_key(*name));
            older.map(|(name, _)| name.clone()).or_else(|| gone().map(|(name, _)| name.clone()))
        })
    }

    fn list_again(&self) {
        self.list_again.notify_one();
    }

    fn doubt(&self) {
        self.synced.send_replace(false);
        self.doubted.notify_one();
    }

    fn is_synced(&self) -> bool {
        self.is_synced()
    }

    fn trouble_for(&self, least: Duration) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        trouble.as_ref().filter(|(_, since)| since.elapsed() >= least).map(|(why, _)| why.clone())
    }
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Self {
            items: RwLock::default(),
            synced: watch::Sender::new(false),
            trouble: Mutex::default(),
            undecodable: Mutex::default(),
            list_again: Notify::new(),
            doubted: Notify::new(),
            deleted: Mutex::default(),
        }
    }
}

impl<T> Store<T> {
    /// The object of this name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.read(|items| items.get(name).map(|i| i.value.clone()))
    }

    /// The version of the object of this name.
    pub(crate) fn version(&self, name: &str) -> Option<u64> {
        self.read(|items| items.get(name).map(|i| i.version))
    }

    /// All objects, by name.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.read(|items| items.values().map(|i| i.value.clone()).collect())
    }

    /// The names of all objects.
    pub(crate) fn names(&self) -> Vec<String> {
        self.read(|items| items.keys().cloned().collect())
    }

    /// Whether a first complete list was seen.
    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Whether all objects of the kind are known: a first complete list was seen, and the watch works. No change of an object says
    /// when that is so again, so a pass that waits for it looks again after [`KNOWN_AGAIN`].
    pub(crate) fn is_known(&self) -> bool
    where
        T: Send + Sync,
    {
        self.is_synced() && self.trouble().is_none()
    }

    /// Why the watch that fills it fails; `None` if it works.
    pub(crate) fn trouble(&self) -> Option<String>
    where
        T: Send + Sync,
    {
        self.trouble_for(Duration::ZERO)
    }

    /// Records that the watch fails, or works again.
    pub(crate) fn set_trouble(&self, why: Option<String>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let since = trouble.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        *trouble = why.map(|why| (why, since));
    }

    /// Waits for the first list.
    pub(crate) async fn synced(&self) {
        // The sender lives in `self`, so the wait ends only with a first list.
        let _ = self.synced.subscribe().wait_for(|s| *s).await;
    }

    /// Waits until the cache is marked as possibly out of date (see [`Cache::doubt`]).
    pub(crate) async fn until_doubted(&self) {
        let _ = self.synced.subscribe().wait_for(|s| !*s).await;
    }

    /// Waits until somebody asks for a new list. A list that is under way is not dropped for that, because one that is slower than
    /// the requests would never arrive: they wait. Only a doubt does not wait, because that list began before it.
    pub(crate) async fn asked_to_list(&self, under_way: bool) {
        tokio::select! {
            () = self.doubted.notified() => {}
            () = self.list_again.notified(), if !under_way => {}
        }
    }

    /// Records an object that cannot be decoded: it is not in the cache, but it is known to exist.
    pub(crate) fn skip(&self, name: &str, version: u64) {
        self.undecodable.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), version);
    }

    /// Stores an object, unless a newer version of it is already there.
    pub(crate) fn apply(&self, name: String, item: Item<T>) -> Option<Change<T>> {
        put(&mut self.write(), name, item)
    }

    /// Stores the answer to a write of ours. Like [`Store::apply`], but an object that was deleted meanwhile stays
    /// deleted.
    pub(crate) fn answer(&self, name: &str, item: Item<T>) -> Option<Change<T>> {
        let mut items = self.write();
        let known = items.get(name).is_some_and(|o| o.uid == item.uid);
        if known { put(&mut items, name.to_owned(), item) } else { None }
    }

    /// Stores the answer to a creation of ours, unless the object was deleted before the answer was handled.
    pub(crate) fn created(&self, name: &str, item: Item<T>) -> Option<Change<T>> {
        let mut items = self.write();
        let gone = self.deleted.lock().unwrap_or_else(PoisonError::into_inner).contains(&item.uid);
        if gone { None } else { put(&mut items, name.to_owned(), item) }
    }

    /// Removes a deleted object, unless another object has its name by now.
    pub(crate) fn delete(&self, name: &str, uid: &str) -> Option<Change<T>> {
        let mut items = self.write();
        {
            let mut deleted = self.deleted.lock().unwrap_or_else(PoisonError::into_inner);
            deleted.push_back(uid.to_owned());
            if deleted.len() > DELETED {
                deleted.pop_front();
            }
        }
        let other = items.get(name).is_some_and(|i| i.uid != uid);
        if other { None } else { take(&mut items, name) }
    }

    /// Takes an object out.
    pub(crate) fn remove(&self, name: &str) -> Option<Change<T>> {
        take(&mut self.write(), name)
    }

    /// Replaces the contents by a complete list: objects that are not in it are gone. Returns what changed.
    pub(crate) fn replace(&self, list: BTreeMap<String, Item<T>>) -> Vec<Change<T>> {
        let mut items = self.write();
        let gone: Vec<String> = items.keys().filter(|name| !list.contains_key(*name)).cloned().collect();
        let mut changes: Vec<Change<T>> = gone.iter().filter_map(|name| take(&mut items, name)).collect();
        changes.extend(list.into_iter().filter_map(|(name, item)| put(&mut items, name, item)));
        drop(items);
        self.synced.send_replace(true);
        changes
    }

    /// What is decided about an object, such as whether it was deleted, is decided under the lock under which it is written.
    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Item<T>>> {
        self.items.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<R>(&self, f: impl FnOnce(&BTreeMap<String, Item<T>>) -> R) -> R {
        f(&self.items.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Puts an object in, unless a newer version of it is already there.
fn put<T>(items: &mut BTreeMap<String, Item<T>>, name: String, item: Item<T>) -> Option<Change<T>> {
    let old = items.get(&name);
    if old.is_some_and(|o| o.uid == item.uid && o.version >= item.version) {
        return None;
    }
    let old = old.map(|o| o.value.clone());
    let new = Some(item.value.clone());
    items.insert(name.clone(), item);
    Some(Change { name, old, new })
}

fn take<T>(items: &mut BTreeMap<String, Item<T>>, name: &str) -> Option<Change<T>> {
    let old = items.remove(name)?;
    Some(Change { name: name.to_owned(), old: Some(old.value), new: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(uid: &str, version: u64) -> Item<u64> {
        Item { version, uid: uid.to_owned(), value: Arc::new(version) }
    }

    #[test]
    fn an_older_version_never_replaces_a_newer_one_of_the_same_object() {
        let store = Store::default();
        assert!(store.apply("a".to_owned(), item("u", 5)).is_some());
        assert!(store.apply("a".to_owned(), item("u", 4)).is_none(), "late watch event");
        assert!(store.apply("a".to_owned(), item("u", 5)).is_none(), "the watch event of our own write");
        assert_eq!(store.get("a").as_deref(), Some(&5));
        assert!(store.apply("a".to_owned(), item("v", 3)).is_some(), "another object of that name");
    }

    #[test]
    fn a_cache_is_as_new_as_a_list_when_it_has_its_versions_and_nothing_that_is_gone() {
        let store = Store::default();
        store.apply("a".to_owned(), item("u", 5));
        store.skip("odd", 4);
        type Row<'r> = (&'r [(&'r str, u64)], u64, Option<&'r str>);
        let rows: [Row<'_>; 7] = [
            (&[("a", 5), ("odd", 4)], 9, None),
            (&[("a", 4)], 4, None),
            (&[("a", 6)], 9, Some("a")),
            (&[("a", 5), ("odd", 6)], 9, Some("odd")),
            (&[("a", 5), ("new", 8)], 9, Some("new")),
            // One object was deleted after it was seen; another was created after the list.
            (&[], 5, Some("a")),
            (&[], 4, None),
        ];
        for (list, at, want) in rows {
            let names = list.iter().map(|(name, version)| ((*name).to_owned(), *version)).collect();
            assert_eq!(store.behind(&names, at).as_deref(), want, "{list:?} at {at}");
        }
    }

    #[test]
    fn an_answer_does_not_bring_a_deleted_object_back() {
        let store = Store::default();
        store.apply("a".to_owned(), item("u", 5));
        store.remove("a");
        assert!(store.answer("a", item("u", 6)).is_none());
        assert!(store.get("a").is_none());
    }

    #[test]
    fn a_deletion_takes_out_that_object_alone_and_its_late_answer_changes_nothing() {
        let store = Store::default();
        store.apply("a".to_owned(), item("new", 7));
        assert!(store.delete("a", "old").is_none(), "the object that had this name before");
        assert!(store.get("a").is_some());
        assert!(store.delete("a", "new").is_some());
        assert!(store.created("a", item("new", 7)).is_none(), "deleted before its answer");
        assert!(store.get("a").is_none());
        assert!(store.created("a", item("newer", 9)).is_some());
    }

    /// The watch reports the deletion while the answer to the creation is being handled.
    #[test]
    fn an_object_that_is_deleted_while_its_answer_is_handled_does_not_come_back() {
        let store = Store::default();
        let begins = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            // No answer is handled to its end while the deletion holds the objects.
            let mut items = store.write();
            let answer = scope.spawn(|| {
                begins.wait();
                store.created("a", item("u", 6)).is_some()
            });
            begins.wait();
            // Time enough for it to look whether the object was deleted, if it could.
            std::thread::sleep(Duration::from_millis(50));
            store.deleted.lock().unwrap().push_back("u".to_owned());
            assert!(take(&mut items, "a").is_none());
            drop(items);
            assert!(!answer.join().unwrap(), "the object is back");
        });
        assert!(store.get("a").is_none());
    }

    #[test]
    fn a_list_removes_what_is_not_in_it_and_reports_only_changes() {
        let store = Store::default();
        assert!(!store.is_synced());
        store.apply("a".to_owned(), item("u", 5));
        store.apply("b".to_owned(), item("w", 6));
        let list = BTreeMap::from([("b".to_owned(), item("w", 6)), ("c".to_owned(), item("x", 7))]);
        let changed: Vec<String> = store.replace(list).into_iter().map(|c| c.name).collect();
        assert_eq!(changed, ["a", "c"]);
        assert_eq!(store.names(), ["b", "c"]);
        assert!(store.is_synced());
    }
}
