use super::*;
use http_body_util::{BodyExt as _, Empty};
use prometheus_client::metrics::gauge::Gauge;
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A health check that is ready until a test changes it.
#[derive(Debug)]
struct NotReady;

impl Health for NotReady {
    fn ready(&self) -> (bool, String) {
        (false, r#"{"pool":"worker"}"#.to_owned())
    }
}

/// A fake API server that lets the token `good` read metrics.
fn cluster() -> kube::Client {
    let serve = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let good = review["spec"]["token"] == "good";
        review["status"] = match path.ends_with("/tokenreviews") {
            true => serde_json::json!({"authenticated": good, "user": {"username": "prometheus"}}),
            false => serde_json::json!({"allowed": true}),
        };
        let body = kube::client::Body::from(review.to_string().into_bytes());
        Ok::<_, std::io::Error>(http::Response::builder().status(201).body(body).unwrap())
    });
    kube::Client::new(serve, "default")
}

async fn get(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
    token: Option<&str>,
) -> (u16, String) {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::get(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
    let code = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn over_the_network_metrics_need_permission_and_health_has_no_details() {
    let folder = tempfile::tempdir().unwrap();
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&cert, pair.cert.pem()).unwrap();
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    let mut registry = Registry::default();
    registry.register("answer", "To everything.", Gauge::<i64>::default());
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint {
        registry: Arc::new(registry),
        health: Arc::new(NotReady),
        addresses: Addresses { plain: Some(any), secure: Some(any), certificate: Some((cert, key)) },
        access: Access::fixed(cluster()),
        profile: TlsProfile::default(),
    };
    let bound = endpoint.bind("--metrics-listen").await.unwrap();
    let (plain, secure) = (bound.plain_addr().unwrap(), bound.secure_addr().unwrap());
    let stop = CancellationToken::new();
    let serving = tokio::spawn(bound.serve(stop.clone()));

    let mut roots = RootCertStore::empty();
    roots.add(pair.cert.der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    for (path, token, code, has) in [
        ("/metrics", Some("good"), 200, "answer 0"),
        ("/metrics", Some("bad"), 401, ""),
        ("/metrics", None, 401, ""),
        ("/healthz", None, 200, ""),
        ("/readyz", None, 503, ""),
        ("/readyz", Some("good"), 503, ""),
        ("/debug", Some("good"), 404, ""),
    ] {
        let stream = tokio::net::TcpStream::connect(secure).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (found, body) = get(stream, path, token).await;
        assert_eq!(found, code, "{path} {token:?}");
        assert!(if has.is_empty() { body.is_empty() } else { body.contains(has) }, "{path}: {body}");
    }
    for (path, code, has) in [("/metrics", 200, "answer 0"), ("/readyz", 503, "worker")] {
        let stream = tokio::net::TcpStream::connect(plain).await.unwrap();
        let (found, body) = get(stream, path, None).await;
        assert_eq!(found, code, "{path}");
        assert!(body.contains(has), "{path}: {body}");
    }
    // Plain HTTP on the TLS port gets no answer.
    let mut stream = tokio::net::TcpStream::connect(secure).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("answer"));
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), serving).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn a_request_that_never_ends_does_not_delay_the_shutdown() {
    let endpoint = Endpoint {
        registry: Arc::default(),
        health: Arc::new(Healthy),
        addresses: Addresses { plain: Some(SocketAddr::from(([127, 0, 0, 1], 0))), ..Addresses::default() },
        access: Access::refuse_everyone(),
        profile: TlsProfile::default(),
    };
    let bound = endpoint.bind("--metrics-listen").await.unwrap();
    let address = bound.plain_addr().unwrap();
    let stop = CancellationToken::new();
    let task = tokio::spawn(bound.serve(stop.clone()));
    let mut connection = tokio::net::TcpStream::connect(address).await.unwrap();
    connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: ").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(10), task).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn an_address_in_use_is_an_error_at_start_that_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint {
        registry: Arc::default(),
        health: Arc::new(Healthy),
        addresses: Addresses { plain: Some(taken.local_addr().unwrap()), ..Addresses::default() },
        access: Access::refuse_everyone(),
        profile: TlsProfile::default(),
    };
    let error = endpoint.bind("--metrics-url").await.unwrap_err();
    assert!(error.to_string().contains("(--metrics-url)"), "{error}");
}

