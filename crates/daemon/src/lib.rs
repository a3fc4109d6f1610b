//! The node agent: its own Node in, host changes out.
//!
//! What it is: [`protocol`] decides (pure), the agent does what it says with the API server and the `host` crate, one
//! step at a time. [`start`] is the program's `daemon start`; [`run_with`] is the same with every part passed in, so
//! that many agents can share a process and a client; [`recover`] is what runs before the kubelet, without a cluster.
//!
//! What it is not: the roll-out (who moves when is the controller's), and the changing of files (the `host` crate's).

mod agent;
mod cluster;
mod drift;
mod feed;
mod health;
pub mod join;
mod machine;
mod metrics;
mod policy;
pub mod protocol;
mod report;
mod start;

pub use feed::Feed;
pub use metrics::Metrics;
pub use start::{Options, recover, start};

use host::Host;
use kube::Client;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What one agent works with.
#[derive(Debug)]
pub struct Parts {
    /// The host.
    pub host: Host,
    /// The name of the own Node.
    pub node_name: String,
    /// Where it learns of its Node. `None`: it watches that one object itself.
    pub feed: Option<Feed>,
    /// What it tells beside the Node's annotations.
    pub reporting: Reporting,
    /// Watch the disk of a node that is done: a changed file is found within a second. Takes a thread and an inotify
    /// instance, of which a user has 128 by default.
    pub watch_disk: bool,
    /// How often the disk of a node that is done is compared with its config where it is not watched. `None`: at the
    /// start and before an update only.
    pub drift_period: Option<Duration>,
    /// Its metrics.
    pub metrics: Metrics,
}

/// How often a host's disk is compared with its config: a change by hand is seen within a minute, and a few hundred
/// small files that are in the page cache cost a few milliseconds.
const DRIFT_PERIOD: Duration = Duration::from_secs(60);

impl Parts {
    /// An agent that watches its own Node and tells everything, and looks at its disk now and then.
    pub fn new(node_name: &str, host: Host) -> Self {
        Self {
            host,
            node_name: node_name.to_owned(),
            feed: None,
            reporting: Reporting::default(),
            watch_disk: false,
            drift_period: Some(DRIFT_PERIOD),
            metrics: Metrics::default(),
        }
    }
}

/// What an agent tells beside the Node's annotations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reporting {
    /// Events on the Node.
    pub events: bool,
    /// A MachineConfigNode.
    pub progress: bool,
}

impl Default for Reporting {
    fn default() -> Self {
        Self { events: true, progress: true }
    }
}

/// How an agent's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It was told to stop.
    Stopped,
    /// It has begun a reboot. A run after the reboot goes on; one in the same boot asks for the reboot again.
    Rebooting,
}

/// A daemon that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// No name.
    #[error("the node's name is empty; pass --node-name")]
    NoName,
    /// The root folder.
    #[error("the host's root folder {path} cannot be used: {source}")]
    Root {
        /// Which.
        path: String,
        /// Why.
        source: host::FsError,
    },
    /// No thread to talk to systemd with.
    #[error("no runtime: {0}")]
    Runtime(#[source] std::io::Error),
    /// The kubeconfig, or the pod's service account.
    #[error("no way to the API server: {why}")]
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
    /// A crash's traces cannot be cleared.
    #[error("the host cannot be recovered: {0}")]
    Recover(#[source] host::Error),
}

/// Runs one agent with the parts given, until `shutdown` or a reboot. Host work runs in a blocking thread, and only
/// while there is some; a step that has begun is finished and recorded even when `shutdown` comes.
///
/// # Errors
/// An empty node name. Everything later is retried, and visible on the Node.
pub async fn run_with(
    client: Client,
    parts: Parts,
    shutdown: CancellationToken,
) -> Result<Exit, DaemonError> {
    let Parts { host, node_name, feed, reporting, watch_disk, drift_period, metrics } = parts;
    if node_name.is_empty() {
        return Err(DaemonError::NoName);
    }
    let (feed, _watch) = match feed {
        Some(feed) => (feed, None),
        None => {
            let (feed, guard) = feed::watch_own(client.clone(), &node_name);
            (feed, Some(guard))
        }
    };
    let cluster = cluster::Cluster::new(client, &node_name);
    let machine = Arc::new(machine::Machine::new(host));
    let agent = agent::Agent::new(
        agent::Settings { reporting, watch_disk, drift_period, metrics },
        cluster,
        machine,
        feed,
        shutdown,
    );
    let span = tracing::info_span!("node", name = %node_name);
    tracing::Instrument::instrument(agent.run(), span).await
}
