//! First contact: which config a node is to be in that never had one. Pure; `agent` reads the pools once and asks.
//!
//! What it is not: the roll-out. A node joins by itself only where that disturbs nobody; otherwise it reports that it
//! is in the empty config, and the controller moves it when the pool's `maxUnavailable` allows.

use crate::protocol::{Changes, Cost, EMPTY_CONFIG, NodeFacts};
use api::names::{annotation, state};
use api::v1::MachineConfigPool;
use rollout::view::{Labels, Names};
use rollout::{BrokenSelector, Cluster, Index};
use std::collections::BTreeMap;

/// Where a node belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// To this pool, whose rendered config is this one.
    Pool {
        /// The pool.
        pool: String,
        /// The rendered config; empty while there is none.
        config: String,
        /// It has no role label at all, and is a worker only for want of one.
        assumed: bool,
    },
    /// To none yet.
    NoPool,
    /// Nobody knows: it depends on whose cluster it is, and there is no ControllerConfig to say so.
    Unknown,
}

/// A node whose pool cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// More than one custom pool selects it.
    #[error("the node matches several custom pools ({pools}); give it the labels of one of them only")]
    SeveralPools {
        /// Their names.
        pools: String,
    },
    /// A pool's selector is broken.
    #[error(transparent)]
    Selector(#[from] BrokenSelector),
}

/// Finds the pool of a node with these labels, by the rules of the roll-out.
///
/// # Errors
/// A broken selector of a pool that may be the node's, and a node that two custom pools select.
pub fn membership(
    labels: &BTreeMap<String, String>,
    pools: &[MachineConfigPool],
    cluster: Cluster,
) -> Result<Membership, JoinError> {
    if cluster == Cluster::Unknown {
        let plain = membership(labels, pools, Cluster::Plain)?;
        let same = plain == membership(labels, pools, Cluster::OpenShift)?;
        return Ok(if same { plain } else { Membership::Unknown });
    }
    let name = |p: &'_ MachineConfigPool| p.metadata.name.clone().unwrap_or_default();
    let index = Index::new(
        cluster,
        pools.iter().map(|p| (p.metadata.name.as_deref().unwrap_or_default(), p.spec.node_selector.as_ref())),
    );
    let labels = Labels::new(Some(labels), &mut Names::default());
    let owners = index.owners(&labels);
    // A node that joins has no config of any pool.
    if let Some(broken) = index.unsure(&labels, &owners, &[]).and_then(|i| index.broken(i)) {
        return Err(broken.clone().into());
    }
    if !owners.several.is_empty() {
        let names: Vec<_> = owners.several.iter().filter_map(|&i| pools.get(i)).map(name).collect();
        return Err(JoinError::SeveralPools { pools: names.join(", ") });
    }
    let primary = owners.primary.and_then(|i| pools.get(i));
    Ok(primary.map_or(Membership::NoPool, |pool| Membership::Pool {
        pool: name(pool),
        config: pool.spec.configuration.name.clone(),
        assumed: owners.assumed,
    }))
}

/// What only a host of the control plane has: static pods of kubeadm, the servers' data of k3s and RKE2.
pub(crate) const CONTROL_PLANE_PATHS: [&str; 4] = [
    "/etc/kubernetes/manifests/kube-apiserver.yaml",
    "/etc/kubernetes/manifests/etcd.yaml",
    "/var/lib/rancher/k3s/server",
    "/var/lib/rancher/rke2/server",
];

