//! What a pool sets for the disruption of its nodes, in place of the cluster's settings: annotations of the pool, which the
//! controller copies to its nodes.
//!
//! What it is not: the cluster's policies (see the module above).

use super::{DisruptionPolicy, HOST_PACKAGES_ALLOWED, LIVE_EXTENSIONS_ALLOWED, reboots_of};
use api::names::annotation;
use std::collections::BTreeMap;

/// The settings of one pool. An empty one leaves the cluster's in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolDisruption {
    /// [`annotation::REBOOTS`]: what a change without a policy costs.
    reboots: String,
    /// [`annotation::HOST_PACKAGES`]: whether packages of the hosts' distribution may be installed.
    host_packages: String,
    /// [`annotation::LIVE_EXTENSIONS`]: whether extensions take effect without a reboot where they can.
    live_extensions: String,
}

impl PoolDisruption {
    /// Reads them from the annotations of a pool, or of a node, which has copies of its pool's.
    #[must_use]
    pub fn of(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let note = |key: &str| annotations.and_then(|all| all.get(key)).cloned().unwrap_or_default();
        Self {
            reboots: note(annotation::REBOOTS),
            host_packages: note(annotation::HOST_PACKAGES),
            live_extensions: note(annotation::LIVE_EXTENSIONS),
        }
    }
}

impl DisruptionPolicy {
    /// The same policies for the nodes of a pool with these settings. Whoever asks what a change costs such a node comes here:
    /// its agent, the windows of a rollout, and the preview of a change.
    #[must_use]
    pub fn for_pool(mut self, pool: &PoolDisruption) -> Self {
        let PoolDisruption { reboots, host_packages, live_extensions } = pool;
        if !reboots.is_empty() {
            self.reboots = reboots_of(reboots);
        }
        if !host_packages.is_empty() {
            self.host_packages = host_packages == HOST_PACKAGES_ALLOWED;
        }
        if !live_extensions.is_empty() {
            self.live_extensions = live_extensions == LIVE_EXTENSIONS_ALLOWED;
        }
        self
    }
}
