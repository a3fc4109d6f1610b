//! The page of metrics, from what controller, agent, config server and operator would return to a scraper: each
//! registers its metrics and shows one series of each, in the text format of OpenMetrics.

use super::{cell, columns, head, row};
use anyhow::Context;
use std::collections::BTreeMap;

#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    help: String,
    labels: Vec<String>,
}

pub(super) fn page() -> anyhow::Result<String> {
    let mut out = head("Metrics", "the parts' own registries");
    out += "\nAll are served at `/metrics`, in the text format of OpenMetrics. Where each part listens, and \
            what to alert on, is in [Operations](../operations.md#metrics-and-alerts).\n";
    for (title, note, text) in [
        (
            "Controller",
            "A controller that is not the leader has no metrics of pools and nodes.",
            controller::metrics_sample()?,
        ),
        ("Agent", "Each is about the agent's own node.", daemon::metrics_sample()?),
        (
            "Config server",
            "Of `mcs_connections_cut_total`, the cause `address` means that one address (an IPv6 /64) has \
             reached its limit of connections.",
            server::metrics_sample()?,
        ),
        ("Operator", "An operator that does not lead makes no passes.", operator::sync::metrics_sample()?),
    ] {
        out += &format!("\n## {title}\n\n{note}\n\n{}", columns(&["metric", "type", "labels", "says"]));
        for (name, metric) in parse(&text).with_context(|| title.to_owned())? {
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            out += &row(&[&format!("`{name}`"), &metric.kind, &labels.join(", "), &cell(&metric.help)]);
        }
    }
    Ok(out)
}

/// Reads the `# HELP` and `# TYPE` lines, and the series.
fn parse(text: &str) -> anyhow::Result<BTreeMap<String, Metric>> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').context("HELP without a text")?;
            metrics.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("TYPE without a type")?;
            metrics.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if !line.starts_with('#') {
            let series = line.split([' ', '{']).next().unwrap_or_default();
            let family =
                metrics.keys().filter(|n| series.starts_with(n.as_str())).max_by_key(|n| n.len()).cloned();
            let family = family.with_context(|| format!("a series of no metric: {line}"))?;
            let labels = line.split_once('{').and_then(|(_, l)| l.split_once('}')).map_or("", |(l, _)| l);
            let names = labels.split(',').filter_map(|l| l.split_once('=')).map(|(n, _)| n.to_owned());
            let labels: Vec<String> = names.filter(|n| n != "le").collect();
            if let Some(metric) = metrics.get_mut(&family).filter(|m| m.labels.is_empty()) {
                metric.labels = labels;
            }
        }
    }
    // The text format writes a counter with a suffix that its registration does not have.
    let suffixed = |(name, metric): (String, Metric)| match metric.kind.as_str() {
        "counter" => (format!("{name}_total"), metric),
        _ => (name, metric),
    };
    Ok(metrics.into_iter().map(suffixed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_types_and_labels_are_read() {
        let text = "# HELP a_b Things.\n# TYPE a_b counter\na_b_total{x=\"1\",y=\"2\"} 3\n# HELP h Times.\n# TYPE h histogram\nh_bucket{le=\"1.0\",name=\"n\"} 0\n# EOF\n";
        let metrics = parse(text).unwrap();
        assert_eq!(metrics["a_b_total"].labels, ["x", "y"]);
        assert_eq!(metrics["h"].labels, ["name"]);
    }

    #[test]
    fn every_metric_has_a_type_and_a_help() {
        for text in [
            controller::metrics_sample().unwrap(),
            daemon::metrics_sample().unwrap(),
            server::metrics_sample().unwrap(),
        ] {
            for (name, metric) in parse(&text).unwrap() {
                assert!(!metric.help.is_empty() && !metric.kind.is_empty(), "{name}: {metric:?}");
            }
        }
    }
}
