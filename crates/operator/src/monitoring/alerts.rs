//! What an alert is, and the rules of Prometheus that all alerts become.
//!
//! What it is not: the alerts (see `alert_list`).

use super::alert_list::ALERTS;
use api::names::NAMESPACE;
use serde_json::{Value, json};

/// How urgent an alert is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Somebody is called.
    Critical,
    /// Somebody looks at it on the next working day.
    Warning,
    /// Worth to know.
    Info,
}

impl Severity {
    /// The value of the label `severity`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// An alert of Prometheus.
#[derive(Debug, Clone, Copy)]
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// When it holds, in PromQL.
    pub expr: &'static str,
    /// How long that must be so, as Prometheus writes durations. Empty: at once.
    pub hold: &'static str,
    /// How urgent it is.
    pub severity: Severity,
    /// One line, with the labels' values as `{{ $labels.NAME }}`.
    pub summary: &'static str,
    /// What it means and what to do first.
    pub description: &'static str,
}

/// One series of 1 for each control-plane node, with the labels of its node exporter. kube-state-metrics says the roles.
const CONTROL_PLANE: &str = "max by (instance) (label_replace(kube_node_role{role=~\"master|control-plane\"}, \"instance\", \"$1\", \"node\", \"(.+)\"))";

/// Alerts that need the metrics of other programs: kube-state-metrics, node exporter, the kubelet's cAdvisor, CRI-O.
const OF_OTHERS: [&str; 4] = [
    "RuncDeprecated",
    "SystemMemoryExceedsReservation",
    "HighOverallControlPlaneMemory",
    "ExtremelyHighIndividualControlPlaneMemory",
];

impl Alert {
    /// Whether it needs the metrics of other programs than ours.
    pub fn needs_others(&self) -> bool {
        OF_OTHERS.contains(&self.name)
    }

    /// When it holds, with its abbreviations written out.
    pub fn promql(&self) -> String {
        self.expr.replace("CONTROL_PLANE", CONTROL_PLANE)
    }

    fn rule(&self) -> Value {
        let mut rule = json!({
            "alert": self.name,
            "expr": self.promql(),
            "labels": {"severity": self.severity.name(), "namespace": NAMESPACE},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook": format!("docs/runbooks/{}.md", self.name),
            },
        });
        if !self.hold.is_empty() {
            rule["for"] = json!(self.hold);
        }
        rule
    }
}

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
