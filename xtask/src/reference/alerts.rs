//! The page of alerts, from the table from which the rules are made.

use super::{cell, columns, head, row};
use operator::monitoring::ALERTS;

pub(super) fn page() -> String {
    let mut out = head("Alerts", "`crates/operator/src/monitoring/alerts.rs`");
    out += "\nThe rules are in `deploy/monitoring`: `rules.yaml` for Prometheus, `prometheus-rule.yaml` for the Prometheus operator. \
            How to install them is in [Operations](../operations.md#metrics-and-alerts).\n";
    for (title, note, others) in [
        ("Of our own metrics", "", false),
        (
            "Of the metrics of other programs",
            "They need kube-state-metrics, node exporter, the kubelet's cAdvisor or CRI-O, and do not fire without them.\n\n",
            true,
        ),
    ] {
        out += &format!(
            "\n## {title}\n\n{note}{}",
            columns(&["alert", "severity", "says", "fires when", "for"])
        );
        for alert in ALERTS.iter().filter(|a| a.needs_others() == others) {
            let page = format!("[{0}](../runbooks/{0}.md)", alert.name);
            let expr = format!("`{}`", cell(&alert.promql()).replace("&lt;", "<"));
            let says = cell(&filled(alert.summary));
            out += &row(&[&page, alert.severity.name(), &says, &expr, alert.hold]);
        }
    }
    out
}

/// A summary with a word for each value that Prometheus fills in: `POOL` for `{{ $labels.pool }}`, `VALUE` for `{{ $value }}`.
fn filled(summary: &str) -> String {
    let mut parts = summary.split("{{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (value, rest) = part.split_once("}}").unwrap_or((part, ""));
        let name = value.trim().trim_start_matches("$labels.").trim_start_matches('$');
        out += &name.split([' ', '|']).next().unwrap_or_default().to_uppercase();
        out += rest;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_alert_has_its_runbook_and_every_runbook_its_alert() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages: BTreeSet<String> = std::fs::read_dir(root.join("docs/runbooks"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap().replace(".md", ""))
            .collect();
        let alerts: BTreeSet<String> = ALERTS.iter().map(|a| a.name.to_owned()).collect();
        assert_eq!(pages, alerts);
        let summary = std::fs::read_to_string(root.join("docs/SUMMARY.md")).unwrap();
        for alert in alerts {
            assert!(summary.contains(&format!("(runbooks/{alert}.md)")), "docs/SUMMARY.md: {alert}");
        }
    }
}
