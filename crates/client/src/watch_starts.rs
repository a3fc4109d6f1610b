//! When the API server accepts a watch. A watch that failed resumes where it was, and the watcher of `kube` reports an event only
//! once an object changes. For a kind that seldom changes, that may be never: without this, nobody could tell that its watch works
//! again.
//!
//! What it is not: the events of a watch, or what its errors mean (see [`crate::watch_status`]).

use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use kube::runtime::watcher;
use kube::{Api, Client};
use tokio::sync::watch;

/// Reports each watch that the API server has accepted through one client.
#[derive(Debug)]
pub struct WatchStarts(watch::Receiver<u64>);

impl WatchStarts {
    /// Waits for a watch that was accepted after the last call of this function or of [`WatchStarts::forget`].
    pub async fn next(&mut self) {
        // The client is gone: no watch starts any more.
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Leaves out what was accepted before. Call it when a watch fails: that it was accepted says nothing any more.
    pub fn forget(&mut self) {
        self.0.mark_unchanged();
    }
}

/// The same client, and the watches that the API server accepts through it. One client for each watch: it is not told which
/// of several was accepted.
#[must_use]
pub fn with_watch_starts(client: Client) -> (Client, WatchStarts) {
    let (accepted, starts) = watch::channel(0);
    let namespace = client.default_namespace().to_owned();
    let send = move |request: http::Request<kube::client::Body>| {
        let (client, accepted) = (client.clone(), accepted.clone());
        async move {
            let is_watch = is_watch(request.uri().query().unwrap_or_default());
            let answer = client.send(request).await;
            if is_watch && answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                accepted.send_modify(|count: &mut u64| *count = count.wrapping_add(1));
            }
            answer
        }
    };
    (Client::new(tower::service_fn(send), namespace), WatchStarts(starts))
}

/// What `watch` makes of the API `api`, which gets a client of its own; `Ok(None)` each time the API server accepts the watch.
pub fn watch_with_starts<K, S, T>(
    client: &Client,
    api: impl FnOnce(Client) -> Api<K>,
    watch: impl FnOnce(Api<K>) -> S,
) -> BoxStream<'static, Result<Option<T>, watcher::Error>>
where
    S: Stream<Item = Result<T, watcher::Error>> + Send + 'static,
    T: Send + 'static,
{
    let (client, starts) = with_watch_starts(client.clone());
    stream::unfold((watch(api(client)).boxed(), starts), |(mut events, mut starts)| async move {
        let said = tokio::select! {
            biased;
            () = starts.next() => Ok(None),
            event = events.next() => event?.map(Some),
        };
        if said.is_err() {
            starts.forget();
        }
        Some((said, (events, starts)))
    })
    .boxed()
}

/// Whether a request with this query is a watch.
///
/// Source: <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>
fn is_watch(query: &str) -> bool {
    query.split('&').any(|part| ["watch=true", "watch=1"].contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::WatchStreamExt as _;
    use std::time::Duration;

    fn answering() -> Client {
        let serve = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let code: u16 = request.uri().path().trim_start_matches('/').parse().unwrap();
            if code == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            }
            Ok(http::Response::builder().status(code).body(kube::client::Body::empty()).unwrap())
        });
        Client::new(serve, "ours")
    }

    #[tokio::test]
    async fn only_a_watch_that_is_accepted_is_reported_and_only_once() {
        let (client, mut starts) = with_watch_starts(answering());
        assert_eq!(client.default_namespace(), "ours");
        for (uri, reported) in [
            ("/200?watch=true&resourceVersion=7", true),
            ("/200?resourceVersion=7&watch=1", true),
            ("/200?limit=1", false),
            ("/200?labelSelector=watch", false),
            ("/429?watch=true", false),
            ("/410?watch=true", false),
            ("/0?watch=true", false),
        ] {
            let request = http::Request::get(uri).body(kube::client::Body::empty()).unwrap();
            let _ = client.send(request).await;
            assert_eq!(starts.next().now_or_never().is_some(), reported, "{uri}");
            assert!(starts.next().now_or_never().is_none(), "{uri}: twice");
        }
    }

    /// An API server that refuses the first watch, and cuts off each that it accepts.
    #[tokio::test(start_paused = true)]
    async fn a_watch_says_when_it_is_accepted_again_and_not_that_it_was_before_it_failed() {
        let refused = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let serve = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let is_watch = is_watch(request.uri().query().unwrap_or_default());
            let refuses = is_watch && !refused.swap(is_watch, std::sync::atomic::Ordering::SeqCst);
            let (code, text) = match (is_watch, refuses) {
                (true, true) => (429, r#"{"kind": "Status", "apiVersion": "v1", "code": 429}"#),
                (true, false) => (200, "{"),
                (false, _) => (
                    200,
                    r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []}"#,
                ),
            };
            let body = kube::client::Body::from(text.as_bytes().to_vec());
            async move {
                Ok::<_, std::convert::Infallible>(http::Response::builder().status(code).body(body).unwrap())
            }
        });
        let waits = crate::Backoff { first: Duration::from_secs(1), last: Duration::from_secs(1) };
        let events = watch_with_starts(&Client::new(serve, "ours"), Api::<Node>::all, |api| {
            watcher::watcher(api, watcher::Config::default()).backoff(waits.series())
        });
        let said = events.map(|event| match event {
            Ok(None) => "accepted",
            Ok(Some(watcher::Event::Init)) => "lists",
            Ok(Some(_)) => "listed",
            Err(_) => "failed",
        });
        let said: Vec<_> = said.take(6).collect().await;
        assert_eq!(said[..4], ["lists", "listed", "failed", "accepted"]);
        assert!(said[4..].iter().all(|said| ["failed", "accepted"].contains(said)), "{said:?}");
    }

    #[tokio::test]
    async fn what_was_accepted_before_a_failure_is_forgotten() {
        let (client, mut starts) = with_watch_starts(answering());
        let request = || http::Request::get("/200?watch=true").body(kube::client::Body::empty()).unwrap();
        client.send(request()).await.unwrap();
        starts.forget();
        assert!(starts.next().now_or_never().is_none());
        client.send(request()).await.unwrap();
        assert!(starts.next().now_or_never().is_some());
        drop(client);
        assert!(starts.next().now_or_never().is_none(), "nothing starts any more");
    }
}
