//! How the Prometheus operator finds the metrics: one ServiceMonitor a part, the Service of the agents, and an account that
//! may read metrics.
//!
//! What it is not: the Services of the other parts, which are there in any case (`manifests/network.rs`), and the certificates
//! that scrapers verify (see `booting_machines`).
//!
//! Source: <https://prometheus-operator.dev/docs/api-reference/api/>.

use super::{CA, server_name};
use crate::accounts::{AGENT, CONTROLLER, METRICS, OPERATOR, SERVER};
use api::first_boot::server_tls;
use api::names::{NAMESPACE, label};
use serde_json::{Value, json};

/// The group and version of the Prometheus operator's kinds.
pub(crate) const MONITORING: &str = "monitoring.coreos.com/v1";
/// The account whose token is sent to the parts. It may read metrics and nothing else.
pub(crate) const READER: &str = "machine-config-metrics-reader";

/// The objects, in the order in which they must be written.
pub fn service_monitors() -> Vec<Value> {
    let mut all = reader();
    all.push(agents());
    all.extend([CONTROLLER, AGENT, SERVER, OPERATOR].map(monitor));
    all
}

/// The account that may read metrics, and its token.
pub(crate) fn reader() -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io";
    vec![
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": READER, "namespace": NAMESPACE},
            "automountServiceAccountToken": false,
        }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {
                "name": READER, "namespace": NAMESPACE, "annotations": {"kubernetes.io/service-account.name": READER},
            },
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": READER},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": READER},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": READER},
            "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
        }),
    ]
}

/// The Service of agents that run as pods. Those that are services of their hosts are in no Service.
pub(crate) fn agents() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": AGENT, "namespace": NAMESPACE, "labels": {label::PART: AGENT}},
        "spec": {
            "clusterIP": "None",
            "selector": {label::PART: AGENT},
            "ports": [{"name": "metrics", "port": METRICS}],
        },
    })
}

/// The ServiceMonitor of a part, which has the name of its Service.
pub(crate) fn monitor(part: &str) -> Value {
    json!({
        "apiVersion": MONITORING,
        "kind": "ServiceMonitor",
        "metadata": {
            "name": part, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/part-of": "machine-config-operator"},
        },
        "spec": {
            "selector": {"matchLabels": {label::PART: part}},
            "endpoints": [{
                "port": "metrics",
                "scheme": "https",
                "interval": "30s",
                "authorization": {"type": "Bearer", "credentials": {"name": READER, "key": "token"}},
                // Pods are scraped by their addresses; the certificates name the Service.
                "tlsConfig": {
                    "ca": {"configMap": {"name": CA, "key": server_tls::BUNDLE}},
                    "serverName": server_name(part),
                },
                "relabelings": [
                    {"action": "replace", "targetLabel": "job", "replacement": part},
                    {"action": "replace", "targetLabel": "instance", "sourceLabels": ["__meta_kubernetes_pod_node_name"]},
                ],
            }],
        },
    })
}
