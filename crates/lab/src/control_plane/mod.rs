//! A real control plane: etcd, API server, controller manager and scheduler as plain child processes.
//!
//! Flow: certificates and kubeconfigs into the data folder → etcd and the API server started together → `/readyz`
//! polled → controller manager and scheduler beside it. Everything listens on one address and free ports, so
//! many control planes can run side by side.
//!
//! Not here: nodes, our own programs. Nothing in it is meant to last: etcd does not sync to disk.

pub(crate) mod certs;
pub(crate) mod memory;
pub(crate) mod programs;

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpSocket;

use crate::control_plane::certs::{Authority, Pair, bare_keys, kubeconfig};
use crate::control_plane::programs::{Program, Programs};
use crate::error::{Error, Result};
use crate::progress::Reporter;
use crate::system::folder::Folder;
use crate::system::process::{Process, Signal, Spec, lock};

/// A cached control plane answers after 2.5 s on an idle 2-core machine; a busy one gets ten times that and more.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// Between two looks at `/readyz`: short against the 2.5 s that the start takes.
const READY_POLL: Duration = Duration::from_millis(50);
/// One `/readyz` request; the server may accept and not answer while it starts.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// A port that was free can be taken before the program binds it: then the start is tried again.
const PORT_ATTEMPTS: usize = 3;
/// How long a program may take to end when asked; etcd and the API server need well under a second idle, but the
/// API server waits for open watches.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Requests in flight: high, so that scale runs measure the product and not the server's fairness queues.
const MAX_REQUESTS: &str = "3000";
const MAX_MUTATING_REQUESTS: &str = "1500";
/// How much garbage etcd and the API server let gather, in percent of what they hold (Go's default is 100), up to a
/// limit (see [`crate::memory`]): memory for CPU, which a lab on a small machine has less of.
const GARBAGE: &str = "400";
/// Every request of a lab's client: long enough for a busy 2-core machine, short enough to be seen.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// What a control plane consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneOptions {
    /// The address that the API server listens on, and that its kubeconfigs name.
    pub address: IpAddr,
    /// Run the controller manager.
    pub controller_manager: bool,
    /// Run the scheduler.
    pub scheduler: bool,
    /// More flags for the API server.
    pub api_server_args: Vec<String>,
    /// How many nodes it is going to have, as far as it is known: memory is given by that.
    pub nodes: usize,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            controller_manager: true,
            scheduler: true,
            api_server_args: Vec::new(),
            nodes: 0,
        }
    }
}

