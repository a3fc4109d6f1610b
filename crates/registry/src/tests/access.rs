//! How a registry is reached: tokens and passwords, redirects, its own authority, proxies.

use super::*;

#[tokio::test]
async fn a_token_is_fetched_as_the_registry_demands_and_the_password_stays_at_the_token_server() {
    let (images, _) = images();
    let tokens = FakeRegistry::start(|asked| match asked.authorization() {
        // echo -n me:pass | base64
        "Basic bWU6cGFzcw==" => CannedAnswer::ok("{\"token\": \"t0\"}"),
        _ => CannedAnswer::status(401),
    })
    .await;
    let realm = format!(
        "Bearer realm=\"http://{}/token\",service=\"reg\",scope=\"repository:lab/os:pull\"",
        tokens.server
    );
    let registry = FakeRegistry::start(move |asked| match asked.authorization() {
        "Bearer t0" => images.says(asked),
        _ => CannedAnswer::status(401).with("WWW-Authenticate", &realm),
    })
    .await;
    let at = image(&registry.server, "");
    inspect(with_login(&registry.server, "me:pass"), &at).await.unwrap();
    assert_eq!(tokens.lines(), ["GET /token?service=reg&scope=repository%3Alab%2Fos%3Apull"]);
    let to_registry: Vec<String> =
        registry.asked.lock().unwrap().iter().map(|a| a.authorization().to_owned()).collect();
    assert_eq!(to_registry, ["", "Bearer t0", "Bearer t0"]);
    assert_eq!(why(inspect(settings(), &at).await), RequestFailure::Denied { sent: false });
    let wrong = why(inspect(with_login(&registry.server, "me:hunter2"), &at).await);
    assert_eq!(wrong, RequestFailure::Denied { sent: true });
    assert!(!wrong.to_string().contains("hunter2"));
}

#[tokio::test]
async fn an_identity_token_is_exchanged_and_a_password_is_sent_where_it_is_demanded() {
    let (images, _) = images();
    let tokens = FakeRegistry::start(|_| CannedAnswer::ok("{\"access_token\": \"t1\"}")).await;
    let realm = format!("Bearer realm=\"http://{}/t\"", tokens.server);
    let registry = FakeRegistry::start(move |asked| match asked.authorization() {
        "Bearer t1" | "Basic bWU6cGFzcw==" => images.says(asked),
        _ if asked.line.contains("basic") => {
            CannedAnswer::status(401).with("WWW-Authenticate", "Basic realm=\"r\"")
        }
        _ => CannedAnswer::status(401).with("WWW-Authenticate", &realm),
    })
    .await;
    let mut with = settings();
    let file = json!({"auths": {registry.server.as_str(): {"identitytoken": "id&1"}}});
    with.credentials.add(file.to_string().as_bytes()).unwrap();
    inspect(with, &image(&registry.server, "")).await.unwrap();
    let asked = tokens.asked.lock().unwrap()[0].clone();
    assert_eq!(asked.line, "POST /t");
    assert!(
        asked.body.contains("refresh_token=id%261&") || asked.body.ends_with("refresh_token=id%261"),
        "{}",
        asked.body
    );
    // Basic: the tag does not exist, which only shows after the login.
    let at = image(&registry.server, ":basic");
    assert_eq!(why(inspect(with_login(&registry.server, "me:pass"), &at).await), RequestFailure::NotFound);
    assert_eq!(
        why(inspect(with_login(&registry.server, "me:no"), &at).await),
        RequestFailure::Denied { sent: true }
    );
    assert_eq!(why(inspect(settings(), &at).await), RequestFailure::Denied { sent: false });
}

#[tokio::test]
async fn a_redirect_is_followed_without_the_credentials() {
    let (images, _) = images();
    let all = images.clone();
    let store = FakeRegistry::start(move |asked| {
        let name = asked.line.trim_start_matches("GET /store/");
        all.0.get(name).map_or_else(|| CannedAnswer::status(404), |b| CannedAnswer::ok(b.clone()))
    })
    .await;
    let to = format!("http://{}/store", store.server);
    let registry = FakeRegistry::start(move |asked| match asked.line.strip_prefix("GET /v2/lab/os/blobs/") {
        _ if asked.authorization().is_empty() => CannedAnswer::status(401).with("WWW-Authenticate", "Basic"),
        Some(digest) => CannedAnswer::status(307).with("Location", &format!("{to}/blobs/{digest}")),
        None => images.says(asked),
    })
    .await;
    inspect(with_login(&registry.server, "me:pass"), &image(&registry.server, "")).await.unwrap();
    let at_store = store.asked.lock().unwrap().clone();
    assert_eq!(at_store.len(), 1);
    assert_eq!(at_store[0].authorization(), "");
    let circle = FakeRegistry::start(|asked| {
        CannedAnswer::status(302).with("Location", asked.line.trim_start_matches("GET "))
    })
    .await;
    assert!(matches!(why(inspect(settings(), &image(&circle.server, "")).await), RequestFailure::Lies(_)));
    assert_eq!(circle.lines().len(), 6);
}

#[tokio::test]
async fn a_registrys_own_authority_is_trusted_for_that_registry_only() {
    let key = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let config = tokio_rustls::rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(vec![key.cert.der().clone()], key.signing_key.serialize_der().try_into().unwrap())
    .unwrap();
    let (images, _) = images();
    let says = move |asked: &ReceivedRequest| images.says(asked);
    let registry = FakeRegistry::serve(Some(tokio_rustls::TlsAcceptor::from(Arc::new(config))), says).await;
    let at = image(&registry.server, "");
    let strict = || Settings { insecure: false, ..settings() };
    let refused = why(inspect(strict(), &at).await);
    assert!(
        matches!(&refused, RequestFailure::Unreachable(words) if words.contains("certificate")),
        "{refused}"
    );
    let mut other = strict();
    assert_eq!(other.trust.add(Some("127.0.0.1:1"), key.cert.pem().as_bytes()), 1);
    assert!(inspect(other.clone(), &at).await.is_err());
    other.trust.add(Some(&registry.server), key.cert.pem().as_bytes());
    inspect(other, &at).await.unwrap();
    let mut everywhere = strict();
    everywhere.trust.add(None, key.cert.pem().as_bytes());
    inspect(everywhere, &at).await.unwrap();
    inspect(settings(), &at).await.unwrap();
}

#[tokio::test]
async fn a_registry_is_reached_through_the_proxy() {
    let (images, _) = images();
    let registry = FakeRegistry::start(move |asked| images.says(asked)).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://me:pass@{}", listener.local_addr().unwrap());
    let heads = Arc::new(std::sync::Mutex::new(vec![]));
    let (log, to) = (heads.clone(), registry.server.clone());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (log, to) = (log.clone(), to.clone());
            tokio::spawn(async move {
                let mut client = tokio::io::BufReader::new(client);
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    client.read_line(&mut head).await.unwrap();
                }
                log.lock().unwrap().push(head);
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let mut server = tokio::net::TcpStream::connect(to).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    let proxies = Proxies::new(&proxy, &proxy, "");
    inspect(Settings { proxies, ..settings() }, &Reference::parse("registry.example/lab/os").unwrap())
        .await
        .unwrap();
    let heads = heads.lock().unwrap().clone();
    assert!(heads[0].starts_with("CONNECT registry.example:443 "), "{heads:?}");
    assert!(
        heads.iter().all(|h| h.to_lowercase().contains("proxy-authorization: basic bwu6cgfzcw==")),
        "{heads:?}"
    );
}
