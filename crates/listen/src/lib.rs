//! How the parts listen: TLS whose certificate is reloaded ([`tls`]), the endpoint for metrics and health ([`Endpoint`]),
//! and who may read metrics over the network ([`Access`]).
//!
//! What it is not: what is measured, and when a part is healthy; each part says both. Nor the config server's own
//! protocol.

mod access;
mod endpoint;
mod file_changes;
pub mod tls;

pub use access::{Access, Decision, bearer, has_right, user_of};
pub use endpoint::{Addresses, Bound, Endpoint, Health, Healthy};

use std::net::SocketAddr;
use std::path::PathBuf;

/// Why a part cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A certificate or key that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A certificate or key that cannot be used.
    #[error("{}: {why}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// TLS that cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// An address that cannot be listened on.
    #[error("cannot listen on {address} ({option}); is another process using it?")]
    Address {
        /// The flag that names it.
        option: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}
