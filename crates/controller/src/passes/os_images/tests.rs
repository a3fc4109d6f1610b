//! The pass with a fake API server and a fake registry, which has one image.

use super::*;
use crate::fake_server::{answer, insecure, item, put_pool, shared};
use futures::FutureExt as _;
use registry::Digest;
use serde_json::Value;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Serves an image with these labels under any tag, without TLS. Returns its address and its digest.
async fn fake_registry(labels: Value) -> (String, Digest) {
    let config = json!({"architecture": "amd64", "os": "linux", "config": {"Labels": labels}}).to_string();
    let part = json!({"digest": Digest::of(config.as_bytes()).as_str(), "size": config.len()});
    let manifest = json!({"schemaVersion": 2, "config": part, "layers": []}).to_string();
    let digest = Digest::of(manifest.as_bytes());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut read = vec![0; 8192];
            let count = stream.read(&mut read).await.unwrap_or_default();
            // TLS begins with this byte; a request here fits into one piece.
            if count == 0 || read[0] == 0x16 {
                continue;
            }
            let body = if read.starts_with(b"GET /v2/os/manifests/") { &manifest } else { &config };
            let head =
                format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes()).await;
        }
    });
    (address, digest)
}

/// The pool's next config with this image.
fn rendered(url: &str, registry: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-a", "uid": "u", "resourceVersion": "1", "ownerReferences": [
            {"apiVersion": "v1", "kind": "MachineConfigPool", "name": "worker", "uid": "u", "controller": true}]},
        "spec": {"osImageURL": url, "config": insecure(registry)},
    })
}

