//! Tests of `follow`: when a difference is sent, and what becomes of kinds that could not be read when the dashboard began.

use super::*;
use crate::fake_cluster::{object, status};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_single_change_is_shown_at_once_and_many_are_gathered() {
    let begun = Instant::now();
    let ms = Duration::from_millis;
    // The change after the last update's beginning, how long that took, and when the next one begins.
    for (change, took, next) in
        [(3000, 5, 3010), (95, 5, 105), (20, 5, 50), (20, 80, 120), (0, 0, 50), (170, 80, 180)]
    {
        let end = gathered(begun + ms(change), begun, ms(took));
        assert_eq!(end, begun + ms(next), "{change} {took}");
    }
}

/// What is wrong with a kind at the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Forbidden,
    Slow,
    NotInstalled,
}

/// A cluster whose lists of one kind answer in another way until all is well.
fn cluster(kind: &'static str, first: First, well: &Arc<AtomicBool>) -> Client {
    let well = Arc::clone(well);
    let answer = move |request: http::Request<kube::client::Body>| {
        let path = request.uri().path().to_owned();
        let watches = request.uri().query().is_some_and(|q| q.contains("watch="));
        let first = (path.ends_with(kind) && !well.load(Ordering::Relaxed)).then_some(first);
        async move {
            // Nothing changes in it.
            if watches {
                std::future::pending::<()>().await;
            }
            let empty = || json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []});
            if first == Some(First::Slow) {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
            let (code, value) = match first {
                Some(First::Forbidden) => (403, status(403, "somebody may not read this")),
                Some(First::NotInstalled) => (404, status(404, "nothing")),
                _ if path.ends_with("/osimagestreams/cluster") => (
                    200,
                    json!({"apiVersion": "v1", "kind": "OSImageStream", "metadata": {"name": "cluster"}}),
                ),
                _ if path.ends_with("/osimagestreams") || path.ends_with("/featuregates") => (200, empty()),
                _ => object(&path, false).map_or_else(|| (404, status(404, "nothing")), |v| (200, v)),
            };
            let body = kube::client::Body::from(value.to_string().into_bytes());
            Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
        }
    };
    Client::new(tower::service_fn(answer), "default")
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_read_at_the_beginning_is_asked_for_again() {
    for (kind, first, says) in [
        ("/rolloutpolicies", First::Forbidden, "RolloutPolicies cannot be read"),
        ("/osimagestreams", First::Slow, "has not listed OSImageStreams"),
        ("/rolloutpolicies", First::NotInstalled, ""),
    ] {
        let well = Arc::default();
        let client = cluster(kind, first, &well);
        let (feed, timeline, events) =
            (Arc::new(Feed::new("c")), Arc::default(), Arc::<NodeEvents>::default());
        let stop = CancellationToken::new();
        let live = tokio::spawn(run(client, Arc::clone(&feed), timeline, events, stop.clone()));
        let after = async |time: Duration| {
            tokio::time::sleep(time).await;
            let fleet = feed.fleet();
            assert_eq!(fleet.trouble, None, "{first:?}");
            let unread: String = fleet.unread.iter().map(|unread| unread.words.as_str()).collect();
            (unread, fleet.pools["worker"].policy.is_some())
        };
        let (unread, known) = after(Duration::from_secs(60 * 60)).await;
        assert!(unread.contains(says) && unread.is_empty() == says.is_empty(), "{first:?}: {unread}");
        assert_eq!(known, kind != "/rolloutpolicies", "{first:?}");
        well.store(true, Ordering::Relaxed);
        let (unread, known) = after(Duration::from_secs(11 * 60)).await;
        assert_eq!((unread.as_str(), known), ("", true), "{first:?}");
        stop.cancel();
        live.await.unwrap();
    }
}
