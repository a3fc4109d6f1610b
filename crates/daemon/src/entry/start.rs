//! `daemon start` and `daemon recover`: builds the parts of the agent of a real host, and runs it.
//!
//! Not here: flags and environment variables (the program reads these), nor any decision.

use crate::agent::options::{AgentOptions, Exit};
use crate::agent::run::run_with;
use crate::cluster::calls::Cluster;
use crate::cluster::credentials::{Identity, connect, kubeconfigs};
use crate::cluster::own_node::watch_own_node;
use crate::cluster::report::Reporting;
use crate::entry::open_host::{open, open_with_runtime};
use crate::error::DaemonError;
use crate::metrics::Metrics;
use crate::node::certificates::{CertificateHost, Writer};
use crate::pinned_images::{Manager, follow_sets};
use host::{AgentLock, Recovery, Root};
use listen::tls::TlsProfile;
use listen::{Access, Addresses, Endpoint, Healthy};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// If the machine still runs this long after its reboot was started, the reboot is requested again.
const REBOOT_PATIENCE: Duration = Duration::from_secs(600);

/// How often to look whether another agent of this host has ended, and after how many times it is logged again.
const ANOTHER: Duration = Duration::from_secs(2);
const SAY_EVERY: u32 = 60;
/// The unit of an agent that is a service of its host.
const UNIT: &str = "machine-config-daemon.service";

/// The default address of the kubelet's health endpoint.
const KUBELET_HEALTHZ: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10248);

/// The options of `daemon start`.
#[derive(Debug, Clone)]
pub struct StartOptions {
    /// The kubeconfig. `None`: the kubelet's.
    pub kubeconfig: Option<PathBuf>,
    /// The context to use. `None`: the kubeconfig's current one.
    pub context: Option<String>,
    /// The name of the agent's own Node. Empty: the host name, which kubelets use too.
    pub node_name: String,
    /// The host's root folder: `/`, or its mount point.
    pub root_mount: PathBuf,
    /// Where metrics are served.
    pub metrics: Addresses,
    /// Address and path of the kubelet's health endpoint. `None`: it is not polled.
    pub kubelet_healthz: Option<(SocketAddr, String)>,
    /// What is reported besides the Node's annotations.
    pub reporting: Reporting,
}

impl StartOptions {
    /// Options for an agent that runs directly on its host.
    pub fn new(node_name: impl Into<String>) -> Self {
        Self {
            kubeconfig: None,
            context: None,
            node_name: node_name.into(),
            root_mount: PathBuf::from("/"),
            metrics: Addresses::default(),
            kubelet_healthz: Some((KUBELET_HEALTHZ, "/healthz".to_owned())),
            reporting: Reporting::default(),
        }
    }
}

