//! Which pool owns a node. The pool master goes before custom pools, and custom pools before worker; two matching
//! custom pools are an error.
//!
//! Outside OpenShift nobody labels nodes for us. There, pool `master` takes every control-plane node, whatever the
//! value of the role label, besides the nodes that its selector picks. Pool `worker` takes every node with a worker's
//! label and every node without any role. A node without a role counts only once its daemon has reported, because
//! nothing else shows that it is ours: a virtual kubelet would otherwise hold a slot of the pool for ever. A node with
//! any other role label is in the pools whose selectors pick it, or in none.
//!
//! What it is not: a choice between custom pools. A node that two custom pools want is refused, because either answer
//! would reconfigure a machine against somebody's will.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/docs/custom-pools.md>.

use crate::view::roles::{Cluster, is_control_plane};
use crate::view::{Labels, NodeView};
use api::formats::selector::{self, SelectorError};
use api::k8s::LabelSelector;
use api::names::{MASTER, WORKER, label};
use api::rendered::RenderedName;
use api::v1::MachineConfigPool;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;

/// Up to this many different keys in all pools' selectors are looked up in a node's labels. Beyond that, the node's
/// labels are looked up in the selectors.
const FEW_KEYS: usize = 8;

/// A pool whose selector cannot be evaluated. Nodes that may belong to it stay where they are (see [`Index::possible_owner`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("MachineConfigPool {pool}: spec.nodeSelector.{source}; fix the selector")]
pub struct BrokenSelector {
    /// The pool.
    pub pool: Arc<str>,
    /// What is wrong with it.
    pub source: SelectorError,
}

/// The pools of one node, as indices into the given pools; the first one owns it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// The owner.
    pub primary: Option<usize>,
    /// Another pool that matches but does not own it: worker beside a custom pool or master.
    pub secondary: Option<usize>,
    /// The owner is `worker` only because the node has no role label at all.
    pub assumed: bool,
    /// A custom pool matches a control-plane node and is ignored.
    pub custom_ignored: bool,
    /// The custom pools that all match, where there are two or more.
    pub several: Vec<usize>,
}

/// The selectors, indexed so that a node is compared only with the few pools that it can be in.
#[derive(Debug)]
pub struct Index<'a> {
    pools: Vec<(&'a str, Option<&'a LabelSelector>)>,
    /// Pools by the first key of their `matchLabels`.
    by_key: HashMap<&'a str, Vec<usize>>,
    /// Pools without `matchLabels`.
    rest: Vec<usize>,
    /// The built-in pools that also take nodes which their selectors do not pick.
    assumed: Assumed,
    /// Pools whose selector cannot be evaluated: they certainly own no node.
    broken: Vec<(usize, BrokenSelector)>,
}

/// On a plain cluster the pools `master` and `worker`, on an unknown one `master`, on OpenShift none.
#[derive(Debug, Default)]
struct Assumed {
    master: Option<usize>,
    worker: Option<usize>,
}

impl Assumed {
    fn new(cluster: Cluster, pools: &[(&str, Option<&LabelSelector>)]) -> Self {
        let at = |name| pools.iter().position(|(n, _)| *n == name);
        Self {
            master: at(MASTER).filter(|_| cluster != Cluster::OpenShift),
            worker: at(WORKER).filter(|_| cluster == Cluster::Plain),
        }
    }

    fn master(&self, labels: &Labels) -> Option<usize> {
        self.master.filter(|_| is_control_plane(labels))
    }

    fn worker(&self, labels: &Labels) -> Option<usize> {
        self.worker.filter(|_| labels.get(label::WORKER_ROLE).is_some() || !has_role(labels))
    }
}

/// Whether the labels name any role.
pub(crate) fn has_role(labels: &Labels) -> bool {
    labels.iter().any(|(key, _)| key.starts_with(label::NODE_ROLE_PREFIX))
}

impl<'a> Index<'a> {
    /// Builds the index over all pools of the cluster: names and node selectors.
    pub fn new(
        cluster: Cluster,
        pools: impl IntoIterator<Item = (&'a str, Option<&'a LabelSelector>)>,
    ) -> Self {
        let pools: Vec<_> = pools.into_iter().collect();
        let assumed = Assumed::new(cluster, &pools);
        let mut index = Self { pools, by_key: HashMap::new(), rest: vec![], assumed, broken: vec![] };
        for (i, (name, selector)) in index.pools.iter().enumerate() {
            // Without any labels, every requirement is evaluated. So errors show here and never later.
            if let Err(source) = selector::matches_by(*selector, &|_| None) {
                index.broken.push((i, BrokenSelector { pool: (*name).into(), source }));
                continue;
            }
            match selector.and_then(|s| s.match_labels.as_ref()).and_then(|l| l.keys().next()) {
                Some(key) => index.by_key.entry(key).or_default().push(i),
                None => index.rest.push(i),
            }
        }
        index
    }

    /// What is wrong with the selector of the pool at this index.
    pub fn broken(&self, pool: usize) -> Option<&BrokenSelector> {
        self.broken.iter().find(|(i, _)| *i == pool).map(|(_, broken)| broken)
    }

