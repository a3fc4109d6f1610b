//! Reads what the cluster says about itself. What it is not: what follows from it.

use super::Facts;
use api::k8s::{ConfigMap, Node};
use api::names::NAMESPACE;
use client::{CallError, call};
use k8s_openapi::api::core::v1::Service;
use kube::Client;
use kube::api::{Api, ListParams};
use rollout::topology::Topology;
use rollout::view::NodeView;

/// The names that the DNS Service has: kubeadm, k3s and most others; RKE2; a few. The first that there is counts, for the operator and
/// for `mco install`.
pub(crate) const DNS_SERVICES: [&str; 3] = ["kube-dns", "rke2-coredns-rke2-coredns", "coredns"];

/// The addresses of this Service; none where it is headless.
pub(crate) fn service_addresses(service: Service) -> Vec<String> {
    let Some(spec) = service.spec else { return vec![] };
    let all = spec.cluster_ips.or_else(|| spec.cluster_ip.map(|ip| vec![ip])).unwrap_or_default();
    all.into_iter().filter(|ip| !["", "None"].contains(&ip.as_str())).collect()
}

/// Reads the facts. What there is not, or what may not be read, is missing among them: on most clusters some is.
///
/// # Errors
/// The API server did not answer.
pub(crate) async fn read(client: &Client, topology: bool) -> Result<Facts, CallError> {
    let map = |namespace: &'static str, name: &'static str, key: &'static str| async move {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let found = absent(call(|| format!("get ConfigMap {namespace}/{name}"), api.get(name)).await)?;
        Ok::<_, CallError>(found.and_then(|m| m.data?.remove(key)))
    };
    let (cluster_info, cluster_configuration, kubelet_config, root_ca) = futures::try_join!(
        map("kube-public", "cluster-info", "kubeconfig"),
        map("kube-system", "kubeadm-config", "ClusterConfiguration"),
        map("kube-system", "kubelet-config", "kubelet"),
        map(NAMESPACE, "kube-root-ca.crt", "ca.crt"),
    )?;
    let mut facts =
        Facts { cluster_info, cluster_configuration, kubelet_config, root_ca, ..Facts::default() };
    let services: Api<Service> = Api::namespaced(client.clone(), "kube-system");
    for name in DNS_SERVICES {
        let found = absent(call(|| format!("get Service kube-system/{name}"), services.get(name)).await)?;
        let Some(service) = found else { continue };
        facts.dns_service = service_addresses(service);
        break;
    }
    if topology {
        let nodes: Api<Node> = Api::all(client.clone());
        let nodes = call(|| "list Nodes".to_owned(), nodes.list(&ListParams::default())).await?;
        let views: Vec<NodeView> = nodes.iter().map(NodeView::from_node).collect();
        let found = Topology::of(&views);
        facts.topologies = [found.control_plane, found.infrastructure];
    }
    Ok(facts)
}

fn absent<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_absent_or_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}
