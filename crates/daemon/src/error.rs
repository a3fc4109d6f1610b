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
        /// Which.
        path: String,
        /// Why.
        source: host::FsError,
        /// What to do.
        remedy: String,
    },
    /// No thread to talk to systemd with.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[source] std::io::Error),
    /// The kubeconfig, or the pod's service account.
    #[error("cannot connect to the API server: {why}")]
    Client {
        /// Why.
        why: String,
    },
    /// The metrics' address.
    #[error("metrics cannot be served on {address}: {source}")]
    Metrics {
        /// Where.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The host cannot be entered from the pod.
    #[error("the host's root folder {path}: cannot {what}: {why}")]
    Enter {
        /// Where it is mounted.
        path: String,
        /// What was tried.
        what: String,
        /// Why it did not work.
        why: String,
    },
    /// The host cannot be read.
    #[error("the host cannot be read: {why}")]
    Look {
        /// Why.
        why: String,
    },
    /// A config cannot be applied without a cluster.
    #[error("{from}: {why}")]
    Once {
        /// The file or address that it comes from.
        from: String,
        /// Why not, and what to do.
        why: String,
    },
    /// A first boot cannot be completed.
    #[error("the first boot cannot be completed: {why}")]
    FirstBoot {
        /// Why, and what to do.
        why: String,
    },
    /// A crash's traces cannot be cleared.
    #[error("the host cannot be recovered: {0}")]
    Recover(#[source] host::Error),
}
