//! The dashboard's port as those meet it who want to keep others out: over real sockets.

use super::*;
use crate::LAST_ANSWERS;
use crate::tests::site::Site;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A dashboard that listens, and what its clients need.
struct Listening {
    address: SocketAddr,
    connector: TlsConnector,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Listening {
    async fn with(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        std::fs::write(&cert, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        let tls = Tls::load_when_there(&cert, &key, &listen::tls::TlsProfile::default()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(pair.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let until = stop.clone();
        let served = tokio::spawn(async move {
            let _kept = folder;
            serve_within(limits, listener, &tls, Site::new().app, &until).await;
        });
        Self { address, connector: TlsConnector::from(Arc::new(config)), stop, served }
    }

    /// A connection from another address of this computer.
    async fn connect(&self, from: Ipv4Addr) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        self.connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
    }

    /// A sign-in whose body does not come.
    async fn half(&self, from: Ipv4Addr) -> TlsStream<TcpStream> {
        let mut stream = self.connect(from).await;
        let head = "POST /api/session HTTP/1.1\r\nHost: localhost\r\nOrigin: https://localhost\r\n\
            x-mco-dashboard: 1\r\nContent-Length: 100\r\n\r\n{";
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    async fn probe(&self) -> String {
        let mut stream = self.connect(Ipv4Addr::LOCALHOST).await;
        let request = "GET /healthz HTTP/1.1\r\nHost: 10.0.0.1:9443\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![];
        // The end of the stream is none of TLS.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LAST_ANSWERS * 2, self.served).await.expect("it ends").unwrap();
    }
}

/// Whether the other side has ended this within a second.
async fn has_ended(stream: &mut TlsStream<TcpStream>) -> bool {
    let read = tokio::time::timeout(Duration::from_secs(1), stream.read(&mut [0])).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

const SMALL: Limits = Limits { connections: 8, ..LIMITS };

#[tokio::test]
async fn probes_are_answered_while_strangers_hold_all_connections_with_half_requests() {
    let dashboard = Listening::with(SMALL).await;
    let (one, two) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let mut held = vec![dashboard.half(two).await];
    for _ in 0..7 {
        held.push(dashboard.half(one).await);
    }
    for _ in 0..3 {
        let answer = tokio::time::timeout(Duration::from_secs(5), dashboard.probe()).await;
        let answer = answer.expect("an answer within the kubelet's five seconds");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert!(has_ended(&mut held[1]).await, "the oldest of the address that has most makes room");
    assert!(!has_ended(&mut held[0]).await, "whoever has one keeps it");
    dashboard.end().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_and_a_connection_that_is_old_end() {
    let dashboard = Listening::with(SMALL).await;
    let mut stream = dashboard.half(Ipv4Addr::LOCALHOST).await;
    let mut answer = vec![];
    let read = tokio::time::timeout(crate::body::BODY * 2, stream.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "it is not waited for any longer");
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    dashboard.end().await;

    let moment = Duration::from_millis(50);
    let short = Limits { lifetime: moment, last_answer: moment, ..SMALL };
    let dashboard = Listening::with(short).await;
    let mut half = dashboard.half(Ipv4Addr::LOCALHOST).await;
    assert!(has_ended(&mut half).await);
    dashboard.end().await;
}
