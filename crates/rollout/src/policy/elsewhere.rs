//! Changes that another pool has rejected: whether a pool would take the same MachineConfigs.
//!
//! A pool names the MachineConfigs that its config was merged from, but not in which version. If a change adds or removes
//! some, those are what may do harm. If it only edits some, each of them may.
//!
//! What it is not: a comparison of contents.

use crate::hold::Hold;
use api::v1::{MachineConfigPool, PoolConfiguration};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A change that a pool has rejected.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere<'a> {
    pub(super) pool: &'a str,
    config: &'a str,
    /// The MachineConfigs that may be why.
    suspects: BTreeSet<&'a str>,
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

impl<'a> Elsewhere<'a> {
    /// What this pool has rejected, if that is its config.
    pub(crate) fn of(pool: &'a MachineConfigPool) -> Self {
        let name = pool.metadata.name.as_deref().unwrap_or_default();
        Self { pool: name, config: &pool.spec.configuration.name, suspects: changed(pool) }
    }

    /// Why a wave of this other pool waits, if its change has something in common with the rejected one.
    pub(crate) fn holds(&self, pool: &MachineConfigPool, wave: &Arc<str>) -> Option<Hold> {
        let change = changed(pool);
        let takes = &sources(&pool.spec.configuration) | &change;
        let shared: Vec<Arc<str>> = takes.intersection(&self.suspects).map(|s| Arc::from(*s)).collect();
        (!change.is_empty() && !shared.is_empty()).then(|| Hold::RejectedElsewhere {
            wave: wave.clone(),
            pool: self.pool.into(),
            config: self.config.into(),
            shared,
        })
    }
}
