//! Dashboards for Grafana, as its import takes them (dashboard JSON model, schema version 39:
//! <https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/>).
//!
//! What it is not: `mco status`. Prometheus knows numbers; what a node waits for is said there.

use api::names::NAMESPACE;
use serde_json::{Value, json};

/// A dashboard and the name of its file.
#[derive(Debug)]
pub struct Dashboard {
    /// The file's name without `.json`; also the dashboard's uid.
    pub name: &'static str,
    /// The dashboard.
    pub model: Value,
}

/// A panel: what it shows, how, and its width of 24.
struct Panel {
    title: &'static str,
    kind: &'static str,
    width: u32,
    unit: &'static str,
    /// PromQL, and the legend of its series.
    queries: &'static [(&'static str, &'static str)],
}

const fn panel(
    title: &'static str,
    kind: &'static str,
    width: u32,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, kind, width, unit, queries }
}

const HEIGHT: u32 = 8;

const FLEET: [Panel; 8] = [
    panel("Nodes", "stat", 4, "short", &[("sum(max by (pool) (mco_machine_count))", "nodes")]),
    panel(
        "Not yet updated",
        "stat",
        4,
        "short",
        &[(
            "sum(max by (pool) (mco_machine_count)) - sum(max by (pool) (mco_updated_machine_count))",
            "nodes",
        )],
    ),
    panel("Degraded", "stat", 4, "short", &[("sum(max by (pool) (mco_degraded_machine_count))", "nodes")]),
    panel(
        "Out of service",
        "stat",
        4,
        "short",
        &[("sum(max by (pool) (mco_unavailable_machine_count))", "nodes")],
    ),
    panel("Pools held back", "stat", 4, "short", &[("sum(max by (pool) (mcc_rollout_held))", "pools")]),
    panel("Leaders", "stat", 4, "short", &[("sum(mcc_leader)", "controllers")]),
    panel(
        "Nodes of each pool by state",
        "timeseries",
        24,
        "short",
        &[("sum by (pool, state) (mcc_rollout_nodes)", "{{pool}} {{state}}")],
    ),
    panel(
        "Conflicts of pools and overridden OS images",
        "timeseries",
        24,
        "short",
        &[
            ("sum(mcc_pool_alert) or vector(0)", "nodes of pool master that a custom pool selects too"),
            ("sum(max by (pool) (os_image_url_override))", "pools with an OS image of their own"),
        ],
    ),
];

const ROLLOUT: [Panel; 6] = [
    panel(
        "Updated, of all",
        "timeseries",
        12,
        "short",
        &[
            ("max by (pool) (mco_updated_machine_count{pool=~\"$pool\"})", "{{pool}} updated"),
            ("max by (pool) (mco_machine_count{pool=~\"$pool\"})", "{{pool}} all"),
        ],
    ),
    panel(
        "Nodes by state",
        "timeseries",
        12,
        "short",
        &[("sum by (state) (mcc_rollout_nodes{pool=~\"$pool\"})", "{{state}}")],
    ),
    panel(
        "Nodes being updated, the longest first",
        "table",
        12,
        "s",
        &[(
            "sort_desc(time() - max by (node, reason) (mco_state{pool=~\"$pool\",state=\"Updating\"}))",
            "{{node}} {{reason}}",
        )],
    ),
    panel(
        "Drains that wait for pods",
        "table",
        12,
        "s",
        &[("sort_desc(max by (node) (mcc_drain_blocked_seconds))", "{{node}}")],
    ),
    panel(
        "Controller passes per second",
        "timeseries",
        12,
        "ops",
        &[("sum by (queue, outcome) (rate(mcc_passes_total[5m]))", "{{queue}} {{outcome}}")],
    ),
    panel(
        "Time from a change to its pass, 99th percentile",
        "timeseries",
        12,
        "s",
        &[(
            "histogram_quantile(0.99, sum by (le, name) (rate(workqueue_queue_duration_seconds_bucket[5m])))",
            "{{name}}",
        )],
    ),
];

const NODE: [Panel; 6] = [
    panel(
        "State since",
        "table",
        12,
        "dateTimeAsIso",
        &[("mcd_state{instance=~\"$instance\"} * 1000", "{{state}} {{reason}}")],
    ),
    panel(
        "Last update",
        "table",
        12,
        "dateTimeAsIso",
        &[("mcd_update_state{instance=~\"$instance\"} * 1000", "{{config}} {{err}}")],
    ),
    panel(
        "Changed by hand since",
        "stat",
        8,
        "dateTimeAsIso",
        &[("mcd_config_drift{instance=~\"$instance\"} * 1000", "{{instance}}")],
    ),
    panel(
        "Consecutive failures of the kubelet's health check",
        "timeseries",
        8,
        "short",
        &[("mcd_kubelet_state{instance=~\"$instance\"}", "{{instance}}")],
    ),
    panel(
        "Reboots that could not be begun",
        "timeseries",
        8,
        "short",
        &[("mcd_reboots_failed_total{instance=~\"$instance\"}", "{{instance}}")],
    ),
    panel(
        "In the rollout since",
        "table",
        24,
        "dateTimeAsIso",
        &[(
            "max by (node, pool, state, reason) (mco_state) * 1000",
            "{{node}} {{pool}} {{state}} {{reason}}",
        )],
    ),
];