/// A running control plane. Dropping it kills its programs.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields drop in order: the programs before the folder that they use.
    others: Mutex<Vec<Process>>,
    api_server: Mutex<Option<Process>>,
    /// The API server's port while it is away.
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
    /// Starts one in this data folder and returns when it is ready.
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

        let step = progress.begin("starting the control plane");
        let mut attempt = 1;
        let plane = loop {
            match Self::try_start(Arc::clone(&folder), programs, options).await {
                Err(Error::Died { tail, .. })
                    if attempt < PORT_ATTEMPTS && tail.contains("address already in use") =>
                {
                    tracing::info!(attempt, "a port was taken in the meantime: trying others");
                    attempt += 1;
                }
                other => break other?,
            }
        };
        step.done();
        Ok(plane)
    }

    async fn try_start(
        folder: Arc<Folder>,
        programs: &Programs,
        options: &ControlPlaneOptions,
    ) -> Result<Self> {
        let dir = folder.make("control-plane")?;
        let logs = folder.make("logs")?;
        let etcd_data = dir.join("etcd");
        if etcd_data.exists() {
            fs::remove_dir_all(&etcd_data).map_err(Error::io("remove", &etcd_data))?;
        }
        let ports = free_ports(options.address)?;
        let server = SocketAddr::new(options.address, ports.api_server);
        let authority = Authority::new()?;
        write_certificates(&dir, &authority, options.address)?;
        let admin = authority.client("lab-admin", &["system:masters"])?;
        let url = format!("https://{server}");
        let admin_file = folder.join("kubeconfig");
        write_private(&admin_file, &kubeconfig(&url, &authority.cert(), &admin))?;

        let find = |program: Program| {
            programs
                .find(program)
                .ok_or(Error::NoGo { program: program.file(), cache: programs.cache().to_owned() })
        };
        let etcd_spec = etcd_spec(&find(Program::Etcd)?, &etcd_data, &logs, &ports);
        let etcd = Process::spawn(etcd_spec.clone(), folder.path())?;
        let api_server_spec = api_server_spec(&find(Program::ApiServer)?, &dir, &logs, &ports, options);
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
        // The controller manager's own role lets it only make service accounts for its controllers and act as them:
        // in a throw-away cluster one mighty identity does, and starts faster.
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
                let spec = component_spec(program, &find(program)?, &dir, &logs, &config);
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

    /// `kubectl`, where it is already there.
    #[must_use]
    pub fn kubectl(&self) -> Option<&Path> {
        self.kubectl.as_deref()
    }

    /// The data folder.
    #[must_use]
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Every program's process id, for tests that count them.
    #[must_use]
    pub fn pids(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = lock(&self.etcd).as_ref().map(Process::pid).into_iter().collect();
        pids.extend(lock(&self.api_server).as_ref().map(Process::pid));
        pids.extend(lock(&self.others).iter().map(Process::pid));
        pids
    }

    /// A new administrator's client. Each belongs to the runtime that makes it.
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

    /// As [`ControlPlane::identity`], reaching the API server under another URL (a [`crate::FaultProxy`]).
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

    /// Takes the API server away, as an outage would. etcd keeps the data.
    pub async fn stop_api_server(&self) {
        let taken = lock(&self.api_server).take();
        if let Some(process) = taken {
            process.stop(Signal::KILL, STOP_GRACE).await;
        }
        // Nobody else is to be given its port meanwhile; who connects is still refused.
        let held = TcpSocket::new_v4().and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind(self.server)?;
            Ok(socket)
        });
        *lock(&self.held) = held.ok();
    }

    /// Brings the API server back at the same address and waits until it is ready.
    ///
    /// # Errors
    /// When it dies or does not become ready.
    pub async fn start_api_server(&self) -> Result<()> {
        if lock(&self.api_server).is_none() {
            drop(lock(&self.held).take());
            let process = Process::spawn(self.api_server_spec.clone(), self.folder.path())?;
            *lock(&self.api_server) = Some(process);
        }
        self.wait_ready().await
    }

    /// Keeps a copy of what etcd holds now, for [`ControlPlane::restore_etcd`]. The API server is away meanwhile.
    ///
    /// # Errors
    /// When a program does not come back, or the copy cannot be made.
    pub async fn back_up_etcd(&self) -> Result<()> {
        self.with_etcd_down(copy_tree).await
    }

    /// Puts back what was kept, as an administrator does after a disaster: revisions of etcd, and with them the resource
    /// versions of all objects, are lower afterwards than what clients have seen.
    ///
    /// # Errors
    /// As [`ControlPlane::back_up_etcd`].
    pub async fn restore_etcd(&self) -> Result<()> {
        self.with_etcd_down(|data, copy| copy_tree(copy, data)).await
    }

    async fn with_etcd_down(&self, work: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
        self.stop_api_server().await;
        let taken = lock(&self.etcd).take();
        if let Some(process) = taken {
            process.stop(Signal::TERM, STOP_GRACE).await;
        }
        work(&self.etcd_data, &self.etcd_data.with_extension("backup"))?;
        let process = Process::spawn(self.etcd_spec.clone(), self.folder.path())?;
        *lock(&self.etcd) = Some(process);
        self.start_api_server().await
    }

    /// Fails when one of the programs has ended by itself.
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

    /// Ends every program and waits for them. The data folder goes with the last handle on it.
    pub async fn stop(self) {
        let others: Vec<Process> = std::mem::take(&mut *lock(&self.others));
        // Nothing in a throw-away cluster is worth an orderly end: the store is about to be deleted.
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

/// Makes `to` a copy of the folder `from`, whatever stood there.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to).map_err(Error::io("remove", to))?;
    }
    fs::create_dir_all(to).map_err(Error::io("make", to))?;
    for entry in fs::read_dir(from).map_err(Error::io("list", from))? {
        let entry = entry.map_err(Error::io("list", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(Error::io("copy", &source))?;
        }
    }
    Ok(())
}

/// A client for any kubeconfig of the lab.
///
/// # Errors
/// When the kubeconfig cannot be read or used.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    client_with(kubeconfig, true).await
}

/// A client for a proxy: it repeats nothing by itself.
pub(crate) async fn upstream(kubeconfig: &Path) -> Result<Client> {
    client_with(kubeconfig, false).await
}

async fn client_with(kubeconfig: &Path, retry: bool) -> Result<Client> {
    install_crypto_provider();
    let failed = |source| Error::Kubeconfig { path: kubeconfig.to_owned(), source };
    let parsed = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await.map_err(failed)?;
    config.default_retry = retry;
    config.connect_timeout = Some(CLIENT_TIMEOUT);
    // A watch is silent for minutes: its own timeout, not this one, ends it.
    config.write_timeout = Some(CLIENT_TIMEOUT);
    Client::try_from(config).map_err(Error::kube(format!("make a client for {}", kubeconfig.display())))
}

/// rustls wants one provider chosen per process; whoever came first stays.
pub(crate) fn install_crypto_provider() {
    let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

pub(crate) async fn probe(client: &Client) -> std::result::Result<(), String> {
    let request = http::Request::get("/readyz").body(Vec::new()).map_err(|error| error.to_string())?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(Debug)]
struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
}

/// Ports that this process has handed out: two labs of one process must not race for the same.
static HANDED_OUT: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

