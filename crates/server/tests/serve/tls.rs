//! TLS of the server: versions and suites, HTTP/2, and certificates that change while it runs.
//!
//! Not here: what clients do on a connection (see `wire`).

use crate::common::{Answer, PATIENCE, certify, client, connect};
use crate::wire::{count, drained, start};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prometheus_client::registry::Registry;
use server::Metrics;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// A ClientHello of one TLS version with these cipher suites and no extensions.
fn hello(version: [u8; 2], suites: &[[u8; 2]]) -> Vec<u8> {
    let mut body = version.to_vec();
    body.extend([7; 32]);
    body.push(0);
    body.extend(u16::try_from(suites.len() * 2).unwrap().to_be_bytes());
    body.extend(suites.concat());
    body.extend([1, 0]);
    let mut handshake = vec![1, 0];
    handshake.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    handshake.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(handshake.len()).unwrap().to_be_bytes());
    record.extend(handshake);
    record
}

#[tokio::test]
async fn old_versions_and_old_suites_are_refused_with_an_alert() {
    const CBC: [u8; 2] = [0xc0, 0x13];
    const GCM: [u8; 2] = [0xc0, 0x2f];
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let server = start(10, |o| o.listen.metrics = metrics).await;
    for (version, suites) in [([3, 1], [CBC, GCM]), ([3, 2], [CBC, GCM]), ([3, 3], [CBC, CBC])] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(&hello(version, &suites)).await.unwrap();
        let (answer, _) = drained(&mut stream).await;
        assert_eq!(answer.first(), Some(&21), "an alert for {version:?} {suites:?}: {answer:?}");
    }
    assert_eq!(count(&registry, "mcs_tls_failures_total"), 3);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(server.der.clone().into()).unwrap();
        connect(server.addr, client(&[version], roots).unwrap(), |_| {}).await.unwrap();
    }
    server.finish().await.unwrap();
}

#[tokio::test]
async fn a_profile_of_tls_1_3_refuses_1_2() {
    let server = start(10, |o| o.listen.tls.min_version = "VersionTLS13".to_owned()).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(server.der.clone().into()).unwrap();
    let old = client(&[&rustls::version::TLS12], roots).unwrap();
    connect(server.addr, old, |_| {}).await.unwrap_err();
    assert_eq!(server.ask("GET", "/healthz", &[]).await.unwrap().status, 200);
    server.finish().await.unwrap();
}

#[tokio::test]
async fn http2_is_refused_unless_it_is_switched_on() {
    let only_h2 = |c: &mut rustls::ClientConfig| c.alpn_protocols = vec![b"h2".to_vec()];
    let off = start(10, |_| {}).await;
    off.connect(only_h2).await.unwrap_err();
    off.finish().await.unwrap();

    let on = start(10, |o| o.listen.http2 = true).await;
    let stream = TokioIo::new(on.connect(only_h2).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let driver = tokio::spawn(connection);
    for path in ["/healthz", "/config/master"] {
        let request =
            hyper::Request::get(format!("https://localhost{path}")).body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        let length = response.into_body().collect().await.unwrap().to_bytes().len();
        assert_eq!(length > 100, path != "/healthz");
    }
    drop(sender);
    driver.await.unwrap().unwrap();
    assert_eq!(on.ask("GET", "/healthz", &[]).await.unwrap().status, 200, "HTTP/1.1 too");
    on.finish().await.unwrap();
}

#[tokio::test]
async fn a_changed_certificate_is_loaded_without_dropping_connections_and_a_broken_one_is_not() {
    let mut server = start(10, |_| {}).await;
    let mut kept = server.connect(|_| {}).await.unwrap();
    std::fs::write(server.dir.path().join("cert"), "nonsense").unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(server.ask("GET", "/healthz", &[]).await.unwrap().status, 200, "the old one is in force");
    let new = certify(server.dir.path()).unwrap();
    let begun = Instant::now();
    server.der = new;
    while server.ask("GET", "/healthz", &[]).await.is_err() {
        assert!(begun.elapsed() < PATIENCE, "the new certificate is in force");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    kept.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert_eq!(Answer::read(&drained(&mut kept).await.0).unwrap().status, 200);
    server.finish().await.unwrap();
}
