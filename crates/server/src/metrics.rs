//! The server's metrics. Their names and labels are part of the interface.
//!
//! What it is not: a global registry. The caller passes one in.

use crate::prepared::cache::State;
use crate::refusal::Refusal;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::time::SystemTime;

/// The labels of a request: `pool` (empty if the request named none that exists), `version` (empty if there was no
/// answer), `code`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Request {
    pub(crate) pool: String,
    pub(crate) version: &'static str,
    pub(crate) code: u32,
}

/// The label `pool`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Pool {
    pub(crate) pool: String,
}

/// The label `cause`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Cause {
    pub(crate) cause: &'static str,
}

/// The label `result`: `accepted`, or the refusal's reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Checked {
    pub(crate) result: &'static str,
}

/// All metrics. Cheap to clone. The default is registered nowhere.
#[derive(Debug, Default, Clone)]
pub struct Metrics {
    pub(crate) requests: Family<Request, Counter>,
    pub(crate) bytes: Family<Pool, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) cut: Family<Cause, Counter>,
    pub(crate) tls_failures: Counter,
    pub(crate) certificate_failures: Counter,
    pub(crate) certificate_not_after: Gauge,
    pub(crate) served_since: Family<Pool, Gauge>,
    pub(crate) held_back: Family<Pool, Gauge>,
    pub(crate) source_up: Gauge,
    pub(crate) source_seen: Gauge,
    pub(crate) tokens: Family<Checked, Counter>,
}

impl Metrics {
    /// Creates the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let m = Self::default();
        let Self {
            requests,
            bytes,
            connections,
            cut,
            tls_failures,
            certificate_failures,
            certificate_not_after,
            served_since,
            held_back,
            source_up,
            source_seen,
            tokens,
        } = m.clone();
        registry.register("mcs_requests", "Requests by pool, Ignition version and status", requests);
        registry.register("mcs_response_bytes", "Bytes of configs written, by pool", bytes);
        registry.register("mcs_connections", "Connections open now", connections);
        registry.register("mcs_connections_cut", "Connections ended by a limit, by cause", cut);
        registry.register("mcs_tls_failures", "TLS handshakes that failed", tls_failures);
        registry.register(
            "mcs_certificate_failures",
            "Times that a changed certificate or key could not be used; the old one stays in force",
            certificate_failures,
        );
        registry.register(
            "mcs_certificate_not_after_timestamp_seconds",
            "Unix time at which the certificate in force expires",
            certificate_not_after,
        );
        registry.register(
            "mcs_served_config_timestamp_seconds",
            "Unix time since when the pool's config is served",
            served_since,
        );
        registry.register(
            "mcs_config_held_back",
            "1 while the last good config is served because a newer one of the pool cannot be served",
            held_back,
        );
        registry.register("mcs_source_up", "1 while the source of configs can be read", source_up);
        registry.register(
            "mcs_source_seen_timestamp_seconds",
            "Unix time at which the source of configs was last readable",
            source_seen,
        );
        registry.register("mcs_boot_token_checks", "Boot tokens that were checked, by result", tokens);
        m
    }

    /// Counts a check of a boot token.
    pub(crate) fn count_token(&self, refusal: Option<&Refusal>) {
        let result = refusal.map_or("accepted", Refusal::reason);
        self.tokens.get_or_create(&Checked { result }).inc();
    }

    /// Updates the metrics of each pool. Pools that no longer exist lose theirs.
    pub(crate) fn update_pools(&self, state: &State) {
        let seconds = |at: SystemTime| {
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
        };
        self.served_since.clear();
        self.held_back.clear();
        for name in state.pools.keys() {
            let label = Pool { pool: name.clone() };
            self.held_back.get_or_create(&label).set(i64::from(state.is_held_back(name)));
            if let Some(since) = state.served_since(name) {
                self.served_since.get_or_create(&label).set(seconds(since));
            }
        }
    }
}

impl listen::tls::CertificateUse for Metrics {
    fn in_force(&self, not_after: i64) {
        self.certificate_not_after.set(not_after);
    }
    fn unusable(&self) {
        self.certificate_failures.inc();
    }
}

/// Every metric with one series, in OpenMetrics' text format: what the reference in the book is made from.
///
/// # Errors
/// A name or label that the format cannot hold.
pub fn metrics_sample() -> Result<String, std::fmt::Error> {
    let mut registry = Registry::default();
    let Metrics {
        requests,
        bytes,
        connections: _,
        cut,
        tls_failures: _,
        certificate_failures: _,
        certificate_not_after: _,
        served_since,
        held_back,
        source_up: _,
        source_seen: _,
        tokens,
    } = Metrics::new(&mut registry);
    drop(requests.get_or_create(&Request { pool: String::new(), version: "", code: 0 }));
    let pool = Pool { pool: String::new() };
    drop(bytes.get_or_create(&pool));
    drop(cut.get_or_create(&Cause { cause: "" }));
    drop(served_since.get_or_create(&pool));
    drop(held_back.get_or_create(&pool));
    drop(tokens.get_or_create(&Checked { result: "" }));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