const SERVER: [Panel; 8] = [
    panel("Sees the cluster", "stat", 6, "short", &[("min(mcs_source_up)", "")]),
    panel(
        "Certificate expires in",
        "stat",
        6,
        "s",
        &[("min(mcs_certificate_not_after_timestamp_seconds) - time()", "")],
    ),
    panel(
        "Pools served an older config",
        "stat",
        6,
        "short",
        &[("sum(max by (pool) (mcs_config_held_back))", "")],
    ),
    panel("Connections", "stat", 6, "short", &[("sum(mcs_connections)", "")]),
    panel(
        "Requests a second",
        "timeseries",
        12,
        "reqps",
        &[("sum by (pool, code) (rate(mcs_requests_total[5m]))", "{{pool}} {{code}}")],
    ),
    panel(
        "Config bytes per second",
        "timeseries",
        12,
        "Bps",
        &[("sum by (pool) (rate(mcs_response_bytes_total[5m]))", "{{pool}}")],
    ),
    panel(
        "Boot-token checks per second",
        "timeseries",
        12,
        "ops",
        &[("sum by (result) (rate(mcs_boot_token_checks_total[5m]))", "{{result}}")],
    ),
    panel(
        "Failures a second",
        "timeseries",
        12,
        "ops",
        &[
            ("sum(rate(mcs_tls_failures_total[5m]))", "TLS handshakes"),
            ("sum by (cause) (rate(mcs_connections_cut_total[5m]))", "cut: {{cause}}"),
            ("sum(rate(mcs_certificate_failures_total[5m]))", "certificates"),
        ],
    ),
];

/// All dashboards.
pub fn dashboards() -> Vec<Dashboard> {
    let variable = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "label": name, "multi": true, "includeAll": true, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"}, "refresh": 2,
            "datasource": {"type": "prometheus", "uid": "${datasource}"},
            "definition": query, "query": {"query": query, "refId": name},
        })
    };
    let pool = variable("pool", "label_values(mco_machine_count, pool)");
    let instance = variable("instance", "label_values(mcd_kubelet_state, instance)");
    vec![
        dashboard("mco-fleet", "Machine configs: fleet", &FLEET, None),
        dashboard("mco-rollout", "Machine configs: rollout", &ROLLOUT, Some(pool)),
        dashboard("mco-node", "Machine configs: nodes", &NODE, Some(instance)),
        dashboard("mco-server", "Machine configs: config server", &SERVER, None),
    ]
}

/// The names of the dashboards' ConfigMaps.
pub(crate) const CONFIG_MAPS: [&str; 4] = ["mco-fleet", "mco-rollout", "mco-node", "mco-server"];

/// The dashboards as ConfigMaps, with the label by which the sidecar of Grafana's Helm chart finds them:
/// <https://github.com/grafana/helm-charts/tree/main/charts/grafana#sidecar-for-dashboards>.
pub(crate) fn config_maps() -> Vec<Value> {
    let map = |dashboard: Dashboard| {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": dashboard.name, "namespace": NAMESPACE,
                "labels": {"grafana_dashboard": "1", "app.kubernetes.io/part-of": "machine-config-operator"},
            },
            "data": {format!("{}.json", dashboard.name): dashboard.model.to_string()},
        })
    };
    dashboards().into_iter().map(map).collect()
}

fn dashboard(name: &'static str, title: &str, panels: &[Panel], variable: Option<Value>) -> Dashboard {
    let datasource = json!({
        "name": "datasource", "type": "datasource", "label": "Prometheus", "query": "prometheus",
        "current": {}, "refresh": 1,
    });
    let (mut x, mut y) = (0, 0);
    let panels: Vec<Value> = panels
        .iter()
        .enumerate()
        .map(|(index, panel)| {
            if x + panel.width > 24 {
                (x, y) = (0, y + HEIGHT);
            }
            let made = model(panel, index + 1, x, y);
            x += panel.width;
            made
        })
        .collect();
    let variables: Vec<Value> = std::iter::once(datasource).chain(variable).collect();
    let model = json!({
        "uid": name, "title": title, "tags": ["machine-config-operator"], "editable": true,
        "schemaVersion": 39, "refresh": "30s", "timezone": "browser",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": variables},
        "annotations": {"list": []},
        "panels": panels,
    });
    Dashboard { name, model }
}

fn model(panel: &Panel, id: usize, x: u32, y: u32) -> Value {
    let table = panel.kind == "table";
    let targets: Vec<Value> = panel
        .queries
        .iter()
        .zip('A'..)
        .map(|((expr, legend), letter)| {
            json!({
                "refId": letter.to_string(), "expr": expr, "legendFormat": legend,
                "instant": table, "range": !table, "format": if table { "table" } else { "time_series" },
                "datasource": {"type": "prometheus", "uid": "${datasource}"},
            })
        })
        .collect();
    json!({
        "id": id, "title": panel.title, "type": panel.kind,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": HEIGHT},
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {},
        "targets": targets,
    })
}

#[cfg(test)]
mod tests;
