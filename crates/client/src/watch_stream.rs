//! The watch of a kind that is begun again after each failure, with waits that grow.
//!
//! What it is not: a cache, the meaning of an error (see [`crate::watch_status`]), or when a watch works again (see
//! [`crate::watch_with_starts`]).

use crate::Backoff;
use futures::Stream;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Watches these objects for ever. After a failure the stream has the error, and goes on after the next one of these waits; the last
/// one bounds how late a change is seen after an outage.
///
/// The waits are a [`crate::Series`]. The back-off of `kube` begins again with every event, and the watcher has an event before each
/// list that it asks for: an API server that refuses lists would be asked again and again without a wait that grows.
pub fn watch<K>(
    api: Api<K>,
    config: watcher::Config,
    waits: Backoff,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watcher::watcher(api, config).backoff(waits.series())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt as _;
    use k8s_openapi::api::core::v1::Node;
    use kube::Client;
    use kube::client::Body;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_refuses_lists_is_asked_less_and_less() {
        let waits = Backoff { first: Duration::from_millis(100), last: Duration::from_secs(3) };
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let serve = tower::service_fn(move |_: http::Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(http::Response::builder().status(500).body(Body::empty()).unwrap()) }
        });
        let api: Api<Node> = Api::all(Client::new(serve, "default"));
        let (mut lists, mut failures) = (0, 0);
        let follows = watch(api, watcher::Config::default(), waits).for_each(|event| {
            match event {
                Ok(watcher::Event::Init) => lists += 1,
                Ok(_) => {}
                Err(_) => failures += 1,
            }
            std::future::ready(())
        });
        assert!(tokio::time::timeout(Duration::from_secs(60), follows).await.is_err(), "it never ends");
        let asked = asked.load(Ordering::SeqCst);
        assert!((20..=50).contains(&asked), "{asked} lists in a minute");
        assert!(lists >= failures && failures >= asked - 1, "{lists} {failures} {asked}");
    }
}
