//! Tables for the request's head, and answers from prepared configs, without sockets.

use super::*;
use crate::prepared::cache::{Freshness, Update};
use crate::prepared::prepare::{Mode, Rendered, Source};
use api::v1::MachineConfig;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);

fn mk_source(pool: &str, config: Value) -> Source {
    let mut machine_config =
        MachineConfig::new(&format!("rendered-{pool}-1"), api::v1::MachineConfigSpec::default());
    machine_config.spec.config = Some(config);
    Source {
        pool: pool.to_owned(),
        rendered: Arc::new(Rendered::new(machine_config)),
        mode: Mode::Cluster,
        kubelet_ca: Vec::new(),
        cloud_ca: Vec::new(),
        kubeconfig: b"secret-token".to_vec(),
        registry_certificates: Vec::new(),
        layered_image: None,
    }
}

async fn mk_shared() -> Shared {
    let shared =
        Shared { configs: PreparedConfigs::default(), metrics: Metrics::default(), boot_tokens: None };
    let pools = BTreeMap::from([
        ("worker".to_owned(), Ok(mk_source("worker", json!({"ignition": {"version": "3.5.0"}})))),
        ("broken".to_owned(), Ok(mk_source("broken", json!({"ignition": {"version": "9.0.0"}})))),
        ("new".to_owned(), Err(Refusal::NotYet { pool: "new".to_owned(), why: "not rendered".to_owned() })),
    ]);
    let held_back = BTreeMap::from([("worker".to_owned(), "the next is not valid".to_owned())]);
    let update = Update { pools, held_back, freshness: Freshness::Current, bootstrap: false };
    shared.configs.publish(update, SystemTime::now()).await;
    shared
}

async fn send(
    shared: &Shared,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (http::response::Parts, Bytes) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, body) = respond(shared, PEER, true, request.body(()).unwrap()).await.into_parts();
    (head, body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn statuses_of_all_kinds_of_requests() {
    let shared = mk_shared().await;
    let v = |v: &str| format!("application/vnd.coreos.ignition+json;version={v}");
    let rows = [
        ("GET", "/config/worker", v("3.5.0"), 200, None),
        ("HEAD", "/config/worker", v("3.5.0"), 200, None),
        ("GET", "/config/worker?x=/config/other", v("3.4.0"), 200, None),
        ("GET", "/config/worker", v("4.0.0"), 400, Some("UnknownVersion")),
        ("GET", "/config/worker", v("3.0.0"), 406, Some("NotExpressible")),
        ("GET", "/config/nosuch", v("3.5.0"), 404, Some("UnknownPool")),
        ("GET", "/config/new", v("3.5.0"), 503, Some("NoConfigYet")),
        ("GET", "/config/broken", v("3.5.0"), 500, Some("InvalidConfig")),
        ("GET", "/config/", v("3.5.0"), 400, Some("InvalidPoolName")),
        ("GET", "/config", v("3.5.0"), 404, Some("NoSuchPath")),
        ("POST", "/config/worker", v("3.5.0"), 405, Some("MethodNotAllowed")),
        ("OPTIONS", "/", String::new(), 405, Some("MethodNotAllowed")),
        ("GET", "/", String::new(), 404, Some("NoSuchPath")),
        ("HEAD", "/", String::new(), 404, Some("NoSuchPath")),
        ("POST", "/", String::new(), 405, Some("MethodNotAllowed")),
        ("GET", "/healthz", String::new(), 200, None),
        ("HEAD", "/healthz", String::new(), 200, None),
        ("POST", "/healthz", String::new(), 405, Some("MethodNotAllowed")),
        ("GET", "/readyz", String::new(), 200, None),
    ];
    for (method, path, accept, status, reason) in rows {
        let (head, body) = send(&shared, method, path, &[("accept", &accept)]).await;
        assert_eq!(head.status.as_u16(), status, "{method} {path} {accept}");
        if let Some(reason) = reason {
            let told: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(told["error"]["reason"], reason, "{method} {path} {accept}");
        }
    }
    let (head, _) = send(&shared, "PUT", "/config/worker", &[]).await;
    assert_eq!(head.headers[ALLOW], "GET, HEAD");
    let (head, _) = send(&shared, "GET", "/config/new", &[]).await;
    assert_eq!(head.headers[RETRY_AFTER], "5");
    let (_, body) = send(&shared, "GET", "/healthz", &[]).await;
    assert!(body.is_empty());
}

#[tokio::test]
async fn a_request_with_a_body_is_refused_and_its_connection_closed() {
    let shared = mk_shared().await;
    for header in [("content-length", "5"), ("transfer-encoding", "chunked")] {
        let (head, _) = send(&shared, "GET", "/config/worker", &[header]).await;
        assert_eq!((head.status.as_u16(), head.headers[CONNECTION].as_bytes()), (413, &b"close"[..]));
    }
    let (head, _) = send(&shared, "GET", "/config/worker", &[("content-length", "0")]).await;
    assert_eq!(head.status, StatusCode::OK);
}

#[tokio::test]
async fn the_tag_saves_the_body_and_gzip_comes_only_when_asked_for() {
    let shared = mk_shared().await;
    let (head, plain) = send(&shared, "GET", "/config/worker", &[]).await;
    assert_eq!(head.headers[CONTENT_TYPE], "application/json");
    assert!(!head.headers.contains_key(CONTENT_ENCODING));
    let tag = head.headers[ETAG].to_str().unwrap().to_owned();
    for header in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        let (head, body) = send(&shared, "GET", "/config/worker", &[("if-none-match", &header)]).await;
        assert_eq!((head.status.as_u16(), body.len()), (304, 0), "{header}");
        assert_eq!(head.headers[ETAG], tag);
    }
    let (head, packed) = send(&shared, "GET", "/config/worker", &[("accept-encoding", "gzip")]).await;
    assert_eq!(head.headers[CONTENT_ENCODING], "gzip");
    assert_ne!(head.headers[ETAG], tag);
    assert_eq!(ignition::gunzip(&packed).unwrap(), plain);
    assert_eq!(head.headers[VARY], "Accept, Accept-Encoding");
    let (head, _) = send(&shared, "GET", "/config/worker", &[("if-none-match", "\"other\"")]).await;
    assert_eq!(head.status, StatusCode::OK);
}

