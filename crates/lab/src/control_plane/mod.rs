//! A real control plane: etcd, API server, controller manager and scheduler as plain child processes.
//!
//! Flow: certificates, kubeconfigs and etcd's first data into the data folder → etcd and the API server started together → `/readyz`
//! polled → controller manager and scheduler beside it. Everything listens on one address and free ports, so
//! many control planes can run side by side.
//!
//! Not here: nodes, our own programs, and outages (`outages`). The data is not meant to last: etcd does not sync to disk.

pub(crate) mod certs;
mod connect;
mod first_data;
pub(crate) mod launch;
pub(crate) mod memory;
mod outages;
pub(crate) mod programs;

pub use connect::client;
pub(crate) use connect::{install_crypto_provider, probe, upstream};

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use tokio::net::TcpSocket;

use crate::control_plane::certs::{Authority, Pair, kubeconfig};
use crate::control_plane::launch::{
    THIS_COMPUTER, api_server_spec, component_spec, etcd_spec, free_ports, write_certificates,
};
use crate::control_plane::programs::{Program, Programs};
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::folder::Folder;
use crate::system::process::{Process, Signal, Spec, lock};

/// A control plane from the cache is ready after 2.5 s on an idle 2-core machine; a busy one may take more than ten
/// times that.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// The pause between two checks of `/readyz`: short compared with the 2.5 s that the start takes. Each check costs the API server a few
/// milliseconds.
const READY_POLL: Duration = Duration::from_millis(100);
/// The time limit for one `/readyz` request: while the server starts, it may accept a connection and not answer.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// A free port may be taken before the program binds it. So the start is tried this often.
const PORT_ATTEMPTS: usize = 3;
/// How long a program may take to exit after SIGTERM. Idle, etcd and the API server need much less than a second, but
/// the API server waits for open watches.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// The options of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// The address on which the API server listens, which is also in its kubeconfigs.
    pub address: IpAddr,
    /// Whether the controller manager runs.
    pub controller_manager: bool,
    /// Whether the scheduler runs.
    pub scheduler: bool,
    /// Additional flags for the API server.
    pub api_server_args: Vec<String>,
    /// A YAML file of CustomResourceDefinitions that the cluster has from the start: an API server that gets them later takes two
    /// seconds until it serves them.
    pub definitions: Option<PathBuf>,
    /// The expected number of nodes: memory limits depend on it.
    pub nodes: usize,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            controller_manager: true,
            scheduler: true,
            api_server_args: Vec::new(),
            definitions: None,
            nodes: 0,
        }
    }
}

/// A running control plane. Dropping it kills its programs.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: the programs before the folder that they use.
    others: Mutex<Vec<Process>>,
    api_server: Mutex<Option<Process>>,
    /// Keeps the API server's port reserved while it is stopped.
    held: Mutex<Option<TcpSocket>>,
    etcd: Mutex<Option<Process>>,
    etcd_spec: Spec,
    etcd_data: PathBuf,
    authority: Authority,
    api_server_spec: Spec,
    server: SocketAddr,
    kubeconfig: PathBuf,
    kubectl: Option<PathBuf>,
    folder: Arc<Folder>,
}

impl ControlPlane {
    /// Starts a control plane in this data folder and returns when it is ready.
    ///
    /// # Errors
    /// A program is missing and cannot be built, dies, or does not become ready.
    pub async fn start(
        folder: Arc<Folder>,
        programs: &Programs,
        options: &ControlPlaneOptions,
        progress: &Reporter,
    ) -> Result<Self> {
        install_crypto_provider();
        let mut needed = vec![Program::Etcd, Program::ApiServer];
        needed.extend(options.controller_manager.then_some(Program::ControllerManager));
        needed.extend(options.scheduler.then_some(Program::Scheduler));
        programs.ensure(&needed, progress).await?;

        let first_data = first_data::get(&folder, programs, options.definitions.as_deref(), progress).await?;
        let step = progress.begin("starting the control plane");
        let plane = Self::start_with(&folder, programs, options, Some(&first_data)).await?;
        step.done();
        Ok(plane)
    }

