//! The config server against a real API server: a config is served within a second after a node has proved it, and
//! broken or missing configs change nothing for machines that boot.
//!
//! It needs the control plane's programs (see the `lab` crate; `MCO_LAB_BIN` names a folder that has them). The server
//! runs in the test's own process. Tests of the server without a cluster are in `crates/server/tests`.

use crate::definitions::install_definitions;
use crate::support::{Answer, PATIENCE, Running, certify};
use api::names::CONTROLLER_CONFIG;
use api::v1::{ControllerConfig, MachineConfig, MachineConfigPool};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use lab::{ControlPlane, ControlPlaneOptions, Environment, Folder, Programs, Reporter};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use server::{Metrics, StartOptions, StartServer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const V35: (&str, &str) = ("Accept", "application/vnd.coreos.ignition+json;version=3.5.0, */*;q=0.1");

/// A change in the cluster is served within this time. One second is promised; a loaded machine may need longer.
const SOON: Duration = Duration::from_secs(30);

fn params() -> PatchParams {
    PatchParams::apply("server-tests").force()
}

async fn put_config(client: &Client, name: &str, ignition: &str) {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "metadata": {"name": name},
        "spec": {"config": {"ignition": {"version": ignition}, "storage": {"files": [
            {"path": "/etc/which", "contents": {"source": format!("data:,{name}")}},
        ]}}},
    });
    Api::<MachineConfig>::all(client.clone()).patch(name, &params(), &Patch::Apply(&config)).await.unwrap();
}

/// Acts as the controller: sets the config to move to, and how many nodes have it.
async fn put_pool(client: &Client, name: &str, spec: &str, status: &str, updated: i32) {
    let pools: Api<MachineConfigPool> = Api::all(client.clone());
    let pool = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name}, "spec": {"configuration": {"name": spec}},
    });
    let put = pools.patch(name, &params(), &Patch::Apply(&pool)).await.unwrap();
    let status = json!({"status": {
        "observedGeneration": put.metadata.generation, "machineCount": 3, "updatedMachineCount": updated,
        "readyMachineCount": updated, "unavailableMachineCount": 0, "degradedMachineCount": 0,
        "configuration": {"name": status},
    }});
    pools.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn put_settings(client: &Client, ca: &str) {
    let ca = k8s_openapi::ByteString(ca.as_bytes().to_vec());
    let settings: ControllerConfig = serde_json::from_value(json!({
        "metadata": {"name": CONTROLLER_CONFIG},
        "spec": {"clusterDNSIP": "10.96.0.10", "kubeAPIServerServingCAData": ca, "rootCAData": ca},
    }))
    .unwrap();
    let mut body = serde_json::to_value(&settings).unwrap();
    let spec = body["spec"].as_object_mut().unwrap();
    spec.insert(
        "dns".to_owned(),
        json!({"apiVersion": "config.openshift.io/v1", "kind": "DNS", "metadata": {}, "spec": {}}),
    );
    spec.insert(
        "infra".to_owned(),
        json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {}, "spec": {}}),
    );
    let settings: Api<ControllerConfig> = Api::all(client.clone());
    settings.patch(CONTROLLER_CONFIG, &params(), &Patch::Apply(&body)).await.unwrap();
}

/// The answer to a booting machine of the pool: status, and the contents of a file.
async fn boot(server: &Running, pool: &str, path: &str) -> (u16, String) {
    let answer = server.ask("GET", &format!("/config/{pool}"), &[V35]).await.unwrap();
    let config: Value = serde_json::from_slice(&answer.body).unwrap();
    let files = config.pointer("/storage/files").and_then(Value::as_array).cloned().unwrap_or_default();
    let content = files.iter().find(|f| f["path"] == path).map(|f| f["contents"]["source"].as_str().unwrap());
    let content = content.map(|s| String::from_utf8(ignition::data_url::decode(s).unwrap()).unwrap());
    (answer.status, content.unwrap_or_else(|| config.to_string()))
}

/// Waits until a booting machine of the pool gets this content. Returns how long that took.
async fn serves(server: &Running, pool: &str, path: &str, want: &str) -> Duration {
    serves_within(SOON, server, pool, path, want).await
}

