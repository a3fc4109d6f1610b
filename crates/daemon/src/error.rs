//! Errors that keep a daemon from running at all. Later failures are reported on the Node.

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The node name is empty.
    #[error("the node's name is empty; pass --node-name")]
    NoName,
    /// The root folder cannot be opened.
    #[error("the host's root folder {path} cannot be used: {source}. {remedy}")]
    Root {
        /// The path.
        path: String,
        /// The cause.
        source: host::FsError,
        /// The remedy.
        remedy: String,
    },
    /// The async runtime, which talks to systemd, cannot be started.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] std::io::Error),
    /// The kubeconfig, or the pod's service account, cannot be used.
    #[error("cannot connect to the API server: {why}")]
    Client {
        /// The reason.
        why: String,
    },
    /// Metrics cannot be served: an address is taken, or a certificate cannot be used.
    #[error("metrics cannot be served")]
    Metrics(#[from] listen::ListenError),
    /// The host cannot be entered from the pod.
    #[error("the host's root folder {path}: cannot {what}: {why}")]
    Enter {
        /// Its mount point.
        path: String,
        /// The operation that failed.
        what: String,
        /// The reason.
        why: String,
    },
    /// The host cannot be read.
    #[error("the host cannot be read: {why}")]
    HostUnreadable {
        /// The reason.
        why: String,
    },
    /// A config cannot be applied without a cluster.
    #[error("{from}: {why}")]
    WithoutCluster {
        /// The file or URL that it comes from.
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
    /// A change that a crash interrupted cannot be completed or undone.
    #[error("the host cannot be recovered: {0}")]
    Recover(#[source] host::Error),
}