fn free_ports(address: IpAddr) -> Result<Ports> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    Ok(Ports { etcd: free_port(loopback)?, etcd_peer: free_port(loopback)?, api_server: free_port(address)? })
}

/// A port that nothing listens on and that this process has not handed out before.
pub(crate) fn free_port(address: IpAddr) -> Result<u16> {
    let failed = |source| Error::Io { step: "find a free port on", path: address.to_string().into(), source };
    let mut held = Vec::new();
    loop {
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        if lock(&HANDED_OUT).insert(port) {
            return Ok(port);
        }
        held.push(listener);
    }
}

fn write_certificates(dir: &Path, authority: &Authority, address: IpAddr) -> Result<()> {
    let ca = authority.pair();
    write_private(&dir.join("ca.crt"), &ca.cert)?;
    write_private(&dir.join("ca.key"), &ca.key)?;
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), SERVICE_ADDRESS];
    if !addresses.contains(&address) {
        addresses.push(address);
    }
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let serving = authority.server("kube-apiserver", &addresses, &names)?;
    write_private(&dir.join("apiserver.crt"), &serving.cert)?;
    write_private(&dir.join("apiserver.key"), &serving.key)?;
    // The API server is also a client: of kubelets, for logs and exec.
    let kubelet_client = authority.client("kube-apiserver-kubelet-client", &["system:masters"])?;
    write_private(&dir.join("kubelet-client.crt"), &kubelet_client.cert)?;
    write_private(&dir.join("kubelet-client.key"), &kubelet_client.key)?;
    let (private, public) = bare_keys()?;
    write_private(&dir.join("sa.key"), &private)?;
    write_private(&dir.join("sa.pub"), &public)
}

/// The first address of [`SERVICE_RANGE`]: the service `kubernetes`.
const SERVICE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(172, 30, 0, 1));
const SERVICE_RANGE: &str = "172.30.0.0/16";

fn etcd_spec(program: &Path, data: &Path, logs: &Path, ports: &Ports) -> Spec {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    Spec::new("etcd", program, logs.join("etcd.log"))
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .arg("--unsafe-no-fsync")
        .arg("--log-level=warn")
        .env("GOGC", GARBAGE)
        .env("GOMEMLIMIT", format!("{}MiB", memory::garbage_limit(0)))
}

fn api_server_spec(
    program: &Path,
    dir: &Path,
    logs: &Path,
    ports: &Ports,
    options: &ControlPlaneOptions,
) -> Spec {
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    let mut spec = Spec::new("kube-apiserver", program, logs.join("kube-apiserver.log"))
        .arg(format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd))
        .arg(format!("--bind-address={}", options.address))
        .arg(format!("--advertise-address={}", options.address))
        .arg(format!("--secure-port={}", ports.api_server))
        .arg(file("tls-cert-file", "apiserver.crt"))
        .arg(file("tls-private-key-file", "apiserver.key"))
        .arg(file("client-ca-file", "ca.crt"))
        .arg(file("service-account-key-file", "sa.pub"))
        .arg(file("service-account-signing-key-file", "sa.key"))
        .arg(file("kubelet-client-certificate", "kubelet-client.crt"))
        .arg(file("kubelet-client-key", "kubelet-client.key"))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-cluster-ip-range={SERVICE_RANGE}"))
        .arg("--authorization-mode=Node,RBAC")
        .arg("--enable-admission-plugins=NodeRestriction")
        .arg("--allow-privileged=true")
        .arg(format!("--max-requests-inflight={MAX_REQUESTS}"))
        .arg(format!("--max-mutating-requests-inflight={MAX_MUTATING_REQUESTS}"))
        .arg("--profiling=false")
        .env("GOGC", GARBAGE)
        .env("GOMEMLIMIT", format!("{}MiB", memory::garbage_limit(options.nodes)));
    if options.address.is_loopback() {
        // Endpoints may not be loopback addresses, and nothing in such a cluster uses the service.
        spec = spec.arg("--endpoint-reconciler-type=none");
    }
    if !options.controller_manager {
        // Nobody makes the default service accounts that this plugin wants for every pod.
        spec = spec.arg("--disable-admission-plugins=ServiceAccount");
    }
    spec.args(&options.api_server_args)
}

fn component_spec(program: Program, path: &Path, dir: &Path, logs: &Path, config: &Path) -> Spec {
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    let spec = Spec::new(program.file(), path, logs.join(format!("{}.log", program.file())))
        .arg(format!("--kubeconfig={}", config.display()))
        .arg("--leader-elect=false")
        .arg("--secure-port=0")
        .arg("--kube-api-qps=500")
        .arg("--kube-api-burst=1000");
    match program {
        Program::ControllerManager => spec
            .arg(file("service-account-private-key-file", "sa.key"))
            .arg(file("root-ca-file", "ca.crt"))
            .arg(file("cluster-signing-cert-file", "ca.crt"))
            .arg(file("cluster-signing-key-file", "ca.key")),
        _ => spec,
    }
}

/// Writes a file that only its owner can read: most of these hold keys.
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
