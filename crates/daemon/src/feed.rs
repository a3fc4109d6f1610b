//! The own Node, as it changes: one watch of one object, trimmed on arrival to what counts.
//!
//! What it is not: a cache. Only the newest state is kept; whoever reads late misses the ones between, on purpose.

use crate::protocol::NodeFacts;
use api::k8s::Node;
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Where the agent learns of its Node. `None`: there is no such Node.
pub type Feed = watch::Receiver<Option<NodeFacts>>;

/// Watches one Node until the guard is dropped.
pub(crate) fn watch_own(client: Client, name: &str) -> (Feed, DropGuard) {
    let (sender, feed) = watch::channel(None);
    let stop = CancellationToken::new();
    let guard = stop.clone().drop_guard();
    let name = name.to_owned();
    tokio::spawn(async move { stop.run_until_cancelled(pump(client, name, sender)).await });
    (feed, guard)
}

async fn pump(client: Client, name: String, sender: watch::Sender<Option<NodeFacts>>) {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(Api::<Node>::all(client), config).default_backoff());
    let mut seen_in_list = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Init) => seen_in_list = false,
            Ok(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => {
                seen_in_list = true;
                put(&sender, Some(NodeFacts::of(&node)));
            }
            Ok(watcher::Event::InitDone) if !seen_in_list => put(&sender, None),
            Ok(watcher::Event::InitDone) => {}
            Ok(watcher::Event::Delete(_)) => put(&sender, None),
            Err(error) => tracing::warn!(node = %name, %error, "watching the Node; trying again"),
        }
    }
}

/// Heartbeats change nothing that counts: they wake nobody up.
fn put(sender: &watch::Sender<Option<NodeFacts>>, new: Option<NodeFacts>) {
    sender.send_if_modified(|old| {
        let same = match (old.as_ref(), new.as_ref()) {
            (Some(o), Some(n)) => {
                NodeFacts { resource_version: n.resource_version.clone(), ..o.clone() } == *n
            }
            (None, None) => true,
            _ => false,
        };
        *old = new;
        !same
    });
}
