//! What the control plane's programs are started with: ports, certificates and command lines.
//!
//! Not here: the processes.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use crate::control_plane::certs::{Authority, bare_keys};
use crate::control_plane::programs::Program;
use crate::control_plane::{ControlPlaneOptions, memory, write_private};
use crate::error::{Error, Result};
use crate::system::process::{Spec, lock};

/// The limit on requests in flight: high, so that benchmarks measure the product and not the server's fairness queues.
const MAX_REQUESTS: &str = "3000";
const MAX_MUTATING_REQUESTS: &str = "1500";
/// `GOGC` of the control plane's programs: how much garbage they let pile up, in percent of live memory (Go's default is
/// 100), up to a limit (see [`crate::memory`]). It trades memory for CPU, which is scarcer on a small machine.
const GARBAGE: &str = "400";
/// etcd's intervals in milliseconds. A member that is alone elects itself when the election's time is over: a second with the defaults,
/// which are made for networks. Each heartbeat wakes etcd.
const HEARTBEAT: u32 = 100;
const ELECTION: u32 = 500;

/// This computer's address, as machines on qemu's user network see it.
pub(crate) const THIS_COMPUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));

#[derive(Debug)]
pub(super) struct Ports {
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) api_server: u16,
}

/// Ports that this process has handed out: two labs of one process must not get the same one.
static HANDED_OUT: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

pub(super) fn free_ports(address: IpAddr) -> Result<Ports> {
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

pub(super) fn write_certificates(dir: &Path, authority: &Authority, address: IpAddr) -> Result<()> {
    let ca = authority.pair();
    write_private(&dir.join("ca.crt"), &ca.cert)?;
    write_private(&dir.join("ca.key"), &ca.key)?;
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), SERVICE_ADDRESS, THIS_COMPUTER];
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
    // The API server is also a client of kubelets, for logs and exec.
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

/// Sets Go's runtime for a cluster of this many nodes.
fn with_go_runtime(spec: Spec, nodes: usize) -> Spec {
    spec.env("GOGC", GARBAGE).env("GOMEMLIMIT", format!("{}MiB", memory::garbage_limit(nodes)))
}

pub(super) fn etcd_spec(program: &Path, data: &Path, logs: &Path, ports: &Ports, nodes: usize) -> Spec {
    let client = format!("http://127.0.0.1:{}", ports.etcd);
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    let spec = Spec::new("etcd", program, logs.join("etcd.log"))
        .arg(format!("--data-dir={}", data.display()))
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=default={peer}"))
        .arg("--unsafe-no-fsync")
        .arg(format!("--heartbeat-interval={HEARTBEAT}"))
        .arg(format!("--election-timeout={ELECTION}"))
        .arg("--log-level=warn");
    with_go_runtime(spec, nodes)
}

pub(super) fn api_server_spec(
    program: &Path,
    dir: &Path,
    logs: &Path,
    ports: &Ports,
    options: &ControlPlaneOptions,
) -> Spec {
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    let spec = Spec::new("kube-apiserver", program, logs.join("kube-apiserver.log"))
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
        .arg("--profiling=false");
    let mut spec = with_go_runtime(spec, options.nodes);
    if options.address.is_loopback() {
        // Endpoints may not be loopback addresses, and nothing in such a cluster uses this service.
        spec = spec.arg("--endpoint-reconciler-type=none");
    }
    if !options.controller_manager {
        // Without the controller manager nobody creates the default service accounts that this plugin requires for
        // every pod.
        spec = spec.arg("--disable-admission-plugins=ServiceAccount");
    }
    spec.args(&options.api_server_args)
}

pub(super) fn component_spec(
    program: Program,
    path: &Path,
    dir: &Path,
    logs: &Path,
    config: &Path,
    nodes: usize,
) -> Spec {
    let file = |flag: &str, name: &str| format!("--{flag}={}", dir.join(name).display());
    let spec = Spec::new(program.file(), path, logs.join(format!("{}.log", program.file())))
        .arg(format!("--kubeconfig={}", config.display()))
        .arg("--leader-elect=false")
        .arg("--secure-port=0")
        .arg("--kube-api-qps=500")
        .arg("--kube-api-burst=1000");
    let spec = with_go_runtime(spec, nodes);
    match program {
        Program::ControllerManager => spec
            .arg(file("service-account-private-key-file", "sa.key"))
            .arg(file("root-ca-file", "ca.crt"))
            .arg(file("cluster-signing-cert-file", "ca.crt"))
            .arg(file("cluster-signing-key-file", "ca.key")),
        _ => spec,
    }
}