    /// Starts it with a copy of this folder as etcd's data, or without any data.
    async fn start_with(
        folder: &Arc<Folder>,
        programs: &Programs,
        options: &ControlPlaneOptions,
        data: Option<&Path>,
    ) -> Result<Self> {
        let mut attempt = 1;
        loop {
            match Self::try_start(Arc::clone(folder), programs, options, data).await {
                Err(Error::Died { tail, .. })
                    if attempt < PORT_ATTEMPTS && tail.contains("address already in use") =>
                {
                    tracing::info!(attempt, "a port was taken in the meantime: trying others");
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn try_start(
        folder: Arc<Folder>,
        programs: &Programs,
        options: &ControlPlaneOptions,
        data: Option<&Path>,
    ) -> Result<Self> {
        let dir = folder.make("control-plane")?;
        let logs = folder.make("logs")?;
        let etcd_data = dir.join("etcd");
        if etcd_data.exists() {
            fs::remove_dir_all(&etcd_data).map_err(Error::io("remove", &etcd_data))?;
        }
        if let Some(data) = data {
            outages::copy_tree(data, &etcd_data)?;
        }
        let ports = free_ports(options.address)?;
        let server = SocketAddr::new(options.address, ports.api_server);
        let authority = Authority::new()?;
        write_certificates(&dir, &authority, options.address)?;
        let admin = authority.client("lab-admin", &["system:masters"])?;
        let url = format!("https://{server}");
        let admin_file = folder.join("kubeconfig");
        write_private(&admin_file, &kubeconfig(&url, &authority.cert(), &admin))?;

        let etcd_spec =
            etcd_spec(&programs.existing(Program::Etcd)?, &etcd_data, &logs, &ports, options.nodes);
        let etcd = Process::spawn(etcd_spec.clone(), folder.path())?;
        let api_server_spec =
            api_server_spec(&programs.existing(Program::ApiServer)?, &dir, &logs, &ports, options);
        let api_server = Process::spawn(api_server_spec.clone(), folder.path())?;
        let plane = Self {
            others: Mutex::new(Vec::new()),
            api_server: Mutex::new(Some(api_server)),
            held: Mutex::default(),
            etcd: Mutex::new(Some(etcd)),
            etcd_spec,
            etcd_data,
            authority,
            api_server_spec,
            server,
            kubeconfig: admin_file,
            kubectl: programs.find(Program::Kubectl),
            folder,
        };
        plane.wait_ready().await?;
        // By default the controller manager may only create service accounts for its controllers and then impersonates
        // them. In a throw-away cluster one identity with all rights is enough, and starts faster.
        for (wanted, program, user, groups) in [
            (
                options.controller_manager,
                Program::ControllerManager,
                "system:kube-controller-manager",
                &["system:masters"][..],
            ),
            (options.scheduler, Program::Scheduler, "system:kube-scheduler", &[]),
        ] {
            if wanted {
                let config = plane.identity(user, groups)?;
                let spec = component_spec(
                    program,
                    &programs.existing(program)?,
                    &dir,
                    &logs,
                    &config,
                    options.nodes,
                );
                lock(&plane.others).push(Process::spawn(spec, plane.folder.path())?);
            }
        }
        plane.folder.update(|record| record.kubeconfig = Some(plane.kubeconfig.clone()))?;
        Ok(plane)
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's address.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// The cluster's CA certificate, PEM.
    #[must_use]
    pub fn ca(&self) -> String {
        self.authority.cert()
    }

    /// The path of `kubectl`, if it was found or built before.
    #[must_use]
    pub fn kubectl(&self) -> Option<&Path> {
        self.kubectl.as_deref()
    }

    /// The data folder.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The process ids of all programs, for tests that count them.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = lock(&self.etcd).as_ref().map(Process::pid).into_iter().collect();
        pids.extend(lock(&self.api_server).as_ref().map(Process::pid));
        pids.extend(lock(&self.others).iter().map(Process::pid));
        pids
    }

    /// A new client with the administrator's rights. It belongs to the runtime that creates it.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub async fn client(&self) -> Result<Client> {
        client(&self.kubeconfig).await
    }

    /// A kubeconfig file for another user (at most one group), with a certificate of its own.
    ///
    /// # Errors
    /// When it cannot be signed or written.
    pub fn identity(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        self.identity_via(user, groups, &format!("https://{}", self.server))
    }

    /// As [`ControlPlane::identity`], for use in a virtual machine.
    ///
    /// # Errors
    /// When it cannot be signed or written.
    pub fn identity_in_vm(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let address = if self.server.ip().is_loopback() { THIS_COMPUTER } else { self.server.ip() };
        let url = format!("https://{}", SocketAddr::new(address, self.server.port()));
        self.identity_via(user, groups, &url)
    }

    /// As [`ControlPlane::identity`], with another URL of the API server (that of a [`crate::FaultProxy`]).
    ///
    /// # Errors
    /// When it cannot be signed or written.
    pub fn identity_via(&self, user: &str, groups: &[&str], url: &str) -> Result<PathBuf> {
        let pair = self.authority.client(user, groups)?;
        let host = url.trim_start_matches("https://").trim_start_matches("http://").replace([':', '/'], "-");
        let path = self
            .folder
            .join("control-plane")
            .join(format!("{}-{host}.kubeconfig", user.replace([':', '/'], "-")));
        write_private(&path, &kubeconfig(url, &self.authority.cert(), &pair))?;
        Ok(path)
    }

    /// A serving certificate from the cluster's CA.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn serving_certificate(&self, addresses: &[IpAddr], names: &[&str]) -> Result<Pair> {
        self.authority.server("mco-lab", addresses, names)
    }

    /// Fails if one of the programs has exited by itself.
    ///
    /// # Errors
    /// [`Error::Died`] with the end of its log.
    pub fn check(&self) -> Result<()> {
        lock(&self.etcd).as_ref().map_or(Ok(()), Process::check)?;
        lock(&self.api_server).as_ref().map_or(Ok(()), Process::check)?;
        lock(&self.others).iter().try_for_each(Process::check)
    }

    async fn wait_ready(&self) -> Result<()> {
        let start = Instant::now();
        let client = self.client().await?;
        let mut seen = "no answer yet".to_owned();
        while start.elapsed() < READY_LIMIT {
            self.check()?;
            match tokio::time::timeout(PROBE_LIMIT, probe(&client)).await {
                Ok(Ok(())) => {
                    tracing::info!(elapsed = ?start.elapsed(), server = %self.server, "control plane ready");
                    return Ok(());
                }
                Ok(Err(error)) => seen = error,
                Err(_) => "no answer to /readyz".clone_into(&mut seen),
            }
            tokio::time::sleep(READY_POLL).await;
        }
        Err(Error::Timeout { what: "the API server".to_owned(), waited: READY_LIMIT, detail: seen })
    }

    /// Stops every program and waits for their end. The data folder is removed with the last handle to it.
    pub async fn stop(self) {
        let others: Vec<Process> = std::mem::take(&mut *lock(&self.others));
        // In a throw-away cluster no clean shutdown is needed: the data is about to be deleted.
        for process in &others {
            process.signal_group(Signal::KILL);
        }
        let api_server = lock(&self.api_server).take();
        let etcd = lock(&self.etcd).take();
        for process in others.iter().chain(&api_server).chain(&etcd) {
            process.stop(Signal::KILL, STOP_GRACE).await;
        }
    }
}

/// Writes a file that only its owner can read: most of these files contain keys.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let mut file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(Error::io("create", path))?;
    file.write_all(text.as_bytes()).map_err(Error::io("write", path))
}
