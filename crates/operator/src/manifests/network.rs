//! How the parts are reached: Services, network policies, and the ports of the config server. Pure.
//!
//! What it is not: the pods behind them (see `pods`).
//!
//! Source: <https://kubernetes.io/docs/concepts/services-networking/network-policies/>.

use crate::accounts::{CONTROLLER, SERVER};
use crate::manifests::parts::{METRICS, PLAIN, Parts, SERVER_SECURE_METRICS, labels, metadata};
use ipnet::IpNet;
use serde_json::{Value, json};

pub(super) fn service(name: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name),
        "spec": {"selector": labels(name), "ports": ports},
    })
}

pub(super) fn controller_service() -> Value {
    service(CONTROLLER, &json!([{"name": "metrics", "port": METRICS}]))
}

pub(super) fn server_service(parts: &Parts<'_>) -> Value {
    let mut ports: Vec<Value> =
        ports(parts).into_iter().map(|(name, port)| json!({"name": name, "port": port})).collect();
    ports.push(json!({"name": "metrics", "port": SERVER_SECURE_METRICS}));
    service(SERVER, &json!(ports))
}

/// The ports of the config server.
pub(super) fn ports(parts: &Parts<'_>) -> Vec<(&'static str, u16)> {
    let mut ports = vec![("https", api::first_boot::user_data::PORT)];
    ports.extend((!parts.require_token).then_some(("http", PLAIN)));
    ports
}

/// A network policy: only the port of metrics and probes is reachable, from these addresses, or from everywhere if none is
/// named. The config server needs none: policies do not apply to the host's network, which it uses to serve booting machines.
pub(super) fn policy(name: &str, port: u16, from: &[IpNet]) -> Value {
    let mut ingress = json!({"ports": [{"protocol": "TCP", "port": port}]});
    if !from.is_empty() {
        ingress["from"] =
            from.iter().map(|net| json!({"ipBlock": {"cidr": net.trunc().to_string()}})).collect();
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(name),
        "spec": {
            "podSelector": {"matchLabels": labels(name)},
            "policyTypes": ["Ingress"],
            "ingress": [ingress],
        },
    })
}
