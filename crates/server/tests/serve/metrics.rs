//! What the server shows on its metrics port; the reload of the TLS profile and of the certificate while it serves; and
//! slow clients that no single timeout stops, but the limit on a connection's lifetime does.

use crate::common::{Answer, PATIENCE, Running, certify, client, connect};
use ::listen::Addresses;
use prometheus_client::registry::Registry;
use server::Metrics;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const POOL: &str = "metadata: {name: master}\nstatus: {configuration: {name: rendered-1}}\n";
const SETTINGS: &str = "metadata: {name: machine-config-controller}\nspec: {}\n";
const V34: (&str, &str) = ("Accept", "application/vnd.coreos.ignition+json;version=3.4.0");
/// Files are checked for changes every second, so a reload comes well within this.
const SOON: Duration = Duration::from_secs(30);

/// Starts a server with one pool and a metrics port.
async fn start(size: usize, adjust: impl FnOnce(&mut server::BootstrapOptions)) -> (Running, SocketAddr) {
    let config = format!(
        "metadata: {{name: rendered-1}}\nspec: {{config: {{ignition: {{version: 3.5.0}}, storage: {{files: [\
         {{path: /etc/secret, contents: {{source: 'data:,hunter2{}'}}}}]}}}}}}\n",
        "x".repeat(size)
    );
    let files = [
        ("machine-pools/master.yaml", POOL),
        ("machine-configs/rendered-1.yaml", config.as_str()),
        ("controller-config/machine-config-controller.yaml", SETTINGS),
    ];
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let address = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let running = Running::start(files, "kind: Config\n", |o| {
        o.listen.metrics = metrics;
        o.listen.registry = Arc::new(registry);
        o.listen.metrics_addresses = Addresses { plain: Some(address), ..Addresses::default() };
        adjust(o);
    })
    .await
    .unwrap();
    (running, address)
}

/// Sends a request to the metrics port.
async fn ask_metrics(address: SocketAddr, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut all = vec![];
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    Answer::read(&all).unwrap()
}

async fn metrics(address: SocketAddr) -> String {
    let answer = ask_metrics(address, "GET", "/metrics").await;
    assert_eq!(answer.status, 200);
    String::from_utf8(answer.body).unwrap()
}

/// The value of one metric.
fn value(text: &str, line: &str) -> Option<f64> {
    text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok())
}

