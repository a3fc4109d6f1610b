//! Whether the MachineConfigs that are generated from the cluster's settings are up to date, so that no pool is
//! rendered from half of its settings.
//!
//! What it is not: the pass that generates them (see `passes::generated`).

use crate::gates::RenderGate;
use api::render_reason::RenderReason;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const WAIT: RenderGate = RenderGate::Wait("the MachineConfigs from the cluster's settings are being written");

/// How long rendering waits for settings that keep changing. After that it renders from what is stored, because
/// somebody may be overwriting the generated MachineConfigs again and again.
const PATIENCE: Duration = Duration::from_secs(30);

/// How far the stored MachineConfigs are up to date with the settings.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Counts changes of settings.
    changes: AtomicU64,
    /// The count of changes that the stored MachineConfigs were made from.
    settled: AtomicU64,
    /// Why a pool cannot have the settings that select it.
    refused: Mutex<BTreeMap<String, String>>,
    /// Since when they are out of date, if they were up to date before.
    behind: Mutex<Option<Instant>>,
    /// When this term began.
    started: Mutex<Instant>,
}

impl Default for Gate {
    fn default() -> Self {
        // Nothing is settled before the first pass.
        let (changes, settled) = (AtomicU64::new(1), AtomicU64::new(0));
        let (refused, behind) = (Mutex::default(), Mutex::default());
        Self { changes, settled, refused, behind, started: Mutex::new(Instant::now()) }
    }
}

impl Gate {
    /// A term begins. Another leader may have written since, so results and refusals of earlier terms no longer count.
    pub(crate) fn begin(&self) {
        // This comes first: it closes the gate, whatever else is reset below.
        self.settled.store(0, Ordering::Release);
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.behind.lock().unwrap_or_else(PoisonError::into_inner) = None;
        *self.started.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    pub(crate) fn age(&self) -> Duration {
        self.started.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Closes the gate: settings have changed.
    pub(crate) fn close(&self) {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Instant::now);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn count(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Records that the stored MachineConfigs match the settings as they were at `count`, except for what is refused.
    pub(crate) fn settle(&self, count: u64, refused: BTreeMap<String, String>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        let mut behind = self.behind.lock().unwrap_or_else(PoisonError::into_inner);
        self.settled.store(count, Ordering::Release);
        if count == self.count() {
            *behind = None;
        }
    }

    /// Whether this pool may be rendered now.
    pub(crate) fn check(&self, pool: &str) -> RenderGate {
        let settled = self.settled.load(Ordering::Acquire);
        if settled != self.count() {
            let behind = *self.behind.lock().unwrap_or_else(PoisonError::into_inner);
            if settled == 0 || behind.is_none_or(|since| since.elapsed() < PATIENCE) {
                return WAIT;
            }
        }
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.get(pool).map_or(RenderGate::Open, |why| RenderGate::Refuse {
            reason: RenderReason::SettingsRefused,
            message: why.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pool_waits_while_settings_change_and_is_told_what_is_refused() {
        let gate = Gate::default();
        let not = RenderGate::Refuse { reason: RenderReason::SettingsRefused, message: "why".to_owned() };
        assert_eq!(gate.check("a"), WAIT, "before the first pass");
        let count = gate.count();
        gate.settle(count, BTreeMap::from([("b".to_owned(), "why".to_owned())]));
        assert_eq!((gate.check("a"), gate.check("b")), (RenderGate::Open, not.clone()));
        let count = gate.count();
        gate.close();
        gate.settle(count, BTreeMap::new());
        assert_eq!(gate.check("a"), WAIT, "it changed while the pass was under way");
        // Somebody keeps changing something: the wait is bounded.
        tokio::time::advance(PATIENCE).await;
        gate.close();
        assert_eq!(gate.check("a"), RenderGate::Open);
        gate.settle(gate.count(), BTreeMap::new());
        gate.close();
        assert_eq!(gate.check("a"), WAIT, "it followed in between");
        // The gate of an earlier term says nothing about what another leader wrote.
        gate.settle(gate.count(), BTreeMap::from([("b".to_owned(), "why".to_owned())]));
        gate.close();
        tokio::time::advance(PATIENCE).await;
        assert_eq!((gate.check("a"), gate.check("b")), (RenderGate::Open, not.clone()));
        gate.begin();
        gate.close();
        assert_eq!((gate.check("a"), gate.check("b"), gate.age()), (WAIT, WAIT, Duration::ZERO));
        tokio::time::advance(PATIENCE).await;
        assert_eq!(gate.check("a"), WAIT, "until the first pass of this term");
        gate.settle(gate.count(), BTreeMap::new());
        assert_eq!((gate.check("a"), gate.check("b")), (RenderGate::Open, RenderGate::Open));
        let never = Gate::default();
        never.close();
        tokio::time::advance(PATIENCE).await;
        assert_eq!(never.check("a"), WAIT, "before the first pass nobody knows what there is");
    }
}
