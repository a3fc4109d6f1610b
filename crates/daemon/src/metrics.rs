//! The agent's metrics. Their names are those that existing alerts and dashboards use.
//!
//! Not here: the listener. The registry is passed in, and `start` serves it.

use crate::protocol::NodeFacts;
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

/// The agent's metrics. Clones share their values.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    state: Family<StateLabels, Gauge>,
    update_state: Family<UpdateLabels, Gauge>,
    reboots_failed: Counter,
    config_drift: Gauge,
    kubelet_state: Gauge,
}

impl Metrics {
    /// Creates and registers the metrics. An agent without a metrics endpoint uses `Metrics::default()`.
    pub fn register(registry: &mut Registry) -> Self {
        let m = Self::default();
        // Destructured, so that a new metric cannot be left unregistered.
        let Self { state, update_state, reboots_failed, config_drift, kubelet_state } = m.clone();
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
    let Metrics { state, update_state, reboots_failed: _, config_drift: _, kubelet_state: _ } =
        Metrics::register(&mut registry);
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
    fn one_state_is_shown_at_a_time_under_the_known_names() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let now = Timestamp::from_second(7).unwrap();
        for state in ["Working", "Done"] {
            metrics.state(&NodeFacts { state: state.to_owned(), ..NodeFacts::default() }, now);
        }
        metrics.reboot_failed();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        assert!(text.contains("mcd_state{state=\"Done\",reason=\"\"} 7\n"), "{text}");
        assert!(!text.contains("Working") && text.contains("mcd_reboots_failed_total 1\n"), "{text}");
    }
}