/// Waits until a metric has at least this value.
async fn until(address: SocketAddr, line: &str, want: f64) {
    let begun = Instant::now();
    loop {
        let text = metrics(address).await;
        if value(&text, line).is_some_and(|v| v >= want) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{line} {want}:\n{text}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn metrics_have_requests_and_the_age_of_the_config() {
    let (server, address) = start(2000, |_| {}).await;
    let length = server.ask("GET", "/config/master", &[V34]).await.unwrap().body.len();
    assert_eq!(server.ask("HEAD", "/config/master", &[V34]).await.unwrap().status, 200);
    assert_eq!(server.ask("GET", "/config/master", &[]).await.unwrap().status, 200);
    assert_eq!(server.ask("GET", "/config/nosuch", &[V34]).await.unwrap().status, 404);
    let old = ("Accept", "application/vnd.coreos.ignition+json;version=3.0.0");
    assert_eq!(server.ask("GET", "/config/master", &[old]).await.unwrap().status, 406);
    // Plain HTTP on the TLS port.
    let mut stranger = TcpStream::connect(server.addr).await.unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = stranger.read_to_end(&mut vec![]).await;

    let answer = ask_metrics(address, "GET", "/metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.ends_with("# EOF\n") && !text.contains("hunter2"), "{text}");
    for (line, want) in [
        ("mcs_requests_total{pool=\"master\",version=\"3.4.0\",code=\"200\"}", 2.0),
        ("mcs_requests_total{pool=\"master\",version=\"2.2.0\",code=\"200\"}", 1.0),
        ("mcs_requests_total{pool=\"master\",version=\"3.0.0\",code=\"406\"}", 1.0),
        ("mcs_requests_total{pool=\"\",version=\"3.4.0\",code=\"404\"}", 1.0),
        ("mcs_tls_failures_total", 1.0),
        ("mcs_certificate_failures_total", 0.0),
        ("mcs_config_held_back{pool=\"master\"}", 0.0),
    ] {
        assert_eq!(value(&text, line), Some(want), "{line}\n{text}");
    }
    let length = length as f64;
    assert!(value(&text, "mcs_response_bytes_total{pool=\"master\"}").unwrap() >= length, "HEAD has no body");
    assert!(value(&text, "mcs_response_bytes_total{pool=\"master\"}").unwrap() < 3.0 * length);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    let since = value(&text, "mcs_served_config_timestamp_seconds{pool=\"master\"}").unwrap();
    assert!(since <= now && since > now - 600.0, "{since} {now}");
    assert!(value(&text, "mcs_certificate_not_after_timestamp_seconds").unwrap() > now);

    // It serves only metrics and health: a config must not be served without TLS and its limits.
    let ready = ask_metrics(address, "GET", "/readyz").await;
    assert!(String::from_utf8(ready.body).unwrap().contains("rendered-1"));
    for (method, path, status) in [
        ("GET", "/healthz", 200),
        ("GET", "/config/master", 404),
        ("GET", "/", 404),
        ("POST", "/metrics", 405),
    ] {
        assert_eq!(ask_metrics(address, method, path).await.status, status, "{method} {path}");
    }
    server.finish().await.unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the metrics port closes with the server");
}

#[tokio::test]
async fn a_metrics_address_in_use_keeps_no_machine_from_booting() {
    let taken = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = taken.local_addr().unwrap();
    let (server, _) = start(10, |o| {
        o.listen.metrics_addresses = Addresses { plain: Some(address), ..Addresses::default() };
    })
    .await;
    assert_eq!(server.ask("GET", "/config/master", &[]).await.unwrap().status, 200);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn a_replaced_or_broken_certificate_is_reported() {
    let (mut server, address) = start(10, |_| {}).await;
    let mut kept = server.connect(|_| {}).await.unwrap();
    let key = std::fs::read(server.dir.path().join("key")).unwrap();
    std::fs::write(server.dir.path().join("key"), "nonsense").unwrap();
    until(address, "mcs_certificate_failures_total", 1.0).await;
    assert_eq!(server.ask("GET", "/healthz", &[]).await.unwrap().status, 200, "the old pair is in force");
    std::fs::write(server.dir.path().join("key"), key).unwrap();
    server.der = certify(server.dir.path()).unwrap();
    let begun = Instant::now();
    while server.ask("GET", "/healthz", &[]).await.is_err() {
        assert!(begun.elapsed() < SOON, "the new pair is in force");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    kept.write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    kept.flush().await.unwrap();
    let mut all = vec![];
    tokio::time::timeout(PATIENCE, kept.read_to_end(&mut all)).await.unwrap().unwrap();
    assert_eq!(Answer::read(&all).unwrap().status, 200, "an established connection continues");
    server.finish().await.unwrap();
}

#[tokio::test]
async fn the_clusters_tls_profile_is_followed_without_dropping_a_connection() {
    let (server, _) = start(10, |_| {}).await;
    let old = || {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(server.der.clone().into()).unwrap();
        client(&[&rustls::version::TLS12], roots).unwrap()
    };
    let mut kept = connect(server.addr, old(), |_| {}).await.unwrap();
    let file = server.dir.path().join("base/api-server/api-server.yaml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let wait = async |want: bool, why: &str| {
        let begun = Instant::now();
        while connect(server.addr, old(), |_| {}).await.is_ok() != want {
            assert!(begun.elapsed() < SOON, "{why}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    std::fs::write(&file, "spec: {tlsSecurityProfile: {type: Modern, modern: {}}}\n").unwrap();
    wait(false, "TLS 1.2 is refused").await;
    assert_eq!(server.ask("GET", "/healthz", &[]).await.unwrap().status, 200, "TLS 1.3 still works");
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    kept.flush().await.unwrap();
    let mut all = vec![];
    tokio::time::timeout(PATIENCE, kept.read_to_end(&mut all)).await.unwrap().unwrap();
    assert_eq!(Answer::read(&all).unwrap().status, 200, "an established connection continues");
    std::fs::write(&file, "spec: {tlsSecurityProfile: {type: Intermediate, intermediate: {}}}\n").unwrap();
    wait(true, "TLS 1.2 is spoken again").await;
    server.finish().await.unwrap();
}

#[tokio::test]
async fn slow_readers_and_half_handshakes_are_disconnected() {
    let (server, address) = start(6 << 20, |o| {
        o.listen.limits.handshake = Duration::from_secs(2);
        o.listen.limits.lifetime = Duration::from_secs(3);
        o.listen.limits.grace = Duration::from_secs(1);
    })
    .await;
    let mut half = TcpStream::connect(server.addr).await.unwrap();
    // The beginning of a ClientHello.
    half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]).await.unwrap();
    let mut sipping = server.connect(|_| {}).await.unwrap();
    sipping.write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    sipping.flush().await.unwrap();
    let sip = async {
        let mut taken = [0; 64];
        while sipping.read(&mut taken).await.is_ok_and(|n| n > 0) {
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    };
    let cut = async {
        until(address, "mcs_connections_cut_total{cause=\"handshake\"}", 1.0).await;
        until(address, "mcs_connections_cut_total{cause=\"lifetime\"}", 1.0).await;
    };
    tokio::select! {
        () = cut => {}
        () = async { sip.await; std::future::pending().await } => {}
    }
    server.finish().await.unwrap();
}