    /// The pool with a broken selector that may own this node, whatever [`Index::owners`] says; its nodes must not
    /// count for another pool. A node may belong to it if the readable part of the selector fits the node's labels, or
    /// if the node is in, or was sent to, a config that was rendered for that pool (`configs`).
    pub fn possible_owner(
        &self,
        labels: &Labels,
        owners: &Owners,
        configs: &[Option<&str>],
    ) -> Option<usize> {
        let owner = owners.primary.and_then(|i| self.pools.get(i)).map(|(name, _)| *name);
        let may_own = |(i, broken): &&(usize, BrokenSelector)| {
            // A pool that certainly owns the node keeps it from this pool.
            let settled = match (&*broken.pool, owner) {
                (MASTER, _) => false,
                (_, Some(MASTER)) => true,
                (WORKER, Some(_)) => true,
                _ => false,
            };
            let selector = self.pools.get(*i).and_then(|(_, selector)| *selector);
            let made_for =
                |config: &str| RenderedName::parse(config).is_some_and(|name| name.pool == &*broken.pool);
            let fits = || selector.is_some_and(|s| selector::may_match(s, &|key| labels.get(key)));
            // A plain cluster's built-in pools own some nodes without a selector.
            owners.primary == Some(*i)
                || !settled && (configs.iter().flatten().any(|config| made_for(config)) || fits())
        };
        if self.broken.is_empty() || labels.get(label::OS) == Some("windows") {
            return None;
        }
        self.broken.iter().find(may_own).map(|(i, _)| *i)
    }

    /// The pools of a node for counting: [`Index::owners`], but without an owner that is only assumed while no daemon
    /// has reported.
    pub fn owners_of(&self, node: &NodeView) -> Owners {
        let owners = self.owners(&node.labels);
        let primary = owners.primary.filter(|_| !owners.assumed || node.has_reported());
        Owners { primary, ..owners }
    }

    /// The pools of a node with these labels, whether or not a daemon runs on it. A daemon asks this about its own
    /// node.
    pub fn owners(&self, labels: &Labels) -> Owners {
        let mut owners = Owners::default();
        if labels.get(label::OS) == Some("windows") {
            return owners;
        }
        let (mut master, mut worker, mut custom) = (None, None, vec![]);
        // Uses the shorter side: a few pools' keys, or one node's labels.
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
        master = master.or_else(|| self.assumed.master(labels));
        let selected = worker.is_some();
        worker = worker.or_else(|| self.assumed.worker(labels));
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
        owners.assumed = !selected && worker.is_some() && owners.primary == worker && !has_role(labels);
        owners
    }
}

/// A node that no pool can own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmanaged {
    /// The node.
    pub node: Arc<str>,
    /// Why.
    pub why: NoPool,
    /// Until when it keeps the taint of nodes that join; `None`: it has none, or the plan removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tainted_until: Option<Timestamp>,
}

/// Why no pool owns a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum NoPool {
    /// No pool's selector matches.
    NoMatch,
    /// It has no role label, and no daemon has reported from it: it may not be a worker of ours.
    NoDaemon,
    /// Two or more custom pools match.
    SeveralCustom(Vec<Arc<str>>),
}

/// All nodes, by owning pool.
#[derive(Debug, Default)]
pub(crate) struct Membership<'a> {
    /// The nodes of each pool, by name. For a pool with a broken selector, the nodes that may belong to it.
    pub(crate) members: Vec<Vec<&'a NodeView>>,
    /// Nodes without a pool.
    pub(crate) unmanaged: Vec<Unmanaged>,
    /// The views of the same nodes, in the same order.
    pub(crate) unowned: Vec<&'a NodeView>,
    /// Control-plane nodes that a custom pool also selects.
    pub(crate) alerts: Vec<Arc<str>>,
    /// For each pool, what is wrong with its selector.
    pub(crate) broken: Vec<Option<BrokenSelector>>,
}

/// Assigns all nodes to the pools.
pub(crate) fn resolve<'a>(
    pools: &[&MachineConfigPool],
    nodes: &[&'a NodeView],
    cluster: Cluster,
) -> Membership<'a> {
    let names: Vec<&str> = pools.iter().map(|p| p.metadata.name.as_deref().unwrap_or_default()).collect();
    let selectors = pools.iter().map(|p| p.spec.node_selector.as_ref());
    let index = Index::new(cluster, names.iter().copied().zip(selectors));
    let broken = (0..pools.len()).map(|i| index.broken(i).cloned()).collect();
    let mut all = Membership { members: vec![vec![]; pools.len()], broken, ..Membership::default() };
    for node in nodes {
        let owners = index.owners_of(node);
        let configs = [node.current_config.as_deref(), node.desired_config.as_deref()];
        let unsure = index.possible_owner(&node.labels, &owners, &configs);
        if let Some(list) = unsure.and_then(|i| all.members.get_mut(i)) {
            list.push(node);
            continue;
        }
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
        let why = if owners.assumed {
            NoPool::NoDaemon
        } else if owners.several.is_empty() {
            NoPool::NoMatch
        } else {
            let several = owners.several.iter().filter_map(|&i| names.get(i)).map(|name| (*name).into());
            NoPool::SeveralCustom(several.collect())
        };
        all.unowned.push(node);
        all.unmanaged.push(Unmanaged { node: node.name.clone(), why, tainted_until: None });
    }
    for list in &mut all.members {
        list.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    }
    all.unmanaged.sort_unstable_by(|a, b| a.node.cmp(&b.node));
    all.unowned.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    all.alerts.sort_unstable();
    all
}
