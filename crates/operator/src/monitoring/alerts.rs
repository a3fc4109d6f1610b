//! What an alert is, and the rule of Prometheus that it becomes.
//!
//! What it is not: the alerts (see `alert_list`), and the file of all rules (see `alert_rules`).

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

    pub(super) fn rule(&self) -> Value {
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
