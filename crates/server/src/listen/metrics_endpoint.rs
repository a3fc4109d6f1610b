//! The server's health for its `/healthz` and `/readyz`, on an address of their own with `/metrics`. Metrics name pools and
//! describe the certificate, which the network that machines boot on need not know.
//!
//! What it is not: the listener (see the crate `listen`).

use crate::answer::respond::Shared;
use ::listen::tls::TlsProfile;
use ::listen::{Access, Addresses, Endpoint, Health};
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

impl Health for Shared {
    fn ready(&self) -> (bool, String) {
        let (ready, told) = self.configs.now().readiness(SystemTime::now());
        (ready, told.to_string())
    }
}

/// Serves until `stop`. If the address is taken, an error is logged, and machines are still served.
pub(crate) async fn serve(
    registry: Arc<Registry>,
    addresses: Addresses,
    access: Access,
    profile: TlsProfile,
    health: Arc<Shared>,
    stop: CancellationToken,
) {
    match (Endpoint { registry, health, addresses, access, profile }).bind("--metrics-listen").await {
        Ok(bound) => bound.serve(stop).await,
        Err(error) => tracing::error!("no metrics are served: {}", client::chain(&error)),
    }
}
