//! Why the server cannot start or continue.

use listen::ListenError;
use std::path::PathBuf;

/// Why the server cannot start or continue.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An option that cannot be used.
    #[error("--{option}: {why}")]
    Option {
        /// The flag's name.
        option: &'static str,
        /// What is wrong, and the remedy.
        why: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A certificate, key or TLS profile that cannot be used.
    #[error(transparent)]
    Tls(#[from] ListenError),
    /// A port that cannot be listened on.
    #[error("cannot listen on port {port}; is another server running?")]
    Listen {
        /// The port.
        port: u16,
        /// Why.
        source: std::io::Error,
    },
    /// No usable configuration for a connection to a cluster.
    #[error("no cluster: {0}")]
    Cluster(String),
}