/// Runs the agent of this host until `shutdown`. After it has started a reboot it waits for it, and requests it again
/// if it does not happen.
///
/// # Errors
/// Something that it needs to start is not available: name, root folder, systemd, the API server's address, the
/// address for metrics.
pub async fn start(options: StartOptions, shutdown: CancellationToken) -> Result<(), DaemonError> {
    let StartOptions {
        kubeconfig,
        context,
        node_name,
        root_mount,
        metrics: addresses,
        kubelet_healthz,
        reporting,
    } = options;
    let node_name = if node_name.is_empty() { host_name() } else { node_name };
    // Held until the process ends.
    let Some(_alone) = shutdown.run_until_cancelled(alone(&root_mount)).await else { return Ok(()) };
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    // Who may read metrics is asked as this node, with the credentials that it has at the time.
    let asking = tokio::sync::watch::Sender::new(None);
    let endpoint = Endpoint {
        registry: Arc::new(registry),
        health: Arc::new(Healthy),
        addresses,
        access: Access::new(asking.subscribe()),
        profile: TlsProfile::default(),
    };
    tokio::spawn(endpoint.bind("--metrics-url").await?.serve(shutdown.clone()));
    if let Some((kubelet, path)) = kubelet_healthz {
        let asking = crate::node::kubelet_health::watch(kubelet, path, metrics.clone());
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(asking));
    }
    loop {
        let connecting = connect(kubeconfig.as_deref(), context.as_deref());
        let Some(identity) = shutdown.run_until_cancelled(connecting).await else {
            return Ok(());
        };
        let Identity { client, files, server: api_server } = identity?;
        asking.send_replace(Some(client.clone()));
        // Cancelled by the shutdown, or alone when the credentials have changed. A step in progress is finished first.
        let round = shutdown.child_token();
        let renewed = round.clone();
        let looking = tokio::spawn(round.clone().run_until_cancelled_owned(async move {
            Identity::renewed(files).await;
            renewed.cancel();
        }));
        let (host, os) = open(&root_mount, Handle::current())?;
        tracing::info!(back_end = %os, "the operating system of this host");
        let metrics = metrics.clone();
        let (updates, _watch) = watch_own_node(client.clone(), &node_name);
        let root = host.root().clone();
        let kubeconfigs = kubeconfigs(kubeconfig.as_deref(), &root_mount);
        let place = CertificateHost { root, root_mount: root_mount.clone(), kubeconfigs };
        let writer = Writer::new(client.clone(), &node_name, place, updates.clone());
        let trouble = Some(writer.trouble());
        let writing = tokio::spawn(writer.run(round.clone()));
        let cluster = Cluster::new(client.clone(), &node_name);
        let logins = tokio::spawn(crate::node::logins::watch(root_mount.clone(), cluster, round.clone()));
        let (sets, seen) = tokio::sync::watch::channel(None);
        let following = round.clone().run_until_cancelled_owned(follow_sets(client.clone(), sets));
        let following = tokio::spawn(following);
        let cluster = Cluster::new(client.clone(), &node_name);
        let disk = (host.root().clone(), root_mount.clone());
        let pins = Manager::new(cluster, disk, seen, updates.clone(), reporting.progress);
        let pinning = tokio::spawn(pins.run(round.clone()));
        let updates = Some(updates);
        let parts = AgentOptions {
            updates,
            reporting,
            watch_disk: true,
            trouble,
            metrics,
            api_server,
            ..AgentOptions::new(&node_name, host)
        };
        let exit = run_with(client, parts, round.clone()).await?;
        round.cancel();
        // The certificate writer may still have to restart the kubelet.
        for task in
            [looking.await.map(drop), writing.await, logins.await, following.await.map(drop), pinning.await]
        {
            if let Err(error) = task {
                tracing::error!(%error, "a part of the agent ended abnormally");
            }
        }
        match exit {
            Exit::Stopped if shutdown.is_cancelled() => return Ok(()),
            Exit::Stopped => {}
            Exit::Rebooting => {
                if shutdown.run_until_cancelled(tokio::time::sleep(REBOOT_PATIENCE)).await.is_none() {
                    return Ok(());
                }
                tracing::error!(
                    "the machine is still running {} minutes after its reboot was started; reboot it by hand",
                    REBOOT_PATIENCE.as_secs() / 60
                );
            }
        }
    }
}

/// Waits until no other agent runs on this host. `None`: it cannot be known, and the agent goes on: what it does to the host is
/// guarded by another lock.
async fn alone(root_mount: &Path) -> Option<AgentLock> {
    let mut waits = 0_u32;
    loop {
        let taken = Root::open(root_mount).map_err(host::Error::from).and_then(|root| AgentLock::take(&root));
        match taken {
            Ok(Some(alone)) => return Some(alone),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = %client::chain(&error), "it is not known whether this host has another agent");
                return None;
            }
        }
        if waits.is_multiple_of(SAY_EVERY) {
            tracing::warn!(
                "another agent runs on this host, and this one waits until it ends; to have one only, disable {UNIT} on the \
                 host, or set spec.agents.runAs of the MachineConfigOperator to HostServices"
            );
        }
        waits = waits.saturating_add(1);
        tokio::time::sleep(ANOTHER).await;
    }
}

/// The host name in lower case, as in Node names.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

/// Completes or undoes a change that a crash interrupted, without any cluster: for a unit that runs before the
/// kubelet.
///
/// # Errors
/// The root folder or systemd cannot be used, the journal is damaged, or the undo fails.
pub fn recover(root_mount: &Path) -> Result<Recovery, DaemonError> {
    let (mut host, _runtime) = open_with_runtime(root_mount)?;
    host.recover().map_err(DaemonError::Recover)
}
