//! Tests of the writer: rotations of the API server's CA, with an API server that answers from a table.

use super::rotation::{CaRead, bundle, due, is_untrusted_certificate};
use super::*;
use crate::node::certificates::kubeconfig_files::tests::{mk_kubeconfig, mk_pem, mk_root, paths, write};
use crate::protocol::NodeFacts;
use api::k8s::ConfigMap;
use serde_json::Value;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// An API server with a Node and the ConfigMap. What it refuses, and what was written to the Node.
#[derive(Default)]
struct Api {
    bundle: String,
    map_fails: bool,
    patch_fails: bool,
    reads: u32,
    uid: String,
    notes: BTreeMap<String, String>,
}

fn mk_writer(dir: &Path, api: &Arc<Mutex<Api>>) -> Writer {
    let api = api.clone();
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let api = api.clone();
        async move {
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                std::future::pending::<()>().await;
            }
            let is_list = request.uri().path().ends_with("/controllerconfigs");
            let is_map = request.uri().path().ends_with("/configmaps/kubeconfig-data");
            let is_patch = *request.method() == http::Method::PATCH;
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut api = api.lock().unwrap();
            let metadata = serde_json::json!({"name": "n", "uid": api.uid, "annotations": api.notes});
            let node = serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
            let fails = (is_map && api.map_fails) || (is_patch && api.patch_fails);
            api.reads += u32::from(is_map);
            let answer = if fails {
                serde_json::json!({"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable"})
            } else if is_map {
                serde_json::json!({"metadata": {"name": "kubeconfig-data"}, "data": {"ca-bundle.crt": api.bundle}})
            } else if is_list {
                serde_json::json!({"metadata": {"resourceVersion": "7"}, "items": [mk_object("false", "")]})
            } else {
                if is_patch {
                    let patch: Value = serde_json::from_slice(&body).unwrap();
                    let notes = patch["metadata"]["annotations"].clone();
                    api.notes.extend(serde_json::from_value::<BTreeMap<_, _>>(notes).unwrap());
                }
                node
            };
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            let code = if fails { 503 } else { 200 };
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    let place =
        CertificateHost { root: mk_root(dir), root_mount: dir.to_path_buf(), kubeconfigs: paths(None) };
    Writer::new(Client::new(serve, "default"), "n", place, watch::channel(None).1)
}

fn mk_object(word: &str, at: &str) -> ControllerConfig {
    let mut object = ControllerConfig::new(CONTROLLER_CONFIG, api::v1::ControllerConfigSpec::default());
    object.metadata.resource_version = Some("7".to_owned());
    object.metadata.annotations = Some(BTreeMap::from([
        (annotation::SERVICE_CA_ROTATE.to_owned(), word.to_owned()),
        (own::SERVER_CA_ROTATED_AT.to_owned(), at.to_owned()),
    ]));
    object
}

fn mk_source(word: &str, at: &str) -> Source {
    Source::of(&mk_object(word, at))
}

/// A signer for which the kubelet need not be restarted: tests have no systemd.
fn mk_signer() -> String {
    mk_pem("kube-apiserver-lb-signer")
}

#[tokio::test]
async fn a_rotation_without_any_kubeconfig_fails_and_is_not_reported_as_observed() {
    let dir = tempfile::tempdir().unwrap();
    let api = Arc::new(Mutex::new(Api { bundle: mk_signer(), ..Api::default() }));
    let mut writer = mk_writer(dir.path(), &api);
    let why = writer.write_changed(&mk_source("true", "1")).await.unwrap_err();
    let TaskError::Failed(why) = why else { panic!("{why:?}") };
    assert!(why.contains("/etc/kubernetes/kubelet.conf") && why.contains("--kubeconfig"), "{why}");
    assert!(!api.lock().unwrap().notes.contains_key(annotation::LAST_OBSERVED_SERVER_CA));
    // The rotation stays pending after the hour, until there is a kubeconfig.
    assert!(writer.write_changed(&mk_source("false", "1")).await.is_err());
    write(dir.path(), "/etc/kubernetes/kubelet.conf", &mk_kubeconfig(&mk_pem("old")));
    writer.write_changed(&mk_source("false", "1")).await.unwrap();
    assert!(writer.restart_owed, "the CA was written");
}

