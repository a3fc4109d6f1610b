//! First contact: decides which config a node that never had one should be in. Pure. `agent` reads the pools once and
//! calls it.
//!
//! Not here: the rollout. A node joins on its own only where that disturbs no pods. Otherwise it reports that it is in
//! the empty config, and the controller moves it when the pool's `maxUnavailable` allows.

use crate::protocol::{Changes, Cost, EMPTY_CONFIG, NodeFacts};
use api::k8s::Node;
use api::names::annotation;
use api::node_state::NodeState;
use api::v1::MachineConfigPool;
use rollout::view::{Labels, Names};
use rollout::{BrokenSelector, Cluster, Index};
use std::collections::BTreeMap;

/// The pool of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Membership {
    /// The node belongs to this pool, with this rendered config.
    Pool {
        /// The pool.
        pool: String,
        /// The rendered config. Empty: there is none yet.
        config: String,
        /// The node has no role label and is only assumed to be a worker.
        assumed: bool,
    },
    /// The node has no pool yet.
    NoPool,
    /// Not known: it depends on the kind of cluster, and there is no ControllerConfig that names it.
    Unknown,
}

/// Why a node's pool cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// More than one custom pool selects it.
    #[error("the node matches several custom pools ({pools}); give it the labels of one of them only")]
    SeveralPools {
        /// Their names.
        pools: String,
    },
    /// A pool's selector is invalid.
    #[error(transparent)]
    Selector(#[from] BrokenSelector),
}

