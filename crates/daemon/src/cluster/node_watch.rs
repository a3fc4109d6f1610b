//! A watch of the agent's own Node: one object, reduced on arrival to the fields that the agent uses.
//!
//! This is not a cache. Only the newest state is kept, so a slow reader skips the states in between. That is intended.

use crate::protocol::NodeFacts;
use api::k8s::Node;
use client::Backoff;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The updates of the agent's own Node. `None`: there is no such Node.
pub type NodeUpdates = watch::Receiver<Option<NodeFacts>>;

/// The first and the longest wait after the watch broke. The library's own back-off goes beyond a minute: an agent
/// would see no change for that long after the API server is back. Half of each wait is random.
const WAITS: Backoff = Backoff { first: Duration::from_millis(500), last: Duration::from_secs(8) };
/// After a watch has lasted this long, the back-off starts again with the first wait.
const QUIET: Duration = Duration::from_secs(30);

/// How long to wait before the watch is started again.
#[derive(Debug, Default)]
struct Reconnect {
    tries: u32,
    last: Option<Instant>,
}

impl Iterator for Reconnect {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.last.is_some_and(|t| t.elapsed() > QUIET) {
            self.tries = 0;
        }
        self.last = Some(Instant::now());
        let wait = WAITS.delay(self.tries);
        self.tries = self.tries.saturating_add(1);
        Some(wait)
    }
}

/// A watch of one object that starts with a new list whenever it breaks. The library resumes a broken watch at the
/// version where it broke. If etcd was restored from a backup, the API server would then send nothing until it has
/// passed that version again.
pub(crate) fn watch_anew<K>(
    api: Api<K>,
    config: watcher::Config,
) -> impl Stream<Item = watcher::Result<watcher::Event<K>>>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let begin = move || -> BoxStream<'static, _> { watcher(api.clone(), config.clone()).boxed() };
    let first = (begin(), None, Reconnect::default());
    stream::unfold((first, begin), |((mut watch, broken, mut reconnect), begin)| async move {
        if let Some(wait) = broken {
            tokio::time::sleep(wait).await;
            watch = begin();
        }
        let event = watch.next().await?;
        let broken = if event.is_err() { reconnect.next() } else { None };
        Some((event, ((watch, broken, reconnect), begin)))
    })
}

/// Watches one Node until the guard is dropped.
pub(crate) fn watch_own_node(client: Client, name: &str) -> (NodeUpdates, DropGuard) {
    let (sender, updates) = watch::channel(None);
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let name = name.to_owned();
    tokio::spawn(async move { stop.run_until_cancelled(follow(client, name, sender)).await });
    (updates, guard)
}

async fn follow(client: Client, name: String, sender: watch::Sender<Option<NodeFacts>>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watch_anew(Api::<Node>::all(client), config));
    let mut seen_in_list = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => seen_in_list = false,
            Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => {
                seen_in_list = true;
                publish(&sender, Some(NodeFacts::of(&node)));
            }
            Ok(watcher::Event::InitDone) if !seen_in_list => publish(&sender, None),
            Ok(watcher::Event::InitDone) => {}
            Ok(watcher::Event::Delete(_)) => publish(&sender, None),
            Err(error) if is_forbidden(&error) => tracing::warn!(
                node = %name, error = client::chain(&error),
                "this agent may not watch the Node {name}: a node's own credentials give access to the Node \
                 of its own name only; set --node-name (or NODE_NAME) to the name that the kubelet registered"
            ),
            Err(error) => {
                tracing::warn!(node = %name, error = client::chain(&error), "watching the Node; trying again");
            }
        }
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let code = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code,
        _ => 0,
    };
    code == 403
}

/// Publishes a Node if it differs. Heartbeats change none of the fields that are used, so they wake nobody up.
fn publish(sender: &watch::Sender<Option<NodeFacts>>, new: Option<NodeFacts>) {
    sender.send_if_modified(|old| {
        let same = match (old.as_ref(), new.as_ref()) {
            (Some(o), Some(n)) => {
                NodeFacts { resource_version: n.resource_version.clone(), heard: n.heard, ..o.clone() } == *n
            }
            (None, None) => true,
            _ => false,
        };
        *old = new;
        !same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_watch_is_taken_up_within_seconds_however_long_it_was_broken() {
        let waits: Vec<Duration> = Reconnect::default().take(40).collect();
        assert!(waits.iter().all(|w| *w <= WAITS.last), "{waits:?}");
        assert!(
            waits.iter().take(1).all(|w| *w <= WAITS.first)
                && waits.iter().skip(6).all(|w| *w >= WAITS.last / 2)
        );
    }
}
