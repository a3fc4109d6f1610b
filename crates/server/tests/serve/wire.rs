//! The server below HTTP: clients that are slow, half closed or send too much, limits, load balancers, and the shutdown.
//!
//! Not here: TLS (see `tls`).

use crate::common::{Answer, PATIENCE, Running};
use prometheus_client::registry::Registry;
use server::Metrics;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const POOL: &str = "metadata: {name: master}\nstatus: {configuration: {name: rendered-1}}\n";
const SETTINGS: &str = "metadata: {name: machine-config-controller}\nspec: {}\n";
const HEAD: &[u8] = b"GET /config/master HTTP/1.1\r\nHost: x\r\n\r\n";

fn config(size: usize) -> String {
    let file = format!("{{path: /etc/big, contents: {{source: 'data:,{}'}}}}", "x".repeat(size));
    format!(
        "metadata: {{name: rendered-1}}\nspec: {{config: {{ignition: {{version: 3.5.0}}, storage: {{files: [{file}]}}}}}}\n"
    )
}

pub(crate) async fn start(size: usize, adjust: impl FnOnce(&mut server::BootstrapOptions)) -> Running {
    let config = config(size);
    let files = [
        ("machine-pools/master.yaml", POOL),
        ("machine-configs/rendered-1.yaml", config.as_str()),
        ("controller-config/machine-config-controller.yaml", SETTINGS),
    ];
    Running::start(files, "kind: Config\n", adjust).await.unwrap()
}

/// What the server sends until it closes, and how long that took.
pub(crate) async fn drained(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> (Vec<u8>, Duration) {
    let begun = Instant::now();
    let mut all = Vec::new();
    // A reset also ends the connection.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut all)).await.expect("the server closes");
    (all, begun.elapsed())
}

pub(crate) fn count(registry: &Registry, line: &str) -> u64 {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_default()
}

#[tokio::test]
async fn slow_clients_are_disconnected_and_counted() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let limit = Duration::from_secs(2);
    let server = start(10, |o| {
        o.listen.metrics = metrics;
        o.listen.limits.handshake = limit;
        o.listen.limits.head = limit;
    })
    .await;

    let mut silent = TcpStream::connect(server.addr).await.unwrap();
    assert!(drained(&mut silent).await.1 < PATIENCE, "no handshake");
    assert_eq!(count(&registry, "mcs_connections_cut_total{cause=\"handshake\"}"), 1);

    let mut loris = server.connect(|_| {}).await.unwrap();
    let begun = Instant::now();
    for byte in b"GET /config/master HTTP/1.1\r\nHost: ".iter().cycle() {
        if loris.write_all(&[*byte]).await.is_err() || loris.flush().await.is_err() {
            break;
        }
        let ended = tokio::time::timeout(Duration::from_millis(50), loris.read_u8()).await;
        if ended.is_ok_and(|r| r.is_err()) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "one byte at a time");
    }
    assert_eq!(count(&registry, "mcs_connections_cut_total{cause=\"head-time\"}"), 1);

    let mut idle = server.connect(|_| {}).await.unwrap();
    idle.write_all(HEAD).await.unwrap();
    let (answer, took) = drained(&mut idle).await;
    assert!(took < PATIENCE, "an idle connection is closed");
    assert_eq!(Answer::read(&answer).unwrap().status, 200);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_disconnected() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let server = start(6 << 20, |o| {
        o.listen.metrics = metrics;
        o.listen.limits.write_timeout = Duration::from_millis(400);
    })
    .await;
    let mut greedy = server.connect(|_| {}).await.unwrap();
    greedy.write_all(HEAD).await.unwrap();
    let begun = Instant::now();
    while count(&registry, "mcs_connections_cut_total{cause=\"stall\"}") == 0 {
        assert!(begun.elapsed() < PATIENCE, "a client that reads nothing");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    server.finish().await.unwrap();
}

