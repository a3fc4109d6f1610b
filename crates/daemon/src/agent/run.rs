//! Assembles an agent from its parts and runs it.
//!
//! Not here: the program's entry point (see `start`). Many agents can share a process and a client.

use crate::agent::options::{AgentOptions, Exit};
use crate::agent::{Agent, Settings};
use crate::cluster::calls::Cluster;
use crate::cluster::own_node::watch_own_node;
use crate::error::DaemonError;
use crate::node::machine::Machine;
use kube::Client;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Runs one agent with the given parts, until `shutdown` or a reboot. Host work runs on a blocking thread, and only
/// while there is some. A step that has begun is finished and recorded even after `shutdown`.
///
/// # Errors
/// An empty node name. Any later failure is retried, and visible on the Node.
pub async fn run_with(
    client: Client,
    parts: AgentOptions,
    shutdown: CancellationToken,
) -> Result<Exit, DaemonError> {
    let AgentOptions {
        host,
        node_name,
        updates,
        reporting,
        watch_disk,
        drift_period,
        trouble,
        metrics,
        api_server,
    } = parts;
    if node_name.is_empty() {
        return Err(DaemonError::NoName);
    }
    let (updates, _watch) = match updates {
        Some(updates) => (updates, None),
        None => {
            let (updates, guard) = watch_own_node(client.clone(), &node_name);
            (updates, Some(guard))
        }
    };
    let cluster = Cluster::new(client, &node_name);
    let machine = Arc::new(Machine::new(host));
    let agent = Agent::new(
        Settings { reporting, watch_disk, drift_period, trouble, metrics, api_server },
        cluster,
        machine,
        updates,
        shutdown,
    );
    let span = tracing::info_span!("node", name = %node_name);
    // On the heap: callers hold this future within their own.
    tracing::Instrument::instrument(Box::pin(agent.run()), span).await
}
