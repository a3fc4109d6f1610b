//! Changes that another pool has rejected: whether a pool would take the same MachineConfigs.
//!
//! A pool names the MachineConfigs that its config was merged from, but not in which version. If a change adds or removes
//! some, those are what may do harm. If it only edits some, each of them may.
//!
//! What it is not: a comparison of contents.

use crate::hold::Hold;
use api::names::own;
use api::v1::{MachineConfigPool, PoolConfiguration};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A change that a pool has rejected.
#[derive(Clone, Debug)]
pub(crate) struct RejectedElsewhere<'a> {
    pub(super) pool: &'a str,
    config: &'a str,
    /// The MachineConfigs that may be why.
    suspects: BTreeSet<&'a str>,
    /// Those of them that the change took away.
    gone: BTreeSet<&'a str>,
}

fn sources(of: &PoolConfiguration) -> BTreeSet<&str> {
    of.source.iter().flatten().filter_map(|source| source.name.as_deref()).collect()
}

/// The MachineConfigs that a pool's change is about; empty if nothing changes.
fn changed(pool: &MachineConfigPool) -> BTreeSet<&str> {
    let new = &pool.spec.configuration;
    let old = pool.status.as_ref().map(|s| &s.configuration);
    if old.is_some_and(|old| old.name == new.name) {
        return BTreeSet::new();
    }
    let (new, old) = (sources(new), old.map(sources).unwrap_or_default());
    let differ: BTreeSet<&str> = new.symmetric_difference(&old).copied().collect();
    if differ.is_empty() { new } else { differ }
}

impl<'a> RejectedElsewhere<'a> {
    /// What this pool has rejected, if that is its config.
    pub(crate) fn of(pool: &'a MachineConfigPool) -> Self {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        let suspects = changed(pool);
        let gone = &suspects - &sources(&pool.spec.configuration);
        Self { pool: name, config: &pool.spec.configuration.name, suspects, gone }
    }

    /// Why a wave of this other pool waits, or the pool as a whole, if its change has something in common with the rejected
    /// one.
    pub(super) fn holds(&self, pool: &MachineConfigPool, wave: Option<&Arc<str>>) -> Option<Hold> {
        let change = changed(pool);
        // A person has sent the pool to this very config.
        let pin = pool.metadata.annotations.as_ref().and_then(|a| a.get(own::PINNED));
        if change.is_empty() || pin.is_some_and(|pin| !pin.is_empty()) {
            return None;
        }
        let has = sources(&pool.spec.configuration);
        // What the rejected change brought must be in this one's config, and what it took away must go here, too. Whoever
        // takes back what was rejected elsewhere does not wait.
        let is_shared = |name: &&&str| match self.gone.contains(**name) {
            true => change.contains(**name) && !has.contains(**name),
            false => has.contains(**name),
        };
        let shared: Vec<Arc<str>> = self.suspects.iter().filter(is_shared).map(|s| Arc::from(*s)).collect();
        (!shared.is_empty()).then(|| Hold::RejectedElsewhere {
            wave: wave.cloned(),
            pool: self.pool.into(),
            config: self.config.into(),
            shared,
        })
    }
}

/// Why no node goes of a pool that has no waves: another pool has rejected the same change, and nobody has let it go. The
/// approval is the pool's annotation itself, because there is no policy that could keep it.
pub(crate) fn holds_without_waves(all: &[RejectedElsewhere<'_>], pool: &MachineConfigPool) -> Option<Hold> {
    let name = pool.metadata.name.as_deref();
    let hold = all.iter().filter(|e| Some(e.pool) != name).find_map(|e| e.holds(pool, None))?;
    let approved = pool.metadata.annotations.as_ref().and_then(|a| a.get(own::APPROVED));
    // The config stands before the slash.
    let config = approved.and_then(|value| value.trim().split('/').next());
    let is_approved = config == Some(pool.spec.configuration.name.as_str());
    (!is_approved).then_some(hold)
}