#[tokio::test]
async fn requests_that_are_too_large_or_malformed_are_refused_and_closed() {
    let server = start(10, |_| {}).await;
    let long_path = format!("GET /config/{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(40_000));
    let long_header = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(40_000));
    let many_headers = format!("GET /healthz HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(500));
    for (bytes, name) in [
        (long_path.as_bytes(), "path"),
        (long_header.as_bytes(), "header"),
        (many_headers.as_bytes(), "headers"),
        (b"\x00\x01\x02\r\n\r\n", "noise"),
        (b"GET /healthz HTTP/9.9\r\n\r\n", "version"),
    ] {
        let mut stream = server.connect(|_| {}).await.unwrap();
        // The server may close before all is written.
        let _ = stream.write_all(bytes).await;
        let (answer, took) = drained(&mut stream).await;
        assert!(took < PATIENCE, "{name}");
        if !answer.is_empty() {
            let status = Answer::read(&answer).unwrap().status;
            assert!((400..500).contains(&status), "{name}: {status}");
        }
    }
    let body = server.ask("GET", "/config/master", &[("Content-Length", "100000000")]).await.unwrap();
    assert_eq!(body.status, 413);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn connections_over_the_limit_wait_for_their_turn() {
    let server = start(10, |o| o.listen.limits.connections = 1).await;
    let first = server.connect(|_| {}).await.unwrap();
    let second = tokio::time::timeout(Duration::from_millis(300), server.ask("GET", "/healthz", &[])).await;
    assert!(second.is_err(), "the limit has no room for a second");
    drop(first);
    assert_eq!(server.ask("GET", "/healthz", &[]).await.unwrap().status, 200);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn shutdown_finishes_running_answers_and_does_not_wait_for_idle_connections() {
    let server = start(6 << 20, |_| {}).await;
    let _idle = server.connect(|_| {}).await.unwrap();
    let mut running = server.connect(|_| {}).await.unwrap();
    running.write_all(HEAD).await.unwrap();
    let mut first = [0; 1024];
    running.read_exact(&mut first).await.unwrap();
    server.stop.cancel();
    let begun = Instant::now();
    while TcpStream::connect(server.addr).await.is_ok() {
        assert!(begun.elapsed() < PATIENCE, "no new connections");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (rest, _) = drained(&mut running).await;
    let answer = Answer::read(&[first.to_vec(), rest].concat()).unwrap();
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    let begun = Instant::now();
    server.finish().await.unwrap();
    assert!(begun.elapsed() < PATIENCE, "idle connections are closed at once");
}

#[tokio::test]
async fn the_plain_http_port_gives_the_same_answers() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = start(10, |o| o.listen.insecure_port = free.port()).await;
    let mut stream = TcpStream::connect(free).await.unwrap();
    stream.write_all(b"GET /config/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let plain = Answer::read(&drained(&mut stream).await.0).unwrap();
    let secure = server.ask("GET", "/config/master", &[]).await.unwrap();
    assert_eq!((plain.status, plain.body), (200, secure.body));
    server.finish().await.unwrap();
}

#[tokio::test]
async fn plain_http_is_off_by_default() {
    assert_eq!(server::ListenOptions::default().insecure_port, 0);
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let server = start(10, |o| {
        o.listen.metrics = metrics;
        o.listen.limits.per_address = 2;
    })
    .await;
    let mut held = vec![server.connect(|_| {}).await.unwrap(), server.connect(|_| {}).await.unwrap()];
    assert!(server.connect(|_| {}).await.is_err(), "the third of one address");
    assert_eq!(count(&registry, "mcs_connections_cut_total{cause=\"address\"}"), 1);
    let other =
        crate::common::connect_from([127, 0, 0, 2].into(), server.addr, trusting(&server), |_| {}).await;
    assert!(other.is_ok(), "another address has a limit of its own");
    held.pop();
    let begun = Instant::now();
    while server.connect(|_| {}).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "a closed connection frees its place");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.finish().await.unwrap();
}

fn trusting(server: &Running) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.der.clone().into()).unwrap();
    crate::common::client(rustls::DEFAULT_VERSIONS, roots).unwrap()
}

/// Sends a request through a load balancer at this address, which sends these bytes first.
async fn through(server: &Running, from: [u8; 4], first: &[u8]) -> Option<u16> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(std::net::SocketAddr::from((from, 0))).unwrap();
    let mut stream = socket.connect(server.addr).await.unwrap();
    stream.write_all(first).await.unwrap();
    let name = tokio_rustls::rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(trusting(server)));
    let tls = connector.connect(name, stream).await.ok()?;
    let head = "GET /config/master HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    Some(Answer::to(tls, head).await.ok()?.status)
}