async fn serves_within(limit: Duration, server: &Running, pool: &str, path: &str, want: &str) -> Duration {
    let begun = Instant::now();
    loop {
        let got = boot(server, pool, path).await;
        if got == (200, want.to_owned()) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < limit, "{pool} {path}: want {want}, got {got:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The detailed state on the metrics port. On the port that machines use there is only the status.
async fn readiness(metrics: SocketAddr) -> Value {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(metrics).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut all = vec![];
    stream.read_to_end(&mut all).await.unwrap();
    serde_json::from_slice(&Answer::read(&all).unwrap().body).unwrap()
}

/// A metric's value.
fn told(registry: &Registry, line: &str) -> f64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {line} in:\n{text}"))
}

fn unix_now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Waits until this holds.
async fn soon(what: &str, holds: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < SOON, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn becomes(metrics: SocketAddr, state: &str) {
    let begun = Instant::now();
    loop {
        let told = readiness(metrics).await;
        if told["source"]["state"] == state {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "want {state}, got {told}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_get_the_proved_config_through_changes_mistakes_and_outages() {
    let environment = Environment::read();
    let folder = Arc::new(Folder::create(&environment).unwrap());
    let options = ControlPlaneOptions { controller_manager: false, scheduler: false, ..Default::default() };
    let programs = Programs::new(&environment).unwrap();
    let plane = ControlPlane::start(folder, &programs, &options, &Reporter::stderr()).await.unwrap();
    let client = plane.client().await.unwrap();

    let dir = tempfile::tempdir().unwrap();
    let der = certify(dir.path()).unwrap();
    let mut options = StartOptions {
        kubeconfig: Some(plane.kubeconfig().to_owned()),
        apiserver_url: "https://api-int.example.com:6443".to_owned(),
        bootstrap_token_dir: dir.path().join("token"),
        ..StartOptions::default()
    };
    let mut registry = Registry::default();
    options.listen.metrics = Metrics::new(&mut registry);
    let registry = Arc::new(registry);
    let free = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
    let metrics = free.local_addr().unwrap();
    drop(free);
    options.listen.registry = Arc::clone(&registry);
    options.listen.metrics_addresses.plain = Some(metrics);
    options.listen.cert = dir.path().join("cert");
    options.listen.key = dir.path().join("key");
    options.listen.secure_port = 0;
    options.listen.insecure_port = 0;
    let server = StartServer::open(options).await.unwrap();
    let mut addr = server.secure_addr().unwrap();
    addr.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
    let stop = CancellationToken::new();
    let task = tokio::spawn(server.run(stop.clone()));
    let server = Running { dir, addr, stop, task, der };

    // The cluster is still being installed: machines are told to try again, with the reason.
    assert_eq!(boot(&server, "worker", "").await.0, 503);
    let public = server.ask("GET", "/readyz", &[]).await.unwrap();
    assert_eq!((public.status, public.body), (503, vec![]), "machines learn only whether it is ready");
    soon("/readyz tells what is missing", async || {
        readiness(metrics).await["source"]["message"].as_str().unwrap_or_default().contains("404")
    })
    .await;
    install_definitions(&client, "server-tests").await;
    becomes(metrics, "Current").await;
    assert_eq!(boot(&server, "worker", "").await.0, 404);
    put_pool(&client, "worker", "a", "a", 0).await;
    soon("a pool without a MachineConfig is 503", async || boot(&server, "worker", "").await.0 == 503).await;
    put_config(&client, "a", "3.5.0").await;
    put_settings(&client, "CA 1").await;
    let token = server.dir.path().join("token");
    std::fs::create_dir(&token).unwrap();
    std::fs::write(token.join("ca.crt"), "bootstrap CA").unwrap();
    std::fs::write(token.join("token"), "token-1").unwrap();
    serves(&server, "worker", "/etc/which", "a").await;
    let (_, kubeconfig) = boot(&server, "worker", "/etc/kubernetes/kubeconfig").await;
    assert!(kubeconfig.contains("token-1") && kubeconfig.contains("api-int.example.com"), "{kubeconfig}");

    // A new config is served only when a node has proved it.
    put_config(&client, "b", "3.5.0").await;
    put_pool(&client, "worker", "b", "a", 0).await;
    put_settings(&client, "CA 2").await;
    serves(&server, "worker", "/etc/kubernetes/kubelet-ca.crt", "CA 2").await;
    assert_eq!(boot(&server, "worker", "/etc/which").await, (200, "a".to_owned()));
    put_pool(&client, "worker", "b", "a", 1).await;
    let took = serves(&server, "worker", "/etc/which", "b").await;
    eprintln!("a proved config is served after {took:?}");

    // A mistake leaves the pool's last good config in force.
    put_config(&client, "c", "9.9.0").await;
    put_pool(&client, "worker", "c", "a", 1).await;
    put_pool(&client, "custom", "a", "a", 0).await;
    serves(&server, "custom", "/etc/which", "a").await;
    // Pools and configs arrive by separate watches.
    let begun = Instant::now();
    loop {
        let ready = readiness(metrics).await;
        let why = ready["pools"]["worker"]["heldBack"].as_str().unwrap_or_default().to_owned();
        if why.contains("9.9.0") && told(&registry, "mcs_config_held_back{pool=\"worker\"}") == 1.0 {
            break;
        }
        assert!(begun.elapsed() < SOON, "{ready}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(boot(&server, "worker", "/etc/which").await, (200, "b".to_owned()));
    put_pool(&client, "worker", "b", "b", 3).await;

    // The API server is unreachable: the answers stay the same, and the state is reported.
    plane.stop_api_server().await;
    becomes(metrics, "LastGood").await;
    assert_eq!(told(&registry, "mcs_source_up"), 0.0);
    let seen = told(&registry, "mcs_source_seen_timestamp_seconds");
    assert!(seen > 0.0 && seen <= unix_now(), "the status names the time");
    assert_eq!(boot(&server, "worker", "/etc/which").await, (200, "b".to_owned()));
    std::fs::write(token.join("token"), "token-2").unwrap();
    soon("a new token is served without the API server too", async || {
        boot(&server, "worker", "/etc/kubernetes/kubeconfig").await.1.contains("token-2")
    })
    .await;
    plane.start_api_server().await.unwrap();
    becomes(metrics, "Current").await;
    soon("the API server is back", async || told(&registry, "mcs_source_up") == 1.0).await;
    assert!(told(&registry, "mcs_source_seen_timestamp_seconds") > seen);
    put_config(&client, "d", "3.5.0").await;
    put_pool(&client, "worker", "d", "b", 2).await;
    // An API server that has just started answers lists before it serves watches.
    serves_within(PATIENCE, &server, "worker", "/etc/which", "d").await;

    // A pool is deleted.
    Api::<MachineConfigPool>::all(client.clone()).delete("custom", &DeleteParams::default()).await.unwrap();
    soon("a pool that is gone is 404", async || boot(&server, "custom", "").await.0 == 404).await;
    server.finish().await.unwrap();
    plane.stop().await;
}
