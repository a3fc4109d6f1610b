//! When the API server accepts a watch. A watch that failed resumes where it was, and the watcher of `kube` reports an event only
//! once an object changes. For a kind that seldom changes, that may be never: without this, nobody could tell that its watch works
//! again.
//!
//! What it is not: the events of a watch, or what its errors mean (see [`crate::watch_status`]).

use crate::Backoff;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a watch that was accepted has to last before it counts as working. What has changed while it failed arrives first, and an
/// API server, or a proxy, may accept each watch and cut it off at once.
const LASTS: Duration = Duration::from_secs(1);

/// Reports each watch that the API server has accepted through one client, once it has lasted.
#[derive(Debug)]
pub struct WatchStarts {
    accepted: watch::Receiver<u64>,
    /// When the watch that was accepted last counts as working.
    works_at: Option<Instant>,
}

impl WatchStarts {
    /// Waits until a watch works that was accepted after the last call of this function or of [`WatchStarts::forget`]. Nothing is lost
    /// if the future is dropped before that.
    pub async fn next(&mut self) {
        loop {
            let again = match self.works_at {
                None => self.accepted.changed().await,
                Some(at) => match tokio::time::timeout_at(at, self.accepted.changed()).await {
                    Ok(again) => again,
                    Err(_) => {
                        self.works_at = None;
                        return;
                    }
                },
            };
            match again {
                Ok(()) => self.works_at = Some(Instant::now() + LASTS),
                // The client is gone: no watch starts any more.
                Err(_) => std::future::pending().await,
            }
        }
    }

    /// Leaves out what was accepted before. Call it when a watch fails: that it was accepted says nothing any more.
    pub fn forget(&mut self) {
        self.accepted.mark_unchanged();
        self.works_at = None;
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
    (Client::new(tower::service_fn(send), namespace), WatchStarts { accepted: starts, works_at: None })
}

/// The events of [`crate::watch`] through a client of its own; `Ok(None)` when the API server has accepted the watch and it lasts.
pub fn watch_with_starts<K>(
    client: &Client,
    api: impl FnOnce(Client) -> Api<K>,
    config: watcher::Config,
    waits: Backoff,
) -> BoxStream<'static, Result<Option<watcher::Event<K>>, watcher::Error>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (client, starts) = with_watch_starts(client.clone());
    let events = crate::watch(api(client), config, waits).boxed();
    stream::unfold((events, starts), |(mut events, mut starts)| async move {
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

/// Whether a message of [`watch_with_starts`] shows that the API server answers.
pub fn is_answered<K>(said: &Result<Option<watcher::Event<K>>, watcher::Error>) -> bool {
    said.as_ref().is_ok_and(|event| event.as_ref().is_none_or(is_answer))
}

/// Whether an event shows that the API server answers. The first event of a list comes before it is asked for.
pub fn is_answer<K>(event: &watcher::Event<K>) -> bool {
    !matches!(event, watcher::Event::Init)
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
    use k8s_openapi::api::core::v1::Node;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn answering() -> Client {
        let serve = tower::service_fn(|request: http::Request<Body>| async move {
            let code: u16 = request.uri().path().trim_start_matches('/').parse().unwrap();
            if code == 0 {
                return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
            }
            Ok(http::Response::builder().status(code).body(Body::empty()).unwrap())
        });
        Client::new(serve, "ours")
    }

    async fn is_reported(starts: &mut WatchStarts) -> bool {
        tokio::time::timeout(LASTS * 2, starts.next()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
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
            let request = http::Request::get(uri).body(Body::empty()).unwrap();
            let _ = client.send(request).await;
            assert_eq!(is_reported(&mut starts).await, reported, "{uri}");
            assert!(!is_reported(&mut starts).await, "{uri}: twice");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_accepted_before_a_failure_is_forgotten_and_what_lasts_is_not() {
        let (client, mut starts) = with_watch_starts(answering());
        let request = || http::Request::get("/200?watch=true").body(Body::empty()).unwrap();
        client.send(request()).await.unwrap();
        starts.forget();
        assert!(!is_reported(&mut starts).await);
        client.send(request()).await.unwrap();
        // Whoever waits for something else meanwhile loses nothing.
        assert!(tokio::time::timeout(LASTS / 2, starts.next()).await.is_err(), "it has not lasted");
        assert!(is_reported(&mut starts).await);
        client.send(request()).await.unwrap();
        assert!(tokio::time::timeout(LASTS / 2, starts.next()).await.is_err());
        starts.forget();
        assert!(!is_reported(&mut starts).await);
        drop(client);
        assert!(!is_reported(&mut starts).await, "nothing starts any more");
    }

    /// An API server that accepts three watches and ends each with an error, and lets the next one last.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_accepted_and_cut_off_does_not_work_until_one_lasts() {
        const LIST: &str =
            r#"{"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "5"}, "items": []}"#;
        const ERROR: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"code\":500,\"message\":\"no\"}}\n";
        let watches = Arc::new(AtomicUsize::new(0));
        let serve = tower::service_fn(move |request: http::Request<Body>| {
            let is_watch = is_watch(request.uri().query().unwrap_or_default());
            let cut = is_watch && watches.fetch_add(1, Ordering::SeqCst) < 3;
            async move {
                let lasts = is_watch && !cut;
                let text = if is_watch { ERROR } else { LIST };
                let frames = match lasts {
                    true => stream::pending().boxed(),
                    false => stream::iter([Ok::<_, Infallible>(http_body::Frame::data(text.into()))]).boxed(),
                };
                type Data = <Body as http_body::Body>::Data;
                let frames: BoxStream<'static, Result<http_body::Frame<Data>, Infallible>> = frames;
                Ok::<_, Infallible>(http::Response::new(http_body_util::StreamBody::new(frames)))
            }
        });
        // Longer than a watch has to last: the next one does not begin before that.
        let waits = Backoff { first: LASTS * 4, last: LASTS * 4 };
        let (client, config) = (Client::new(serve, "ours"), watcher::Config::default());
        let events = watch_with_starts(&client, Api::<Node>::all, config, waits);
        let said = events.map(|event| match event {
            Ok(None) => "works",
            Ok(Some(event)) if is_answer(&event) => "listed",
            Ok(Some(_)) => "lists",
            Err(_) => "failed",
        });
        let said: Vec<_> = said.take(6).collect().await;
        assert_eq!(said, ["lists", "listed", "failed", "failed", "failed", "works"]);
    }
}
