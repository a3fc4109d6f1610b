//! What a check of a gate is about: the change, the nodes, and the policy that asks for it.
//!
//! What it is not: the check (see `checks` and `requests`).

use api::k8s::Time;
use std::sync::Arc;

/// The RolloutPolicy that a gate belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PolicyReference {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) generation: Option<i64>,
}

/// What a check is about, as the last plan said it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CheckSubject {
    /// The rendered config that is on its way.
    pub(super) config: Arc<str>,
    /// Since when it is; `None`: that is not stored.
    pub(super) since: Option<Time>,
    /// The policy that asks for it.
    pub(super) policy: PolicyReference,
    /// What was broken before.
    pub(super) baseline: Option<Vec<String>>,
    /// The workloads that were there before, as far as that is stored.
    pub(super) workloads: Vec<String>,
    /// The nodes that it is about.
    pub(super) nodes: Vec<Arc<str>>,
    /// How many nodes of the pool are on their way or out of service.
    pub(super) away: usize,
}
