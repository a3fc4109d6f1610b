//! The controller: watches, queues and writes. It calls `render` and `rollout` and decides nothing itself.
//!
//! Data flow: watches fold objects into stores, trimmed (`cache`); a change marks keys in queues; a pass over a key
//! gives what the stores say to a pure function and carries its plan out, each write bound to the version that the
//! plan was made from; the answers go back into the stores. See `docs/architecture.md`.
//! Which passes there are, with the key of each: the list in `queue/pass.rs`.

pub mod bootstrap;
mod cache;
mod change;
mod dirty;
#[cfg(test)]
mod fake_server;
mod flight;
mod io;
mod kind;
mod own_configs;
mod passes;
mod policies;
mod queue;
mod render_prerequisites;
mod rights;
mod shared;
mod term;
mod watches;

pub use io::connection::{ClientError, tune};
pub use io::files::FileError;
pub use io::metrics::metrics_sample;
pub use rights::{Place, Right};

use crate::io::events::Recorder;
use crate::io::metrics::Metrics;
use crate::shared::Shared;
use crate::term::readiness::Readiness;
use client::ProcessCounts;
use client::lease::Candidacy;
use listen::tls::TlsProfile;
use listen::{Access, Addresses, Endpoint, ListenError};
use prometheus_client::registry::Registry;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Where the controller listens for `/metrics`, `/healthz` and `/readyz` unless told otherwise.
pub const DEFAULT_METRICS_LISTEN: &str = "127.0.0.1:8797";

/// The Lease that the controller that leads holds.
const LEASE: &str = "machine-config-controller";

/// The rights that the process needs, whatever its passes do: its lease, and events.
const OWN_RIGHTS: [Right; 4] = [
    Right::named("get", kind::LEASES, &[LEASE]).in_own_namespace(),
    Right::named("update", kind::LEASES, &[LEASE]).in_own_namespace(),
    // `create` cannot be limited by name.
    Right::new("create", kind::LEASES).in_own_namespace(),
    Right::new("create", kind::EVENTS).in_own_namespace(),
];

/// The rights that the controller needs: what its ClusterRole must grant, and its Role in its own namespace. Not included are rights
/// to Secrets that other objects name, which the operator gives one by one.
pub fn rights() -> Vec<Right> {
    let mut all = passes::rights();
    all.extend(OWN_RIGHTS);
    all.into_iter().collect()
}

/// How the controller is run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The kubeconfig file; without it, the credentials of the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The template directory: `ROLE/MACHINECONFIG/PLATFORM/{files,units,extensions}`.
    pub templates: PathBuf,
    /// Where `/metrics`, `/healthz` and `/readyz` are served.
    pub metrics_addresses: Addresses,
    /// Act only while holding the lease; off for a controller that is known to be alone.
    pub leader_elect: bool,
    /// The version with which this controller marks what it makes. It is that of this build, except in tests of
    /// upgrades.
    pub versions: render::Versions,
}

impl Options {
    /// Leader election on, no metrics.
    pub fn new(templates: impl Into<PathBuf>) -> Self {
        Self {
            kubeconfig: None,
            templates: templates.into(),
            metrics_addresses: Addresses::default(),
            leader_elect: true,
            versions: render::Versions::of_this_build(),
        }
    }
}

/// The controller cannot start. Once it runs, failures do not end it: they are logged, shown in conditions and retried.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// No usable credentials.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Metrics cannot be served: an address is taken, or a certificate cannot be used.
    #[error("metrics cannot be served")]
    Metrics(#[from] ListenError),
}

/// Runs the controller until `shutdown`: caches, leader election, queues, metrics.
///
/// # Errors
/// What keeps it from starting. See [`ControllerError`].
pub async fn start(options: Options, shutdown: CancellationToken) -> Result<(), ControllerError> {
    let client = io::connection::client(options.kubeconfig.as_deref()).await?;
    run_with(client, options, shutdown).await
}

/// Like [`start`], with an existing client, which must be made from a configuration that went through [`tune`];
/// `options.kubeconfig` is not read.
///
/// # Errors
/// As [`start`].
pub async fn run_with(
    client: kube::Client,
    options: Options,
    shutdown: CancellationToken,
) -> Result<(), ControllerError> {
    let (client, requests) = client::counted(client);
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let (events, write_events) = Recorder::new(client.clone());
    // Not a child of `shutdown`: watches and metrics end after the passes and the lease.
    let rest = CancellationToken::new();
    let tasks = TaskTracker::new();
    let addresses = options.metrics_addresses;
    let (reactions, settings) = (&passes::REACTIONS, passes::settings());
    let mut shared = Shared::new(client.clone(), options.templates, events, metrics, reactions, settings);
    shared.versions = options.versions;
    let shared = Arc::new(shared);
    let endpoint = Endpoint {
        registry: Arc::new(registry),
        health: Arc::new(Readiness::new(&shared)),
        addresses,
        access: Access::fixed(client.clone()),
        profile: TlsProfile::default(),
    };
    tasks.spawn(endpoint.bind("--metrics-listen").await?.serve(rest.clone()));
    let events_task = tokio::spawn(write_events);
    watches::start(&shared, &passes::inputs(), &tasks, &rest);

    let mut candidacy = match options.leader_elect {
        true => {
            let counting = shared.clone();
            let count = move || counting.queues.count(ProcessCounts::of(&requests));
            Candidacy::by_lease(client, LEASE, shared.terms.clone(), Box::new(count))
        }
        false => Candidacy::alone(),
    };

    while let Some(handover) = candidacy.until_leader(&shutdown).await {
        shared.metrics.leader.set(1);
        let term = CancellationToken::new();
        let passes = tokio::spawn(passes::run(shared.clone(), handover, term.clone()));
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = candidacy.until_lost() => {}
        }
        if shutdown.is_cancelled() {
            shared.permits.close(&shared.terms, LAST_PATCHES).await;
        }
        term.cancel();
        if let Err(error) = passes.await {
            tracing::error!("the controller's passes ended abnormally: {error}");
        }
        shared.metrics.clear_for_standby();
    }
    candidacy.end().await;
    rest.cancel();
    tasks.close();
    tasks.wait().await;
    // Dropping the last recorder ends the task that writes events, once it has written the waiting ones.
    drop(shared);
    if tokio::time::timeout(LAST_EVENTS, events_task).await.is_err() {
        tracing::warn!("some events were not written before the shutdown");
    }
    Ok(())
}

/// How long a shutdown waits for the answers of patches while it still holds the lease.
const LAST_PATCHES: std::time::Duration = std::time::Duration::from_secs(2);
/// How long a shutdown waits for events that are not written yet.
const LAST_EVENTS: std::time::Duration = std::time::Duration::from_secs(1);
