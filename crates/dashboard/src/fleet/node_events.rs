//! Reads the events about nodes, for what they tell of updates: once when the dashboard begins, and again whenever it could not
//! follow the cluster for a while. In between MachineConfigNodes show every step.
//!
//! Events are read in pages, and of each no more is kept than is needed. A person without the right to list them sees the rest.
//!
//! What it is not: what events mean (see `timeline`).

use crate::fleet::timeline::{EventHistory, NodeEvent};
use api::k8s::Event;
use client::{Backoff, CallError, Pages, call};
use kube::Client;
use kube::api::{Api, ListParams};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many are read at most. A node's update has about ten.
const MOST: usize = 50_000;
/// When an API server that did not give them is asked again.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(5), last: Duration::from_secs(300) };

/// What the page says to people who may not list events.
pub(crate) const NOT_YOURS: &str = "You may not list events: the times of updates that were given up or replaced before \
    the dashboard began are missing";

/// What was read last.
#[derive(Debug, Default)]
pub(crate) struct NodeEvents {
    history: Mutex<Arc<EventHistory>>,
    /// They have to be read again.
    again: Notify,
}

impl NodeEvents {
    pub(crate) fn history(&self) -> Arc<EventHistory> {
        Arc::clone(&self.history.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn put(&self, history: EventHistory) {
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(history);
    }

    /// Something may have been missed.
    pub(crate) fn read_again(&self) {
        self.again.notify_one();
    }
}

/// Runs until `stop`.
pub(crate) async fn run(client: Client, events: Arc<NodeEvents>, stop: CancellationToken) {
    let mut misses = 0;
    loop {
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = read(&client) => read,
        };
        let pause = match read {
            Ok(told) => {
                events.put(told);
                misses = 0;
                None
            }
            Err(error) => {
                let why = match error.is_forbidden() {
                    true => NOT_YOURS.to_owned(),
                    false => insight::redacted_lines(&format!(
                        "Events cannot be read: the times of updates that were given up or replaced before the dashboard \
                         began are missing ({})",
                        client::chain(&error)
                    )),
                };
                events.put(EventHistory::default().incomplete(why));
                let pause = AGAIN.delay(misses);
                misses += 1;
                Some(pause)
            }
        };
        let later = async {
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = events.again.notified() => {}
            () = later => {}
        }
    }
}

async fn read(client: &Client) -> Result<EventHistory, CallError> {
    let api: Api<Event> = Api::all(client.clone());
    let mut pages = Pages::of(ListParams::default().fields("involvedObject.kind=Node"));
    let (mut words, mut count) = (vec![], 0);
    while let Some(params) = pages.next() {
        if count >= MOST {
            let why = format!("There are more than {MOST} events about nodes: the others were not read");
            return Ok(EventHistory::of(words).incomplete(why));
        }
        let page = pages.take(call(|| "list the events about nodes".to_owned(), api.list(&params)).await)?;
        count += page.len();
        words.extend(page.iter().filter_map(NodeEvent::of));
    }
    Ok(EventHistory::of(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_cluster::status;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// An API server whose first list has two pages, and that refuses the second list.
    fn server(asked: Arc<AtomicUsize>) -> Client {
        let event = |n: usize| {
            json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{n}"), "namespace": "x"},
            "involvedObject": {"kind": "Node", "name": format!("n{n}")}, "related": {"kind": "MachineConfig", "name": "new"},
            "reason": "NodeDone", "firstTimestamp": "2026-01-01T00:00:00Z"})
        };
        let answer = move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let number = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                assert!(query.contains("fieldSelector=involvedObject.kind%3DNode"), "{query}");
                assert_eq!(query.contains("continue=more"), number == 1, "{query}");
                let page = |n: usize, next: &str| -> Value {
                    json!({"kind": "EventList", "apiVersion": "v1", "metadata": {"continue": next}, "items": [event(n)]})
                };
                let (code, value) = match number {
                    0 => (200, page(0, "more")),
                    1 => (200, page(1, "")),
                    _ => (403, status(403, "somebody may not list events")),
                };
                let body = kube::client::Body::from(value.to_string().into_bytes());
                Ok::<_, std::io::Error>(http::Response::builder().status(code).body(body).unwrap())
            }
        };
        Client::new(tower::service_fn(answer), "default")
    }

    #[tokio::test]
    async fn events_are_read_page_by_page_and_again_when_some_may_have_been_missed() {
        let (events, stop, asked) =
            (Arc::new(NodeEvents::default()), CancellationToken::new(), Arc::default());
        let task = tokio::spawn(run(server(Arc::clone(&asked)), Arc::clone(&events), stop.clone()));
        let wait = async |fits: &dyn Fn(&EventHistory) -> bool| {
            let end = tokio::time::Instant::now() + Duration::from_secs(10);
            while !fits(&events.history()) {
                assert!(tokio::time::Instant::now() < end, "{:?}", events.history());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        wait(&|told| told.nodes() == 2).await;
        assert_eq!(events.history().unread, None);
        events.read_again();
        wait(&|told| told.unread.as_deref() == Some(NOT_YOURS)).await;
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        stop.cancel();
        task.await.unwrap();
    }
}
