//! `daemon start` and `daemon recover`: builds the parts of the agent of a real host, and runs it.
//!
//! Not here: flags and environment variables (the program reads these), nor any decision.

use crate::agent::options::{AgentOptions, Exit};
use crate::agent::run::run_with;
use crate::cluster::calls::Cluster;
use crate::cluster::credentials::{Identity, connect};
use crate::cluster::node_watch::watch_own_node;
use crate::cluster::report::Reporting;
use crate::error::DaemonError;
use crate::metrics::Metrics;
use crate::node::certificates::Writer;
use host::{DbusSystemd, Host, HostPrograms, Recovery, Root, Unsupported};
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// If the machine still runs this long after its reboot was started, the reboot is requested again.
const REBOOT_PATIENCE: Duration = Duration::from_secs(600);
/// The longest request that is read. A scrape is one line and a few headers.
const MAX_REQUEST_BYTES: usize = 8 * 1024;
/// The time limit for one scrape.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// The address for metrics. `None`: they are not served.
    pub metrics: Option<SocketAddr>,
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
            metrics: None,
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
        metrics: address,
        kubelet_healthz,
        reporting,
    } = options;
    let node_name = if node_name.is_empty() { host_name() } else { node_name };
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    if let Some(address) = address {
        let listener =
            TcpListener::bind(address).await.map_err(|source| DaemonError::Metrics { address, source })?;
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(serve(listener, Arc::new(registry))));
    }
    if let Some((kubelet, path)) = kubelet_healthz {
        let asking = crate::node::kubelet_health::watch(kubelet, path, metrics.clone());
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(asking));
    }
    loop {
        let connecting = connect(kubeconfig.as_deref(), context.as_deref());
        let Some(identity) = shutdown.run_until_cancelled(connecting).await else {
            return Ok(());
        };
        let (client, files) = identity?.split();
        // Cancelled by the shutdown, or alone when the credentials have changed. A step in progress is finished first.
        let round = shutdown.child_token();
        let renewed = round.clone();
        let looking = tokio::spawn(round.clone().run_until_cancelled_owned(async move {
            Identity::renewed(files).await;
            renewed.cancel();
        }));
        let host = open(&root_mount, Handle::current())?;
        let metrics = metrics.clone();
        let (updates, _watch) = watch_own_node(client.clone(), &node_name);
        let root = host.root().clone();
        let writer = Writer::new(client.clone(), &node_name, root, root_mount.clone(), updates.clone());
        let trouble = Some(writer.trouble());
        let writing = tokio::spawn(writer.run(round.clone()));
        let cluster = Cluster::new(client.clone(), &node_name);
        let logins = tokio::spawn(crate::node::logins::watch(root_mount.clone(), cluster, round.clone()));
        let updates = Some(updates);
        let parts = AgentOptions {
            updates,
            reporting,
            watch_disk: true,
            trouble,
            metrics,
            ..AgentOptions::new(&node_name, host)
        };
        let exit = run_with(client, parts, round.clone()).await?;
        round.cancel();
        // The certificate writer may still have to restart the kubelet.
        for task in [looking.await.map(drop), writing.await, logins.await] {
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
                    "the machine still runs, {} minutes after its reboot was begun",
                    REBOOT_PATIENCE.as_secs() / 60
                );
            }
        }
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
    // The runtime's own thread talks to systemd while this thread waits.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(DaemonError::Runtime)?;
    let mut host = open(root_mount, runtime.handle().clone())?;
    host.recover().map_err(DaemonError::Recover)
}

pub(crate) fn open(root_mount: &Path, runtime: Handle) -> Result<Host, DaemonError> {
    let path = root_mount.display().to_string();
    let remedy = root_remedy(root_mount);
    let root = Root::open(root_mount).map_err(|source| DaemonError::Root { path, source, remedy })?;
    let systemd = DbusSystemd::new(runtime, root_mount);
    let host = Host::new(root, Box::new(systemd), Box::new(Unsupported));
    // Programs of the host can be run only if its root folder is this process's own.
    let is_ours = root_mount == Path::new("/");
    Ok(if is_ours { host.with_programs(Box::new(HostPrograms)) } else { host })
}

/// The remedy for a root folder that cannot be opened.
pub(crate) fn root_remedy(root_mount: &Path) -> String {
    match root_mount == Path::new("/") {
        true => "Run it as root".to_owned(),
        false => format!(
            "On the host itself, outside of a pod, pass --root-mount=/; in a pod, mount the host's / at {}",
            root_mount.display()
        ),
    }
}

/// Serves the registry to any request. One scrape at a time is enough.
async fn serve(listener: TcpListener, registry: Arc<Registry>) {
    loop {
        match listener.accept().await {
            Ok((mut stream, _)) => {
                let answer = answer(&mut stream, &registry);
                if let Ok(Err(error)) = tokio::time::timeout(SCRAPE_TIMEOUT, answer).await {
                    tracing::debug!(%error, "a scrape");
                }
            }
            // Usually the process is out of file descriptors, which passes.
            Err(error) => {
                tracing::warn!(%error, "metrics");
                tokio::time::sleep(SCRAPE_TIMEOUT).await;
            }
        }
    }
}

async fn answer(stream: &mut tokio::net::TcpStream, registry: &Registry) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut limited = (&mut *stream).take(MAX_REQUEST_BYTES as u64);
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        if limited.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let mut body = String::new();
    let status = if request.starts_with(b"GET /metrics") {
        prometheus_client::encoding::text::encode(&mut body, registry).map_err(std::io::Error::other)?;
        "200 OK"
    } else {
        "404 Not Found"
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
