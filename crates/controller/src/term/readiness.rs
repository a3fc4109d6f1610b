//! Whether this controller could lead: every kind that decisions depend on has been listed once. A rollout of a new version
//! waits for that, so a version that cannot read the cluster does not take the place of one that can.
//!
//! A controller that stands by is ready, too: the one that leads keeps the Lease until it ends. Once ready, it stays so: an API
//! server that is away is no fault of the controller.
//!
//! What it is not: whether the caches are up to date (see `catch_up`).

use crate::cache::watch::ReadRequirement;
use crate::shared::Shared;
use listen::Health;
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The answer of `/readyz`.
pub(crate) struct Readiness {
    shared: Arc<Shared>,
    ready: AtomicBool,
}

impl Readiness {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), ready: AtomicBool::new(false) }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Health for Readiness {
    fn ready(&self) -> (bool, String) {
        if self.ready.load(Ordering::Relaxed) {
            return (true, "{}".to_owned());
        }
        let followed = self.shared.watched_kinds();
        let needed = followed
            .iter()
            .filter(|f| matches!(f.need, ReadRequirement::Always | ReadRequirement::WhereServed));
        let missing: Vec<&str> = needed.filter(|f| !f.cache.is_synced()).map(|f| f.kind.as_str()).collect();
        let ready = missing.is_empty() && !followed.is_empty();
        self.ready.fetch_or(ready, Ordering::Relaxed);
        (ready, json!({ "notListedYet": missing }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::store::{Cache as _, Store};
    use crate::fake_server::shared;
    use crate::term::catch_up::tests::followed;
    use std::collections::BTreeMap;

    #[tokio::test]
    async fn a_controller_is_ready_when_it_has_listed_what_decisions_rest_on_and_stays_so() {
        let shared = Arc::new(shared(|_| None));
        let readiness = Readiness::new(&shared);
        assert!(!readiness.ready().0, "it watches nothing yet");
        let caches: Vec<Arc<Store<_>>> = (0..4).map(|_| Arc::new(Store::default())).collect();
        let needs = [
            ReadRequirement::Always,
            ReadRequirement::WhereServed,
            ReadRequirement::Setting,
            ReadRequirement::NonBlocking,
        ];
        for (need, cache) in needs.into_iter().zip(&caches) {
            shared.add_watched_kind(followed(&shared, &format!("{need:?}"), need, cache));
        }
        assert_eq!(readiness.ready(), (false, "{\"notListedYet\":[\"Always\",\"WhereServed\"]}".to_owned()));
        caches[0].replace(BTreeMap::new());
        assert!(!readiness.ready().0);
        caches[1].replace(BTreeMap::new());
        assert!(readiness.ready().0, "settings and what no decision rests on hold up nobody");
        // A term begins: the caches are doubted for a moment.
        caches[0].doubt();
        assert!(readiness.ready().0);
    }
}