/// What a node without any config says of itself first. `cost` is that of moving it from nothing to `config`.
///
/// A move that costs nobody anything is made at once, and so is any move of a node that is not Ready: it runs nothing
/// for anybody yet, and may need the config to become Ready. Any other move is the controller's to allow.
pub fn first_annotations(node: &NodeFacts, config: &str, cost: Cost) -> Changes {
    let free = !cost.drain && !cost.reboot;
    if free || !node.ready {
        return [
            (annotation::DESIRED_CONFIG, config.to_owned()),
            (annotation::STATE, state::WORKING.to_owned()),
        ]
        .into();
    }
    [
        (annotation::CURRENT_CONFIG, EMPTY_CONFIG.to_owned()),
        (annotation::DESIRED_CONFIG, EMPTY_CONFIG.to_owned()),
        (annotation::STATE, state::DONE.to_owned()),
        (annotation::REASON, String::new()),
    ]
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, label: &str) -> MachineConfigPool {
        let yaml = format!(
            "metadata: {{name: {name}}}\nspec:\n  nodeSelector: {{matchLabels: {{{label}: ''}}}}\n  configuration: {{name: rendered-{name}-1}}\n"
        );
        api::yaml::from_str(&yaml).unwrap()
    }

    fn pools() -> Vec<MachineConfigPool> {
        vec![pool("worker", "w"), pool("master", "m"), pool("infra", "i"), pool("gpu", "g")]
    }

    #[test]
    fn a_node_belongs_to_master_then_a_custom_pool_then_worker() {
        let rows: [(&[&str], Option<&str>); 8] = [
            (&[], Some("worker")),
            (&["node-role.kubernetes.io/other"], None),
            (&["w"], Some("worker")),
            (&["w", "m"], Some("master")),
            (&["w", "i"], Some("infra")),
            (&["m", "i"], Some("master")),
            (&["g"], Some("gpu")),
            (&["node-role.kubernetes.io/control-plane"], Some("master")),
        ];
        for (labels, want) in rows {
            let labels = labels.iter().map(|l| ((*l).to_owned(), String::new())).collect();
            let got = match membership(&labels, &pools(), Cluster::Plain).unwrap() {
                Membership::Pool { pool, config, assumed } => {
                    assert_eq!(assumed, labels == BTreeMap::new(), "{labels:?}");
                    assert_eq!(config, format!("rendered-{pool}-1"));
                    Some(pool)
                }
                Membership::NoPool | Membership::Unknown => None,
            };
            assert_eq!(got.as_deref(), want, "{labels:?}");
        }
    }

    #[test]
    fn without_a_controller_config_only_what_holds_on_any_cluster_is_told() {
        let of = |labels: &[&str]| {
            let labels = labels.iter().map(|l| ((*l).to_owned(), String::new())).collect();
            membership(&labels, &pools(), Cluster::Unknown).unwrap()
        };
        let pool = |pool: &str| Membership::Pool {
            pool: pool.to_owned(),
            config: format!("rendered-{pool}-1"),
            assumed: false,
        };
        assert_eq!(of(&[]), Membership::Unknown, "a worker of kubeadm, and nobody's on OpenShift");
        assert_eq!(of(&["node-role.kubernetes.io/control-plane"]), Membership::Unknown);
        assert_eq!(of(&["node-role.kubernetes.io/control-plane", "i"]), Membership::Unknown);
        assert_eq!(of(&["node-role.kubernetes.io/other"]), Membership::NoPool);
        assert_eq!(
            (of(&["w"]), of(&["m"]), of(&["w", "i"])),
            (pool("worker"), pool("master"), pool("infra"))
        );
    }

    #[test]
    fn two_custom_pools_and_a_windows_node_are_told_apart() {
        let labels = |l: &[(&str, &str)]| l.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let error =
            membership(&labels(&[("i", ""), ("g", "")]), &pools(), Cluster::Plain).unwrap_err().to_string();
        assert!(error.contains("infra, gpu"), "{error}");
        let windows = labels(&[("w", ""), (api::names::label::OS, "windows")]);
        assert_eq!(membership(&windows, &pools(), Cluster::Plain).unwrap(), Membership::NoPool);
    }

    #[test]
    fn a_move_that_disturbs_pods_is_left_to_the_controller() {
        let reboot = Cost { drain: true, reboot: true };
        let rows = [(true, Cost::default(), "r"), (true, reboot, EMPTY_CONFIG), (false, reboot, "r")];
        for (ready, cost, desired) in rows {
            let node = NodeFacts { ready, ..NodeFacts::default() };
            let changes = first_annotations(&node, "r", cost);
            assert_eq!(changes.get(annotation::DESIRED_CONFIG).map(String::as_str), Some(desired));
            // Only a node that is left to the controller is one that the controller counts already.
            assert_eq!(changes.contains_key(annotation::CURRENT_CONFIG), desired == EMPTY_CONFIG);
        }
    }
}
