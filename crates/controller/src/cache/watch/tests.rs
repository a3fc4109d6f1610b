//! Tests of `watch`.

use super::*;
use api::k8s::{Node, Pod};
use serde_json::json;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

type Bytes = <kube::client::Body as http_body::Body>::Data;

/// An API server without objects of any kind. It refuses the first watch, as one does that has just begun, accepts the next ones
/// and ends each with an error, and lets those after them last.
fn that_begins(cut: usize) -> Client {
    const ERROR: &str =
        "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":500}}\n";
    let watches = Arc::new(AtomicUsize::new(0));
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "TooManyRequests", "code": 429});
        let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []});
        let (code, text) = match (is_watch, is_watch.then(|| watches.fetch_add(1, Ordering::SeqCst))) {
            (false, _) => (200, Some(list.to_string())),
            (true, Some(0)) => (429, Some(status.to_string())),
            (true, Some(n)) if n <= cut => (200, Some(ERROR.to_owned())),
            (true, _) => (200, None),
        };
        async move {
            // A watch without events lasts.
            let frames = match text {
                None => futures::stream::pending().boxed(),
                Some(text) => {
                    futures::stream::iter([Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text)))])
                        .boxed()
                }
            };
            let body = http_body_util::StreamBody::new(frames);
            Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(serve, "default")
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_accepted_again_works_once_it_lasts_though_nothing_changes() {
    for cut in [0, 30] {
        let (store, stop) = (Arc::new(Store::<Node>::default()), CancellationToken::new());
        let (followed, token) = (store.clone(), stop.clone());
        let api = WatchedApi::new(&that_begins(cut), Api::<Node>::all);
        let task = tokio::spawn(async move {
            let which = watcher::Config::default();
            let (kind, presence) = ("Node".to_owned(), Presence::Required);
            follow(api, which, kind, presence, &followed, Ok, Box::new(|_| ()), token).await;
        });
        store.synced().await;
        let (mut failed, mut lasted) = (false, false);
        for _ in 0..200_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            failed |= store.trouble().is_some();
            lasted |= store.trouble_for(Duration::from_secs(20)).is_some();
        }
        assert!(failed, "the first watch is refused");
        assert_eq!(lasted, cut > 0, "a watch that is cut off at once does not work");
        assert_eq!(store.trouble(), None);
        stop.cancel();
        task.await.unwrap();
    }
}

/// An API server that has just started refuses what is asked of it until it has read the roles.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_empty_and_one_that_may_not_be_read_is_unknown() {
    for (code, known) in [(404, true), (403, false)] {
        let begin = Instant::now();
        let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
            async move {
                if is_watch {
                    return std::future::pending().await;
                }
                let (code, body) = match begin.elapsed() < Duration::from_secs(10) {
                    true => (
                        code,
                        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                        "message": "User \"u\" cannot list resource \"nodes\" in API group \"\""}),
                    ),
                    false => (
                        200,
                        json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
                        "items": [{"metadata": {"name": "n", "uid": "n", "resourceVersion": "4"}}]}),
                    ),
                };
                let body = kube::client::Body::from(body.to_string().into_bytes());
                Ok::<_, Infallible>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        let store = Arc::new(Store::<Node>::default());
        let (api, followed) =
            (WatchedApi::new(&Client::new(serve, "default"), Api::<Node>::all), store.clone());
        let task = tokio::spawn(async move {
            let (which, kind) = (watcher::Config::default(), "Node".to_owned());
            let stop = CancellationToken::new();
            follow(api, which, kind, Presence::Optional, &followed, Ok, Box::new(|_| ()), stop).await;
        });
        tokio::time::sleep(Duration::from_secs(5)).await;
        let why = store.trouble().unwrap_or_default();
        assert_eq!(
            (store.is_synced(), store.is_known(), why.contains("cannot list")),
            (known, known, !known),
            "{code}"
        );
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(store.is_known() && store.get("n").is_some(), "{code}: it is read as soon as it can be");
        task.abort();
    }
}

/// Lists that fail are asked for with waits that grow, though the watcher says before each that a list begins.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_refuses_lists_is_asked_less_and_less() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let serve = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        count.fetch_add(1, Ordering::SeqCst);
        async {
            Ok::<_, Infallible>(
                http::Response::builder().status(500).body(kube::client::Body::empty()).unwrap(),
            )
        }
    });
    let api = WatchedApi::new(&Client::new(serve, "default"), Api::<Node>::all);
    let (store, stop) = (Store::<Node>::default(), CancellationToken::new());
    let (which, kind) = (watcher::Config::default(), "Node".to_owned());
    let follows = follow(api, which, kind, Presence::Required, &store, Ok, Box::new(|_| ()), stop);
    assert!(tokio::time::timeout(Duration::from_secs(60), follows).await.is_err());
    let asked = asked.load(Ordering::SeqCst);
    assert!((10..=60).contains(&asked), "{asked} lists in a minute");
}

/// A fake API server whose lists of nodes take three seconds, and which counts them. Watches last.
fn slow_lists() -> (Client, Arc<AtomicUsize>) {
    let lists = Arc::new(AtomicUsize::new(0));
    let count = lists.clone();
    let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let count = count.clone();
        async move {
            if is_watch {
                return std::future::pending().await;
            }
            count.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(3)).await;
            let list = json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"},
                "items": [{"metadata": {"name": "n", "uid": "n", "resourceVersion": "4"}}]});
            let body = kube::client::Body::from(list.to_string().into_bytes());
            Ok::<_, Infallible>(http::Response::builder().status(200).body(body).unwrap())
        }
    });
    (Client::new(serve, "default"), lists)
}

#[tokio::test(start_paused = true)]
async fn a_list_under_way_is_not_dropped_when_another_one_is_asked_for() {
    let (client, lists) = slow_lists();
    let store = Arc::new(Store::<Node>::default());
    let api = WatchedApi::new(&client, Api::<Node>::all);
    let followed = store.clone();
    let task = tokio::spawn(async move {
        let (which, kind) = (watcher::Config::default(), "Node".to_owned());
        let stop = CancellationToken::new();
        follow(api, which, kind, Presence::Required, &followed, Ok, Box::new(|_| ()), stop).await;
    });
    // Asked for again each two seconds, as at the start of a term.
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        store.list_again();
    }
    assert!(store.is_synced() && store.get("n").is_some());
    // Each request is carried out after the list that was under way: after 3, 6, 9, … s.
    let asked = lists.load(Ordering::SeqCst);
    assert!((6..=8).contains(&asked), "{asked} lists in 20 s");
    tokio::time::sleep(Duration::from_secs(10)).await;
    // A doubt does not wait: that list began before it.
    store.list_again();
    tokio::time::sleep(Duration::from_secs(2)).await;
    store.doubt();
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!store.is_synced(), "a list that began before the doubt");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(store.is_synced());
    task.abort();
}

#[test]
fn pods_of_one_name_in_two_namespaces_are_two() {
    let pod = |namespace: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "web-0", "namespace": namespace}})).unwrap()
    };
    assert_ne!(key_of(&pod("a")), key_of(&pod("b")));
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(key_of(&node), "n");
}
