//! Applies the labels of the custom pool that a machine first booted into: once, and only to a node that an
//! administrator has vouched for.
//!
//! An annotation of the Node says which pool's config the machine booted into, and whoever has the node's credentials
//! can write that annotation. Labels such as `node-role.kubernetes.io/NAME` are among those that the API server does
//! not let nodes give to themselves (admission plugin NodeRestriction). So the pool lists the nodes for which the claim
//! is accepted ([`api::names::annotation::FIRST_BOOT_NODES`]); no node can write that. A name is removed from the list once it was
//! used.
//!
//! What it is not: the choice of which nodes to update.

use crate::facts::Facts;
use crate::patch::Change;
use crate::view::NodeView;
use api::first_boot::expected_nodes;
use api::k8s::LabelSelector;
use api::names::{MASTER, WORKER};
use api::v1::MachineConfigPool;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Labels to set.
pub(crate) type LabelSet = BTreeMap<Arc<str>, Arc<str>>;

/// Which pool's config a machine first booted into, if that matters.
pub(crate) enum FirstBootPool {
    /// That of a custom pool that it is not in, and that expects it: it gets these labels before any other config.
    Elsewhere { pool: Arc<str>, labels: LabelSet },
    /// That of a custom pool, according to its own Node, but the pool does not expect it.
    Unexpected { pool: Arc<str> },
    /// That of the custom pool that it is in. This is recorded, so that a label that is removed later stays removed.
    Here,
    /// None of these.
    Ordinary,
}

pub(crate) fn booted_into(
    node: &NodeView,
    facts: &Facts,
    pools: &HashMap<&str, &MachineConfigPool>,
    here: &str,
) -> FirstBootPool {
    let owner = node.first_pivot_config.as_ref().and_then(|c| facts.first_pivot_pools.get(c));
    let Some(owner) = owner.filter(|o| !is_built_in(o) && !node.custom_pool_labels_applied) else {
        return FirstBootPool::Ordinary;
    };
    if &**owner == here {
        return FirstBootPool::Here;
    }
    let Some(pool) = pools.get(&**owner) else { return FirstBootPool::Ordinary };
    let labels = selector_labels(pool.spec.node_selector.as_ref());
    if labels.is_empty() {
        // No label could bring it into that pool. It stays in this one and is updated, rather than left alone for ever.
        return FirstBootPool::Ordinary;
    }
    if !expected(pool).any(|name| *name == *node.name) {
        return FirstBootPool::Unexpected { pool: owner.clone() };
    }
    FirstBootPool::Elsewhere { pool: owner.clone(), labels }
}

/// The nodes that the pool expects to boot into it.
fn expected(pool: &MachineConfigPool) -> impl Iterator<Item = &str> {
    expected_nodes::expected(pool.metadata.annotations.as_ref())
}

/// The pool's list without the names that were used: nodes that are in the pool, or that were given its labels.
pub(crate) fn without_served(pool: &MachineConfigPool, served: impl Fn(&str) -> bool) -> Change<Arc<str>> {
    if !expected(pool).any(&served) {
        return Change::Keep;
    }
    let left = expected_nodes::list(expected(pool).filter(|name| !served(name)));
    if left.is_empty() { Change::Remove } else { Change::Set(left.into()) }
}

/// The labels that a selector requires. A requirement that leaves a choice adds none.
fn selector_labels(selector: Option<&LabelSelector>) -> LabelSet {
    let mut labels = BTreeMap::new();
    let Some(selector) = selector else { return labels };
    for r in selector.match_expressions.iter().flatten() {
        match (r.operator.as_str(), r.values.as_deref().unwrap_or_default()) {
            ("In", [one]) => labels.insert(r.key.as_str().into(), one.as_str().into()),
            ("Exists", _) => labels.insert(r.key.as_str().into(), "".into()),
            _ => None,
        };
    }
    for (key, value) in selector.match_labels.iter().flatten() {
        labels.insert(key.as_str().into(), value.as_str().into());
    }
    labels
}

/// Whether it is a built-in pool, whose nodes get their labels elsewhere.
fn is_built_in(pool: &str) -> bool {
    matches!(pool, MASTER | WORKER)
}
