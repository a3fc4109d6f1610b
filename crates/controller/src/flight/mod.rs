//! Writes in flight: how many at once, which have no answer yet, which changes are the echoes of our own writes, and when a
//! refusal is reported.
//!
//! What it is not: the choice of what to write, or where answers lead ([`WriteContext`] passes them on).

pub(crate) mod nodes;
pub(crate) mod pools;
pub(crate) mod refusals;
pub(crate) mod stored_configs;

use api::k8s::Node;
use api::v1::MachineConfigPool;
use kube::Client;

/// What writes need of the rest of the controller: the connection, and the caches that their answers go to.
pub(crate) trait WriteContext: Send + Sync {
    /// The connection to the API server.
    fn client(&self) -> Client;
    /// The version of a Node that the cache holds.
    fn node_version(&self, node: &str) -> Option<u64>;
    /// Puts the answer to our own write of a Node into the cache.
    fn node_answer(&self, node: &Node);
    /// The same for a pool.
    fn pool_answer(&self, pool: MachineConfigPool);
}