/// Finds the pool of a node with these labels, by the rules of the rollout.
///
/// # Errors
/// A pool that may be the node's has an invalid selector, or two custom pools select the node.
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
    // A joining node has no pool's config yet.
    if let Some(broken) = index.possible_owner(&labels, &owners, &[]).and_then(|i| index.broken(i)) {
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

// A node without a role label may be a control-plane node that is just joining: kubeadm labels it after its etcd has
// joined, k3s after it has registered. It must not be changed as a worker meanwhile. Before the label, these show it:
//
// - a static pod of the API server or of etcd, in the folder that the kubelet's own settings name (any distribution whose
//   control plane runs in static pods: kubeadm, OKD, RKE2 …);
// - an address of the Node among those of the API servers, which each API server writes into the EndpointSlice
//   default/kubernetes itself (any distribution whose API servers run on nodes);
// - the data folders of servers that run as plain processes, which may not have written that yet (k3s, RKE2, k0s).
//
// Two cases cannot be recognised: a host that will get a control plane and has nothing of it yet, and one whose API
// server is a plain process of another distribution that has not started. There the agent must be started after the
// control plane.

/// The path of the kubelet's settings with kubeadm and most other distributions.
pub(crate) const KUBELET_SETTINGS: &str = "/var/lib/kubelet/config.yaml";
/// The folders of static pods to try if the settings are elsewhere: kubeadm's and RKE2's.
pub(crate) const STATIC_PODS: [&str; 2] =
    ["/etc/kubernetes/manifests", "/var/lib/rancher/rke2/agent/pod-manifests"];
/// Folders that only servers of k3s, RKE2 and k0s have.
pub(crate) const SERVER_DATA: [&str; 3] =
    ["/var/lib/rancher/k3s/server", "/var/lib/rancher/rke2/server", "/var/lib/k0s/manifests"];

/// The absolute path of the static pod folder in a kubelet's settings (YAML), if they name one.
pub(crate) fn static_pod_folder(settings: &str) -> Option<String> {
    let settings: serde_json::Value = api::formats::yaml::from_str(settings).ok()?;
    let folder = settings.get("staticPodPath")?.as_str()?.trim_end_matches('/');
    folder.starts_with('/').then(|| folder.to_owned())
}

/// Whether a file in that folder is, by its name, a pod of the API server or of etcd.
pub(crate) fn is_control_plane_pod(file: &str) -> bool {
    let Some((stem, "yaml" | "yml" | "json" | "manifest")) = file.rsplit_once('.') else { return false };
    let stem = stem.strip_suffix("-pod").unwrap_or(stem);
    ["kube-apiserver", "etcd"].contains(&stem)
}

/// The Node's address that is also an address of an API server, if there is one.
pub(crate) fn serves_the_api(node: &Node, api_servers: &[String]) -> Option<String> {
    let addresses = node.status.iter().flat_map(|s| s.addresses.iter().flatten());
    let own = addresses.filter(|a| matches!(a.type_.as_str(), "InternalIP" | "ExternalIP"));
    own.map(|a| &a.address).find(|a| api_servers.contains(a)).cloned()
}

/// The first annotations of a node without any config. `cost`: the cost of moving it from nothing to `config`.
///
/// A move without disruption is made at once, and so is any move of a node that is not Ready: it runs no workload yet,
/// and may need the config to become Ready. The controller decides about any other move.
pub fn first_annotations(node: &NodeFacts, config: &str, cost: Cost) -> Changes {
    let free = !cost.drain && !cost.reboot;
    if free || !node.ready {
        return [
            (annotation::DESIRED_CONFIG, config.to_owned()),
            (annotation::STATE, NodeState::Working.to_string()),
        ]
        .into();
    }
    [
        (annotation::CURRENT_CONFIG, EMPTY_CONFIG.to_owned()),
        (annotation::DESIRED_CONFIG, EMPTY_CONFIG.to_owned()),
        (annotation::STATE, NodeState::Done.to_string()),
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
        api::formats::yaml::from_str(&yaml).unwrap()
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
    fn without_a_controller_config_only_pools_that_hold_on_any_cluster_are_derived() {
        let of = |labels: &[&str]| {
            let labels = labels.iter().map(|l| ((*l).to_owned(), String::new())).collect();
            membership(&labels, &pools(), Cluster::Unknown).unwrap()
        };
        let pool = |pool: &str| Membership::Pool {
            pool: pool.to_owned(),
            config: format!("rendered-{pool}-1"),
            assumed: false,
        };
        assert_eq!(of(&[]), Membership::Unknown, "a worker on kubeadm, in no pool on OpenShift");
        assert_eq!(of(&["node-role.kubernetes.io/control-plane"]), Membership::Unknown);
        assert_eq!(of(&["node-role.kubernetes.io/control-plane", "i"]), Membership::Unknown);
        assert_eq!(of(&["node-role.kubernetes.io/other"]), Membership::NoPool);
        assert_eq!(
            (of(&["w"]), of(&["m"]), of(&["w", "i"])),
            (pool("worker"), pool("master"), pool("infra"))
        );
    }

    #[test]
    fn two_custom_pools_are_an_error_and_a_windows_node_has_no_pool() {
        let labels = |l: &[(&str, &str)]| l.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        let error =
            membership(&labels(&[("i", ""), ("g", "")]), &pools(), Cluster::Plain).unwrap_err().to_string();
        assert!(error.contains("infra, gpu"), "{error}");
        let windows = labels(&[("w", ""), (api::names::label::OS, "windows")]);
        assert_eq!(membership(&windows, &pools(), Cluster::Plain).unwrap(), Membership::NoPool);
    }

    #[test]
    fn a_kubelets_settings_name_the_folder_of_static_pods() {
        let rows = [
            ("staticPodPath: /srv/pods/\n", Some("/srv/pods")),
            ("kind: KubeletConfiguration\nstaticPodPath: ''\n", None),
            ("staticPodPath: [", None),
            ("", None),
        ];
        for (settings, want) in rows {
            assert_eq!(static_pod_folder(settings).as_deref(), want, "{settings}");
        }
        let pods = ["etcd.yaml", "kube-apiserver.yaml", "kube-apiserver-pod.yaml", "etcd-pod.json"];
        assert!(pods.into_iter().all(is_control_plane_pod));
        let others = [
            "nginx-proxy.yml",
            "kube-apiserver.yaml.bak",
            "etcd",
            "kube-apiserver-proxy.yaml",
            ".etcd.yaml.swp",
        ];
        assert!(!others.into_iter().any(is_control_plane_pod));
    }

    #[test]
    fn a_node_at_an_api_servers_address_is_one_of_the_control_plane() {
        let node: Node =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "n"}, "status": {"addresses": [
                {"type": "Hostname", "address": "10.0.0.9"},
                {"type": "InternalIP", "address": "fd00::7"},
                {"type": "InternalIP", "address": "10.0.0.7"},
            ]}}))
            .unwrap();
        let servers = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(serves_the_api(&node, &servers(&["10.0.0.6", "10.0.0.7"])).as_deref(), Some("10.0.0.7"));
        assert_eq!(serves_the_api(&node, &servers(&["10.0.0.9", "10.0.0.70"])), None);
        assert_eq!(serves_the_api(&Node::default(), &servers(&["10.0.0.7"])), None);
    }

    #[test]
    fn a_ready_node_leaves_a_disruptive_first_config_to_the_controller() {
        let reboot = Cost { drain: true, reboot: true };
        let rows = [(true, Cost::default(), "r"), (true, reboot, EMPTY_CONFIG), (false, reboot, "r")];
        for (ready, cost, desired) in rows {
            let node = NodeFacts { ready, ..NodeFacts::default() };
            let changes = first_annotations(&node, "r", cost);
            assert_eq!(changes.get(annotation::DESIRED_CONFIG).map(String::as_str), Some(desired));
            // The controller counts a node only if the decision is left to the controller.
            assert_eq!(changes.contains_key(annotation::CURRENT_CONFIG), desired == EMPTY_CONFIG);
        }
    }
}