#[tokio::test]
async fn only_a_named_load_balancer_may_send_proxy_protocol() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let server = start(10, |o| {
        o.listen.metrics = metrics;
        o.listen.balancers = vec!["127.0.0.9/32".parse().unwrap()];
        o.listen.limits.per_address = 1;
    })
    .await;
    let header = |last: u8| {
        let addresses = [10, 0, 0, last, 127, 0, 0, 1, 1, 2, 3, 4];
        [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat()
    };
    let balancer = [127, 0, 0, 9];
    assert_eq!(through(&server, balancer, &header(17)).await, Some(200));
    // The limit applies to each machine behind the balancer.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind(std::net::SocketAddr::from((balancer, 0))).unwrap();
    let mut held = held.connect(server.addr).await.unwrap();
    held.write_all(&header(17)).await.unwrap();
    let begun = Instant::now();
    while through(&server, balancer, &header(17)).await.is_some() {
        assert!(begun.elapsed() < PATIENCE, "10.0.0.17 has its one connection");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(through(&server, balancer, &header(18)).await, Some(200));
    // The balancer must send the PROXY header, and nobody else may.
    assert_eq!(through(&server, balancer, b"").await, None);
    assert_eq!(through(&server, [127, 0, 0, 1], &header(17)).await, None);
    assert_eq!(through(&server, [127, 0, 0, 1], b"").await, Some(200));
    assert_eq!(count(&registry, "mcs_connections_cut_total{cause=\"proxy-header\"}"), 1);
    drop(held);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn new_files_are_served_within_seconds_and_requests_are_counted() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let server = Running::start([("machine-pools/master.yaml", POOL)], "kind: Config\n", |o| {
        o.listen.metrics = metrics;
    })
    .await
    .unwrap();
    let early = server.ask("GET", "/config/master", &[]).await.unwrap();
    assert_eq!((early.status, early.header("retry-after")), (503, Some("5")));
    for (path, text) in [
        ("machine-configs/rendered-1.yaml", config(10)),
        ("controller-config/machine-config-controller.yaml", SETTINGS.to_owned()),
    ] {
        let path = server.dir.path().join("base").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let begun = Instant::now();
    while server.ask("GET", "/config/master", &[]).await.unwrap().status != 200 {
        assert!(begun.elapsed() < PATIENCE, "the files are there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.ask("GET", "/config/nosuch", &[]).await.unwrap().status, 404);
    assert_eq!(count(&registry, "mcs_requests_total{pool=\"master\",version=\"2.2.0\",code=\"200\"}"), 1);
    assert_eq!(count(&registry, "mcs_requests_total{pool=\"\",version=\"2.2.0\",code=\"404\"}"), 1);
    assert!(count(&registry, "mcs_response_bytes_total{pool=\"master\"}") > 1000);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_work_does_not_start() {
    let start = |adjust: fn(&mut server::BootstrapOptions)| Running::start([], "kind: Config\n", adjust);
    let told = |result: anyhow::Result<Running>| result.err().expect("it does not start").to_string();
    assert!(
        told(start(|o| o.bootstrap_kubeconfig = "/nonexistent/kc".into()).await).contains("/nonexistent/kc")
    );
    assert!(told(start(|o| o.listen.cert = "/nonexistent/c".into()).await).contains("/nonexistent/c"));
    assert!(told(start(|o| o.bootstrap_certs = vec!["foo".to_owned()]).await).contains("REGISTRY=FILE"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let result = Running::start([], "x", |o| o.listen.secure_port = port).await;
    assert!(told(result).contains(&port.to_string()));
}

#[tokio::test]
async fn responses_without_a_body_keep_a_persistent_connection_usable() {
    let server = start(2000, |_| {}).await;
    let tag = server.ask("GET", "/config/master", &[]).await.unwrap();
    let tag = tag.header("etag").unwrap();
    let mut stream = server.connect(|_| {}).await.unwrap();
    let requests = format!(
        "HEAD /config/master HTTP/1.1\r\nHost: x\r\n\r\n\
        GET /config/master HTTP/1.1\r\nHost: x\r\nIf-None-Match: {tag}\r\n\r\n\
        GET /nope HTTP/1.1\r\nHost: x\r\n\r\n\
        HEAD /config/master HTTP/1.1\r\nHost: x\r\nAccept-Encoding: gzip\r\n\r\n\
        GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(requests.as_bytes()).await.unwrap();
    let (all, _) = drained(&mut stream).await;
    let text = String::from_utf8(all).unwrap();
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).filter_map(|rest| rest.get(..3)).collect();
    assert_eq!(statuses, ["200", "304", "404", "200", "200"], "{text}");
    let lengths: Vec<u64> =
        text.lines().filter_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).collect();
    assert!(lengths.first() > lengths.iter().rev().nth(1), "the packed form is shorter: {lengths:?}");
    server.finish().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn machines_that_boot_together_all_get_the_same_bytes() {
    const MACHINES: usize = 200;
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let server = start(100_000, |o| {
        o.listen.metrics = metrics;
        // Server and clients share the cores of a busy machine, in an unoptimised build.
        o.listen.limits.handshake = PATIENCE;
        o.listen.limits.head = PATIENCE;
    })
    .await;
    let answers =
        futures::future::join_all((0..MACHINES).map(|_| server.ask("GET", "/config/master", &[]))).await;
    let answers: Vec<Answer> = answers.into_iter().collect::<Result<_, _>>().unwrap();
    let first = answers.first().unwrap();
    assert!(first.body.len() > 100_000);
    assert!(answers.iter().all(|a| a.status == 200 && a.body == first.body));
    assert_eq!(count(&registry, "mcs_requests_total{pool=\"master\",version=\"2.2.0\",code=\"200\"}"), 200);
    server.finish().await.unwrap();
    assert_eq!(count(&registry, "mcs_connections"), 0);
}
