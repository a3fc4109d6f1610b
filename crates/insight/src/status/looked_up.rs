//! What a plan asks to have looked up, as long as it asks: an answer for each key, which is renewed before it is too old.
//!
//! What it is not: the lookups themselves (see the crate `lookups`), or the keys that a plan asks for (see `drain_outlooks` and
//! `change_costs`).

use futures::stream::{self, BoxStream, SelectAll};
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long nobody looks again after a refusal. Rights may be given meanwhile, and an authorizer may err.
const REFUSED: Duration = Duration::from_secs(60);

/// After this time a lookup that failed is tried again.
const FAILED: Duration = Duration::from_secs(15);

/// Why something was not looked up.
#[derive(Debug, Clone)]
pub(super) enum Unseen {
    /// This person may not read it.
    Forbidden,
    /// The request failed, or its answer cannot be read; why.
    Failed(String),
}

/// An answer to each of some keys, as they come.
pub(super) type Answers<K, V> = BoxStream<'static, (K, Result<V, Unseen>)>;

/// Looks keys up.
pub(super) type Look<K, V> = Box<dyn Fn(&Client, Vec<K>) -> Answers<K, V> + Send + Sync>;

/// As many lookups may be under way: what is asked for while one of them has no answer is looked up by another one.
const AT_ONCE: usize = 4;

/// As many answers that came together are taken at once: what is known is compared only once for them.
const TOGETHER: usize = 1000;

/// What is looked up, and how long an answer counts.
pub(super) struct LookupRule<K, V> {
    /// Looks these keys up.
    pub(super) look: Look<K, V>,
    /// An answer is renewed after this time.
    pub(super) every: Duration,
    /// An answer counts this long. `None`: until a newer one is there, or nobody asks for it any more.
    pub(super) counts: Option<Duration>,
}

/// A lookup of some keys that is not at its end.
struct Lookup<K> {
    begun: Instant,
    /// The keys without an answer.
    left: BTreeSet<K>,
    /// One of its answers was a refusal.
    refused: bool,
}

/// The number of a lookup, and answers to it that came together; `None`: it is at its end.
type Batch<K, V> = (u64, Option<Vec<(K, Result<V, Unseen>)>>);

/// Answers by key.
pub(super) struct LookedUp<K, V> {
    client: Client,
    rule: LookupRule<K, V>,
    /// The answers, and since when they are known.
    known: BTreeMap<K, (V, Instant)>,
    /// When a key that was looked up is looked up again.
    again: BTreeMap<K, Instant>,
    /// The keys that the last plan asks for.
    wanted: Mutex<BTreeSet<K>>,
    /// The lookups that are under way, by number.
    under_way: BTreeMap<u64, Lookup<K>>,
    /// Their answers.
    answers: SelectAll<BoxStream<'static, Batch<K, V>>>,
    /// The number of the next lookup.
    number: u64,
    /// When this person was refused; `None`: the last lookup was not refused.
    refused: Option<Instant>,
    /// Why the last lookup of a key failed that has no answer.
    failed: BTreeMap<K, String>,
}

impl<K: Ord + Clone + Send + 'static, V: Clone + PartialEq + Send + 'static> LookedUp<K, V> {
    pub(super) fn new(client: Client, rule: LookupRule<K, V>) -> Self {
        Self {
            client,
            rule,
            known: BTreeMap::new(),
            again: BTreeMap::new(),
            wanted: Mutex::default(),
            under_way: BTreeMap::new(),
            answers: SelectAll::new(),
            number: 0,
            refused: None,
            failed: BTreeMap::new(),
        }
    }

    /// The answers that count.
    pub(super) fn known(&self) -> impl Iterator<Item = (&K, &V)> {
        let counts = |at: &Instant| self.rule.counts.is_none_or(|counts| at.elapsed() < counts);
        self.known.iter().filter(move |(_, (_, at))| counts(at)).map(|(key, (value, _))| (key, value))
    }

    /// Whether this person may not look.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// How many keys are asked for that have neither an answer nor a failure yet.
    pub(super) fn unanswered(&self) -> usize {
        let known: BTreeSet<&K> = self.known().map(|(key, _)| key).collect();
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.iter().filter(|key| !known.contains(key) && !self.failed.contains_key(key)).count()
    }

    /// Why each key failed that has no answer.
    pub(super) fn failures(&self) -> impl Iterator<Item = (&K, &str)> {
        self.failed.iter().map(|(key, why)| (key, why.as_str()))
    }

