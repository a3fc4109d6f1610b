//! Work queues: keys that need a pass, and the engine that runs the passes.
//!
//! Watches, earlier passes and start-up mark keys dirty; marking a key twice is the same as marking it once. The engine
//! runs one pass per key at a time, and many keys at once. A change to a quiet key is acted on at once; while changes
//! keep coming, passes are spaced out a little more each time ([`Spacing`]), so a burst of a hundred changes leads to a
//! handful of passes. A failed pass is repeated after a growing wait, with the reason in the log.
//!
//! What it is not: a store of what changed. A pass reads the caches and decides everything anew, so losing or repeating
//! a mark is harmless as long as the last one is kept.

mod pass;

pub(crate) use pass::{ALL_NODES, Growth, Outcome, Pass, Spacing, Work, every_pass};

use crate::io::backoff;
use crate::io::metrics::{self, Metrics};
use client::ProcessCounts;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The queues of all passes.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<BTreeMap<Pass, Arc<Queue<String>>>>);

impl Queues {
    /// The queue of one pass.
    pub(crate) fn of(&self, pass: Pass) -> Arc<Queue<String>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(pass).or_default().clone()
    }

    /// What the process has counted, with all passes.
    pub(crate) fn count(&self, mut counts: ProcessCounts) -> ProcessCounts {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in all.values() {
            let Tally { passes, failed, waiting } = &*queue.tally;
            counts.passes += passes.load(Ordering::Relaxed);
            counts.failed += failed.load(Ordering::Relaxed);
            let new = queue.dirty.lock().unwrap_or_else(PoisonError::into_inner).len();
            counts.waiting += waiting.load(Ordering::Relaxed) + u64::try_from(new).unwrap_or_default();
        }
        counts
    }
}

/// What became of a queue's keys.
#[derive(Debug, Default)]
struct Tally {
    /// Passes that have ended.
    passes: AtomicU64,
    /// Those that failed.
    failed: AtomicU64,
    /// Keys that were marked and have not got their pass yet, but for those that were marked a moment ago.
    waiting: AtomicU64,
}

/// The marks of a key that needs a pass.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// When it was first marked.
    first: Instant,
    /// How often it was marked.
    times: u32,
    /// Somebody waits for its pass: it does not wait for the present distance between passes, only for the first.
    urgent: bool,
}

impl Mark {
    fn add(&mut self, times: u32, urgent: bool) {
        self.times = self.times.saturating_add(times);
        self.urgent |= urgent;
    }
}

/// Keys that need a pass.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    dirty: Mutex<BTreeMap<K, Mark>>,
    notify: Notify,
    tally: Arc<Tally>,
}

impl<K: Ord> Default for Queue<K> {
    fn default() -> Self {
        Self { dirty: Mutex::new(BTreeMap::new()), notify: Notify::new(), tally: Arc::default() }
    }
}

impl<K: Ord> Queue<K> {
    /// Marks one key.
    pub(crate) fn mark(&self, key: K) {
        self.mark_all([key]);
    }

    /// Marks a key whose pass somebody waits for: it runs at once, however soon after the last one. Only for rare changes.
    pub(crate) fn mark_urgent(&self, key: K) {
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = dirty.entry(key).or_insert(Mark { first: Instant::now(), times: 0, urgent: false });
        mark.add(1, true);
        self.notify.notify_one();
    }

    /// Marks many keys.
    pub(crate) fn mark_all(&self, keys: impl IntoIterator<Item = K>) {
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        let before = dirty.len();
        let now = Instant::now();
        for key in keys {
            dirty.entry(key).or_insert(Mark { first: now, times: 0, urgent: false }).add(1, false);
        }
        if dirty.len() > before {
            self.notify.notify_one();
        }
    }

    /// The keys alone, for tests of what marks them.
    #[cfg(test)]
    pub(crate) fn take(&self) -> BTreeSet<K> {
        self.take_marked().into_keys().collect()
    }

