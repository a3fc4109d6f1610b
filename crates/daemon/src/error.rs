//! Errors that keep a daemon from running at all. Later failures are reported on the Node.

/// A daemon that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No name.
    #[error("the node's name is empty; pass --node-name")]
    NoName,
    /// The root folder.
    #[error("the host's root folder {path} cannot be used: {source}. {remedy}")]
    Root {
        /// The path.
        path: String,
        /// The cause.
        source: host::FsError,
        /// The remedy.
        remedy: String,
    },
    /// No thread to talk to systemd with.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] std::io::Error),
    /// The kubeconfig, or the pod's service account.
    #[error("cannot connect to the API server: {why}")]
    Client {
        /// The reason.
        why: String,
    },
    /// The metrics' address.
    #[error("metrics cannot be served on {address}: {source}")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The host cannot be entered from the pod.
    #[error("the host's root folder {path}: cannot {what}: {why}")]
    Enter {
        /// Where it is mounted.
        path: String,
        /// The operation that failed.
        what: String,
        /// The reason.
        why: String,
    },
    /// The host cannot be read.
    #[error("the host cannot be read: {why}")]
    Look {
        /// The reason.
        why: String,
    },
    /// A config cannot be applied without a cluster.
    #[error("{from}: {why}")]
    Once {
        /// The file or address that it comes from.
        from: String,
        /// The reason and the remedy.
        why: String,
    },
    /// A first boot cannot be completed.
    #[error("the first boot cannot be completed: {why}")]
    FirstBoot {
        /// The reason and the remedy.
        why: String,
    },
    /// A crash's traces cannot be cleared.
    #[error("the host cannot be recovered: {0}")]
    Recover(#[source] host::Error),
}