#[tokio::test]
async fn several_accept_headers_count_as_one_list() {
    let shared = mk_shared().await;
    let high = ("accept", "a/vnd.coreos.ignition+json;version=3.4.0;q=0.9");
    let low = ("accept", "a/vnd.coreos.ignition+json;version=3.2.0;q=0.5");
    let (_, body) = send(&shared, "GET", "/config/worker", &[low, high]).await;
    let config: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(config["ignition"]["version"], "3.4.0");
}

#[tokio::test]
async fn an_unchanged_source_keeps_its_answers_and_a_changed_one_is_prepared_before_it_is_served() {
    let shared = mk_shared().await;
    let version = Version::V3_5;
    let first = shared.configs.pool("worker").unwrap().get(version).await.unwrap();
    let source = || mk_source("worker", json!({"ignition": {"version": "3.5.0"}}));
    let publish = |s: Source| {
        let pools = BTreeMap::from([("worker".to_owned(), Ok(s))]);
        let update = Update { pools, freshness: Freshness::Current, ..Update::default() };
        shared.configs.publish(update, SystemTime::now())
    };
    publish(source()).await;
    let again = shared.configs.pool("worker").unwrap().get(version).await.unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    publish(Source { kubeconfig: b"rotated".to_vec(), ..source() }).await;
    let changed = shared.configs.pool("worker").unwrap();
    assert_ne!(changed.get(version).await.unwrap().etag, first.etag);
    assert!(shared.configs.pool("broken").is_err(), "pools that are gone are gone");
}

#[tokio::test]
async fn readiness_tells_from_which_state_answers_come() {
    let shared =
        Shared { configs: PreparedConfigs::default(), metrics: Metrics::default(), boot_tokens: None };
    let (head, body) = send(&shared, "GET", "/readyz", &[]).await;
    assert_eq!((head.status, body.is_empty()), (StatusCode::SERVICE_UNAVAILABLE, true));
    let (head, _) = send(&shared, "GET", "/config/worker", &[]).await;
    assert_eq!((head.status.as_u16(), head.headers.contains_key(RETRY_AFTER)), (503, true));
    let shared = mk_shared().await;
    let why = "connection refused".to_owned();
    shared.configs.set_freshness(Freshness::LastGood { since: SystemTime::now(), why });
    // The port that machines reach returns the status only.
    let (head, body) = send(&shared, "GET", "/readyz", &[]).await;
    assert_eq!((head.status, body.is_empty(), head.headers.get(CONTENT_TYPE)), (StatusCode::OK, true, None));
    // The metrics port explains it.
    let (head, body) = health(&shared, "/readyz").unwrap().into_parts();
    let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    let told: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((head.status.as_u16(), &told["source"]["state"]), (200, &json!("LastGood")));
    assert_eq!(told["pools"]["worker"]["config"], "rendered-worker-1");
    assert_eq!(told["pools"]["worker"]["heldBack"], "the next is not valid");
    assert!(!String::from_utf8_lossy(&body).contains("secret-token"));
    let (head, _) = send(&shared, "GET", "/config/worker", &[]).await;
    assert_eq!(head.status, StatusCode::OK);
}
