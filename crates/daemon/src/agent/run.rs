//! Assembles an agent from its parts and runs it.
//!
//! Not here: the program's entry point (see `start`). Many agents can share a process and a client.

use crate::agent::Agent;
use crate::agent::options::{AgentOptions, Exit, Settings};
use crate::cluster::calls::Cluster;
use crate::cluster::own_node::{NodeUpdates, OwnNode, watch_own_node};
use crate::cluster::report::Reporter;
use crate::error::DaemonError;
use crate::node::drift_watch::{CompareLimit, Watching};
use crate::node::machine::Machine;
use crate::protocol::clock::Moment;
use crate::protocol::{DiskFacts, NodeFacts, Phase, View};
use kube::Client;
use std::sync::Arc;
use std::time::Instant;
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

impl Agent {
    /// An agent that knows nothing of its Node and its host yet.
    pub(crate) fn new(
        settings: Settings,
        cluster: Cluster,
        machine: Arc<Machine>,
        updates: NodeUpdates,
        shutdown: CancellationToken,
    ) -> Self {
        let view = View {
            now: Moment::now(),
            node: NodeFacts::default(),
            // Not known yet, so assume that a change is unfinished.
            disk: DiskFacts { open: true, ..DiskFacts::default() },
            checked: false,
            phase: Phase::Idle,
            trouble: None,
            silent_since: Some(Moment::now()),
            leave_again: None,
            prefetch_failed: None,
        };
        let reporter = Reporter::new(cluster.clone(), settings.reporting);
        let checked_at = Instant::now();
        Self {
            cluster,
            machine,
            own_node: OwnNode::new(updates),
            shutdown,
            settings,
            reporter,
            view,
            checked_at,
            ever_checked: false,
            watching: Watching::Off,
            compare_limit: CompareLimit::new(checked_at),
            compare_due: None,
            work: None,
            planned_ahead: None,
            failed_calls: 0,
            failed_update: None,
        }
    }
}