/// Here there is no systemd, so each restart fails.
#[tokio::test]
async fn a_restart_of_the_kubelet_that_failed_is_tried_again_also_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "/etc/kubernetes/kubelet.conf", &mk_kubeconfig(&mk_pem("old")));
    let api = Arc::new(Mutex::new(Api { bundle: mk_pem("service-signer"), ..Api::default() }));
    let mut writer = mk_writer(dir.path(), &api);
    for _ in 0..2 {
        let why = writer.write_changed(&mk_source("true", "1")).await.unwrap_err();
        assert!(matches!(why, TaskError::Failed(_)), "{why:?}");
    }
    let mut next = mk_writer(dir.path(), &api);
    next.write_changed(&mk_source("true", "1")).await.unwrap_err();
    assert!(!api.lock().unwrap().notes.contains_key(annotation::LAST_OBSERVED_SERVER_CA));
}

#[tokio::test]
async fn an_agent_that_starts_without_an_answer_retries() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "/etc/kubernetes/kubelet.conf", &mk_kubeconfig(&mk_pem("old")));
    let api = Arc::new(Mutex::new(Api { bundle: mk_signer(), map_fails: true, ..Api::default() }));
    let mut writer = mk_writer(dir.path(), &api);
    let why = writer.write_changed(&mk_source("false", "")).await.unwrap_err();
    assert!(matches!(why, TaskError::NoAnswer(_)), "the node is not degraded: {why:?}");
    assert!(api.lock().unwrap().notes.contains_key(annotation::LAST_SYNCED_CONTROLLER_CONFIG));
    api.lock().unwrap().map_fails = false;
    writer.write_changed(&mk_source("false", "")).await.unwrap();
    assert!(writer.restart_owed, "the CA was written");
    let reads = api.lock().unwrap().reads;
    writer.write_changed(&mk_source("false", "")).await.unwrap();
    assert_eq!(api.lock().unwrap().reads, reads, "one answer is enough");
}

#[tokio::test]
async fn a_node_that_is_registered_again_gets_the_annotations_again() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "/etc/kubernetes/kubelet.conf", &mk_kubeconfig(&mk_pem("old")));
    let api = Arc::new(Mutex::new(Api { bundle: mk_signer(), ..Api::default() }));
    let mut writer = mk_writer(dir.path(), &api);
    let (watch, updates) = watch::channel(None);
    writer.updates = updates;
    let registered = |uid: &str| {
        api.lock().unwrap().uid = uid.to_owned();
        api.lock().unwrap().notes.clear();
        watch.send(Some(NodeFacts { uid: uid.to_owned(), ..Default::default() })).unwrap();
    };
    let synced = async || {
        let written = || api.lock().unwrap().notes.get(annotation::LAST_SYNCED_CONTROLLER_CONFIG).cloned();
        let waits = async {
            while written().is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            written()
        };
        tokio::time::timeout(Duration::from_secs(20), waits).await.unwrap()
    };
    // Not ended properly: it would restart the kubelet.
    let runs = tokio::spawn(writer.run(CancellationToken::new()));
    registered("a");
    assert_eq!(synced().await.as_deref(), Some("7"));
    registered("b");
    assert_eq!(synced().await.as_deref(), Some("7"));
    runs.abort();
}

#[tokio::test]
async fn a_second_rotation_within_the_hour_is_followed_also_when_its_start_was_missed() {
    let dir = tempfile::tempdir().unwrap();
    let path = "/etc/kubernetes/kubelet.conf";
    write(dir.path(), path, &mk_kubeconfig(&mk_pem("old")));
    let api = Arc::new(Mutex::new(Api { bundle: mk_signer(), ..Api::default() }));
    let mut writer = mk_writer(dir.path(), &api);
    writer.write_changed(&mk_source("true", "1")).await.unwrap();
    let one = std::fs::read_to_string(dir.path().join(&path[1..])).unwrap();
    // The agent sees the `false` between the two but cannot write it to the Node. The second time it does not see it.
    api.lock().unwrap().patch_fails = true;
    writer.write_changed(&mk_source("false", "1")).await.unwrap_err();
    api.lock().unwrap().patch_fails = false;
    api.lock().unwrap().bundle = mk_signer();
    writer.write_changed(&mk_source("true", "2")).await.unwrap();
    let two = std::fs::read_to_string(dir.path().join(&path[1..])).unwrap();
    assert_ne!(one, two, "the second CA");
    api.lock().unwrap().bundle = mk_signer();
    writer.write_changed(&mk_source("true", "3")).await.unwrap();
    assert_ne!(two, std::fs::read_to_string(dir.path().join(&path[1..])).unwrap(), "the third CA");
}

