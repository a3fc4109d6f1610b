//! A config server that demands boot tokens, in a cluster with a pool, and requests to it from several addresses.
//!
//! Not here: tests (the module above).

use super::{BALANCER, HERE};
use crate::definitions::install_definitions;
use crate::support::{Answer, PATIENCE, client, connect_from};
use api::names::CONTROLLER_CONFIG;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use server::{StartOptions, StartServer};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;

pub(super) fn params() -> PatchParams {
    PatchParams::apply("server-tests").force()
}

/// CRDs, settings, and the pool `worker` with a config that holds a secret.
pub(super) async fn install(client: &Client) {
    install_definitions(client, "server-tests").await;
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let configs: Api<MachineConfig> = Api::all(client.clone());
    let settings: Api<ControllerConfig> = Api::all(client.clone());
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": "a"},
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [
            {"path": "/etc/secret", "contents": {"source": "data:,hunter2"}},
        ]}}},
    });
    configs.patch("a", &params(), &Patch::Apply(&config)).await.unwrap();
    for name in ["worker", "infra"] {
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {"configuration": {"name": "a"}},
        });
        let put = pools.patch(name, &params(), &Patch::Apply(&pool)).await.unwrap();
        let status = json!({"status": {
            "observedGeneration": put.metadata.generation, "machineCount": 1, "updatedMachineCount": 1,
            "readyMachineCount": 1, "unavailableMachineCount": 0, "degradedMachineCount": 0,
            "configuration": {"name": "a"},
        }});
        pools.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
    let object = |kind: &str| json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {}, "spec": {}});
    let mut infra = object("Infrastructure");
    // The certificate is also valid for the name by which this computer reaches the server; no pointer config may
    // contain that name.
    infra["status"] = json!({
        "apiServerInternalURI": "https://api.lab.test:6443",
        "platformStatus": {"type": "Nutanix", "nutanix": {"apiServerInternalIPs": ["localhost"]}},
    });
    let config: ControllerConfig = serde_json::from_value(json!({
        "metadata": {"name": CONTROLLER_CONFIG},
        "spec": {
            "clusterDNSIP": "10.96.0.10", "kubeAPIServerServingCAData": "Q0E=", "rootCAData": "Q0E=",
            "dns": object("DNS"), "infra": infra,
        },
    }))
    .unwrap();
    settings.patch(CONTROLLER_CONFIG, &params(), &Patch::Apply(&config)).await.unwrap();
}

/// A server with its own port, stopped at the end.
pub(super) struct Server {
    pub(super) addr: SocketAddr,
    pub(super) plain: u16,
    pub(super) stop: CancellationToken,
    pub(super) task: tokio::task::JoinHandle<()>,
    pub(super) ca: Vec<u8>,
}

pub(super) async fn serve(kubeconfig: &Path, dir: &Path) -> Server {
    let free = std::net::TcpListener::bind((HERE, 0)).unwrap().local_addr().unwrap().port();
    let mut options = StartOptions {
        kubeconfig: Some(kubeconfig.to_owned()),
        apiserver_url: "https://localhost:6443".to_owned(),
        bootstrap_token_dir: dir.to_owned(),
        require_token: true,
        ..StartOptions::default()
    };
    options.listen.cert = dir.join("tls.crt");
    options.listen.key = dir.join("tls.key");
    options.listen.secure_port = 0;
    options.listen.insecure_port = free;
    options.listen.bind_address = Some(HERE.into());
    options.listen.balancers = vec![IpAddr::V4(BALANCER).into()];
    let server = StartServer::open(options).await.unwrap();
    let (addr, stop) = (server.secure_addr().unwrap(), CancellationToken::new());
    let task = tokio::spawn(server.run(stop.clone()));
    let pem = std::fs::read_to_string(dir.join("ca.crt")).unwrap();
    let ca = x509(&pem);
    Server { addr, plain: free, stop, task, ca }
}

/// The first certificate of a PEM text.
pub(super) fn x509(pem: &str) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject as _;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

impl Server {
    pub(super) async fn ask(
        &self,
        from: Ipv4Addr,
        method: &str,
        pool: &str,
        token: Option<&str>,
    ) -> (u16, Value) {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.clone().into()).unwrap();
        let config = client(rustls::DEFAULT_VERSIONS, roots).unwrap();
        let stream = connect_from(IpAddr::V4(from), self.addr, config, |_| {}).await.unwrap();
        let header = token.map(|t| format!("Authorization: Bearer {t}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} /config/{pool} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\
            Accept: application/vnd.coreos.ignition+json;version=3.2.0\r\n\r\n"
        );
        let answer = Answer::to(stream, &head).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
    }

    /// Sends a request as the machine 10.0.0.LAST behind the load balancer.
    pub(super) async fn through(&self, last: u8, pool: &str, token: &str) -> (u16, String) {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(self.ca.clone().into()).unwrap();
        let config = client(rustls::DEFAULT_VERSIONS, roots).unwrap();
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((BALANCER, 0).into()).unwrap();
        let mut stream = socket.connect(self.addr).await.unwrap();
        let addresses = [10, 0, 0, last, 127, 0, 0, 1, 0x30, 0x39, 0x58, 0x5F];
        stream.write_all(b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c").await.unwrap();
        stream.write_all(&addresses).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        let head = format!(
            "GET /config/{pool} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        let answer = Answer::to(stream, &head).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        (answer.status, body["error"]["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// The status and, for a refusal, its reason.
    pub(super) async fn told(&self, from: Ipv4Addr, pool: &str, token: Option<&str>) -> (u16, String) {
        let (status, body) = self.ask(from, "GET", pool, token).await;
        (status, body["error"]["reason"].as_str().unwrap_or_default().to_owned())
    }

    /// Waits until the answer is this.
    pub(super) async fn tells(&self, pool: &str, token: Option<&str>, want: (u16, &str)) {
        let begun = Instant::now();
        loop {
            let got = self.told(HERE, pool, token).await;
            if (got.0, got.1.as_str()) == want {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "want {want:?}, got {got:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
