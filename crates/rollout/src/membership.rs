//! Which pool owns a node. master goes before custom pools, custom pools before worker; two custom pools are an error.
//!
//! What it is not: a choice among them; a node that two custom pools want is refused, because either answer would
//! reconfigure a machine against somebody's will.

use crate::plan::{NoPool, PoolInput, Unmanaged};
use crate::view::{Labels, NodeView};
use api::k8s::LabelSelector;
use api::names::{MASTER, WORKER, label};
use api::selector::{self, SelectorError};
use std::collections::HashMap;
use std::sync::Arc;

/// Up to this many different keys in all pools' selectors are looked up in a node's labels; beyond, the labels in them.
const FEW_KEYS: usize = 8;

/// A pool whose selector cannot be evaluated. While there is one, no node's pool is sure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MachineConfigPool {pool}: spec.nodeSelector.{source}; fix the selector")]
pub struct BrokenSelector {
    /// The pool.
    pub pool: Arc<str>,
    /// What is wrong with it.
    pub source: SelectorError,
}

/// The pools of one node, as indices of the pools given; the first owns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The owner.
    pub primary: Option<usize>,
    /// Another pool that matches and does not own it: worker beside a custom pool or master.
    pub secondary: Option<usize>,
    /// A custom pool matches a control-plane node and is ignored.
    pub custom_ignored: bool,
    /// The custom pools that all match, where there are two or more.
    pub several: Vec<usize>,
}

/// Selectors, ordered so that a node is compared with the few pools that it can be in.
#[derive(Debug)]
pub struct Index<'a> {
    pools: Vec<(&'a str, Option<&'a LabelSelector>)>,
    /// Pools by the first key of their `matchLabels`.
    by_key: HashMap<&'a str, Vec<usize>>,
    /// Pools without `matchLabels`.
    rest: Vec<usize>,
}

impl<'a> Index<'a> {
    /// Over all pools of the cluster: names and node selectors.
    ///
    /// # Errors
    /// The first pool whose selector cannot be evaluated.
    pub fn new(
        pools: impl IntoIterator<Item = (&'a str, Option<&'a LabelSelector>)>,
    ) -> Result<Self, BrokenSelector> {
        let mut index = Self { pools: pools.into_iter().collect(), by_key: HashMap::new(), rest: vec![] };
        for (i, (name, selector)) in index.pools.iter().enumerate() {
            // Against no labels at all, every requirement is evaluated: errors show here and never again.
            selector::matches_by(*selector, &|_| None)
                .map_err(|source| BrokenSelector { pool: (*name).into(), source })?;
            match selector.and_then(|s| s.match_labels.as_ref()).and_then(|l| l.keys().next()) {
                Some(key) => index.by_key.entry(key).or_default().push(i),
                None => index.rest.push(i),
            }
        }
        Ok(index)
    }

    /// The pools of a node with these labels.
    pub fn owners(&self, labels: &Labels) -> Owners {
        let mut owners = Owners::default();
        if labels.get(label::OS) == Some("windows") {
            return owners;
        }
        let (mut master, mut worker, mut custom) = (None, None, vec![]);
        // From the shorter side: a few pools' keys, or one node's labels.
        let few = self.by_key.len() <= FEW_KEYS;
        let by_pool = self.by_key.iter().filter(|(key, _)| few && labels.get(key).is_some()).map(|(_, i)| i);
        let by_label = labels.iter().filter_map(|(key, _)| if few { None } else { self.by_key.get(key) });
        for &i in by_pool.chain(by_label).flatten().chain(&self.rest) {
            let Some((name, selector)) = self.pools.get(i) else { continue };
            if selector::matches_by(*selector, &|key| labels.get(key)).unwrap_or(false) {
                match *name {
                    MASTER => master = Some(i),
                    WORKER => worker = Some(i),
                    _ => custom.push(i),
                }
            }
        }
        custom.sort_unstable();
        match (&*custom, master) {
            ([_, _, ..], _) => owners.several = custom,
            ([_], Some(_)) => owners = Owners { primary: master, custom_ignored: true, ..owners },
            ([], Some(_)) => owners.primary = master,
            (&[one], None) => owners = Owners { primary: Some(one), secondary: worker, ..owners },
            ([], None) => owners.primary = worker,
        }
        if owners.custom_ignored {
            owners.secondary = worker;
        }
        owners
    }
}

/// All nodes, by the pool that owns them.
#[derive(Debug, Default)]
pub(crate) struct Membership<'a> {
    /// For each pool its nodes, by name.
    pub(crate) members: Vec<Vec<&'a NodeView>>,
    /// Nodes without a pool.
    pub(crate) unmanaged: Vec<Unmanaged>,
    /// Control-plane nodes that a custom pool wants too.
    pub(crate) alerts: Vec<Arc<str>>,
}

/// Sorts all nodes into the pools.
pub(crate) fn resolve<'a>(
    pools: &[PoolInput<'_>],
    nodes: &[&'a NodeView],
) -> Result<Membership<'a>, BrokenSelector> {
    let index = Index::new(pools.iter().map(|p| (p.name(), p.pool.spec.node_selector.as_ref())))?;
    let mut all = Membership { members: vec![vec![]; pools.len()], ..Membership::default() };
    for node in nodes {
        let owners = index.owners(&node.labels);
        if owners.custom_ignored {
            all.alerts.push(node.name.clone());
        }
        if let Some(list) = owners.primary.and_then(|i| all.members.get_mut(i)) {
            list.push(node);
            continue;
        }
        if node.is_windows() {
            continue;
        }
        let why = if owners.several.is_empty() {
            NoPool::NoMatch
        } else {
            let names = owners.several.iter().filter_map(|&i| pools.get(i)).map(|p| p.name().into());
            NoPool::SeveralCustom(names.collect())
        };
        all.unmanaged.push(Unmanaged { node: node.name.clone(), why });
    }
    for list in &mut all.members {
        list.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    all.unmanaged.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    all.alerts.sort_unstable();
    Ok(all)
}