#[tokio::test]
async fn an_address_in_use_for_network_metrics_is_retried_and_stops_nothing() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let secure = taken.local_addr().unwrap();
    let plain = SocketAddr::from(([127, 0, 0, 1], 0));
    let endpoint = Endpoint {
        registry: Arc::default(),
        health: Arc::new(Healthy),
        addresses: Addresses { plain: Some(plain), secure: Some(secure), certificate: None },
        access: Access::refuse_everyone(),
        profile: TlsProfile::default(),
    };
    let bound = endpoint.bind("--metrics-listen").await.unwrap();
    let plain = bound.plain_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(bound.serve(stop.clone()));
    let stream = tokio::net::TcpStream::connect(plain).await.unwrap();
    assert_eq!(get(stream, "/healthz", None).await.0, 200);
    drop(taken);
    let begun = std::time::Instant::now();
    while tokio::net::TcpStream::connect(secure).await.is_err() {
        assert!(begun.elapsed() < Duration::from_secs(30), "the address is served again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stop.cancel();
    serving.await.unwrap();
}

#[tokio::test]
async fn one_address_cannot_take_all_connections() {
    let endpoint = Endpoint {
        registry: Arc::default(),
        health: Arc::new(Healthy),
        addresses: Addresses { plain: Some(SocketAddr::from(([0, 0, 0, 0], 0))), ..Addresses::default() },
        access: Access::refuse_everyone(),
        profile: TlsProfile::default(),
    };
    let bound = endpoint.bind("--metrics-listen").await.unwrap();
    let port = bound.plain_addr().unwrap().port();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(bound.serve(stop.clone()));
    let mut held = vec![];
    for _ in 0..2 * CONNECTIONS {
        held.push(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    // Another address of this computer.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let stream = socket.connect(SocketAddr::from(([127, 0, 0, 1], port))).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(5), get(stream, "/healthz", None)).await;
    assert_eq!(answer.expect("the limit has room for it").0, 200);
    stop.cancel();
    serving.await.unwrap();
}

/// The operator makes the Secret with its own certificate: its pod starts before there is one.
#[tokio::test]
async fn a_certificate_is_used_when_it_appears_and_stays_in_use_when_its_file_is_removed() {
    use tokio_rustls::rustls::pki_types::pem::PemObject as _;
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let endpoint = Endpoint {
        registry: Arc::new(Registry::default()),
        health: Arc::new(Healthy),
        addresses: Addresses {
            secure: Some((Ipv4Addr::LOCALHOST, 0).into()),
            certificate: Some((cert.clone(), key.clone())),
            ..Addresses::default()
        },
        access: Access::fixed(cluster()),
        profile: TlsProfile::default(),
    };
    let bound = endpoint.bind("--metrics-listen").await.unwrap();
    let address = bound.secure_addr().unwrap();
    let stop = CancellationToken::new();
    let served = tokio::spawn(bound.serve(stop.clone()));
    let pair = rcgen::generate_simple_self_signed(["part.example.svc".to_owned()]).unwrap();
    let pem = pair.cert.pem();
    let verified = async || {
        let mut roots = RootCertStore::empty();
        roots.add(rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("part.example.svc").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        Some(get(stream, "/metrics", Some("good")).await.0)
    };
    assert_eq!(verified().await, None, "a self-signed certificate is not accepted");
    std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
    std::fs::write(&cert, &pem).unwrap();
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while verified().await != Some(200) {
        assert!(std::time::Instant::now() < end, "the certificate is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    std::fs::remove_file(&cert).unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(verified().await, Some(200));
    stop.cancel();
    served.await.unwrap();
}
