//! What watches over the parts: alerts, dashboards, and how Prometheus finds the metrics. Pure values; `cargo xtask gen`
//! writes them to `deploy/monitoring`.
//!
//! What it is not: the metrics (each part has its own), and who may read them (see the crate `listen`).

mod alerts;
mod dashboards;
mod scraping;

pub use alerts::{ALERTS, Alert, Severity, prometheus_rule, rule_groups};
pub use dashboards::{Dashboard, dashboards};
pub use scraping::service_monitors;
