//! The rules of all alerts, as Prometheus reads them from a file, and as an object of the Prometheus operator.
//!
//! What it is not: the alerts (see `alert_list`), and the rule of one (see `alerts`).
//!
//! Sources: <https://prometheus.io/docs/prometheus/latest/configuration/alerting_rules/>
//! and <https://prometheus-operator.dev/docs/api-reference/api/>.

use super::alert_list::ALERTS;
use super::alerts::Alert;
use api::names::NAMESPACE;
use serde_json::{Value, json};

/// The groups of rules, as Prometheus reads them from a file and from a PrometheusRule.
pub fn rule_groups() -> Value {
    let group = |name: &str, others: bool| {
        let alerts = ALERTS.iter().filter(|a| a.needs_others() == others);
        json!({"name": name, "rules": alerts.map(Alert::rule).collect::<Vec<_>>()})
    };
    let mut ours = group("machine-config-operator", false);
    if let Some(rules) = ours["rules"].as_array_mut() {
        // Two controllers report the same pool for a moment when the leader changes.
        let expr = "sum(max by (pool) (os_image_url_override))";
        rules.push(json!({"record": "os_image_url_override:sum", "expr": expr}));
        rules.push(json!({"record": "mco_mosc_count:sum", "expr": "max(mco_mosc_count)"}));
    }
    json!({"groups": [ours, group("machine-config-operator-nodes", true)]})
}

/// The same for the Prometheus operator.
pub fn prometheus_rule() -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "machine-config-operator", "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/part-of": "machine-config-operator"},
        },
        "spec": rule_groups(),
    })
}
