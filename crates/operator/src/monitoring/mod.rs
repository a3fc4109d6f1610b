//! What watches over the parts: alerts, dashboards, and how Prometheus finds the metrics. Pure values; the operator keeps
//! them in the cluster, and `cargo xtask gen` writes them to `deploy/monitoring`.
//!
//! What it is not: the metrics (each part has its own), and who may read them (see the crate `listen`).

mod alert_list;
mod alert_rules;
mod alerts;
mod dashboards;
mod scraping;

pub use alert_list::ALERTS;
pub use alert_rules::{prometheus_rule, rule_groups};
pub use alerts::{Alert, Severity};
pub(crate) use dashboards::{CONFIG_MAPS, config_maps};
pub use dashboards::{Dashboard, dashboards};
pub use scraping::service_monitors;
pub(crate) use scraping::{MONITORING, READER, agents, monitor, reader};

use api::names::NAMESPACE;

/// The name of the Secret with the CA of the metrics' certificates, and of the ConfigMap with what scrapers trust.
pub(crate) const CA: &str = "machine-config-metrics-ca";

/// The name of the Secret with the certificate of a part's metrics.
pub(crate) fn certificate(part: &str) -> String {
    format!("{part}-metrics-tls")
}

/// The name by which scrapers know a part: that of its Service.
pub(crate) fn server_name(part: &str) -> String {
    format!("{part}.{NAMESPACE}.svc")
}