    /// Takes the keys that a plan asks for.
    pub(super) fn request(&self, keys: BTreeSet<K>) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// The keys that are to be looked up now, and when the next one is.
    fn due(&self) -> (Vec<K>, Option<Instant>) {
        let again = self.refused.map(|at| at + REFUSED);
        if again.is_some_and(|at| at > Instant::now()) {
            return (vec![], again);
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let next = |key: &K| self.again.get(key).copied();
        let now = Instant::now();
        let is_free = |key: &&K| !self.under_way.values().any(|lookup| lookup.left.contains(*key));
        let is_due = |key: &&K| next(key).is_none_or(|at| at <= now) && is_free(key);
        let due = wanted.iter().filter(is_due).cloned().collect();
        (due, wanted.iter().filter_map(next).filter(|at| *at > now).min())
    }

    /// Whether the last plan asks for keys that are to be looked up now.
    pub(super) fn are_due(&self) -> bool {
        !self.under_way.is_empty() || !self.due().0.is_empty()
    }

    /// Looks up the keys that are due, and waits until one of them is. Returns when something else is known than before. If
    /// the caller is dropped meanwhile, nothing is lost.
    pub(super) async fn changed(&mut self) {
        loop {
            let (due, next) = self.due();
            if !due.is_empty() && self.under_way.len() < AT_ONCE {
                self.begin(due);
            }
            let next = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let seen = tokio::select! {
                Some(seen) = self.answers.next() => seen,
                () = next => continue,
            };
            let mut is_new = self.take(seen);
            // Also the end of the lookup, if this was the last answer.
            while let Some(Some(seen)) = self.answers.next().now_or_never() {
                is_new |= self.take(seen);
            }
            if is_new {
                return;
            }
        }
    }

    /// Begins to look these keys up.
    fn begin(&mut self, keys: Vec<K>) {
        let (number, begun) = (self.number, Instant::now());
        self.number += 1;
        self.under_way.insert(number, Lookup { begun, left: keys.iter().cloned().collect(), refused: false });
        let answers = (self.rule.look)(&self.client, keys).ready_chunks(TOGETHER).map(Some);
        let with_end = answers.chain(stream::once(std::future::ready(None)));
        self.answers.push(with_end.map(move |batch| (number, batch)).boxed());
    }

    /// Takes answers. Returns whether something else is known than before.
    fn take(&mut self, (number, seen): Batch<K, V>) -> bool {
        let now = Instant::now();
        let known = |me: &Self| me.known().map(|(k, v)| (k.clone(), v.clone())).collect::<BTreeMap<K, V>>();
        let before = (known(self), self.is_refused(), self.failed.clone());
        if seen.is_none()
            && let Some(ended) = self.under_way.remove(&number)
        {
            // A lookup that began before a refusal does not say that it is over.
            self.refused = self.refused.filter(|at| ended.refused || *at > ended.begun);
        }
        for (key, seen) in seen.into_iter().flatten() {
            let mut again = self.rule.every;
            self.failed.remove(&key);
            let mut lookup = self.under_way.get_mut(&number);
            if let Some(lookup) = &mut lookup {
                lookup.left.remove(&key);
            }
            match seen {
                Ok(value) => drop(self.known.insert(key.clone(), (value, now))),
                Err(Unseen::Forbidden) => {
                    again = again.min(REFUSED);
                    self.refused = Some(now);
                    lookup.iter_mut().for_each(|lookup| lookup.refused = true);
                }
                Err(Unseen::Failed(why)) => {
                    again = again.min(FAILED);
                    if !self.known.contains_key(&key) {
                        self.failed.insert(key.clone(), why);
                    }
                }
            }
            self.again.insert(key, now + again);
        }
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        self.again.retain(|key, _| wanted.contains(key));
        self.failed.retain(|key, _| wanted.contains(key));
        let counts = self.rule.counts;
        self.known.retain(|key, (_, at)| match counts {
            Some(counts) => at.elapsed() < counts,
            None => wanted.contains(key),
        });
        drop(wanted);
        before != (known(self), self.is_refused(), self.failed.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::client::Body;
    use std::sync::Arc;

    /// Looks up the lengths of words. One of those that begin with `h` has no answer for an hour.
    fn lengths(looked: Arc<Mutex<Vec<usize>>>) -> LookedUp<&'static str, usize> {
        let nobody = tower::service_fn(|_: http::Request<Body>| async {
            Err::<http::Response<Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionRefused))
        });
        let look = move |_: &Client, keys: Vec<&'static str>| -> Answers<&'static str, usize> {
            looked.lock().unwrap().push(keys.len());
            let answer = |key: &'static str| async move {
                let takes = if key.starts_with('h') { 3600 } else { 1 };
                tokio::time::sleep(Duration::from_secs(takes)).await;
                (key, Ok(key.len()))
            };
            keys.into_iter().map(answer).collect::<stream::FuturesUnordered<_>>().boxed()
        };
        let rule = LookupRule { look: Box::new(look), every: Duration::from_secs(7200), counts: None };
        LookedUp::new(Client::new(nobody, "default"), rule)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_asked_for_while_a_lookup_hangs_is_looked_up_at_once_but_not_in_any_number_of_lookups() {
        let looked = Arc::new(Mutex::new(vec![]));
        let mut all = lengths(looked.clone());
        let begin = Instant::now();
        let mut asked = BTreeSet::from(["h1"]);
        all.request(asked.clone());
        tokio::time::timeout(Duration::from_secs(1), all.changed()).await.expect_err("it hangs");
        asked.extend(["abc", "h2"]);
        all.request(asked.clone());
        all.changed().await;
        assert_eq!(begin.elapsed().as_secs(), 2);
        assert_eq!(all.known().collect::<Vec<_>>(), [(&"abc", &3)]);
        // What is being looked up is not looked up once more.
        assert_eq!(*looked.lock().unwrap(), [1, 2]);
        for more in ["h3", "h4", "h5", "h6"] {
            asked.insert(more);
            all.request(asked.clone());
            tokio::time::timeout(Duration::from_secs(1), all.changed()).await.expect_err("they hang");
        }
        assert_eq!(*looked.lock().unwrap(), [1, 2, 1, 1]);
        while all.unanswered() > 0 {
            all.changed().await;
        }
        assert_eq!(*looked.lock().unwrap(), [1, 2, 1, 1, 2]);
    }
}
