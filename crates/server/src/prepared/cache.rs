//! What each pool serves: answers that are prepared once for each version and kept as bytes (see `unpacked`).
//!
//! Guarantees: a request takes one short read lock and one look-up. A change replaces the whole state at once. A pool
//! whose source did not change keeps its prepared answers. If it did change, the versions that machines have asked for
//! are prepared before the swap, so that no request waits for it.
//!
//! A version is prepared when it is first asked for and not earlier: with many pools, unused versions would take most of
//! the memory.

use crate::prepared::prepare::{self, Source};
use crate::prepared::unpacked::{Reply, UnpackedCache};
use crate::refusal::Refusal;
use ignition::Version;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use tokio::sync::OnceCell;

type Cell = OnceCell<Result<Arc<Reply>, Refusal>>;

/// What one pool serves.
#[derive(Debug)]
pub(crate) struct Answers {
    source: Source,
    fingerprint: String,
    pub(crate) since: SystemTime,
    cells: [Cell; Version::ALL.len()],
}

impl Answers {
    pub(crate) fn new(source: Source, since: SystemTime) -> Self {
        Self { fingerprint: source.fingerprint(), source, since, cells: std::array::from_fn(|_| Cell::new()) }
    }

    /// The rendered config's name.
    pub(crate) fn config(&self) -> &str {
        self.source.rendered.name()
    }

    fn cell(&self, version: Version) -> Option<&Cell> {
        let at = Version::ALL.iter().position(|v| *v == version)?;
        self.cells.get(at)
    }

    /// The answer in a version. A client that accepts 3.6 gets 3.5, as from the reference, unless only 3.6 can express the
    /// config.
    pub(crate) async fn get(self: &Arc<Self>, version: Version) -> Result<Arc<Reply>, Refusal> {
        if version == Version::V3_6 {
            match self.prepared(Version::V3_5).await {
                Err(Refusal::Inexpressible { .. }) => {}
                said => return said,
            }
        }
        self.prepared(version).await
    }

    /// The answer in exactly this version. The first request prepares it, and others wait for that.
    async fn prepared(self: &Arc<Self>, version: Version) -> Result<Arc<Reply>, Refusal> {
        let broken = |why: &str| Refusal::Broken { pool: self.source.pool.clone(), why: why.to_owned() };
        let Some(cell) = self.cell(version) else { return Err(broken("no such version")) };
        if let Some(ready) = cell.get() {
            return ready.clone();
        }
        let make = || async {
            let this = Arc::clone(self);
            tokio::task::spawn_blocking(move || this.make(version))
                .await
                .unwrap_or_else(|_| Err(broken("preparing the answer failed; see the server's log")))
        };
        cell.get_or_init(make).await.clone()
    }

    fn make(&self, version: Version) -> Result<Arc<Reply>, Refusal> {
        let (pool, config) = (&self.source.pool, self.config());
        match prepare::prepare(&self.source, version) {
            Ok(prepared) => {
                for place in &prepared.dropped {
                    tracing::warn!(pool, config, path = place.path, "not in the answer: {}", place.message);
                }
                tracing::debug!(pool, config, %version, bytes = prepared.body.len(), "answer prepared");
                Ok(Arc::new(Reply::new(prepared)))
            }
            Err(refusal) => {
                tracing::warn!(pool, config, %version, "no answer in this version: {refusal}");
                Err(refusal)
            }
        }
    }

    /// The versions that have been asked for.
    fn asked(&self) -> impl Iterator<Item = Version> {
        Version::ALL.into_iter().zip(&self.cells).filter(|(_, c)| c.initialized()).map(|(v, _)| v)
    }
}

/// What one pool serves, or why nothing.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    /// The pool has a config to serve.
    Ready(Arc<Answers>),
    /// It has none, and this is why.
    Refused(Refusal),
}

/// Whether the prepared configs are up to date with their source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// Not everything has been read yet.
    Starting {
        /// What is missing, if it is known.
        why: Option<String>,
    },
    /// Up to date.
    Current,
    /// The source cannot be read; its last good state is served.
    LastGood {
        /// Since when it cannot be read.
        since: SystemTime,
        /// Why not.
        why: String,
    },
}

impl Default for Freshness {
    fn default() -> Self {
        Self::Starting { why: None }
    }
}

/// A new state to publish.
#[derive(Debug, Default)]
pub(crate) struct Update {
    /// What each pool serves, or why nothing.
    pub(crate) pools: BTreeMap<String, Result<Source, Refusal>>,
    /// Pools whose next config cannot be served, and why. They serve their last good one.
    pub(crate) held_back: BTreeMap<String, String>,
    pub(crate) freshness: Freshness,
    /// True: an unknown pool is answered with "the bootstrap server does not have it".
    pub(crate) bootstrap: bool,
}

