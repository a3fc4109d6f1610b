//! Which of our own MachineConfigs were stored as they should be, as far as this process has seen. This tells an edit by somebody
//! else apart from a change of templates or settings.
//!
//! What it is not: the check whether one is as it should be now, or its write (see `own_configs`).

use api::v1::MachineConfig;
use serde_json::json;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How often somebody who keeps writing the same change (a deployment tool) is told about it.
const REPORT_AGAIN: Duration = Duration::from_secs(60);

/// The digests of objects that were stored as they should be. If one differs later, somebody else changed it.
#[derive(Debug, Default)]
pub(crate) struct StoredConfigs(Mutex<HashMap<String, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    digest: u64,
    reported: Option<Instant>,
}

impl StoredConfigs {
    /// Forgets everything: another leader may have written since.
    pub(crate) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether exactly this was stored before.
    pub(crate) fn was_stored(&self, name: &str, digest: u64) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.get(name).is_some_and(|s| s.digest == digest)
    }

    pub(crate) fn record_stored(&self, name: &str, digest: u64) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reported = seen.get(name).and_then(|s| s.reported);
        seen.insert(name.to_owned(), Seen { digest, reported });
    }

    pub(crate) fn may_report(&self, name: &str) -> bool {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(seen) = seen.get_mut(name) else { return false };
        let may = seen.reported.is_none_or(|at| at.elapsed() >= REPORT_AGAIN);
        if may {
            seen.reported = Some(Instant::now());
        }
        may
    }

    /// Forgets an object that we deleted ourselves.
    pub(crate) fn forget_deleted(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

/// What tells one content of a MachineConfig from another.
pub(crate) fn digest(config: &MachineConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    json!(config).to_string().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stood_is_told_of_and_not_all_the_time() {
        let kept = StoredConfigs::default();
        assert!(!kept.was_stored("a", 1) && !kept.may_report("a"));
        kept.record_stored("a", 1);
        assert!(kept.was_stored("a", 1) && !kept.was_stored("a", 2));
        assert!(kept.may_report("a") && !kept.may_report("a"));
        kept.record_stored("a", 1);
        assert!(!kept.may_report("a"), "reported a moment ago");
    }
}
