//! What a plan asks to have looked up, as long as it asks: an answer for each key, which is renewed before it is too old.
//!
//! What it is not: the lookups themselves (see the crate `lookups`), or the keys that a plan asks for (see `drain_outlooks` and
//! `change_costs`).

use futures::stream::{BoxStream, ReadyChunks};
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

/// As many answers that came together are taken at once: what is known is compared only once for them.
const TOGETHER: usize = 1000;

/// What is looked up, and how long an answer counts.
pub(super) struct LookupRule<K, V> {
    /// Looks these keys up.
    pub(super) look: fn(&Client, Vec<K>) -> Answers<K, V>,
    /// An answer is renewed after this time.
    pub(super) every: Duration,
    /// An answer counts this long. `None`: until a newer one is there, or nobody asks for it any more.
    pub(super) counts: Option<Duration>,
}

/// A lookup of some keys that is not at its end.
struct Lookup<K, V> {
    answers: ReadyChunks<Answers<K, V>>,
    /// One of its answers was a refusal.
    refused: bool,
}

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
    under_way: Option<Lookup<K, V>>,
    /// When this person was refused; `None`: the last lookup was not refused.
    refused: Option<Instant>,
    /// Why the last lookup of a key failed that has no answer.
    failed: BTreeMap<K, String>,
}

impl<K: Ord + Clone, V: Clone + PartialEq> LookedUp<K, V> {
    pub(super) fn new(client: Client, rule: LookupRule<K, V>) -> Self {
        Self {
            client,
            rule,
            known: BTreeMap::new(),
            again: BTreeMap::new(),
            wanted: Mutex::default(),
            under_way: None,
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
        let due = wanted.iter().filter(|key| next(key).is_none_or(|at| at <= now)).cloned().collect();
        (due, wanted.iter().filter_map(next).filter(|at| *at > now).min())
    }

    /// Whether the last plan asks for keys that are to be looked up now.
    pub(super) fn are_due(&self) -> bool {
        self.under_way.is_some() || !self.due().0.is_empty()
    }

    /// Looks up the keys that are due, and waits until one of them is. Returns when something else is known than before. If
    /// the caller is dropped meanwhile, nothing is lost.
    pub(super) async fn changed(&mut self) {
        loop {
            while let Some(lookup) = &mut self.under_way {
                let seen = lookup.answers.next().await;
                let mut is_new = self.take(seen);
                // Also the end of the lookup, if this was the last answer.
                while let Some(lookup) = &mut self.under_way
                    && let Some(seen) = lookup.answers.next().now_or_never()
                {
                    is_new |= self.take(seen);
                }
                if is_new {
                    return;
                }
            }
            let (due, next) = self.due();
            match next {
                _ if !due.is_empty() => {
                    let answers = (self.rule.look)(&self.client, due).ready_chunks(TOGETHER);
                    self.under_way = Some(Lookup { answers, refused: false });
                }
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Takes answers; `None`: the lookup is at its end. Returns whether something else is known than before.
    fn take(&mut self, seen: Option<Vec<(K, Result<V, Unseen>)>>) -> bool {
        let now = Instant::now();
        let known = |me: &Self| me.known().map(|(k, v)| (k.clone(), v.clone())).collect::<BTreeMap<K, V>>();
        let before = (known(self), self.is_refused(), self.failed.clone());
        if seen.is_none() {
            let refused = self.under_way.take().is_some_and(|lookup| lookup.refused);
            self.refused = self.refused.filter(|_| refused);
        }
        for (key, seen) in seen.into_iter().flatten() {
            let mut again = self.rule.every;
            self.failed.remove(&key);
            match seen {
                Ok(value) => drop(self.known.insert(key.clone(), (value, now))),
                Err(Unseen::Forbidden) => {
                    again = again.min(REFUSED);
                    self.refused = Some(now);
                    self.under_way.iter_mut().for_each(|lookup| lookup.refused = true);
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
