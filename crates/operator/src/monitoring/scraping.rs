//! How the Prometheus operator finds the metrics: one ServiceMonitor a part, the Service of the
//! agents, and an account that may read metrics.
//!
//! What it is not: the Services of controller and config server, which are there in any case (`manifests/pods.rs`).

use crate::manifests::pods::METRICS;
use api::names::NAMESPACE;
use serde_json::{Value, json};

/// The parts, by the name of their Service.
const PARTS: [&str; 3] = ["machine-config-controller", "machine-config-daemon", "machine-config-server"];

/// The account whose token is sent to the parts. It may read metrics and nothing else.
const READER: &str = "machine-config-metrics-reader";

/// The objects, in the order in which they must be written.
pub fn service_monitors() -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/part-of": "machine-config-operator"});
    let rbac = "rbac.authorization.k8s.io";
    let mut all = vec![
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
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "machine-config-daemon", "namespace": NAMESPACE, "labels": {"k8s-app": "machine-config-daemon"},
            },
            "spec": {
                "clusterIP": "None",
                "selector": {"k8s-app": "machine-config-daemon"},
                "ports": [{"name": "metrics", "port": METRICS}],
            },
        }),
    ];
    all.extend(PARTS.map(|part| {
        json!({
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {"name": part, "namespace": NAMESPACE, "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"k8s-app": part}},
                "endpoints": [{
                    "port": "metrics",
                    "scheme": "https",
                    "interval": "30s",
                    "authorization": {"type": "Bearer", "credentials": {"name": READER, "key": "token"}},
                    // Their certificates are their own, or of a CA that only booting machines know. Somebody who
                    // answers in their place gets a token that is good for nothing but metrics.
                    "tlsConfig": {"insecureSkipVerify": true},
                    "relabelings": [
                        {"action": "replace", "targetLabel": "job", "replacement": part},
                        {"action": "replace", "targetLabel": "instance", "sourceLabels": ["__meta_kubernetes_pod_node_name"]},
                    ],
                }],
            },
        })
    }));
    all
}