#[test]
fn the_ca_is_read_at_start_and_at_each_rotation_only() {
    let says = |word: &str, at: &str| CaRotation { word: word.to_owned(), at: at.to_owned() };
    let rows = [
        (None, says("", ""), CaRead::Read),
        (None, says("false", "1"), CaRead::Read),
        (None, says("true", ""), CaRead::Rotation),
        (Some(says("", "")), says("false", ""), CaRead::Nothing),
        // An administrator's.
        (Some(says("false", "")), says("true", ""), CaRead::Rotation),
        (Some(says("true", "")), says("true", ""), CaRead::Nothing),
        // The operator's.
        (Some(says("true", "1")), says("true", "2"), CaRead::Rotation),
        (Some(says("false", "1")), says("false", "2"), CaRead::Rotation),
        (Some(says("true", "1")), says("false", "1"), CaRead::Nothing),
        (Some(says("true", "1")), says("true", ""), CaRead::Nothing),
    ];
    for (looked, now, want) in rows {
        assert_eq!(due(looked.as_ref(), &now, false), want, "{looked:?} {now:?}");
        let owed =
            if now == says("false", "") || now == says("", "") { CaRead::Read } else { CaRead::Rotation };
        assert_eq!(due(looked.as_ref(), &now, true), owed, "{looked:?} {now:?}");
    }
}

#[test]
fn a_bundle_may_be_bytes_base64_or_text() {
    let map = |value: Value| serde_json::from_value::<ConfigMap>(value).unwrap();
    for value in [
        serde_json::json!({"binaryData": {"ca-bundle.crt": "UEVN"}, "data": {"ca-bundle.crt": "other"}}),
        serde_json::json!({"data": {"ca-bundle.crt": "UEVN\n"}}),
    ] {
        assert_eq!(bundle(&map(value), "ca-bundle.crt").unwrap(), b"PEM");
    }
    let text = serde_json::json!({"data": {"ca-bundle.crt": "-----BEGIN"}});
    assert_eq!(bundle(&map(text), "ca-bundle.crt").unwrap(), b"-----BEGIN");
    assert_eq!(bundle(&map(serde_json::json!({})), "ca-bundle.crt"), None);
}

/// A server on loopback with a certificate of its own, which answers each request with an error that names a certificate.
/// Its address, and the certificate in DER.
async fn mk_tls_server() -> (std::net::SocketAddr, Vec<u8>) {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let der = pair.cert.der().to_vec();
    let key = rustls::pki_types::PrivateKeyDer::try_from(pair.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_no_client_auth().with_single_cert(vec![pair.cert.into()], key).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500,
                "reason": "InternalError", "message": "x509: certificate signed by unknown authority"});
            let body = status.to_string();
            let head = format!("HTTP/1.1 500 Error\r\ncontent-length: {}\r\n\r\n", body.len());
            // A request without a body, so one read of its head is enough for an answer.
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all((head + &body).as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    });
    (address, der)
}

#[tokio::test]
async fn only_a_certificate_that_this_process_does_not_trust_restarts_the_kubelet() {
    let (address, own) = mk_tls_server().await;
    let (_, other) = mk_tls_server().await;
    let ask = async |port: u16, root: Vec<u8>| {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.root_cert = Some(vec![root]);
        let api: kube::Api<ConfigMap> = kube::Api::default_namespaced(Client::try_from(config).unwrap());
        let error = watcher::Error::InitialListFailed(api.get("x").await.unwrap_err());
        (is_untrusted_certificate(&error), chain(&error))
    };
    let (untrusted, text) = ask(address.port(), other).await;
    assert!(untrusted, "{text}");
    // The API server says this of somebody else.
    let (untrusted, text) = ask(address.port(), own.clone()).await;
    assert!(!untrusted && text.contains("x509: certificate"), "{text}");
    let free = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let (untrusted, text) = ask(free.port(), own).await;
    assert!(!untrusted && text.contains("refused"), "{text}");
}