    /// The keys, and how often each was marked.
    #[cfg(test)]
    pub(crate) fn take_times(&self) -> BTreeMap<K, u32> {
        self.take_marked().into_iter().map(|(key, mark)| (key, mark.times)).collect()
    }

    /// The keys that somebody waits for.
    #[cfg(test)]
    pub(crate) fn take_urgent(&self) -> BTreeSet<K> {
        self.take_marked().into_iter().filter(|(_, mark)| mark.urgent).map(|(key, _)| key).collect()
    }

    fn take_marked(&self) -> BTreeMap<K, Mark> {
        std::mem::take(&mut *self.dirty.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct History {
    last_start: Option<Instant>,
    gap: Duration,
    failures: u32,
    stale: u32,
}

/// Keys that are waiting to run, by time. With thousands of them, a step of the engine costs no more than with one.
#[derive(Debug)]
struct Waiting<K> {
    at: HashMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { at: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Clone + Ord + Hash> Waiting<K> {
    /// Schedules a key, or keeps its present time if that is earlier.
    fn schedule_by(&mut self, key: K, at: Instant) {
        match self.at.get_mut(&key) {
            Some(known) if *known <= at => return,
            Some(known) => {
                self.order.remove(&(*known, key.clone()));
                *known = at;
            }
            None => {
                self.at.insert(key.clone(), at);
            }
        }
        self.order.insert((at, key));
    }

    /// Removes and returns the key that has been due longest, with the time since which it is due. `None`: no key is due.
    fn take_due(&mut self, now: Instant) -> Option<(K, Instant)> {
        if self.next()? > now {
            return None;
        }
        let (at, key) = self.order.pop_first()?;
        self.at.remove(&key);
        Some((key, at))
    }

    /// When the next key is due.
    fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    fn contains(&self, key: &K) -> bool {
        self.at.contains_key(key)
    }
}

/// When a key that was marked now may run.
fn due(history: &History, spacing: Spacing, urgent: bool, now: Instant) -> Instant {
    let gap = if urgent { spacing.first.min(history.gap) } else { history.gap };
    history.last_start.map_or(now, |last| (last + gap).max(now))
}

/// Works off a queue as [`work`] does, and counts its passes.
pub(crate) async fn serve(
    queue: &Queue<String>,
    how: Work,
    metrics: &Metrics,
    stop: &CancellationToken,
    pass: impl Fn(String) -> BoxFuture<'static, Outcome>,
) {
    let counted = move |key, waited| -> BoxFuture<'static, Outcome> {
        let (pass, metrics, begin) = (pass(key), metrics.clone(), std::time::Instant::now());
        let tally = Arc::clone(&queue.tally);
        Box::pin(async move {
            let outcome = pass.await;
            let word = match &outcome {
                Outcome::Done => "done",
                Outcome::Stale => "stale",
                Outcome::After(_) => "again",
                Outcome::Failed(_) => "failed",
            };
            let labels = metrics::Pass { queue: how.name.to_owned(), outcome: word.to_owned() };
            metrics.passes.get_or_create(&labels).inc();
            tally.passes.fetch_add(1, Ordering::Relaxed);
            if matches!(outcome, Outcome::Failed(_)) {
                tally.failed.fetch_add(1, Ordering::Relaxed);
            }
            metrics.record_pass(how.name, waited, begin.elapsed());
            outcome
        })
    };
    work(queue, how, stop, counted).await;
}

/// Works off a queue until the token is cancelled. Passes that are running then are dropped: each is written so that a
/// restart at any line is harmless.
///
/// `pass` receives how long the key has waited: since it was marked, or since it was due again.
async fn work<K, F>(queue: &Queue<K>, work: Work, stop: &CancellationToken, pass: F)
where
    K: Clone + Ord + Hash + Display,
    F: Fn(K, Duration) -> BoxFuture<'static, Outcome>,
{
    let mut waiting: Waiting<K> = Waiting::default();
    let mut marked: HashMap<K, Mark> = HashMap::new();
    let mut history: HashMap<K, History> = HashMap::new();
    let mut running: BTreeSet<K> = BTreeSet::new();
    let mut again: BTreeSet<K> = BTreeSet::new();
    let mut passes = FuturesUnordered::new();
    let mut forget_above = FORGET_ABOVE;
    loop {
        let now = Instant::now();
        for (key, mark) in queue.take_marked() {
            marked.entry(key.clone()).and_modify(|m| m.add(mark.times, mark.urgent)).or_insert(mark);
            if running.contains(&key) {
                again.insert(key);
                continue;
            }
            let at = due(history.entry(key.clone()).or_default(), work.spacing, mark.urgent, now);
            // A change brings a retry forward: what failed may work now.
            waiting.schedule_by(key, at);
        }
        while running.len() < work.parallel
            && let Some((key, due)) = waiting.take_due(now)
        {
            let mark = marked.remove(&key).unwrap_or(Mark { first: due, times: 0, urgent: false });
            let waited = now.duration_since(mark.first);
            running.insert(key.clone());
            let h = history.entry(key.clone()).or_default();
            let since = h.last_start.map(|last| now.duration_since(last));
            h.gap = work.spacing.after(h.gap, since, mark.times);
            h.last_start = Some(now);
            let future = pass(key.clone(), waited);
            passes.push(async move { (key, future.await) });
        }
        queue.tally.waiting.store(u64::try_from(marked.len()).unwrap_or_default(), Ordering::Relaxed);
        // While all places are taken, the next thing to wait for is a pass that ends, not a time.
        let next = waiting.next().filter(|_| running.len() < work.parallel);
        tokio::select! {
            () = stop.cancelled() => return,
            () = queue.notify.notified() => {}
            () = sleep_until(next) => {}
            Some((key, outcome)) = passes.next(), if !running.is_empty() => {
                running.remove(&key);
                let h = history.entry(key.clone()).or_default();
                let urgent = marked.get(&key).is_some_and(|mark| mark.urgent);
                let for_mark = again.remove(&key).then(|| due(h, work.spacing, urgent, Instant::now()));
                if let Some(at) = settle(work.name, &key, outcome, for_mark, h) {
                    waiting.schedule_by(key, at);
                } else if history.len() > forget_above {
                    history.retain(|k, h| {
                        running.contains(k) || waiting.contains(k)
                            || h.last_start.is_some_and(|l| l.elapsed() < work.spacing.last)
                    });
                    // Keys that are still active are not searched again after each of thousands of passes.
                    forget_above = FORGET_ABOVE.max(history.len().saturating_mul(2));
                }
            }
        }
    }
}

/// Above this many keys, the histories of quiet keys are dropped: they matter for seconds only.
const FORGET_ABOVE: usize = 4096;

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Records a pass's outcome. `for_mark`: when it must run again because it was marked meanwhile. Returns when the key must run
/// again, if it must.
fn settle(
    name: &str,
    key: &impl Display,
    outcome: Outcome,
    for_mark: Option<Instant>,
    history: &mut History,
) -> Option<Instant> {
    let now = Instant::now();
    let for_outcome = match outcome {
        Outcome::Done => {
            (history.failures, history.stale) = (0, 0);
            None
        }
        Outcome::After(delay) => {
            (history.failures, history.stale) = (0, 0);
            Some(now + delay)
        }
        Outcome::Stale => {
            let delay = backoff::CONFLICT.delay(history.stale);
            history.stale = history.stale.saturating_add(1);
            tracing::debug!(queue = name, %key, ?delay, "an object changed in the meantime; deciding again");
            Some(now + delay)
        }
        Outcome::Failed(reason) => {
            let delay = backoff::WORK.delay(history.failures);
            history.failures = history.failures.saturating_add(1);
            tracing::warn!(queue = name, %key, tries = history.failures, next_try_in = ?delay, "{reason}");
            Some(now + delay)
        }
    };
    match (for_mark, for_outcome) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests;
