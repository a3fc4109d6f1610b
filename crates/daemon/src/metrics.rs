//! The agent's metrics. Their names are those that existing alerts and dashboards use.
//!
//! Not here: the listener. The registry is passed in, and `start` serves it.
//!
//! Source: <https://github.com/openshift/machine-config-operator/blob/HEAD/pkg/daemon/metrics.go>.

use crate::protocol::NodeFacts;
use host::OsRelease;
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The longest label value: enough to recognise a cause, small enough for a time series.
const MAX_LABEL_CHARS: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpdateLabels {
    config: String,
    err: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OsLabels {
    os: String,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

/// The agent's metrics. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    state: Family<StateLabels, Gauge>,
    update_state: Family<UpdateLabels, Gauge>,
    reboots_failed: Counter,
    config_drift: Gauge,
    kubelet_state: Gauge,
    host_os: Family<OsLabels, Gauge>,
    pivot_errors: Gauge,
    unsupported_packages: Family<NodeLabels, Gauge>,
}

impl Metrics {
    /// Creates and registers the metrics. An agent without a metrics endpoint uses `Metrics::default()`.
    pub fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        // Destructured, so that a new metric cannot be left unregistered.
        let Self {
            state,
            update_state,
            reboots_failed,
            config_drift,
            kubelet_state,
            host_os,
            pivot_errors,
            unsupported_packages,
        } = m.clone();
        registry.register("mcd_state", "Unix time at which the node's state was last set", state);
        registry.register(
            "mcd_update_state",
            "Unix time at which the last update ended or failed",
            update_state,
        );
        // The suffix `_total` is added when the counter is written.
        registry.register("mcd_reboots_failed", "Reboots that could not be started", reboots_failed);
        registry.register(
            "mcd_config_drift",
            "Unix time at which drift was found, 0 if there is none",
            config_drift,
        );
        registry.register(
            "mcd_kubelet_state",
            "Consecutive failures of the kubelet's health check",
            kubelet_state,
        );
        registry.register("mcd_host_os_and_version", "1 for the operating system that the host has", host_os);
        // The reference's name, of a value that goes back to 0 when an update of the operating system succeeds.
        registry.register(
            "mcd_pivot_errors_total",
            "Updates of the operating system that failed since the last one that succeeded",
            pivot_errors,
        );
        registry.register(
            "mcd_local_unsupported_packages",
            "Packages that were added to the running image, removed from it or replaced in it by hand",
            unsupported_packages,
        );
        m
    }

    pub(crate) fn state(&self, node: &NodeFacts, now: Timestamp) {
        let labels = StateLabels { state: node.state.clone(), reason: cut(&node.reason) };
        self.state.clear();
        self.state.get_or_create(&labels).set(now.as_second());
    }

    pub(crate) fn update_done(&self, config: &str, now: Timestamp) {
        self.update_state.clear();
        let config = format!("MachineConfig: {config}");
        self.update_state.get_or_create(&UpdateLabels { config, err: String::new() }).set(now.as_second());
    }

    pub(crate) fn update_failed(&self, why: &str, now: Timestamp) {
        self.update_state.clear();
        let labels = UpdateLabels { config: String::new(), err: cut(why) };
        self.update_state.get_or_create(&labels).set(now.as_second());
    }

    pub(crate) fn reboot_failed(&self) {
        self.reboots_failed.inc();
    }

    pub(crate) fn drift(&self, since: Option<Timestamp>) {
        self.config_drift.set(since.map_or(0, Timestamp::as_second));
    }

    /// What the host has: os-release, and packages that were layered by hand.
    pub(crate) fn host_os(&self, node: &str, os: &OsRelease, unsupported: usize) {
        let labels = OsLabels { os: os.id.to_uppercase(), version: os.version.clone() };
        self.host_os.clear();
        self.host_os.get_or_create(&labels).set(1);
        let labels = NodeLabels { node: node.to_owned() };
        let count = i64::try_from(unsupported).unwrap_or(i64::MAX);
        self.unsupported_packages.get_or_create(&labels).set(count);
    }

    /// An update of the operating system failed, or succeeded.
    pub(crate) fn pivot(&self, succeeded: bool) {
        match succeeded {
            true => drop(self.pivot_errors.set(0)),
            false => drop(self.pivot_errors.inc()),
        }
    }

    pub(crate) fn kubelet_failures(&self, in_a_row: i64) {
        self.kubelet_state.set(in_a_row);
    }
}

/// Every metric with one series, in OpenMetrics' text format: what the reference in the book is made from.
///
/// # Errors
/// A name or label that the format cannot hold.
pub fn metrics_sample() -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let Metrics {
        state,
        update_state,
        reboots_failed: _,
        config_drift: _,
        kubelet_state: _,
        host_os,
        pivot_errors: _,
        unsupported_packages,
    } = Metrics::register(&mut registry);
    drop(host_os.get_or_create(&OsLabels { os: String::new(), version: String::new() }));
    drop(unsupported_packages.get_or_create(&NodeLabels { node: String::new() }));
    drop(state.get_or_create(&StateLabels { state: String::new(), reason: String::new() }));
    drop(update_state.get_or_create(&UpdateLabels { config: String::new(), err: String::new() }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}

fn cut(text: &str) -> String {
    text.chars().take(MAX_LABEL_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_metric_has_one_series_with_a_documented_name() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let now = Timestamp::from_second(7).unwrap();
        for state in ["Working", "Done"] {
            metrics.state(&NodeFacts { state: state.to_owned(), ..NodeFacts::default() }, now);
        }
        metrics.reboot_failed();
        for version in ["11", "12"] {
            metrics.host_os(
                "n1",
                &OsRelease { id: "debian".to_owned(), version: version.to_owned(), ..OsRelease::default() },
                2,
            );
        }
        metrics.pivot(false);
        metrics.pivot(true);
        metrics.pivot(false);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("mcd_state{state=\"Done\",reason=\"\"} 7\n"), "{text}");
        assert!(text.contains("mcd_host_os_and_version{os=\"DEBIAN\",version=\"12\"} 1\n"), "{text}");
        assert!(!text.contains("version=\"11\"") && text.contains("mcd_pivot_errors_total 1\n"), "{text}");
        assert!(text.contains("mcd_local_unsupported_packages{node=\"n1\"} 2\n"), "{text}");
        assert!(!text.contains("Working") && text.contains("mcd_reboots_failed_total 1\n"), "{text}");
    }
}