/// All pools at one moment. It is replaced as a whole.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) pools: BTreeMap<String, Entry>,
    held_back: BTreeMap<String, String>,
    pub(crate) freshness: Freshness,
    bootstrap: bool,
}

/// The prepared configs of all pools.
#[derive(Debug, Default)]
pub(crate) struct PreparedConfigs {
    state: RwLock<Arc<State>>,
    pub(crate) unpacked: UnpackedCache,
}

impl PreparedConfigs {
    /// The current state.
    pub(crate) fn now(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a pool serves.
    pub(crate) fn pool(&self, pool: &str) -> Result<Arc<Answers>, Refusal> {
        let state = self.now();
        match state.pools.get(pool) {
            Some(Entry::Ready(answers)) => Ok(Arc::clone(answers)),
            Some(Entry::Refused(refusal)) => Err(refusal.clone()),
            None if matches!(state.freshness, Freshness::Starting { .. }) => Err(Refusal::Starting),
            None if state.bootstrap => Err(Refusal::NotAtBootstrap { pool: pool.to_owned() }),
            None => Err(Refusal::UnknownPool { pool: pool.to_owned() }),
        }
    }

    /// Publishes a new state. Sources that did not change keep their answers. Only one task may publish.
    pub(crate) async fn publish(&self, update: Update, now: SystemTime) {
        let Update { pools, held_back, freshness, bootstrap } = update;
        let old = self.now();
        let mut next = BTreeMap::new();
        for (name, source) in pools {
            let entry = match source {
                Err(refusal) => Entry::Refused(refusal),
                Ok(source) => {
                    let answers = Answers::new(source, now);
                    match old.pools.get(&name) {
                        Some(Entry::Ready(had)) if had.fingerprint == answers.fingerprint => {
                            Entry::Ready(Arc::clone(had))
                        }
                        before => {
                            let answers = Arc::new(answers);
                            if let Some(Entry::Ready(had)) = before {
                                for version in had.asked() {
                                    // An answer or a refusal: both are kept for later requests.
                                    let _ = answers.get(version).await;
                                }
                            }
                            tracing::info!(pool = name, config = answers.config(), "now served");
                            Entry::Ready(answers)
                        }
                    }
                }
            };
            next.insert(name, entry);
        }
        self.put(State { pools: next, held_back, freshness, bootstrap });
    }

    /// Keeps the pools and changes the freshness.
    pub(crate) fn set_freshness(&self, freshness: Freshness) {
        let old = self.now();
        if old.freshness != freshness {
            let (pools, held_back) = (old.pools.clone(), old.held_back.clone());
            self.put(State { pools, held_back, freshness, bootstrap: old.bootstrap });
        }
    }

    fn put(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }
}

impl State {
    /// Since when a pool's config is served.
    pub(crate) fn served_since(&self, pool: &str) -> Option<SystemTime> {
        match self.pools.get(pool)? {
            Entry::Ready(answers) => Some(answers.since),
            Entry::Refused(_) => None,
        }
    }

    /// Whether a pool serves its last good config because the next one cannot be served.
    pub(crate) fn is_held_back(&self, pool: &str) -> bool {
        self.held_back.contains_key(pool)
    }

    /// Whether requests can be answered, and from what.
    pub(crate) fn readiness(&self, now: SystemTime) -> (bool, Value) {
        let age = |since: SystemTime| now.duration_since(since).unwrap_or_default().as_secs();
        let pools: BTreeMap<&str, Value> = self
            .pools
            .iter()
            .map(|(name, entry)| {
                let mut told = match entry {
                    Entry::Ready(a) => json!({"config": a.config(), "ageSeconds": age(a.since)}),
                    Entry::Refused(r) => json!({"reason": r.reason(), "message": r.to_string()}),
                };
                if let Some(why) = self.held_back.get(name) {
                    told["heldBack"] = json!(why);
                }
                (name.as_str(), told)
            })
            .collect();
        let (ready, source) = match &self.freshness {
            Freshness::Starting { why } => (false, json!({"state": "Starting", "message": why})),
            Freshness::Current => (true, json!({"state": "Current"})),
            Freshness::LastGood { since, why } => {
                (true, json!({"state": "LastGood", "sinceSeconds": age(*since), "message": why}))
            }
        };
        (ready, json!({"ready": ready, "source": source, "pools": pools}))
    }
}
