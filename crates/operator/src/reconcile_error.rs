//! Why a part of what booting machines need could not be kept.
//!
//! What it is not: when it is tried again (see `sync`).

use crate::certificates::CertificateError;
use api::first_boot::server_tls::CA;
use api::names::{CONTROLLER_CONFIG, NAMESPACE};
use client::CallError;

/// Why a pass failed. No text quotes a Secret.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server refused a request, or did not answer.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A certificate could not be created.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The ControllerConfig has no address of the API server.
    #[error(
        "ControllerConfig {CONTROLLER_CONFIG} does not say how machines reach the API server: set \
        spec.infra.status.apiServerInternalURI"
    )]
    NoHost,
    /// Its address is loopback, which is each machine itself.
    #[error(
        "no user data is written: machines would ask themselves for their config at {host}. Set \
        spec.infra.status.apiServerInternalURI of ControllerConfig {CONTROLLER_CONFIG} to an address that machines \
        reach, or run `mco install --api-server-url`"
    )]
    Loopback {
        /// The host that the ControllerConfig names.
        host: String,
    },
    /// There is no CA that machines could trust.
    #[error(
        "no user data is written: ConfigMap {NAMESPACE}/{CA} has no CA, so that machines would trust no config server. The operator \
        writes one there unless the CA in Secret {NAMESPACE}/{CA} has ended: renew it, or delete that Secret"
    )]
    NoCa,
    /// The system returns no random bytes.
    #[error("the system's random number generator failed")]
    Random,
}