/// One pass over a pool whose next config has this image. Returns what it wrote, and what follows.
async fn pass(url: &str, registry: &str) -> (Vec<OsImage>, Outcome) {
    let rendered = rendered(url, registry);
    let written = Arc::new(Mutex::new(vec![]));
    let (log, object) = (written.clone(), rendered.clone());
    let shared = Arc::new(shared(move |request| {
        let mut object = object.clone();
        if request.method() == http::Method::PATCH {
            let body = request.into_body().collect_bytes().now_or_never().unwrap().unwrap();
            let patch: Value = serde_json::from_slice(&body).unwrap();
            object["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
            object["metadata"]["resourceVersion"] = json!("2");
            let text = patch["metadata"]["annotations"][own::OS_IMAGE].as_str().unwrap();
            log.lock().unwrap().push(serde_json::from_str::<OsImage>(text).unwrap());
        }
        answer(200, &object)
    }));
    put_pool(&shared);
    let config = Config::new(serde_json::from_value(rendered).unwrap());
    shared.stores.configs.apply("rendered-worker-a".to_owned(), item(config));
    let inspector = Inspector { shared, cache: Cache::default() };
    let outcome = inspector.pass("worker".to_owned()).await;
    // The answer is in the cache: the image is known, or asked for again.
    let before = written.lock().unwrap().len();
    if matches!(outcome, Outcome::Done) {
        assert!(matches!(inspector.pass("worker".to_owned()).await, Outcome::Done));
        assert_eq!(written.lock().unwrap().len(), before, "it was looked into twice");
    }
    let written = written.lock().unwrap().clone();
    (written, outcome)
}

#[tokio::test]
async fn a_tag_is_resolved_once_with_the_nodes_own_registries() {
    let (registry, digest) = fake_registry(json!({"containers.bootc": "1"})).await;
    let (written, outcome) = pass(&format!("{registry}/os:1"), &registry).await;
    assert!(matches!(outcome, Outcome::Done));
    let [found] = &written[..] else { panic!("{written:?}") };
    assert_eq!(found.by_digest(), Some(&*format!("{registry}/os@{digest}")));
    assert_eq!(
        (&*found.refused, &*found.unknown, &found.architectures[..]),
        ("", "", &["amd64".to_owned()][..])
    );
}

#[tokio::test]
async fn what_no_node_can_boot_is_refused_and_a_registry_that_is_away_is_asked_again() {
    let (registry, _) = fake_registry(json!({})).await;
    let (written, outcome) = pass(&format!("{registry}/os:1"), &registry).await;
    // The tag may name a better image soon.
    assert!(matches!(outcome, Outcome::After(_)));
    assert!(written[0].refused.contains("containers.bootc"), "{written:?}");
    // Nobody listens there.
    let (written, outcome) = pass("127.0.0.1:1/os:1", "q.io").await;
    assert!(matches!(outcome, Outcome::After(_)));
    assert!(written[0].unknown.contains("cannot be reached") && written[0].image.is_empty(), "{written:?}");
    let (written, outcome) = pass("short:1", "q.io").await;
    assert!(matches!(outcome, Outcome::Done) && written.is_empty());
}

#[tokio::test]
async fn a_write_that_was_refused_is_no_problem_when_nothing_is_written_any_more() {
    // The second one is an image whose tag the pool's node follows.
    for (url, follows) in [("short:1", false), ("q.io/os:1", true)] {
        let shared = Arc::new(shared(|_| None));
        put_pool(&shared);
        let config = Config::new(serde_json::from_value(rendered(url, "q.io")).unwrap());
        shared.stores.configs.apply("rendered-worker-a".to_owned(), item(config));
        let node = json!({"metadata": {"name": "n", "annotations": {
            "machineconfiguration.openshift.io/currentConfig": "rendered-worker-a"}}});
        let node = NodeView::from_node(&serde_json::from_value(node).unwrap());
        shared.stores.nodes.apply("n".to_owned(), item(node));
        shared.report_problem(Topic::OsImage, TroubleOf::Pool("worker".into()), Some("refused".to_owned()));
        let inspector = Inspector { shared: shared.clone(), cache: Cache::default() };
        let outcome = inspector.pass("worker".to_owned()).await;
        assert_eq!(matches!(outcome, Outcome::After(_)), follows, "{url}: {outcome:?}");
        assert_eq!(shared.side_problems.all(), [], "{url}");
    }
}

#[test]
fn an_image_is_looked_into_once_and_stays_the_same_while_nodes_have_it() {
    let known = OsImage { of: "q.io/os:1".to_owned(), image: "d".to_owned(), ..OsImage::default() };
    let away = OsImage { unknown: "away".to_owned(), image: String::new(), ..known.clone() };
    for (about, unseen, url, found, in_use, want) in [
        ("new", false, "q.io/os:1", None, None, Next::Inspect),
        ("known", false, "q.io/os:1", Some(&known), None, Next::Nothing),
        ("the registry was away", false, "q.io/os:1", Some(&away), None, Next::Inspect),
        (
            "nodes have it by digest",
            false,
            "q.io/os:1",
            None,
            Some(Some(known.clone())),
            Next::Same(known.clone()),
        ),
        ("nodes follow the tag", false, "q.io/os:1", None, Some(None), Next::Follow),
        (
            "they follow it, and it was looked into",
            false,
            "q.io/os:1",
            Some(&known),
            Some(None),
            Next::Nothing,
        ),
        (
            "they follow it, and the registry was away",
            false,
            "q.io/os:1",
            Some(&away),
            Some(None),
            Next::Follow,
        ),
        ("they have it as it is", true, "q.io/os:1", None, Some(None), Next::Nothing),
        ("not wanted", true, "q.io/os:1", None, None, Next::Nothing),
        ("a short name", false, "os:1", None, None, Next::Nothing),
        ("none", false, "", None, None, Next::Nothing),
    ] {
        assert_eq!(next(unseen, url, found, in_use), want, "{about}");
    }
}

#[test]
fn what_cannot_be_booted_is_refused_and_who_does_not_answer_is_asked_again() {
    let facts = |by: Option<&str>| ImageFacts {
        image: "q.io/os@sha256:0".to_owned(),
        architectures: vec!["amd64".to_owned()],
        size: 7,
        bootable_by: by.map(str::to_owned),
        ..ImageFacts::default()
    };
    let of = || OsImage { of: "q.io/os:1".to_owned(), ..OsImage::default() };
    let good = judged(of(), Ok(Arc::new(facts(Some("containers.bootc")))));
    assert_eq!((&*good.image, &*good.refused, &*good.unknown), ("q.io/os@sha256:0", "", ""));
    assert_eq!((good.architectures, good.size), (vec!["amd64".to_owned()], 7));
    let bad = judged(of(), Ok(Arc::new(facts(None))));
    assert!(bad.refused.contains("ostree.bootable") && bad.unknown.is_empty(), "{bad:?}");
    let blocked = RegistryError::Blocked { image: "q.io/os:1".to_owned(), scope: "q.io".to_owned() };
    let away = judged(of(), Err(blocked));
    assert!(away.refused.is_empty() && away.unknown.contains("q.io is blocked"), "{away:?}");
}
